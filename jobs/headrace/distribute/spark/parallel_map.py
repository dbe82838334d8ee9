"""A function of many values, in tasks of Spark."""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import cloudpickle

from headrace.distribute.spark.application import tasks_of
from headrace.distribute.spark.failures import spark_errors
from headrace.distribute.spark.module_pickling import travels
from headrace.distribute.spark.types import SparkSession
from headrace.pipeline.loading.code_digests import modules_of

V = TypeVar("V")
R = TypeVar("R")

_TASKS_PER_CORE = 4


def map_values(spark: SparkSession, function: Callable[[V], R], values: Sequence[V]) -> list[R]:
    """What ``function`` gives of each of ``values``, in their order. Users' own objects among them travel with their
    modules.
    """
    for value in values:
        for module in modules_of(value):
            travels(module)
    pickled = [cloudpickle.dumps(value) for value in values]  # type: ignore[no-untyped-call]
    numbers = spark.range(0, len(values), 1, min(len(values), _TASKS_PER_CORE * tasks_of(spark)) or 1)
    with spark_errors():
        rows: Any = numbers.mapInArrow(partial(_run, function, pickled), "number long, result binary").toArrow()
    results = sorted(zip(rows.column("number").to_pylist(), rows.column("result").to_pylist(), strict=True))
    return [pickle.loads(result) for _, result in results]  # noqa: S301 (our own, of this application)


def _run(
    function: Callable[[Any], Any], values: Sequence[bytes], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            result = pickle.dumps(function(pickle.loads(values[number])))  # noqa: S301 (our own, of this application)
            yield pa.RecordBatch.from_pydict({"number": pa.array([number]), "result": pa.array([result], pa.binary())})
