"""CPU seconds that many pipelines cost: ``python -m benchmarks.parsing --pipelines 100 --files 1``.

First those of Airflow, which parses them: ``--files`` share the pipelines, as copies of the one in ``dags/`` do. Then
those of finding one pipeline by its name in a new process, the first time and later. With ``--bare`` also as many DAGs
with as many tasks, of an operator of Airflow's own without arguments, forms or texts: no file of DAGs costs less.

Each file is parsed as the DAG processor does it: in a process of its own that is forked from
one that has imported Airflow and its plugins, and that makes of each DAG what the metadata database stores. The plugin
imports once what all files need (``once``). ``import``: what the file itself imports beyond that; ``dags``: loading
pipelines and building DAGs; ``stored``: Airflow's own serialization.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
FILES = ("headrace_pipelines.py", "headrace_broken_files.py")
_NAMED = """
import resource
from headrace.pipeline.loading.registry import resolve_pipeline

def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime

begun = cpu()
resolve_pipeline("many_0007")
print(cpu() - begun)
"""
_PIPELINE = '''
"""A pipeline of many: clicks per minute."""
from datetime import datetime
import headrace as hr

{name} = hr.Pipeline(
    "{name}",
    hr.json("landing/{name}", {{"user": str, "at": datetime, "amount": int}}).event_time("at", bound="1m"),
    key="user",
    what={{"clicks": hr.count(), "amount": hr.col("amount").sum()}},
    where=hr.FixedWindows("1m"),
    when=hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1)),
    how=hr.retracting(allowed_lateness="1h"),
    expectations=[hr.expect("column_values_to_be_between", column="clicks", min_value=1, max_value=100)],
    schedule="*/10 * * * *",
    airflow=hr.airflow(owner="sales", retries=3),
)
'''
_BARE = """
from datetime import datetime
from airflow.providers.standard.operators.{module} import {operator}
from airflow.sdk import DAG, chain

def nothing():
    pass

for number in range({number}):
    for family, tasks, schedule in (("process", 4, "*/10 * * * *"), ("recover", 6, None), ("backfill", 5, None)):
        dag_id = f"{{number}}_{{family}}"
        with DAG(dag_id, schedule=schedule, start_date=datetime(2026, 1, 1), auto_register=False) as dag:
            chain(*({operator}(task_id=f"task_{{task}}"{arguments}) for task in range(tasks)))
        globals()[f"dag_{{dag_id}}"] = dag
"""
"""The DAGs of so many pipelines, as little as Airflow takes."""

_BARE_OPERATORS = {
    "EmptyOperator": ("empty", ""),
    "BashOperator": ("bash", ", bash_command='true'"),
    "PythonOperator": ("python", ", python_callable=nothing"),
}
_PARSE = """
import gc, json, os, resource, sys
import airflow.dag_processing.processor
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.serialization.serialized_objects import DagSerialization
import airflow.sdk
import airflow.providers.standard.operators.bash, airflow.providers.standard.operators.python

def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime

airflow = cpu()
files, sys.argv = sys.argv[1:], ["airflow", "dag-processor"]
import headrace_plugin
once = cpu() - airflow

def parse(file):
    begun = cpu()
    import headrace_airflow.dags
    imported = cpu()
    bag = BundleDagBag(dag_folder=file, bundle_path=os.path.dirname(file), bundle_name="dags-folder")
    built = cpu()
    for dag in bag.dags.values():
        DagSerialization.to_dict(dag)
    stored = cpu()
    return {"import": imported - begun, "dags": built - imported, "stored": stored - built, "number": len(bag.dags),
            "errors": bag.import_errors}

def forked(file):
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            os.write(writing, json.dumps(parse(file)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        text = told.read()
    os.wait()
    return json.loads(text)

gc.freeze()  # as the DAG processor does before it forks
print(json.dumps({"airflow": airflow, "once": once, "files": {file: forked(file) for file in files}}))
"""


def main() -> None:
    """Write the pipelines, parse, print a table, and keep the figures where ``--out`` says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipelines", type=int, default=100)
    parser.add_argument("--files", type=int, default=1)
    parser.add_argument("--bare", choices=_BARE_OPERATORS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    try:
        write_pipelines(folder / "pipelines", given.pipelines)
        write_files(folder / "dags", given.files)
        if given.bare:
            write_bare(folder / "dags", given.bare, given.pipelines)
        measured(folder)  # who parses for the first time has no index of names, which later ones go by
        figures = [measured(folder) for _ in range(given.repeats)]
        first, *later = [float(_python(_NAMED, [], folder)) for _ in range(given.repeats + 1)]
    finally:
        shutil.rmtree(folder)
    print(f"Airflow itself: {statistics.median(one['airflow'] for one in figures):.2f} s of CPU")
    print(f"Headrace's plugin, once: {statistics.median(one['once'] for one in figures):.2f} s of CPU")
    totals = [
        sum(beyond(figure) for file, figure in one["files"].items() if Path(file).name != _BARE_FILE) for one in figures
    ]
    for name in figures[0]["files"]:
        files = [one["files"][name] for one in figures]
        parts = {part: statistics.median(file[part] for file in files) for part in ("import", "dags", "stored")}
        told = ", ".join(f"{part} {seconds:.2f} s" for part, seconds in parts.items())
        print(f"{Path(name).name}: {files[0]['number']} DAGs; {told}")
    spread = f"({min(totals):.2f} to {max(totals):.2f})"
    print(f"all files beyond Airflow's import: {statistics.median(totals):.2f} s {spread}")
    print(f"one pipeline by its name: {first:.3f} s, later {statistics.median(later):.3f} s")
    if given.out:
        given.out.write_text(json.dumps(figures, indent=1))


def write_pipelines(folder: Path, number: int) -> None:
    """So many files of one pipeline each."""
    folder.mkdir()
    for name in (f"many_{each:04}" for each in range(number)):
        (folder / f"{name}.py").write_text(_PIPELINE.format(name=name))


def write_files(folder: Path, number: int) -> None:
    """The files in ``dags/``, and so many that share the pipelines."""
    folder.mkdir()
    for file in FILES:
        shutil.copy(REPOSITORY / "dags" / file, folder)
    for other in range(2, number + 1):
        shutil.copy(folder / FILES[0], folder / f"headrace_pipelines_{other}.py")


_BARE_FILE = "bare.py"


def write_bare(folder: Path, operator: str, number: int) -> None:
    """A file of the DAGs of so many pipelines, with tasks that are of an operator of Airflow's own."""
    module, arguments = _BARE_OPERATORS[operator]
    text = _BARE.format(module=module, operator=operator, arguments=arguments, number=number)
    (folder / _BARE_FILE).write_text(text)


def measured(folder: Path) -> Any:
    """CPU seconds of Airflow's imports, and of each part of parsing each file."""
    figures = _python(_PARSE, [str(file) for file in sorted((folder / "dags").iterdir())], folder)
    for file in figures["files"].values():
        if file["errors"]:
            raise SystemExit(f"the pipelines cannot be parsed: {file['errors']}")
    return figures


def beyond(file: Mapping[str, Any]) -> float:
    """CPU seconds of all parts of parsing a file."""
    return float(file["import"] + file["dags"] + file["stored"])


def _python(script: str, arguments: Sequence[str], folder: Path) -> Any:
    environment = {
        "AIRFLOW_HOME": str(folder / "home"),
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "600",  # of a busy machine, whose CPU seconds are asked all the same
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
        "HEADRACE_CACHE": str(folder / "cache"),
        "HEADRACE_PIPELINES": str(folder / "pipelines"),
    }
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
