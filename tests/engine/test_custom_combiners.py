"""Combiners that users write, on Spark: what they see and give, how they travel, what becomes of their errors.

That they equal the reference, merged and withdrawn, is in ``test_combiners``.
"""

import sys
from collections.abc import Iterator
from datetime import UTC, timedelta
from types import ModuleType
from typing import Any

import pytest

from headrace.engine.errors import spark_errors
from headrace.engine.session import interpreting
from headrace.engine.types import SparkSession
from headrace.errors import PipelineError
from headrace.model.time import Instant, instant
from headrace.pipeline import (
    Aggregate,
    BoundedOutOfOrderness,
    DataType,
    EventTime,
    FileFormat,
    FileSource,
    GlobalWindows,
    Never,
    Pipeline,
    col,
    custom_of,
    discarding,
)
from headrace.reference import Epoch
from tests.engine.differential import run_on_spark
from tests.own_combiners import Refusing, Until

pytestmark = pytest.mark.spark


def panes(spark: SparkSession, what: dict[str, Aggregate], *bundles: list[dict[str, Any]]) -> list[Any]:
    """Values of all panes of one key; each bundle is an epoch, and the last one ends the input."""
    schema = {"user": DataType.STRING, "at": DataType.TIMESTAMP, "v": DataType.INT}
    pipeline = Pipeline(
        name="own",
        source=FileSource("none", FileFormat.JSON, schema),
        event_time=EventTime(col("at"), BoundedOutOfOrderness(timedelta(seconds=9))),
        key={"user": col("user")},
        where=GlobalWindows(),
        when=Never(),
        how=discarding(0),
        what=what,
    )
    epochs = [Epoch(Instant(i), rows, is_last=i == len(bundles) - 1) for i, rows in enumerate(bundles)]
    with spark_errors():
        found = run_on_spark(interpreting(spark), pipeline, epochs)
    return [pane.values for emitted, _ in found for pane in emitted]


def row(at: int, value: int | None = None) -> dict[str, Any]:
    return {"user": "ann", "at": Instant(at), "v": value}


@pytest.fixture
def elsewhere() -> Iterator[ModuleType]:
    """A module that tasks cannot import."""
    module = ModuleType("own_combiners_of_nowhere")
    source = """
from dataclasses import dataclass
from headrace.pipeline import DataType
from tests.own_combiners import Until

@dataclass(frozen=True)
class Latest(Until):
    result_type = DataType.TIMESTAMP

    def extract(self, accumulator):
        return accumulator["last"]
"""
    sys.modules[module.__name__] = module
    exec(compile(source, module.__name__, "exec"), module.__dict__)
    yield module
    del sys.modules[module.__name__]


def test_timestamps_are_instants_to_it_and_classes_travel_with_their_module(
    spark: SparkSession, elsewhere: ModuleType
) -> None:
    what = {"until": custom_of(Until(100), col("at")), "latest": custom_of(elsewhere.Latest(1), col("at"))}
    ((until, latest),) = panes(spark, what, [row(7), row(40)], [row(12)])
    assert (until, instant(latest.astimezone(UTC))) == (60, 40)


@pytest.mark.parametrize(("late", "message"), [(False, "could not add values"), (True, "could not give a result")])
def test_what_its_code_raises_is_an_error_that_names_it(spark: SparkSession, late: bool, message: str) -> None:
    with pytest.raises(PipelineError, match=rf"^Refusing\(late={late}\) {message}: ValueError\('bad luck'\)$"):
        panes(spark, {"own": custom_of(Refusing(late), col("v"))}, [row(1, 5)], [row(2, 13)])
