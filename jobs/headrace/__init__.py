"""Headrace: one pipeline, in the terms of the Dataflow Model, as micro-batches, batch, backfill and replay.

``import headrace as hr``: everything that a pipeline's file, its tests and the readers of its results need is here.
Each name is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace import errors, testing
    from headrace.describe.check import check
    from headrace.model.accumulation import How, accumulating, discarding, retracting
    from headrace.model.calendar import CalendarWindows
    from headrace.model.changelog import debezium_envelope, delta_change_type
    from headrace.model.combiners import Aggregate, count
    from headrace.model.custom_combiners import CustomCombiner
    from headrace.model.expressions.data_types import DataType
    from headrace.model.expressions.expr import Expr, col, lit
    from headrace.model.expressions.fields import field
    from headrace.model.expressions.functions import coalesce, concat, greatest, if_else, least
    from headrace.model.expressions.value_types import ListType
    from headrace.model.triggers import Signal, Trigger
    from headrace.model.triggers.composites import (
        AfterAll,
        AfterAny,
        AfterEach,
        AfterWatermark,
        OrFinally,
        Repeatedly,
        on_update,
        on_window_close,
    )
    from headrace.model.triggers.custom import CustomTrigger, Progress, TriggerElement, TriggerMoment
    from headrace.model.triggers.data_driven import AfterPattern, AfterPunctuation, DataDriven
    from headrace.model.triggers.leaves import (
        AfterBytes,
        AfterCount,
        AfterPercentileWatermark,
        AfterProcessingTime,
        AfterSignal,
        AfterSynchronizedProcessingTime,
        Always,
        Default,
        Never,
    )
    from headrace.model.watermarks import Punctuated, SplitStrategy
    from headrace.model.windows import (
        CustomWindows,
        FixedWindows,
        GlobalWindows,
        MergeGroup,
        Sessions,
        ShiftedOutputTime,
        SlidingWindows,
        Window,
        WindowFn,
    )
    from headrace.pipeline.aggregation import Aggregation
    from headrace.pipeline.deduplicate import Deduplicate
    from headrace.pipeline.deployment.airflow_options import airflow
    from headrace.pipeline.deployment.regular_runs import Backfill, Retention
    from headrace.pipeline.deployment.timetables import cron, on_assets, on_files
    from headrace.pipeline.expectations import Expectation, expect
    from headrace.pipeline.following.published import published
    from headrace.pipeline.loops.loop import Loop
    from headrace.pipeline.output import Output
    from headrace.pipeline.pipeline import Pipeline
    from headrace.pipeline.quality.limits import Limits, limit
    from headrace.pipeline.quality.usual import usual_distribution, usual_nulls, usual_volume
    from headrace.pipeline.recipes import count_windows, sliding_count_windows
    from headrace.pipeline.sinks import delta, final_rows, iceberg, kafka_sink, postgres, spark_sink
    from headrace.pipeline.sources import FileSource, Input, SparkFunction, csv, json, parquet
    from headrace.pipeline.systems.avro import avro
    from headrace.pipeline.systems.kafka import kafka
    from headrace.pipeline.systems.spark import spark_source
    from headrace.runs.client.deployment import open  # noqa: A004 (read as hr.open)

__version__ = "0.3.0"

_MODULES = {
    "describe.check": ("check",),
    "model.accumulation": (
        "How",
        "accumulating",
        "discarding",
        "retracting",
    ),
    "model.calendar": ("CalendarWindows",),
    "model.changelog": (
        "debezium_envelope",
        "delta_change_type",
    ),
    "model.combiners": (
        "Aggregate",
        "count",
    ),
    "model.custom_combiners": ("CustomCombiner",),
    "model.expressions.data_types": ("DataType",),
    "model.expressions.expr": (
        "Expr",
        "col",
        "lit",
    ),
    "model.expressions.functions": (
        "coalesce",
        "concat",
        "greatest",
        "if_else",
        "least",
    ),
    "model.expressions.fields": ("field",),
    "model.expressions.value_types": ("ListType",),
    "model.triggers": (
        "Signal",
        "Trigger",
    ),
    "model.triggers.composites": (
        "AfterAll",
        "AfterAny",
        "AfterEach",
        "AfterWatermark",
        "OrFinally",
        "Repeatedly",
        "on_update",
        "on_window_close",
    ),
    "model.triggers.custom": (
        "CustomTrigger",
        "Progress",
        "TriggerElement",
        "TriggerMoment",
    ),
    "model.triggers.data_driven": (
        "AfterPattern",
        "AfterPunctuation",
        "DataDriven",
    ),
    "model.triggers.leaves": (
        "AfterBytes",
        "AfterCount",
        "AfterPercentileWatermark",
        "AfterProcessingTime",
        "AfterSignal",
        "AfterSynchronizedProcessingTime",
        "Always",
        "Default",
        "Never",
    ),
    "model.watermarks": (
        "Punctuated",
        "SplitStrategy",
    ),
    "model.windows": (
        "CustomWindows",
        "FixedWindows",
        "GlobalWindows",
        "MergeGroup",
        "Sessions",
        "ShiftedOutputTime",
        "SlidingWindows",
        "Window",
        "WindowFn",
    ),
    "pipeline.aggregation": ("Aggregation",),
    "pipeline.deduplicate": ("Deduplicate",),
    "pipeline.deployment.airflow_options": ("airflow",),
    "pipeline.deployment.regular_runs": (
        "Backfill",
        "Retention",
    ),
    "pipeline.deployment.timetables": (
        "cron",
        "on_assets",
        "on_files",
    ),
    "pipeline.expectations": (
        "Expectation",
        "expect",
    ),
    "pipeline.loops.loop": ("Loop",),
    "pipeline.output": ("Output",),
    "pipeline.pipeline": ("Pipeline",),
    "pipeline.quality.limits": (
        "Limits",
        "limit",
    ),
    "pipeline.quality.usual": (
        "usual_distribution",
        "usual_nulls",
        "usual_volume",
    ),
    "pipeline.following.published": ("published",),
    "pipeline.recipes": (
        "count_windows",
        "sliding_count_windows",
    ),
    "pipeline.sinks": (
        "delta",
        "final_rows",
        "iceberg",
        "kafka_sink",
        "postgres",
        "spark_sink",
    ),
    "pipeline.sources": (
        "FileSource",
        "Input",
        "SparkFunction",
        "csv",
        "json",
        "parquet",
    ),
    "pipeline.systems.avro": ("avro",),
    "pipeline.systems.kafka": ("kafka",),
    "pipeline.systems.spark": ("spark_source",),
    "runs.client.deployment": ("open",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}
_PACKAGES = ("errors", "testing")

__all__ = [
    "AfterAll",
    "AfterAny",
    "AfterBytes",
    "AfterCount",
    "AfterEach",
    "AfterPattern",
    "AfterPercentileWatermark",
    "AfterProcessingTime",
    "AfterPunctuation",
    "AfterSignal",
    "AfterSynchronizedProcessingTime",
    "AfterWatermark",
    "Aggregate",
    "Aggregation",
    "Always",
    "Backfill",
    "CalendarWindows",
    "CustomCombiner",
    "CustomTrigger",
    "CustomWindows",
    "DataDriven",
    "DataType",
    "Deduplicate",
    "Default",
    "Expectation",
    "Expr",
    "FileSource",
    "FixedWindows",
    "GlobalWindows",
    "How",
    "Input",
    "Limits",
    "ListType",
    "Loop",
    "MergeGroup",
    "Never",
    "OrFinally",
    "Output",
    "Pipeline",
    "Progress",
    "Punctuated",
    "Repeatedly",
    "Retention",
    "Sessions",
    "ShiftedOutputTime",
    "Signal",
    "SlidingWindows",
    "SparkFunction",
    "SplitStrategy",
    "Trigger",
    "TriggerElement",
    "TriggerMoment",
    "Window",
    "WindowFn",
    "accumulating",
    "airflow",
    "avro",
    "check",
    "coalesce",
    "col",
    "concat",
    "count",
    "count_windows",
    "cron",
    "csv",
    "debezium_envelope",
    "delta",
    "delta_change_type",
    "discarding",
    "errors",
    "expect",
    "field",
    "final_rows",
    "greatest",
    "iceberg",
    "if_else",
    "json",
    "kafka",
    "kafka_sink",
    "least",
    "limit",
    "lit",
    "on_assets",
    "on_files",
    "on_update",
    "on_window_close",
    "open",
    "parquet",
    "postgres",
    "published",
    "retracting",
    "sliding_count_windows",
    "spark_sink",
    "spark_source",
    "testing",
    "usual_distribution",
    "usual_nulls",
    "usual_volume",
]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"headrace.{name}")
    if name not in _HOME:
        raise _unknown(name)
    value = getattr(import_module(f"headrace.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def _unknown(name: str) -> AttributeError:
    if name.startswith("_"):  # which Python itself asks for
        return AttributeError(f"headrace has no {name!r}")
    from headrace.model.expressions.methods.aggregates import Aggregations
    from headrace.model.suggestions import no_such_name

    is_method = hasattr(Aggregations, name)
    return no_such_name("headrace", name, __all__, f'write hr.col("amount").{name}(...)' if is_method else "")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
