"""What runs on Spark beside the epochs ends when it is told to, and the epochs' own jobs go on."""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from time import monotonic, sleep

import pyarrow as pa
import pytest

from headrace.distribute.process import BackgroundThread, Stop
from headrace.distribute.spark.application import SparkSession, interrupt_on_stop

SECONDS = 120.0
pytestmark = [pytest.mark.spark, pytest.mark.slow]


def without_end(marker: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A task that says when it has begun, and goes on until it is killed, or for a good while."""
    Path(marker).touch()
    deadline = monotonic() + SECONDS
    while monotonic() < deadline:
        sleep(0.01)
    yield from batches


def test_a_job_beside_the_epochs_ends_with_the_work_that_began_it(spark: SparkSession, tmp_path: Path) -> None:
    marker = tmp_path / "begun"
    thread = BackgroundThread[pa.Table]("job")

    def work(stop: Stop) -> pa.Table:
        with interrupt_on_stop(spark, stop):
            return spark.range(0, 1, 1, 1).mapInArrow(partial(without_end, str(marker)), "id long").toArrow()

    began = monotonic()
    thread.begin(work)
    while not marker.exists():
        assert monotonic() - began < SECONDS
    thread.close()
    assert monotonic() - began < SECONDS
    assert spark.range(3).count() == 3
