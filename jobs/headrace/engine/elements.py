"""Panes of one stage as elements of the next: the same judged rows that reading a source gives.

A judged row has ``_reject`` (why it takes no part, NULL if it does), ``_event_time`` (long, granules), ``_admitted``
(whether the filter is TRUE), the key columns, the inputs of aggregates and triggers (``Plan.inputs``), and ``_sign``
where elements can be withdrawn, ``_order`` where the order of arrival counts, ``_record`` for users' own window
functions and triggers.
"""

from collections.abc import Iterable

from pyspark.sql import functions as f

from headrace.engine.delta import EVENT_TIME
from headrace.engine.expressions import compile_expr, named
from headrace.engine.plan import Plan
from headrace.engine.source_records import RAW, as_text
from headrace.engine.types import SPARK_TYPES, DataFrame, SparkColumn
from headrace.model.expr import DataType, Expr, Schema, lit
from headrace.model.typing import type_of
from headrace.program import columns as c


def judge(plan: Plan, rows: DataFrame) -> DataFrame:
    """``rows`` judged for the stage of ``plan``: columns of ``Stage.schema``, ``_event_time`` in granules, ``_sign``,
    ``_order``, perhaps ``_size``.

    A row whose key is NULL is rejected, as at a source.
    """
    schema = plan.stage.schema
    if plan.reads_size and c.SIZE not in rows.columns:
        rows = rows.withColumn(c.SIZE, element_size(schema))
    keys = plan.stage.aggregation.key
    kept = plan.stage.aggregation.filter
    judged = rows.select(
        f.col(EVENT_TIME),
        f.coalesce(compile_expr(lit(True) if kept is None else kept, schema), f.lit(False)).alias(c.ADMITTED),
        *([c.SIGN] if plan.stage.withdrawable else []),
        *([c.ORDER] if plan.is_ordered else []),
        *([record(schema)] if plan.reads_records else []),
        *[_computed(expr, schema).alias(name) for name, expr in [*keys.items(), *plan.inputs]],
    )
    return judged.select(_null_key(keys), *[named(name) for name in judged.columns])


def judged_as_text(plan: Plan, rows: DataFrame) -> DataFrame:
    """Of each of ``rows`` why ``judge`` rejects it, and as text what it holds: ``_reject`` and ``_raw``."""
    schema, keys = plan.stage.schema, plan.stage.aggregation.key
    sign = [(f.col(c.SIGN) < 0).alias("is_retraction")] if plan.stage.withdrawable else []
    held = [*map(named, schema), f.timestamp_micros(EVENT_TIME).alias("pane_time"), *sign]
    found = rows.select(as_text(held), *[_computed(expr, schema).alias(name) for name, expr in keys.items()])
    return found.select(_null_key(keys), RAW)


def _null_key(keys: Iterable[str]) -> SparkColumn:
    """Why a row takes no part, of columns that hold its key."""
    reason = f.lit(None).cast("string")
    for name in keys:
        reason = f.coalesce(reason, f.when(named(name).isNull(), f"key is null: {name}"))
    return reason.alias(c.REJECT)


def _computed(expr: Expr, schema: Schema) -> SparkColumn:
    return compile_expr(expr, schema).cast(
        SPARK_TYPES[type_of(expr, {**schema, c.SIZE: DataType.INT}) or DataType.BOOL]
    )


def record(schema: Schema) -> SparkColumn:
    """A row as users' own objects see it: timestamps are Instants (granules)."""
    values = [
        (f.unix_micros(named(name)) if kind is DataType.TIMESTAMP else named(name)).alias(name)
        for name, kind in schema.items()
    ]
    return f.struct(*values).alias(c.RECORD)


def element_size(schema: Schema) -> SparkColumn:
    """Bytes of an element: 8 for a number or timestamp, 1 for a bool, UTF-8 for a string, nothing for NULL."""
    sizes = [f.lit(0).cast("long")]
    for name, kind in schema.items():
        size = f.octet_length(named(name)) if kind is DataType.STRING else f.lit(1 if kind is DataType.BOOL else 8)
        sizes.append(f.when(named(name).isNotNull(), size).otherwise(0).cast("long"))
    total = sizes[0]
    for size in sizes[1:]:
        total = total + size
    return total
