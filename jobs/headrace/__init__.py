"""Headrace: one pipeline, in the terms of the Dataflow Model, as micro-batches, batch, backfill and replay.

``import headrace as hr``: everything that a pipeline's file, its tests and the readers of its results need is here.
Each name is imported when it is first used; type checkers read ``__init__.pyi``, which ``make fmt`` writes.
"""

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module

from headrace import built_in, own_parts

__version__ = "0.3.0"

_HOMES = {
    "AfterAll": "headrace.model.triggers.composites",
    "AfterAny": "headrace.model.triggers.composites",
    "AfterBytes": "headrace.model.triggers.elementary",
    "AfterCount": "headrace.model.triggers.elementary",
    "AfterEach": "headrace.model.triggers.composites",
    "AfterPattern": "headrace.model.triggers.data_driven",
    "AfterPercentileWatermark": "headrace.model.triggers.elementary",
    "AfterProcessingTime": "headrace.model.triggers.elementary",
    "AfterPunctuation": "headrace.model.triggers.data_driven",
    "AfterSignal": "headrace.model.triggers.elementary",
    "AfterSynchronizedProcessingTime": "headrace.model.triggers.elementary",
    "AfterWatermark": "headrace.model.triggers.composites",
    "Aggregate": "headrace.model.expressions.expr",
    "Aggregation": "headrace.pipeline.stages",
    "Always": "headrace.model.triggers.elementary",
    "Backfill": "headrace.pipeline.deployment",
    "BatchFunction": "headrace.pipeline.endpoints",
    "CalendarWindows": "headrace.model.windows",
    "CustomCombiner": "headrace.model.combiners",
    "CustomTrigger": "headrace.model.triggers.custom",
    "CustomWindows": "headrace.model.windows",
    "DataDriven": "headrace.model.triggers.data_driven",
    "DataType": "headrace.model.expressions.data_types",
    "Deduplicate": "headrace.model.event_time",
    "Default": "headrace.model.triggers.elementary",
    "Expectation": "headrace.pipeline.quality",
    "Expr": "headrace.model.expressions.expr",
    "FileSource": "headrace.connectors.files.definition",
    "FixedWindows": "headrace.model.windows",
    "GlobalWindows": "headrace.model.windows",
    "How": "headrace.model.accumulation",
    "Input": "headrace.pipeline.endpoints",
    "Limits": "headrace.pipeline.quality",
    "ListType": "headrace.model.expressions.data_types",
    "Loop": "headrace.pipeline.loops",
    "MergeGroup": "headrace.model.windows",
    "Never": "headrace.model.triggers.elementary",
    "OrFinally": "headrace.model.triggers.composites",
    "Output": "headrace.pipeline.output",
    "Pipeline": "headrace.pipeline.pipeline",
    "Progress": "headrace.model.triggers.custom",
    "Punctuated": "headrace.model.event_time",
    "Repeatedly": "headrace.model.triggers.composites",
    "Retention": "headrace.pipeline.deployment",
    "Rows": "headrace.pipeline.output",
    "Sessions": "headrace.model.windows",
    "ShiftedOutputTime": "headrace.model.windows",
    "Signal": "headrace.model.triggers",
    "SlidingWindows": "headrace.model.windows",
    "SparkFunction": "headrace.pipeline.endpoints",
    "SplitStrategy": "headrace.model.event_time",
    "Trigger": "headrace.model.triggers",
    "TriggerElement": "headrace.model.triggers.custom",
    "TriggerMoment": "headrace.model.triggers.custom",
    "Window": "headrace.model.windows",
    "WindowFn": "headrace.model.windows",
    "accumulating": "headrace.model.accumulation",
    "airflow": "headrace.pipeline.deployment",
    "as_of": "headrace.pipeline.joins",
    "avro": "headrace.connectors.kafka.definition",
    "case": "headrace.model.expressions.columns",
    "check": "headrace.describe.check",
    "coalesce": "headrace.model.expressions.columns",
    "col": "headrace.model.expressions.expr",
    "concat": "headrace.model.expressions.columns",
    "count": "headrace.model.expressions.expr",
    "count_windows": "headrace.pipeline.output",
    "cron": "headrace.pipeline.deployment",
    "csv": "headrace.connectors.files.definition",
    "debezium_envelope": "headrace.model.changelog",
    "debezium_versions": "headrace.model.changelog",
    "delta": "headrace.connectors.delta.sink",
    "delta_change_type": "headrace.model.changelog",
    "discarding": "headrace.model.accumulation",
    "distinct": "headrace.pipeline.rows",
    "expect": "headrace.pipeline.quality",
    "field": "headrace.model.expressions.columns",
    "final_rows": "headrace.connectors.final_rows",
    "function": "headrace.pipeline.rows",
    "greatest": "headrace.model.expressions.columns",
    "iceberg": "headrace.connectors.iceberg.sink",
    "if_else": "headrace.model.expressions.columns",
    "json": "headrace.connectors.files.definition",
    "kafka": "headrace.connectors.kafka.definition",
    "kafka_sink": "headrace.connectors.kafka.definition",
    "least": "headrace.model.expressions.columns",
    "limit": "headrace.pipeline.quality",
    "lit": "headrace.model.expressions.expr",
    "lookup": "headrace.pipeline.joins",
    "merge_distinct_sketches": "headrace.kernel.aggregates.sketches",
    "merge_quantile_sketches": "headrace.kernel.aggregates.sketches",
    "newest": "headrace.pipeline.rows",
    "next_event": "headrace.pipeline.joins",
    "on_assets": "headrace.pipeline.deployment",
    "on_files": "headrace.pipeline.deployment",
    "on_update": "headrace.model.triggers.composites",
    "on_window_close": "headrace.model.triggers.composites",
    "open": "headrace.runs.client.handle",
    "parquet": "headrace.connectors.files.definition",
    "postgres": "headrace.connectors.postgres.sink",
    "published": "headrace.connectors.published.definition",
    "query": "headrace.pipeline.rows",
    "retracting": "headrace.model.accumulation",
    "same_window": "headrace.pipeline.joins",
    "sliding_count_windows": "headrace.pipeline.output",
    "spark_sink": "headrace.connectors.spark.definition",
    "spark_source": "headrace.connectors.spark.definition",
    "top": "headrace.pipeline.rows",
    "upserts": "headrace.model.changelog",
    "usual_distribution": "headrace.pipeline.quality",
    "usual_nulls": "headrace.pipeline.quality",
    "usual_volume": "headrace.pipeline.quality",
    "within": "headrace.pipeline.joins",
}
"""Where each public name is defined. This is the only place that has it."""

own_parts.register_parts(built_in.BUILT_IN, built_in.PORTS, built_in.EXTRAS, built_in.CONNECTIONS, built_in.TABLES)

_MODULES = ("errors", "testing", "types")


def imported_when_used(
    package: str,
    homes: Mapping[str, str],
    modules: Collection[str] = (),
    hint: Callable[[str], str] = lambda name: "",
) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """``__all__``, ``__getattr__`` and ``__dir__`` of ``package``.

    ``homes``: the module in headrace that defines each name. ``modules``: modules of the package that are names, too.
    ``hint``: what to write instead of a name that is not there; empty where nothing is known.
    """

    names = sorted([*homes, *modules])

    def value_of(name: str) -> object:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name not in homes:
            raise _unknown(name)
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def _unknown(name: str) -> AttributeError:
        if name.startswith("_"):  # which Python itself asks for
            return AttributeError(f"{package} has no {name!r}")
        from headrace.model.arguments import no_such_name

        return no_such_name(package, name, names, hint(name))

    return names, value_of, names.copy


def _as_method(name: str) -> str:
    """What to write instead of the function ``name``, if aggregates are written so."""
    from headrace.model.expressions.methods import Aggregations

    return f'write hr.col("amount").{name}(...)' if hasattr(Aggregations, name) else ""


__all__, __getattr__, __dir__ = imported_when_used(__name__, _HOMES, _MODULES, _as_method)
