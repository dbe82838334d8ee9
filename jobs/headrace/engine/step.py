"""One epoch of the aggregation: the delta meets the state, windows merge and fire, and what changed becomes a new
layer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import functions as f
from pyspark.sql import types as t

from headrace.engine.delta import EVENT_TIME, data_rows
from headrace.engine.emission import COUNTS, DROPPED, DROPPED_RETRACTIONS, EMITS, KEPT, Emission
from headrace.engine.expressions import by_reference
from headrace.engine.matching import Matching
from headrace.engine.merging import GONE, SOURCES, Merging
from headrace.engine.plan import Plan
from headrace.engine.prepared import Aggregates, Selection
from headrace.engine.state import StateLayer, due_columns, hearing, lookup
from headrace.engine.types import DataFrame, SparkColumn
from headrace.model.panes import PANE_COLUMNS, WINDOW_END, WINDOW_START
from headrace.model.time import GLOBAL_WINDOW_END, MIN_INSTANT, NEVER
from headrace.model.triggers import Signal
from headrace.program import columns as c
from headrace.program.firing import Clocks

_RECORD = "_emitted"
"""Column of one of the records that a window emitted."""


class Changes:
    """Columns of what is asked of the changed windows of an epoch, made once for all epochs of an application."""

    def __init__(self, plan: Plan, emission: Emission) -> None:
        self.plan, self.emission = plan, emission

    @cached_property
    def emits(self) -> SparkColumn:
        """Whether a window emitted anything."""
        return f.size(EMITS) > 0

    @cached_property
    def stored(self) -> Selection:
        """A state row."""
        return Selection(self.plan.state_schema.names)

    @cached_property
    def gone(self) -> Selection:
        """The windows that a window came out of."""
        return Selection([*self.plan.identity, c.EPOCH, f.explode(SOURCES).alias("_gone")])

    @cached_property
    def is_other(self) -> SparkColumn:
        """Whether one of ``gone`` is another window."""
        is_result = (f.col("_gone.ws") == f.col(c.WINDOW_START)) & (f.col("_gone.we") == f.col(c.WINDOW_END))
        return ~is_result

    @cached_property
    def tombstones(self) -> Selection:
        """The state row of one of ``gone``."""
        known = {c.STATUS: f.lit(c.DELETED), c.DUE_EVENT: f.lit(2**62), c.DUE_TIME: f.lit(2**62)}
        known |= {c.WINDOW_START: f.col("_gone.ws"), c.WINDOW_END: f.col("_gone.we")}
        known |= {name: f.col(name) for name in (*self.plan.keys, c.EPOCH)}
        return Selection(
            known.get(field.name, f.lit(None)).cast(field.dataType).alias(field.name)
            for field in self.plan.state_schema.fields
        )

    @cached_property
    def records(self) -> Selection:
        """What a window emitted, a row each."""
        return Selection([*self.plan.keys, c.EPOCH, f.posexplode(EMITS).alias("sequence", _RECORD)])

    @cached_property
    def panes(self) -> Selection:
        """One of ``records`` as readers see it."""
        own = {name: f.col(name) for name in self.plan.keys}
        own["epoch"] = f.col(c.EPOCH)  # not a literal, which would make it new code in every epoch
        own["sequence"] = f.col("sequence").cast("long")

        def column(field: t.StructField) -> SparkColumn:
            found = own.get(field.name, f.col(f"{_RECORD}.`{field.name}`"))
            stamp = isinstance(field.dataType, t.TimestampType) and field.name in PANE_COLUMNS
            return _timestamp(found) if stamp else found

        return Selection(column(field).alias(field.name) for field in self.plan.pane_schema)

    @cached_property
    def elements(self) -> Selection:
        """What a window emitted as elements of the next stage."""
        plan = self.plan
        order = [
            self.emission.moment(f.col("sequence")),
            f.col(c.WINDOW_END),
            f.col(c.WINDOW_START),
            *map(f.col, plan.keys),
        ]
        names = [name for name in plan.stage.pane_schema if name not in plan.keys]
        stamps = (WINDOW_START, WINDOW_END)
        values = [_timestamp(f.col(f"{_RECORD}.{n}")) if n in stamps else f.col(f"{_RECORD}.`{n}`") for n in names]
        return Selection(
            [
                *plan.keys,
                *[value.alias(name) for name, value in zip(names, values, strict=True)],
                f.col(f"{_RECORD}.pane_time").alias(EVENT_TIME),
                f.struct(*[at.alias(f"_{i}") for i, at in enumerate([*order, f.col("sequence")])]).alias(c.ORDER),
                f.when(f.col(f"{_RECORD}.is_retraction"), -1).otherwise(1).cast("long").alias(c.SIGN),
            ]
        )

    @cached_property
    def summary(self) -> Aggregates:
        """Of all changed windows."""
        stays = f.col(c.STATUS) != c.DELETED
        gone = f.sum(GONE) if self.plan.merging else f.lit(0)
        names = {"retractions" if timing is None else timing.lower(): name for timing, name in COUNTS.items()}
        return Aggregates(
            [],
            [
                f.count(f.lit(1)).alias("rows"),
                f.count(f.when(stays, 1)).alias("stay"),
                (f.count(f.when(f.col(KEPT) & (f.col(c.STATUS) == c.DELETED), 1)) + gone).alias("tombstones"),
                f.max(f.when(stays, f.col(c.WINDOW_END))).alias("latest_end"),
                *[f.sum(column).alias(name) for name, column in names.items()],
                f.sum(DROPPED).alias("dropped_closed"),
                f.sum(DROPPED_RETRACTIONS).alias("dropped_retractions"),
                f.coalesce(f.min(c.HOLD), f.lit(int(NEVER))).alias("hold"),
                *due_columns(self.plan),
            ],
        )


@dataclass(frozen=True)
class Step:
    """The changed windows of one epoch: new state, panes, tombstones of merged-away windows."""

    rows: DataFrame
    changes: Changes

    def state(self) -> DataFrame:
        """Rows of the epoch's state layer."""
        rows = self.changes.stored.of(self.rows.where(KEPT))
        if not self.changes.plan.merging:
            return rows
        gone = self.changes.gone.of(self.rows.where(f.col(GONE) > 0)).where(self.changes.is_other)
        return rows.union(self.changes.tombstones.of(gone))

    def panes(self) -> DataFrame:
        """The panes of the epoch: keys, aggregates, pane columns (``headrace.model.panes``)."""
        return self.changes.panes.of(self.changes.records.of(self.rows.where(self.changes.emits)))

    def elements(self) -> DataFrame:
        """The panes of the epoch in order as elements of the next stage: its columns are those of ``Stage.pane_schema``
        with ``_event_time`` (granules), ``_sign`` and ``_order`` (by moment, window and key; semantics 3.2, 12.1).
        """
        rows = self.rows.where(self.changes.emits).select("*", f.posexplode(EMITS).alias("sequence", _RECORD))
        return self.changes.elements.of(rows)

    def summary(self) -> DataFrame:
        """One row: counts of changed rows, of those that stay in the state and of tombstones, of panes by timing,
        retractions, closed drops; the latest end of a window, and the earliest activations wanted.
        """
        return self.changes.summary.of(self.rows)


def _timestamp(granules: SparkColumn) -> SparkColumn:
    finite = (granules > int(MIN_INSTANT)) & (granules < int(GLOBAL_WINDOW_END) - 1)
    return f.when(finite, f.timestamp_micros(granules))


class StepProgram:
    """The query of an epoch of one stage, its columns made once for all epochs of an application; that of a batch is
    another one.
    """

    def __init__(self, plan: Plan, *, is_batch: bool = False) -> None:
        self.plan = plan
        self._percentiles = sorted(plan.trigger.percentiles)
        clocks = [c.WATERMARK_BEFORE, c.WATERMARK_AFTER, c.PROCESSING_TIME, c.THIS_EPOCH]
        for i in range(len(self._percentiles)):
            clocks += [f"{c.PERCENTILE_BEFORE}{i}", f"{c.PERCENTILE_AFTER}{i}"]
        self._clocks = clocks
        self._combining = Merging(plan, clocks) if plan.merging else Matching(plan, clocks)
        self._emission = Emission(plan, is_batch)
        self._changes = Changes(plan, self._emission)

    def build(
        self,
        epoch: int,
        layers: list[StateLayer],
        delta: DataFrame | None,
        clocks: Clocks,
        *,
        signals: Sequence[Signal] = (),
    ) -> Step | None:
        """The step of ``epoch``; None when nothing is touched, nothing is due and nobody hears a signal."""
        touched = None if delta is None else data_rows(self.plan, delta)
        names = sorted(self.plan.trigger.signals)
        heard = {name: hearing(self.plan, name, signals) for name in names}
        told = [condition for condition in heard.values() if condition is not None]
        found = lookup(self.plan, layers, touched, clocks, told)
        if touched is None and found is None:
            return None
        rows = self._combining.combine(found, touched, self._moment(epoch, clocks))
        if names:
            flags = [f.lit(False) if flag is None else flag for flag in heard.values()]
            rows = rows.select("*", *[flag.alias(f"{c.HEARD}{i}") for i, flag in enumerate(flags)])
        return Step(self._emission.apply(rows), self._changes)

    def _moment(self, epoch: int, clocks: Clocks) -> list[SparkColumn]:
        """The clocks as columns, of rows that have a window."""
        now = [int(clocks.watermark_before), int(clocks.watermark_after), int(clocks.processing_time), epoch]
        for q in self._percentiles:
            now += [int(at) for at in clocks.percentiles[q]]
        return [by_reference(value, c.WINDOW_START).alias(name) for name, value in zip(self._clocks, now, strict=True)]
