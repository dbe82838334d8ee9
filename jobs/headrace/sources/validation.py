"""Records judged: accepted, rejected with a reason, or filtered; and what they say to the watermark of their input.

A judged record has what ``kernel.elements`` asks for, ``_sign`` too where records can withdraw others, and ``_split``
and ``_mark`` (what it says of which split), and ``_id`` where duplicates are told apart. Of a rejected record only its
reason counts.

Which columns of the files of each input are read, and what for: those a file must have.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import HeadraceError, PipelineError, ValueOverflowError
from headrace.formats.file_format import RequiredColumns, ScannedRecords
from headrace.kernel.columns import TIMESTAMP, constant
from headrace.kernel.delta import Columns, decide, inputs_of, rejecting, with_size
from headrace.kernel.expressions.evaluation import Overflow, RowOverflowsError, column_apart
from headrace.kernel.stage import CompiledStage
from headrace.model.changelog import DebeziumEnvelope, DeltaChangeType, SignedBy
from headrace.model.event_time import EventTime, FromSource, SplitStrategy
from headrace.model.expressions.data_types import Schema
from headrace.model.expressions.expr import Column, Expr
from headrace.model.expressions.typing import columns_of
from headrace.model.time import Instant
from headrace.model.triggers.custom import CustomTrigger
from headrace.model.windows import CustomWindows, ShiftedOutputTime
from headrace.pipeline.endpoints import OWN, Input, OnMissing
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.stages import trigger_nodes
from headrace.program import columns as c
from headrace.program.columns import substitute

EARLIEST, LATEST = -2_208_988_800_000_000, 253_370_764_799_999_999
"""Event times and marks are of the years 1900 to 9998: what lies outside is a mistake (9999-12-31 mostly means never),
and would move the watermark there."""


ISOLATED = (PipelineError, ValueOverflowError)
"""Errors of expressions, and of users' own code, which are of one chain."""


@dataclass(frozen=True)
class Apart:
    """Which chains are ``parked``, by number: of these only what they take is looked at. ``isolates``: an error of one
    chain is kept beside what others make of the records.
    """

    parked: Collection[int] = frozenset()
    isolates: bool = False


NOT_APART = Apart()


@dataclass(frozen=True)
class JudgedRecords:
    """Records judged for the first stage of each of the ``chains``; and for all of them together: what no chain takes
    is rejected in ``common``, and what some chain takes takes part.

    A chain whose expressions cannot be evaluated is among the ``errors``, by its number, and is not to be computed: it
    lacks columns. What it takes still counts for ``common``, unless that is what cannot be said.
    """

    common: Columns
    chains: tuple[Columns, ...]
    errors: Mapping[int, HeadraceError] = field(default_factory=dict)

    @classmethod
    def of(cls, chains: Sequence[Columns], errors: Mapping[int, HeadraceError]) -> "JudgedRecords":
        """What is common to all ``chains``; of one chain it is all. Raises an error if no chain says what it takes."""
        if len(chains) == 1:
            return cls(chains[0], (chains[0],), errors)
        decided = [chain for chain in chains if c.ADMITTED in chain]
        if not decided:
            raise next(iter(errors.values()))
        first = decided[0]
        rejects = reduce(pc.and_, (pc.is_valid(chain[c.REJECT]) for chain in decided))
        admitted = (pc.and_(chain[c.ADMITTED], chain[c.REJECT].is_null()) for chain in decided)
        common = {name: first[name] for name in _COMMON if name in first}
        common[c.REJECT] = pc.if_else(rejects, first[c.REJECT], pa.scalar(None, first[c.REJECT].type))
        common[c.ADMITTED] = reduce(pc.or_, admitted)
        return cls(common, tuple(chains), errors)

    def failing(self, errors: Mapping[int, HeadraceError]) -> "JudgedRecords":
        """These, which some more chains, by number, cannot take."""
        return replace(self, errors={**errors, **self.errors})


_COMMON = (c.EVENT_TIME, c.SPLIT, c.MARK, c.ID, c.SIGN)


def judged(
    pipeline: Pipeline,
    stages: Sequence[CompiledStage],
    given: Input,
    records: ScannedRecords,
    processing_time: Instant,
    *,
    path_of: Callable[[int], str] = lambda row: "the input",
    apart: Apart = NOT_APART,
) -> JudgedRecords:
    """``records`` of the input ``given``, judged for the first ``stages`` of chains. ``path_of``: the file of a row.
    ``processing_time`` is that of the epoch, the event time of records that have none of their own (``Ingestion``).
    ``apart``: whose errors are kept.
    """
    own, length = given.source.columns, len(records)
    parses = records.unparsed.is_null()
    unfit = records.unparsed

    def fitting(what: str, expr: Expr, rows: Mapping[str, pa.Array], schema: Schema) -> pa.Array:
        """``expr`` of each record, NULL if it does not parse, or overflows, which makes it ``unfit``."""
        nonlocal unfit
        values, overflows = _of(expr, rows, schema, parses, length)
        unfit = rejecting(unfit, what, overflows)
        return values

    rows = _in_form(pipeline, given, records, fitting)
    stamps = _stamps(given.event_time, records, own, processing_time, fitting)
    if pipeline.deduplicate is not None:
        stamps[c.ID] = fitting("id", pipeline.deduplicate.id, rows, pipeline.schema)
    control = _is_control(given.event_time, unfit.is_null(), stamps)
    rejects = _reasons(given, records, unfit, stamps, control)

    elements: Columns = {**rows, c.EVENT_TIME: stamps[c.EVENT_TIME]}
    if pipeline.withdraws_records:
        elements = {**elements, c.SIGN: _signs(records)}
        stamps[c.SIGN] = elements[c.SIGN]

    def decided_for(stage: CompiledStage, elements: Columns) -> Columns:
        columns = decide(stage, elements, rejects)
        if control is not None:  # it needs no key
            columns[c.REJECT] = pc.if_else(control, rejects, columns[c.REJECT])
        if records.unparsed.null_count < length:  # an expression may make something of a record that does not parse
            columns[c.ADMITTED] = pc.and_(columns[c.ADMITTED], parses)
        return {**columns, **stamps}

    chains: list[Columns] = []
    errors: dict[int, HeadraceError] = {}
    for number, stage in enumerate(stages):
        columns: Columns = {}
        try:
            elements = with_size(stage, elements)
            columns = decided_for(stage, elements)
            if number not in apart.parked:
                columns = {**columns, **inputs_of(stage, elements, columns)}
        except RowOverflowsError as overflows:
            errors[number] = _located(overflows, path_of(overflows.row), records)
        except ISOLATED as error:
            errors[number] = error
        if number in errors and not apart.isolates:
            raise errors[number]
        chains.append(columns)
    return JudgedRecords.of(chains, errors)


def mark_of(event_time: EventTime) -> Expr | None:
    """The expression of the marks of splits (``model.watermarks``), None where they are the event times."""
    strategy, expr = event_time.watermark, event_time.expr
    if not isinstance(strategy, SplitStrategy) or expr is None:
        return None
    mark = strategy.mark(expr)
    return None if mark is expr else mark


Fitting = Callable[[str, Expr, Mapping[str, pa.Array], Schema], pa.Array]
"""Gives an expression of each record; what it is called, and the columns that it is over, with their types."""


def _located(overflows: RowOverflowsError, path: str, records: ScannedRecords) -> ValueOverflowError:
    """The error of a record, with where it is."""
    position = int(records.position[overflows.row])
    return type(overflows.error)(f"{path}, position {position}: {overflows.error}")


def _of(
    expr: Expr, rows: Mapping[str, pa.Array], schema: Schema, parses: pa.Array, length: int
) -> tuple[pa.Array, tuple[Overflow, ...]]:
    """``expr`` of each record, NULL if it does not parse; and where it overflows."""
    values, overflows = column_apart(expr, rows, schema, length)
    if pc.all(parses).as_py() is False:
        values = pc.if_else(parses, values, pa.scalar(None, values.type))
    return values, overflows


def _in_form(pipeline: Pipeline, given: Input, records: ScannedRecords, fitting: Fitting) -> dict[str, pa.Array]:
    """The records in the form of the pipeline's own."""
    columns = given.expressions(pipeline.schema)
    if all(isinstance(expr, Column) and expr.name == name for name, expr in columns.items()):
        return dict(records.columns)
    own = given.source.columns
    return {name: fitting(f"column {name}", expr, records.columns, own) for name, expr in columns.items()}


def _stamps(
    event_time: EventTime, records: ScannedRecords, schema: Schema, processing_time: Instant, fitting: Fitting
) -> dict[str, pa.Array]:
    """Event time, mark and split, over the columns of the input."""
    parses, length = records.unparsed.is_null(), len(records)

    def instants(what: str, expr: Expr) -> pa.Array:
        return fitting(what, expr, records.columns, schema).cast(TIMESTAMP).cast(pa.int64())

    mark, stamps = mark_of(event_time), {}
    if mark is not None:  # it is judged first
        stamps[c.MARK] = instants("asserted watermark", mark)
    if event_time.expr is None:
        stamps[c.EVENT_TIME] = pc.if_else(parses, constant(int(processing_time)), pa.scalar(None, pa.int64()))
    else:
        stamps[c.EVENT_TIME] = instants("event time", event_time.expr)
    stamps.setdefault(c.MARK, stamps[c.EVENT_TIME])
    if event_time.split is None:
        stamps[c.SPLIT] = pa.DictionaryArray.from_arrays(np.zeros(length, np.int32), pa.array([""], pa.string()))
    else:
        stamps[c.SPLIT] = fitting("split", event_time.split, records.columns, schema)
        stamps[c.SPLIT] = stamps[c.SPLIT].fill_null("").dictionary_encode()
    return stamps


def _is_control(event_time: EventTime, is_fit: pa.Array, stamps: Mapping[str, pa.Array]) -> pa.Array | None:
    """Which records only assert the watermark: neither data nor dead letters (semantics 9.4). None if none can
    do so.
    """
    if mark_of(event_time) is None:
        return None
    return pc.and_(is_fit, pc.and_(stamps[c.EVENT_TIME].is_null(), stamps[c.MARK].is_valid()))


def _signs(records: ScannedRecords) -> pa.Array:
    """Whether records add a row or withdraw it; 1 for those that do not say it, which are rejected."""
    if c.SIGN not in records.columns:
        return pa.array(np.ones(len(records), np.int64))
    return pc.if_else(_is_sign(records.columns[c.SIGN]), records.columns[c.SIGN], constant(1))


def _is_sign(signs: pa.Array) -> pa.Array:
    return pc.equal(pc.abs(signs), constant(1)).fill_null(False)


def _reasons(
    given: Input, records: ScannedRecords, unfit: pa.Array, stamps: Mapping[str, pa.Array], control: pa.Array | None
) -> pa.Array:
    """Why records are rejected, but for their keys; the first reason counts, and what makes them ``unfit`` comes
    before all.
    """
    event_time, changelog = given.event_time, given.source.changelog
    at = stamps[c.EVENT_TIME]
    reason = _unless(unfit, at.is_null(), "event time is null")
    if not isinstance(event_time.watermark, FromSource):  # which knows better
        reason = _unless(reason, _is_outside(at), "event time is outside the years 1900 to 9998")
    if changelog is not None and c.SIGN in records.columns:
        reason = _unless(reason, pc.invert(_is_sign(records.columns[c.SIGN])), changelog.wrong)
    if c.ID in stamps:
        reason = _unless(reason, stamps[c.ID].is_null(), "id is null")
    if control is None:
        return reason
    reason = pc.if_else(control, pa.scalar(None, pa.string()), reason)
    outside = "asserted watermark is outside the years 1900 to 9998"
    return pc.if_else(_is_outside(stamps[c.MARK]), constant(outside), reason)


def _is_outside(at: pa.Array) -> pa.Array:
    ends = pc.min_max(at)
    if not (ends["min"].is_valid and (ends["min"].as_py() < EARLIEST or ends["max"].as_py() > LATEST)):
        return pa.repeat(constant(False), len(at))
    return pc.or_(pc.less(at, constant(EARLIEST)), pc.greater(at, constant(LATEST))).fill_null(False)


def _unless(reason: pa.Array, wrong: pa.Array, why: str) -> pa.Array:
    """``reason``, or ``why`` where there is none yet and ``wrong`` holds."""
    if not pc.any(wrong).as_py():
        return reason
    return pc.if_else(pc.and_(wrong, reason.is_null()), constant(why), reason)


def newest_of(given: Input, times: pa.Array, processing_time: Instant) -> Instant | None:
    """The newest of the event ``times`` of records of an input; None if there is none. Those too far ahead of the clock
    are left out (semantics 12.14): one that is wrong would count for ever.
    """
    latest = min(int(given.event_time.latest(processing_time)), LATEST)
    newest = pc.max(times.filter(pc.less_equal(times, constant(latest)).fill_null(False))).as_py()
    return None if newest is None else Instant(newest)


def newest_handed_on(given: Input, records: ScannedRecords, processing_time: Instant) -> Instant | None:
    """The newest event time of ``records`` before a user's own code, which may drop some, gets them. It is read from
    columns with the names of those that the code makes; event times of other columns are the latest possible.
    """
    event_time, source = given.event_time, given.source
    parses = records.unparsed.is_null()
    if not pc.any(parses).as_py():
        return None
    if event_time.expr is None:
        return processing_time
    if any(source.types.get(name) != source.columns[name] for name in columns_of(event_time.expr)):
        return event_time.latest(processing_time)
    times, _ = column_apart(event_time.expr, records.columns, source.types, len(records))
    times = times.cast(TIMESTAMP).cast(pa.int64())
    return newest_of(given, times.filter(parses), processing_time)


def columns_read(pipeline: Pipeline, given: Input) -> Mapping[str, str]:
    """The columns of ``given.source.schema`` that something reads, each with what reads it first ("aggregate total").

    Code of a user's own that is handed whole records reads all of them. What the pipeline's own input gets from another
    one (``named(columns=)``) need not be in its files, and is left out.
    """
    purposes: dict[str, str] = {}
    if given.source.transform is not None:
        return dict.fromkeys(given.source.schema, given.source.transform.in_words)
    own = [*given.event_time.expressions()]
    if isinstance(changelog := given.source.changelog, SignedBy):
        own.append(("the changelog", changelog.sign))
    if given.source.explode is not None:
        own.append(("explode", Column(given.source.explode)))
    for purpose, expr in own:
        for name in columns_of(expr):
            purposes.setdefault(name, purpose)
    form = given.expressions(pipeline.schema)
    elsewhere = {name for other in pipeline.union for name in other.columns} if given.name == OWN else set()
    for purpose, expr in (read for alone in pipeline.of_records.values() for read in _of_records(alone)):
        for column in columns_of(expr) - elsewhere:
            for name in columns_of(form[column]):
                purposes.setdefault(name, purpose)
    return purposes


def _of_records(pipeline: Pipeline) -> Iterator[tuple[str, Expr]]:
    """What is computed of records in the form of the pipeline's own."""
    first, loop = pipeline.first, pipeline.loop
    if loop is None:
        yield from first.expressions()
    else:
        yield from ((f"key {name}", expr) for name, expr in pipeline.key.items())
        yield from (("the step of the loop", term.expr) for term in loop.compiled_step.terms)
        yield from () if pipeline.filter is None else [("the filter", pipeline.filter)]
    if pipeline.deduplicate is not None:
        yield "the id of Deduplicate", pipeline.deduplicate.id
    where = first.where.inner if isinstance(first.where, ShiftedOutputTime) else first.where
    own = [where] if isinstance(where, CustomWindows) else []
    for user_code in [
        *own,
        *(node for node in trigger_nodes(pipeline.stages[0].when) if isinstance(node, CustomTrigger)),
    ]:
        yield from ((type(user_code).__name__, Column(name)) for name in pipeline.schema)


def required_by(pipeline: Pipeline, given: Input) -> RequiredColumns:
    """What a file of ``given`` must have, by the columns that it is read with."""
    required = _of_rows(pipeline, given)
    match given.source.changelog:
        case DeltaChangeType() as changelog:
            sign = {"changelog": Column(changelog.column(given.source.schema))}
            return replace(required, identities={**sign, **required.identities}, fields=given.source.as_read.fields)
        case DebeziumEnvelope() as envelope:
            read = {
                envelope.of_row(row, name): reader
                for name, reader in required.columns.items()
                if name not in given.source.metadata
                for row in (envelope.before, envelope.after)
            }
            return RequiredColumns({"changelog": Column(envelope.op)}, read, given.source.as_read.fields)
    return required


def _of_rows(pipeline: Pipeline, given: Input) -> RequiredColumns:
    """What must be there of the columns of its schema."""
    read = columns_read(pipeline, given) if given.source.missing is OnMissing.FAIL else {}
    if given.source.transform is not None:
        return RequiredColumns(columns=read, fields=given.source.fields)
    columns = given.expressions(pipeline.schema)
    outputs = [*pipeline.of_records.values()]
    key = outputs[0].key if len(outputs) == 1 else {}  # of several, others take records that have none
    keys = {f"key {name}": substitute(expr, columns) for name, expr in key.items()}
    expr = given.event_time.expr
    return RequiredColumns(keys if expr is None else {"event time": expr, **keys}, read, given.source.fields)
