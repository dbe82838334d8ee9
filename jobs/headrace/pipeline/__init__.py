"""What a user writes: a frozen pipeline, checked when it is built.

Everything a pipeline file needs is importable from here; it imports neither pyspark nor great_expectations.
"""

from headrace.model.accumulation import (
    Accumulation,
    Firing,
    How,
    TimestampCombiner,
    accumulating,
    discarding,
    retracting,
)
from headrace.model.combiners import Aggregate, count, max_of, mean_of, min_of, sum_of
from headrace.model.expr import (
    DataType,
    Expr,
    abs_,
    cast,
    coalesce,
    col,
    concat,
    greatest,
    if_,
    least,
    lit,
    lower,
    upper,
)
from headrace.model.triggers import AfterCount, AfterProcessingTime, AfterWatermark, Default, Repeatedly, Trigger
from headrace.model.watermarks import BoundedOutOfOrderness
from headrace.model.windows import FixedWindows, GlobalWindows, Sessions, SlidingWindows, WindowFn
from headrace.pipeline.expectations import Expectation, expect
from headrace.pipeline.graph import EventTime, Pipeline
from headrace.pipeline.sources import FileFormat, FileSource, OnUnreadable

__all__ = [
    "Accumulation",
    "AfterCount",
    "AfterProcessingTime",
    "AfterWatermark",
    "Aggregate",
    "BoundedOutOfOrderness",
    "DataType",
    "Default",
    "EventTime",
    "Expectation",
    "Expr",
    "FileFormat",
    "FileSource",
    "Firing",
    "FixedWindows",
    "GlobalWindows",
    "How",
    "OnUnreadable",
    "Pipeline",
    "Repeatedly",
    "Sessions",
    "SlidingWindows",
    "TimestampCombiner",
    "Trigger",
    "WindowFn",
    "abs_",
    "accumulating",
    "cast",
    "coalesce",
    "col",
    "concat",
    "count",
    "discarding",
    "expect",
    "greatest",
    "if_",
    "least",
    "lit",
    "lower",
    "max_of",
    "mean_of",
    "min_of",
    "retracting",
    "sum_of",
    "upper",
]
