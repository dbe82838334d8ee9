"""A stage of a pipeline compiled for the kernel: the names, types and parts that every step of it needs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.kernel.aggregates import bags, group_rows, sums
from headrace.kernel.aggregates.accumulators import Accumulator, compile_aggregates
from headrace.kernel.columns import ARROW_TYPES, TIMESTAMP, Ints, arrow_type, own_arrow_type
from headrace.kernel.expressions.evaluation import arrow_type_of
from headrace.kernel.expressions.string_bytes import Words
from headrace.kernel.keys import hash_keys
from headrace.model.accumulation import EVENT_TIME, Accumulation, How, TimestampCombiner
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.expr import Column, Expr
from headrace.model.expressions.typing import to_json
from headrace.model.time import GLOBAL_WINDOW_END, MIN_INSTANT, NEVER, Instant
from headrace.model.windows import CustomWindows, ShiftedOutputTime, SlidingWindows, WindowFn, unshift_windows
from headrace.pipeline.rows import BUCKET, Distinct, Every, GroupFunction, GroupQuery, GroupRows, Take, Top
from headrace.pipeline.stages import Stage
from headrace.program import columns as c
from headrace.program.columns import row_of
from headrace.program.firing import FiringPlan, compile_firing
from headrace.program.triggers.leaves import RECORD, TIME_FIELD
from headrace.program.triggers.node import ColumnMerge, Node, TriggerPlace, compile_trigger

PLACE, LISTED_ITEM = "place", "listed"
"""Fields of a listed element where windows merge: its place in the order of arrival, and what is listed of it."""

_LONG, _BOOL = pa.int64(), pa.bool_()


@dataclass(frozen=True)
class CompiledStage:
    """Compiled parts of one stage of a pipeline."""

    stage: Stage

    @cached_property
    def keys(self) -> list[str]:
        """Key columns, in order."""
        return list(self.stage.key_types)

    @cached_property
    def record_keys(self) -> list[str]:
        """Key columns that users wrote: all but what the step of a loop reads, and what spreads rows without a key."""
        own = {BUCKET, *(term.name for term in self.stage.terms)}
        return [name for name in self.keys if name not in own]

    def hashes_of(self, rows: pa.RecordBatch) -> Words:
        """The hashes of the keys of ``rows``; where these are rows without a key, of their event times: their columns
        may change, and the part that stored rows are in does not.
        """
        names = [EVENT_TIME] if self.stage.gives_rows else self.keys
        return hash_keys([rows.column(name) for name in names], rows.num_rows)

    def record_hashes_of(self, rows: pa.RecordBatch) -> Words:
        """The hashes of ``rows`` by those columns of the key that users wrote."""
        return hash_keys([rows.column(name) for name in self.record_keys], rows.num_rows)

    @property
    def how(self) -> How:
        """Accumulation, lateness and behaviours."""
        return self.stage.aggregation.how

    @cached_property
    def where(self) -> WindowFn:
        """The window function, without the shift of output times."""
        return unshift_windows(self.stage.aggregation.where)

    @cached_property
    def output_shift(self) -> int:
        """How much later than its own an element's stamp is, for EARLIEST and LATEST."""
        where = self.stage.aggregation.where
        return int(where.shift) if isinstance(where, ShiftedOutputTime) else 0

    @cached_property
    def merging(self) -> bool:
        """Whether windows of a key can merge."""
        return self.where.merges

    def expiry_watermark(self, end: Instant | None) -> Instant:
        """The watermark that must be exceeded for windows that end up to ``end`` to have expired (semantics 5.2), None:
        no window; NEVER where it is not known.
        """
        lateness = self.how.allowed_lateness
        if end is None:
            return MIN_INSTANT
        if lateness is None:
            return NEVER
        return Instant(min(end + lateness - 1, GLOBAL_WINDOW_END - 1))

    def expired_mask(self, ends: Ints, watermark: Instant) -> NDArray[np.bool_]:
        """Which windows, that end at ``ends``, have expired at ``watermark``."""
        lateness = self.how.allowed_lateness
        if lateness is None or watermark <= self.expiry_watermark(Instant(int(ends.min(initial=GLOBAL_WINDOW_END)))):
            return np.zeros(len(ends), np.bool_)
        return watermark > np.minimum(ends + (lateness - 1), GLOBAL_WINDOW_END - 1)

    @cached_property
    def slides(self) -> SlidingWindows | None:
        """The windows if elements are aggregated by slice before each is in several windows (``kernel.windows``).
        Slices are used where windows overlap, the order of arrival does not count, and aggregates are smaller than the
        elements.
        """
        where = self.where
        if not isinstance(where, SlidingWindows) or where.size <= where.period or self.is_ordered:
            return None
        return where if all(part.condenses for part in self.parts) else None

    @property
    def may_finish(self) -> bool:
        """Whether the trigger can close a window before it expires."""
        return self.stage.when.may_finish

    @cached_property
    def identity(self) -> list[str]:
        """Columns that identify a state row."""
        return [*self.keys, c.WINDOW_START, c.WINDOW_END]

    @cached_property
    def trigger(self) -> Node:
        return compile_trigger(self.stage.when, TriggerPlace(self.merging, self.stage.schema))

    @cached_property
    def firing(self) -> FiringPlan:
        """The program of the windows."""
        return self._compile_firing(is_batch=False)

    @cached_property
    def batch_firing(self) -> FiringPlan:
        """Their program in a batch, where each is asked once."""
        return self._compile_firing(is_batch=True)

    def _compile_firing(self, *, is_batch: bool) -> FiringPlan:
        counts_net, withdrawable = self.counts_net, self.stage.withdrawable
        return compile_firing(
            self.trigger, self.how, self.merging, withdrawable, counts_net=counts_net, is_batch=is_batch
        )

    @cached_property
    def accumulators(self) -> Mapping[str, Accumulator]:
        """Accumulators by aggregate."""
        stage, all_kept = self.stage, self.how.keep_last is not None
        if (rows := self.rows_part) is not None:
            return {c.ROWS: Accumulator((rows,), lambda parts: rows.emitted_rows(parts[rows.name]))}
        return compile_aggregates(
            stage.aggregation.aggregates, stage.schema, withdrawable=stage.withdrawable, all_kept=all_kept
        )

    @cached_property
    def rows_part(self) -> group_rows.RowsPart | None:
        """What is kept of a group where some of its rows leave; None where no rows of groups do."""
        aggregation = self.stage.aggregation
        if not isinstance(aggregation, GroupRows):
            return None
        orders = aggregation.take.by
        unless = [] if aggregation.take.unless is None else [aggregation.take.unless]
        row = row_of([*orders, *unless, *self.stage.row_columns.values()])
        if isinstance(aggregation.take, GroupFunction | GroupQuery):
            return self._computed_rows_part(aggregation.take, row)
        return group_rows.RowsPart(
            "_a0_rows",
            group_rows.kept_rows_type(arrow_type_of(row, self.stage.schema)),
            row,
            number=_number_of(aggregation.take),
            orders=len(orders),
            has_unless=bool(unless),
            are_distinct=isinstance(aggregation.take, Distinct),
            withdrawable=self.stage.withdrawable,
        )

    def _computed_rows_part(self, take: GroupFunction | GroupQuery, row: Expr) -> group_rows.RowsPart:
        computed_types = self.stage.computed_types
        assert computed_types is not None
        return group_rows.ComputedRowsPart(
            "_a0_rows",
            group_rows.kept_rows_type(arrow_type_of(row, self.stage.schema)),
            row,
            take=take,
            columns={name: kind for name, kind in self.stage.given_types.items() if name != EVENT_TIME},
            returns=computed_types,
            keys=len(self.keys),
            withdrawable=self.stage.withdrawable,
        )

    @cached_property
    def result_parts(self) -> list[sums.AccumulatorPart]:
        """The parts that results are made of."""
        return [part for accumulator in self.accumulators.values() for part in accumulator.parts]

    @cached_property
    def parts(self) -> list[sums.AccumulatorPart]:
        """Stored columns of the contents, in order: parts of accumulators, or the last elements if no more is kept."""
        if self.how.keep_last is not None:
            fields = [(name, self.type_of(expr)) for name, expr in self.kept_inputs]
            fields += [(bags.KEPT_AT, _LONG)] if self.keeps_times else []
            kept_type = pa.list_(pa.struct([("_", _BOOL), *fields]))
            return [bags.KeptPart(c.LAST_ELEMENTS, kept_type, None, self.how.keep_last)]
        count_parts = [sums.CountPart(c.NET, _LONG, None)] if self.counts_net else []
        return [*self.result_parts, *count_parts]

    @cached_property
    def inputs(self) -> list[tuple[str, Expr]]:
        """Distinct expressions that aggregates and triggers read, with the names of their columns in judged records."""
        expressions = [part.input for part in self.result_parts] + [measure.input for measure in self.trigger.measures]
        return _name_expressions(expressions)

    @property
    def kept_inputs(self) -> list[tuple[str, Expr]]:
        """The ``inputs`` that aggregates read, by column."""
        return _name_expressions([part.input for part in self.result_parts])

    @cached_property
    def keeps_times(self) -> bool:
        """Whether event times belong to what is kept of the last elements."""
        if self.rows_part is not None:
            return True
        return any(isinstance(part, bags.BagPart) and part.is_timed for part in self.result_parts)

    @cached_property
    def custom(self) -> CustomWindows | None:
        """The window function if it is a user's own."""
        return self.where if isinstance(self.where, CustomWindows) else None

    @cached_property
    def lists_elements(self) -> bool:
        """Whether a trigger wants elements with their records (``_record``)."""
        return any(measure.input is None for measure in self.trigger.measures)

    @property
    def reads_records(self) -> bool:
        """Whether a user's own object looks at whole records."""
        return self.custom is not None or self.lists_elements

    @cached_property
    def lists(self) -> list[str]:
        """Measures that list elements in their order of arrival."""
        return [measure.name for measure in self.trigger.measures if measure.fold is ColumnMerge.LIST]

    @cached_property
    def is_ordered(self) -> bool:
        """Whether the order of arrival counts."""
        return bool(self.lists) or self.how.keep_last is not None

    def type_of(self, expr: Expr) -> pa.DataType:
        """The type of ``expr`` over the rows that reach the stage, and their size."""
        return arrow_type_of(expr, {**self.stage.schema, c.SIZE: DataType.INT}) or _BOOL

    def input_column(self, expr: Expr) -> str:
        """The judged column that holds ``expr``."""
        return self._input_names[str(to_json(expr))]

    @cached_property
    def _input_names(self) -> dict[str, str]:
        return {str(to_json(expr)): name for name, expr in self.inputs}

    @cached_property
    def reads_size(self) -> bool:
        """Whether a trigger wants the size of elements."""
        return any(isinstance(expr, Column) and expr.name == c.SIZE for _, expr in self.inputs)

    @property
    def retracting(self) -> bool:
        """Whether a pane withdraws those that it replaces."""
        return self.how.accumulation is Accumulation.RETRACTING

    @property
    def remembers(self) -> bool:
        """Whether emitted panes are remembered, to be withdrawn."""
        return self.stage.withdraws

    @property
    def counts_net(self) -> bool:
        """Whether a window of which every element was withdrawn must be told from others (semantics 9.1). Rows that
        leave by themselves need no such count, since each is known to be there or not.
        """
        return self.retracting and self.stage.withdrawable and not self.stage.aggregation.takes_each

    @property
    def stamps_elements(self) -> bool:
        """Whether panes get their timestamps from elements, not from their window."""
        return self.how.timestamp is not TimestampCombiner.END_OF_WINDOW

    @cached_property
    def stamps_merged(self) -> bool:
        """Whether a user's own function says which timestamps elements give their pane, once windows have merged."""
        custom = self.custom if self.merging and self.stamps_elements else None
        return custom is not None and type(custom).output_time is not CustomWindows.output_time

    @cached_property
    def record_type(self) -> pa.DataType:
        """A record as users' own objects see it."""
        return pa.struct([(name, own_arrow_type(kind)) for name, kind in self.stage.schema.items()])

    @cached_property
    def carried_columns(self) -> Mapping[str, pa.DataType]:
        """Delta columns that the program reads as they are, with types: what triggers measure, stamps, retractions."""
        names: dict[str, pa.DataType] = {}
        element = pa.struct([(TIME_FIELD, _LONG), (RECORD, self.record_type)])
        for measure in self.trigger.measures:
            kind = element if measure.type is None else ARROW_TYPES[measure.type]
            names[measure.name] = pa.list_(kind) if measure.fold is ColumnMerge.LIST else kind
        if self.stamps_elements:
            names |= {c.TIMES: pa.list_(_LONG)} if self.stamps_merged else {c.HELD_TIME: _LONG}
        return {**names, c.RETRACTION_COUNT: _LONG} if self.stage.withdrawable else names

    @cached_property
    def delta_schema(self) -> pa.Schema:
        """A row of a delta (``kernel.delta``). Where windows merge, lists go with places in the order of arrival."""
        carried_types = dict(self.carried_columns)
        for name in self.lists if self.merging else ():
            carried_types[name] = pa.list_(pa.struct([(PLACE, _LONG), (LISTED_ITEM, carried_types[name].value_type)]))
        window = [(name, _LONG) for name in (c.WINDOW_START, c.WINDOW_END, c.COUNT)]
        parts = [(part.name, part.type) for part in self.parts]
        return pa.schema([(c.HASH, pa.uint64()), *self._key_fields, *window, *parts, *carried_types.items()])

    @property
    def _key_fields(self) -> list[tuple[str, pa.DataType]]:
        return [(name, ARROW_TYPES[kind]) for name, kind in self.stage.key_types.items()]

    @cached_property
    def pane_type(self) -> pa.StructType:
        """A pane as it is remembered: window in granules, aggregates, pane info."""
        values = [(name, arrow_type(kind)) for name, kind in self.stage.value_types.items()]
        if self.rows_part is not None:
            values = [(c.ROWS, self.rows_part.leaving_type)]
        return pa.struct(
            [
                ("window_start", _LONG),
                ("window_end", _LONG),
                *values,
                ("pane_time", _LONG),
                ("timing", pa.string()),
                ("pane_index", _LONG),
                ("nonspeculative_index", _LONG),
                ("is_first", _BOOL),
                ("is_last", _BOOL),
            ]
        )

    @cached_property
    def pane_schema(self) -> pa.Schema:
        """A pane as readers see it: keys, aggregates, columns of ``model.accumulation``; or a row as it leaves."""
        if self.stage.gives_rows:
            columns = [(name, arrow_type(kind)) for name, kind in self.stage.value_types.items()]
            return pa.schema([*columns, *_ROW_FIELDS])
        stamps = {"window_start", "window_end", "pane_time"}
        values = self.stage.value_types
        inner = {f.name: TIMESTAMP if f.name in stamps else f.type for f in self.pane_type}
        info = [(name, kind) for name, kind in inner.items() if name not in values]
        where = [("is_retraction", _BOOL), ("epoch", _LONG), ("sequence", _LONG)]
        return pa.schema([*self._key_fields, *[(name, inner[name]) for name in values], *info, *where])

    @cached_property
    def bookkeeping(self) -> Mapping[str, pa.DataType]:
        """State columns besides key, window and epoch, and their types."""
        names = {c.STATUS: pa.int32()}
        names |= dict.fromkeys((c.DUE_EVENT, c.DUE_TIME, c.NEW, c.HOLD, c.INDEX, c.NONSPECULATIVE), _LONG)
        names |= {field.name: ARROW_TYPES[field.type] for field in self.trigger.fields}
        names |= {part.name: part.type for part in self.parts}
        return {**names, c.LIVE: pa.list_(self.pane_type)} if self.remembers else names

    @cached_property
    def state_schema(self) -> pa.Schema:
        """A state row: the hash of its key, key, window, the epoch that wrote it, bookkeeping."""
        window = [(name, _LONG) for name in (c.WINDOW_START, c.WINDOW_END, c.EPOCH)]
        return pa.schema([(c.HASH, pa.uint64()), *self._key_fields, *window, *self.bookkeeping.items()])


_ROW_FIELDS = (
    (EVENT_TIME, TIMESTAMP),
    ("timing", pa.string()),
    ("is_retraction", _BOOL),
    ("epoch", _LONG),
    ("sequence", _LONG),
)


_MORE_THAN_ALL: Final = 1 << 40
"""More rows than a group has."""


def _number_of(take: Take) -> int:
    """How many rows of a group leave, if they are not distinct."""
    match take:
        case Top(number):
            return number
        case Every():
            return _MORE_THAN_ALL
    return 1


def _name_expressions(expressions: Iterable[Expr | None]) -> list[tuple[str, Expr]]:
    """The distinct ones of ``expressions``, named in order."""
    distinct: dict[str, Expr] = {}
    for expr in expressions:
        if expr is not None:
            distinct.setdefault(str(to_json(expr)), expr)
    return [(f"_in_{i}", expr) for i, expr in enumerate(distinct.values())]
