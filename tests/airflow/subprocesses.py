"""Airflow in processes of its own: importing it warns, and it keeps what the environment said at its first import."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]

PIPELINE = '''
"""A pipeline for tests: clicks per minute."""
from datetime import timedelta
from headrace.pipeline import *

{variable} = Pipeline(
    name="{name}",
    source=FileSource(
        path="landing/{name}",
        format=FileFormat.JSON,
        schema={{"user": DataType.STRING, "at": DataType.TIMESTAMP}},
        {source}
    ),
    event_time=EventTime(col("at"), BoundedOutOfOrderness(timedelta(minutes=1))),
    key={{"user": col("user")}},
    where=FixedWindows(timedelta(minutes=1)),
    when=AfterWatermark(early=AfterCount(1), late=AfterCount(1)),
    how=retracting(allowed_lateness=timedelta(hours=1)),
    what={{"clicks": count()}},
    expectations=(expect("column_values_to_be_between", column="clicks", min_value=1, max_value={most}),),
    {options}
)
'''


def write_pipeline(folder: Path, name: str, *, source: str = "", options: str = "", most: int = 100) -> Path:
    """A pipeline file; ``source`` and ``options`` are further arguments of FileSource and Pipeline."""
    file = folder / f"{name}.py"
    file.write_text(PIPELINE.format(variable=name, name=name, source=source, options=options, most=most))
    return file


def python(script: str, home: Path, environment: Mapping[str, str]) -> Any:
    """What ``script`` prints as JSON on its last line, run with an Airflow of its own in ``home``."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "AIRFLOW_HOME": str(home), "AIRFLOW__CORE__LOAD_EXAMPLES": "False", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])
