"""One pipeline on both executors: the reference interpreter, and the engine's steps on Spark, over the same epochs."""

from collections.abc import Sequence
from typing import Any

from headrace.engine import delta as deltas
from headrace.engine import state as states
from headrace.engine import step as steps
from headrace.engine.firing import Clocks
from headrace.engine.plan import Plan
from headrace.engine.types import SparkSession
from headrace.model.panes import Pane, Timing
from headrace.model.time import MIN_INSTANT, Instant, instant
from headrace.model.windows import GLOBAL_WINDOW, Window
from headrace.pipeline import Pipeline
from headrace.reference import Epoch, Record, evaluate
from headrace_snapshots.format.layers import plan_merge

PARTITIONS = 2


def judged_rows(plan: Plan, records: Sequence[Record]) -> list[tuple[Any, ...]]:
    """What reading a source gives, computed by the reference's expressions."""
    pipeline, schema = plan.pipeline, plan.pipeline.schema
    rows = []
    for record in records:
        keys = [evaluate(expr, record, schema) for expr in pipeline.key.values()]
        ts = evaluate(pipeline.event_time.expr, record, schema)
        kept = pipeline.filter is None or evaluate(pipeline.filter, record, schema) is True
        reject = "missing" if ts is None or None in keys else None
        inputs = [evaluate(expr, record, schema) for _, expr in plan.inputs]
        rows.append((reject, ts, kept, *keys, *inputs))
    return rows


def run_on_spark(spark: SparkSession, pipeline: Pipeline, epochs: Sequence[Epoch]) -> list[tuple[list[Pane], int]]:
    """Per epoch the panes (in order per key and emitting window) and the number of late drops."""
    plan = Plan(pipeline)
    types = [*pipeline.key_types.values(), *[_input_type(plan, expr) for _, expr in plan.inputs]]
    ddl = {"string": "string", "int": "long", "float": "double", "bool": "boolean", "timestamp": "timestamp"}
    names = [*plan.keys, *[name for name, _ in plan.inputs]]
    schema = "_reject string, _event_time long, _kept boolean, " + ", ".join(
        f"{name} {ddl[kind.value]}" for name, kind in zip(names, types, strict=True)
    )
    layers: list[states.StateLayer] = []
    watermark, clock, latest, results = MIN_INSTANT, MIN_INSTANT, None, []
    for number, epoch in enumerate(epochs):
        judged = spark.createDataFrame(judged_rows(plan, epoch.records), schema)
        delta = deltas.aggregate(plan, deltas.assigned(plan, judged, watermark), PARTITIONS).localCheckpoint(
            eager=False
        )
        found = deltas.account(plan, delta)
        known = [m for m in (latest, found.max_event_time) if m is not None]
        latest = max(known) if known else None
        after = pipeline.event_time.watermark.watermark(watermark, [] if latest is None else [latest])
        clocks = Clocks(watermark, after, clock, epoch.processing_time)
        clock = epoch.processing_time
        has_data = bool(found.rows.get(deltas.Fate.ACCEPTED))
        step = steps.build(plan, number, layers, delta if has_data else None, clocks)
        panes: list[Pane] = []
        if step is not None:
            step = steps.Step(plan, number, step.rows.localCheckpoint(eager=False))
            summary = step.summary().collect()[0]
            panes = [_pane(plan, row.asDict()) for row in step.panes().orderBy(*plan.keys, "sequence").collect()]
            if summary["rows"]:
                layers.append(_layer(step, number, summary))
                start = plan_merge([layer.count for layer in layers])
                if start is not None:
                    layers = [*layers[:start], _merged(plan, layers[start:], start == 0)]
        watermark = after
        results.append((panes, found.late))
    return results


def _layer(step: steps.Step, number: int, summary: Any) -> states.StateLayer:
    count = summary["rows"] + summary["tombstones"]
    return states.StateLayer(step.state(), count, number, number, summary["due_event"], summary["due_time"])


def _merged(plan: Plan, layers: list[states.StateLayer], bottom: bool) -> states.StateLayer:
    rows = states.merge(plan, layers, drop_deleted=bottom).localCheckpoint(eager=True)
    event, time = states.next_due(layers)
    return states.StateLayer(rows, rows.count(), layers[0].first_epoch, layers[-1].last_epoch, event, time)


def _input_type(plan: Plan, expr: Any) -> Any:
    return next(part.type for part in plan.parts if part.input is expr and part.name.split("_")[-1] != "count")


def _pane(plan: Plan, row: dict[str, Any]) -> Pane:
    window = GLOBAL_WINDOW
    if row["window_start"] is not None:
        window = Window(_instant(row["window_start"]), _instant(row["window_end"]))
    return Pane(
        key=tuple(row[key] for key in plan.keys),
        window=window,
        values=tuple(row[name] for name in plan.pipeline.what),
        timestamp=window.max_timestamp if row["pane_time"] is None else _instant(row["pane_time"]),
        timing=Timing(row["timing"]),
        index=row["pane_index"],
        nonspeculative_index=row["nonspeculative_index"],
        is_first=row["is_first"],
        is_last=row["is_last"],
        is_retraction=row["is_retraction"],
    )


def _instant(value: Any) -> Instant:
    from datetime import UTC

    return instant(value.replace(tzinfo=UTC))
