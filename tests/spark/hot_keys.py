"""Epochs in which one key has half of all rows, on a Spark of its own: ``python -m tests.spark.hot_keys SMALL LARGE``.

Each case runs in the root SMALL first, so that workers have all that they need whatever the input; then in LARGE.
Prints for each case what became of LARGE, and by how many bytes the workers of Python grew at most, as JSON.
"""

import json
import sys
from pathlib import Path

import psutil

from headrace.distribute.spark.application import SparkSession
from headrace.distribute.spark.engine import SparkEngine
from headrace.distribute.spark.session import spark_session
from headrace.runs.commits import attempts_of
from headrace.sources.landing import Landing
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store
from tests.kernel.hot_key import CASES, hot_values, most_bytes, pipeline


def main(small: str, large: str) -> None:
    spark = spark_session("hot keys", cores=2, conf={"spark.log.level": "ERROR"})
    report = {}
    for case in CASES:
        values_of(spark, case, small)
        memory_before = {worker.pid: begin(worker) for worker in workers()}
        values = values_of(spark, case, large)
        grown_by_pid = {worker.pid: most_bytes(worker.pid) for worker in workers()}
        if not memory_before.keys() <= grown_by_pid.keys():
            raise RuntimeError("a worker has ended, and what it had with it")
        report[case] = {
            "values": values,
            "bytes": max(most - memory_before.get(pid, 0) for pid, most in grown_by_pid.items()),
        }
    spark.stop()
    print(json.dumps(report))


def values_of(spark: SparkSession, case: str, root: str) -> list[int]:
    own_pipeline, store = pipeline(case), open_store(root)
    return hot_values(
        SparkEngine(
            spark, own_pipeline, store, Landing(own_pipeline, store), attempts_of(Catalog(store, own_pipeline.name))
        )
    )


def workers() -> list[psutil.Process]:
    """The Python processes of this application that run tasks: all that the daemon has forked."""
    children = [each for each in psutil.Process().children(recursive=True) if each.name().startswith("python")]
    return [each for each in children if each.parent() in children]


def begin(worker: psutil.Process) -> int:
    """The bytes that a worker has, from which its most bytes begin again."""
    Path(f"/proc/{worker.pid}/clear_refs").write_text("5")
    return most_bytes(worker.pid)


if __name__ == "__main__":
    main(*sys.argv[1:])
