"""Records judged: accepted, rejected with a reason, or filtered; and what they say to the watermark of their input.

A judged record has what ``kernel.delta`` asks for, ``_sign`` too where records can withdraw others. It has ``_split``
and ``_mark`` (what it says of which split), and ``_id`` where duplicates are told apart. Only the reason of a rejected
record counts.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import HeadraceError, PipelineError, ValueOverflowError
from headrace.formats.file_format import RequiredColumns, ScannedRecords
from headrace.kernel.columns import TIMESTAMP, arrow_scalar, arrow_type, true_mask, valid_mask
from headrace.kernel.delta import (
    Columns,
    add_reason,
    decide_participation,
    inputs_of,
    reject_overflows,
    with_size,
)
from headrace.kernel.expressions.evaluation import Overflow, RowOverflowsError, column_apart
from headrace.kernel.keys import to_comparable_bytes, type_of_comparable
from headrace.kernel.stage import CompiledStage
from headrace.model.changelog import CHANGED_AT, DebeziumEnvelope, DebeziumVersions, DeltaChangeType, SignedBy
from headrace.model.event_time import EventTime, FromSource, SplitStrategy
from headrace.model.expressions.data_types import DataType, Schema
from headrace.model.expressions.expr import Column, Expr
from headrace.model.expressions.typing import columns_of, kind_of
from headrace.model.time import EARLIEST, LATEST, Instant
from headrace.model.triggers.custom import CustomTrigger
from headrace.model.windows import CustomWindows, unshift_windows
from headrace.pipeline.endpoints import OWN, Input, OnMissing
from headrace.pipeline.joins import columns_of_right
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.stages import trigger_nodes
from headrace.program import columns as c
from headrace.program.columns import substitute_columns

if TYPE_CHECKING:
    from headrace.kernel.joins.sides import CompiledJoins

ISOLATED_ERRORS = (PipelineError, ValueOverflowError)
"""Errors of expressions, and of users' own code, which are of one chain."""


class ParkedChains(msgspec.Struct, frozen=True):
    """Which chains are parked, by ``numbers``: of these only what they take is looked at. ``isolates``: an error of one
    chain is kept beside what others make of the records.
    """

    numbers: Collection[int] = frozenset()
    isolates: bool = False


NONE_PARKED = ParkedChains()


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
    def from_chains(cls, chains: Sequence[Columns], errors: Mapping[int, HeadraceError]) -> "JudgedRecords":
        """What is common to all ``chains``; one chain shares all. Raises an error if no chain says what it takes."""
        if len(chains) == 1:
            return cls(chains[0], (chains[0],), errors)
        deciding_chains = [chain for chain in chains if c.IS_ADMITTED in chain]
        if not deciding_chains:
            raise next(iter(errors.values()))
        first = deciding_chains[0]
        rejects = reduce(pc.and_, (pc.is_valid(chain[c.REJECT]) for chain in deciding_chains))
        admissions = (pc.and_(chain[c.IS_ADMITTED], chain[c.REJECT].is_null()) for chain in deciding_chains)
        common = {name: first[name] for name in _COMMON if name in first}
        common[c.REJECT] = pc.if_else(rejects, first[c.REJECT], pa.scalar(None, first[c.REJECT].type))
        common[c.IS_ADMITTED] = reduce(pc.or_, admissions)
        return cls(common, tuple(chains), errors)

    def with_errors(self, errors: Mapping[int, HeadraceError]) -> "JudgedRecords":
        """These, which some more chains, by number, cannot take."""
        return replace(self, errors={**errors, **self.errors})


_COMMON = (c.EVENT_TIME, c.SPLIT, c.MARK, c.ID, c.SIGN)


def judge_records(
    pipeline: Pipeline,
    stages: "Sequence[CompiledStage | CompiledJoins]",
    input_: Input,
    records: ScannedRecords,
    processing_time: Instant,
    *,
    path_of: Callable[[int], str] = lambda row: "the input",
    parked_chains: ParkedChains = NONE_PARKED,
) -> JudgedRecords:
    """``records`` of the input ``input_``, judged for the first ``stages`` of chains. ``path_of``: the file of a row.
    ``processing_time`` is that of the epoch, the event time of records that have none of their own (``Ingestion``).
    ``parked_chains``: whose errors are kept.
    """
    own, length = input_.source.columns, len(records)
    parses = records.unparsed.is_null()
    unfit = records.unparsed

    def evaluate_or_mark_unfit(what: str, expr: Expr, rows: Mapping[str, pa.Array], schema: Schema) -> pa.Array:
        """``expr`` of each record, NULL if it does not parse, or overflows, which makes it ``unfit``."""
        nonlocal unfit
        values, overflows = _evaluate_or_null(expr, rows, schema, parses, length)
        unfit = reject_overflows(unfit, what, overflows)
        return values

    rows = _in_form(pipeline, input_, records, evaluate_or_mark_unfit)
    stamps = _stamp_columns(input_.event_time, records, own, processing_time, evaluate_or_mark_unfit)
    is_left = pipeline.is_left(input_)
    if pipeline.deduplicate is not None:
        stamps[c.ID] = _ids(
            pipeline, pipeline.deduplicate.id, rows, length, evaluate_or_mark_unfit if is_left else None
        )
    control = _is_control(input_.event_time, unfit.is_null(), stamps)
    rejects = _rejection_reasons(input_, records, unfit, stamps, control, has_id=is_left and c.ID in stamps)

    elements: Columns = {**rows, c.EVENT_TIME: stamps[c.EVENT_TIME]}
    if pipeline.withdraws_records:
        elements = {**elements, c.SIGN: _record_signs(records)}
        stamps[c.SIGN] = elements[c.SIGN]

    def decided_for(stage: "CompiledStage | CompiledJoins", elements: Columns) -> Columns:
        if isinstance(stage, CompiledStage):
            columns = decide_participation(stage, elements, rejects)
        else:
            columns = stage.judge_records(input_.name, elements, rejects, is_left=is_left)
        if not is_left and isinstance(stage, CompiledStage):  # others join it
            columns |= {c.REJECT: rejects, c.IS_ADMITTED: pa.repeat(arrow_scalar(False), length)}
        if control is not None:  # it needs no key
            columns[c.REJECT] = pc.if_else(control, rejects, columns[c.REJECT])
        if records.unparsed.null_count < length:  # an expression may make something of a record that does not parse
            columns[c.IS_ADMITTED] = pc.and_(columns[c.IS_ADMITTED], parses)
        return {**columns, **stamps}

    chains: list[Columns] = []
    errors: dict[int, HeadraceError] = {}
    for number, stage in enumerate(stages):
        columns: Columns = {}
        try:
            read = elements
            if isinstance(stage, CompiledStage):
                read = with_size(stage, elements if is_left else _elements_without_values(stage, elements))
            columns = decided_for(stage, read)
            if number not in parked_chains.numbers and isinstance(stage, CompiledStage):
                columns = {**columns, **inputs_of(stage, read, columns)}
        except RowOverflowsError as overflows:
            errors[number] = _overflow_error(overflows, path_of(overflows.row), records)
        except ISOLATED_ERRORS as error:
            errors[number] = error
        if number in errors and not parked_chains.isolates:
            raise errors[number]
        chains.append(columns)
    return JudgedRecords.from_chains(chains, errors)


def _elements_without_values(stage: CompiledStage, elements: Columns) -> Columns:
    """Elements without values, as many as these, for a ``stage`` that takes none of them."""
    length = len(elements[c.EVENT_TIME])
    columns = {name: pa.nulls(length, arrow_type(kind)) for name, kind in stage.stage.schema.items()}
    return columns | {name: elements[name] for name in (c.EVENT_TIME, c.SIGN) if name in elements}


def mark_of(event_time: EventTime) -> Expr | None:
    """The expression of the marks of splits (``model.event_time``), None where they are the event times."""
    strategy, expr = event_time.watermark, event_time.expr
    if not isinstance(strategy, SplitStrategy) or expr is None:
        return None
    mark = strategy.mark(expr)
    return None if mark is expr else mark


Fitting = Callable[[str, Expr, Mapping[str, pa.Array], Schema], pa.Array]
"""Gives an expression of each record; what it is called, and the columns that it is over, with their types."""


def _ids(pipeline: Pipeline, id_: Expr, rows: Mapping[str, pa.Array], length: int, fitting: Fitting | None) -> pa.Array:
    """The ids by which duplicates are told; records that are joined, without ``fitting``, have NULL."""
    if fitting is None:
        return pa.nulls(length, type_of_comparable(kind_of(id_, pipeline.schema) or DataType.STRING))
    return to_comparable_bytes(fitting("id", id_, rows, pipeline.schema))


def _overflow_error(overflows: RowOverflowsError, path: str, records: ScannedRecords) -> ValueOverflowError:
    position = int(records.position[overflows.row])
    return type(overflows.error)(f"{path}, position {position}: {overflows.error}")


def _evaluate_or_null(
    expr: Expr, rows: Mapping[str, pa.Array], schema: Schema, parses: pa.Array, length: int
) -> tuple[pa.Array, tuple[Overflow, ...]]:
    """``expr`` of each record, NULL if it does not parse; and where it overflows."""
    values, overflows = column_apart(expr, rows, schema, length)
    if pc.all(parses).as_py() is False:
        values = pc.if_else(parses, values, pa.scalar(None, values.type))
    return values, overflows


def _in_form(pipeline: Pipeline, input_: Input, records: ScannedRecords, fitting: Fitting) -> dict[str, pa.Array]:
    """The records in the form of the pipeline's own; joined records stay as they are."""
    if not pipeline.is_left(input_):
        return dict(records.columns)
    columns = input_.expressions(pipeline.schema)
    if all(isinstance(expr, Column) and expr.name == name for name, expr in columns.items()):
        return dict(records.columns)
    own = input_.source.columns
    return {name: fitting(f"column {name}", expr, records.columns, own) for name, expr in columns.items()}


def _stamp_columns(
    event_time: EventTime, records: ScannedRecords, schema: Schema, processing_time: Instant, fitting: Fitting
) -> dict[str, pa.Array]:
    """Event time, mark and split, over the columns of the input."""
    parses, length = records.unparsed.is_null(), len(records)

    def evaluate_instants(what: str, expr: Expr) -> pa.Array:
        return fitting(what, expr, records.columns, schema).cast(TIMESTAMP).cast(pa.int64())

    mark, stamps = mark_of(event_time), {}
    if mark is not None:  # it is judged first
        stamps[c.MARK] = evaluate_instants("asserted watermark", mark)
    if event_time.expr is None:
        stamps[c.EVENT_TIME] = pc.if_else(parses, arrow_scalar(int(processing_time)), pa.scalar(None, pa.int64()))
    else:
        stamps[c.EVENT_TIME] = evaluate_instants("event time", event_time.expr)
        if c.TOMBSTONE_AT in records.columns:
            deleted_at = records.columns[c.TOMBSTONE_AT].cast(pa.int64())
            stamps[c.EVENT_TIME] = pc.coalesce(
                pc.if_else(parses, deleted_at, pa.scalar(None, pa.int64())), stamps[c.EVENT_TIME]
            )
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


def _record_signs(records: ScannedRecords) -> pa.Array:
    """Whether records add a row or withdraw it; 1 for those that do not say it, which are rejected."""
    if c.SIGN not in records.columns:
        return pa.array(np.ones(len(records), np.int64))
    return pc.if_else(_is_sign(records.columns[c.SIGN]), records.columns[c.SIGN], arrow_scalar(1))


def _is_sign(signs: pa.Array) -> pa.Array:
    return pc.equal(pc.abs(signs), arrow_scalar(1)).fill_null(False)


def _rejection_reasons(
    input_: Input,
    records: ScannedRecords,
    unfit: pa.Array,
    stamps: Mapping[str, pa.Array],
    control: pa.Array | None,
    *,
    has_id: bool,
) -> pa.Array:
    """Why records are rejected, but for their keys; the first reason counts, and what makes them ``unfit`` comes
    before all.
    """
    event_time, changelog = input_.event_time, input_.source.changelog
    event_times = stamps[c.EVENT_TIME]
    reason = add_reason(unfit, ~valid_mask(event_times), "event time is null")
    if not isinstance(event_time.watermark, FromSource):  # which knows better
        reason = add_reason(reason, true_mask(_is_outside(event_times)), "event time is outside the years 1900 to 9998")
    if changelog is not None and c.SIGN in records.columns:
        reason = add_reason(reason, ~true_mask(_is_sign(records.columns[c.SIGN])), changelog.wrong)
    if has_id:
        reason = add_reason(reason, ~valid_mask(stamps[c.ID]), "id is null")
    if control is None:
        return reason
    reason = pc.if_else(control, pa.scalar(None, pa.string()), reason)
    mark_reason = "asserted watermark is outside the years 1900 to 9998"
    return pc.if_else(_is_outside(stamps[c.MARK]), arrow_scalar(mark_reason), reason)


def _is_outside(event_times: pa.Array) -> pa.Array:
    ends = pc.min_max(event_times)
    if not (ends["min"].is_valid and (ends["min"].as_py() < EARLIEST or ends["max"].as_py() > LATEST)):
        return pa.repeat(arrow_scalar(False), len(event_times))
    return pc.or_(
        pc.less(event_times, arrow_scalar(EARLIEST)), pc.greater(event_times, arrow_scalar(LATEST))
    ).fill_null(False)


def newest_of(input_: Input, times: pa.Array, processing_time: Instant) -> Instant | None:
    """The newest of the event ``times`` of records of an input; None if there is none. Times too far ahead of the clock
    are left out (semantics 12.14): one that is wrong would count for ever.
    """
    latest = min(int(input_.event_time.latest_watermark(processing_time)), LATEST)
    newest = pc.max(times.filter(pc.less_equal(times, arrow_scalar(latest)).fill_null(False))).as_py()
    return None if newest is None else Instant(newest)


def newest_handed_on(input_: Input, records: ScannedRecords, processing_time: Instant) -> Instant | None:
    """The newest event time of ``records`` before a user's own code, which may drop some, gets them. It is read from
    columns with the names of those that the code makes; event times of other columns are the latest possible.
    """
    event_time, source = input_.event_time, input_.source
    parses = records.unparsed.is_null()
    if not pc.any(parses).as_py():
        return None
    if event_time.expr is None:
        return processing_time
    if any(source.types.get(name) != source.columns[name] for name in columns_of(event_time.expr)):
        return event_time.latest_watermark(processing_time)
    times, _ = column_apart(event_time.expr, records.columns, source.types, len(records))
    times = times.cast(TIMESTAMP).cast(pa.int64())
    return newest_of(input_, times.filter(parses), processing_time)


def columns_read(pipeline: Pipeline, input_: Input) -> Mapping[str, str]:
    """The columns of ``given.source.schema`` that something reads, each with what reads it first ("aggregate total").

    Code of a user's own that is handed whole records reads all of them. What the pipeline's own input gets from another
    one (``named(columns=)``) need not be in its files, and is left out.
    """
    purposes: dict[str, str] = {}
    if input_.source.transform is not None:
        return dict.fromkeys(input_.source.schema, input_.source.transform.in_words)
    own = [*input_.event_time.expressions()]
    if isinstance(changelog := input_.source.changelog, SignedBy):
        own.append(("the changelog", changelog.sign))
    if input_.source.versions is not None:
        own += input_.source.versions.said_by
    own += [("explode", Column(name)) for name in input_.source.exploded]
    for purpose, expr in own:
        for name in columns_of(expr):
            purposes.setdefault(name, purpose)
    version_columns = () if input_.source.versions is None else input_.source.versions.columns
    if joins_of_input := [join for join in pipeline.joins_of_inputs if join.name == input_.name]:
        read = {name: purpose for join in joins_of_input for name, purpose in columns_of_right(join).items()}
        purposes = {**read, **purposes}
        return {name: purpose for name, purpose in purposes.items() if name not in version_columns}
    form = input_.expressions(pipeline.schema)
    elsewhere = {name for other in pipeline.union for name in other.columns} if input_.name == OWN else set()
    for purpose, expr in (
        read for output_pipeline in pipeline.of_records.values() for read in _of_records(output_pipeline)
    ):
        for column in (columns_of(expr) & {*form}) - elsewhere:
            for name in columns_of(form[column]):
                purposes.setdefault(name, purpose)
    return {name: purpose for name, purpose in purposes.items() if name not in version_columns}


def _of_records(pipeline: Pipeline) -> Iterator[tuple[str, Expr]]:
    """What is computed of records in the form of the pipeline's own."""
    first, loop = pipeline.first, pipeline.loop
    for join in pipeline.join:
        yield from ((f"on of {join.made_by}", join.computed.get(name, Column(name))) for name in join.on)
    if loop is None:
        yield from first.expressions()
    else:
        yield from ((f"key {name}", expr) for name, expr in pipeline.key.items())
        yield from (("the step of the loop", term.expr) for term in loop.compiled_step.terms)
        yield from () if pipeline.filter is None else [("the filter", pipeline.filter)]
    if pipeline.deduplicate is not None:
        yield "the id of Deduplicate", pipeline.deduplicate.id
    where = unshift_windows(first.where)
    own = [where] if isinstance(where, CustomWindows) else []
    for user_code in [
        *own,
        *(node for node in trigger_nodes(pipeline.stages[0].when) if isinstance(node, CustomTrigger)),
    ]:
        yield from ((type(user_code).__name__, Column(name)) for name in pipeline.schema)


def required_by(pipeline: Pipeline, input_: Input) -> RequiredColumns:
    """What a file of ``input_`` must have, by the columns that it is read with."""
    required_columns = _of_rows(pipeline, input_)
    match input_.source.changelog or input_.source.versions:
        case DeltaChangeType() as changelog:
            sign = {"changelog": Column(changelog.column_name(input_.source.schema))}
            return replace(
                required_columns,
                identities={**sign, **required_columns.identities},
                fields=input_.source.as_read.fields,
            )
        case DebeziumEnvelope() | DebeziumVersions() as envelope:
            read = {
                envelope.of_row(row, name): reader
                for name, reader in required_columns.columns.items()
                if name not in input_.source.metadata
                for row in (envelope.before, envelope.after)
            }
            fields, names = input_.source.as_read.fields, {"changelog": envelope.op, "time of a change": CHANGED_AT}
            identities = {what: Column(name) for what, name in names.items() if name in fields}
            return RequiredColumns(identities, read, fields)
    return required_columns


def _of_rows(pipeline: Pipeline, input_: Input) -> RequiredColumns:
    """What must be there of the columns of its schema."""
    read = columns_read(pipeline, input_) if input_.source.missing is OnMissing.FAIL else {}
    if input_.source.transform is not None:
        return RequiredColumns(columns=read, fields=input_.source.fields)
    expr = input_.event_time.expr
    if pipeline.joins_of_inputs:
        return RequiredColumns({} if expr is None else {"event time": expr}, read, input_.source.fields)
    columns = input_.expressions(pipeline.schema)
    outputs = [*pipeline.of_records.values()]
    is_needed = len(outputs) == 1 and not outputs[0].null_keys  # of several, others take records that have none
    key = outputs[0].key if is_needed else {}
    keys = {f"key {name}": substitute_columns(expr, columns) for name, expr in key.items()}
    return RequiredColumns(keys if expr is None else {"event time": expr, **keys}, read, input_.source.fields)
