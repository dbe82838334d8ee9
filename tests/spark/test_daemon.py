"""Workers are forked from a daemon that has imported what tasks need."""

import gc
import os
import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PROGRAM = """
import sys
import headrace.distribute.spark.daemon
loaded = set(sys.modules)
import numpy as np
import pyarrow as pa
from headrace.distribute.tasks.levels import part_task, share_task
from headrace.ext.formats import FORMATS
from headrace.ext.sources import SOURCES
from headrace.formats import file_format
pa.array([1], pa.int64()), pa.array(np.zeros(1))
[FORMATS[name] for name in FORMATS.built_in], SOURCES["files"]
print(sorted(set(sys.modules) - loaded), "pandas" in loaded)
"""


def test_the_daemon_has_what_tasks_import() -> None:
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[] False"


def test_workers_share_what_the_daemon_has(spark: SparkSession) -> None:
    """They look for no garbage in it: that would copy all its pages, in every worker."""

    def frozen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"objects": [gc.get_freeze_count()]})

    rows = spark.range(0, 1, 1, 1).mapInArrow(frozen, "objects long").collect()
    assert rows[0]["objects"] > 50_000


def test_pandas_in_a_worker_is_as_ever(spark: SparkSession) -> None:
    """The daemon has none; Arrow learns of what a user's function imports."""

    def unknown(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            import pandas as pd

            series = pa.array(pd.Series([1.5, None]))
            yield pa.RecordBatch.from_pydict({"unknown": [series.null_count]})

    rows = spark.range(0, 1, 1, 1).mapInArrow(unknown, "unknown long").collect()
    assert rows[0]["unknown"] == 1


def test_plain_jobs_and_those_of_sql_have_one_daemon(spark: SparkSession) -> None:
    """The plain job that every session begins with starts it beside the rest."""

    def parents(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"pid": [os.getppid()]})

    plain = spark.sparkContext.parallelize([0], 1).map(lambda _: os.getppid()).collect()
    assert plain == [row["pid"] for row in spark.range(0, 1, 1, 1).mapInArrow(parents, "pid long").collect()]
