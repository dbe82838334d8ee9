"""The way from records of all inputs into the first aggregation: event time, rejects, filter, duplicates (12.9, 12.10).

Every accepted record moves the watermark of its split, also if it is filtered, a duplicate, or late.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from headrace.errors import ValueOverflowError
from headrace.model.changelog import SIGN, RecordSign
from headrace.model.expressions.expr import Column, Expr
from headrace.model.time import MIN_INSTANT, Instant
from headrace.pipeline.endpoints import Source
from headrace.pipeline.joins import Join
from headrace.pipeline.pipeline import Pipeline
from headrace_lab.reference.elements import DropCause, DroppedElement, Element
from headrace_lab.reference.evaluate import OverflowsInRecordError, Record, evaluate, evaluate_of, identity_key
from headrace_lab.reference.joins import LEFT, Row, check_key, key_of
from headrace_lab.reference.source_clock import SourceClock
from headrace_lab.reference.stages import Entrance


@dataclass(frozen=True)
class RejectedRecord:
    """A record without an event time, a sign, a key, or an id; ``column`` is ``event_time``, ``SIGN``, the name of the
    key that is NULL, or ``id``. For an edge that no loop can go over, ``column`` and ``why`` are the reason. Where a
    value leaves its type, ``column`` says which it is, and ``why`` also how.

    Behind the first aggregation (``stage`` 0) it is what a pane became, and so it is there if it is ``of`` another
    output; its retraction is rejected as well.
    """

    record: Record
    column: str
    stage: int = 0
    of: str = ""
    why: str = ""

    @property
    def is_pane(self) -> bool:
        """Whether it is what a pane became."""
        return bool(self.stage or self.of)


@dataclass
class EpochInput:
    """What an epoch's records became for one output: ``elements`` in order of arrival, and what went elsewhere.
    ``ahead``: those that
    were too far ahead of processing time to move a watermark, whatever they became (12.14).
    """

    elements: list[Element] = field(default_factory=list)
    drops: list[DroppedElement] = field(default_factory=list)
    rejected: list[RejectedRecord] = field(default_factory=list)
    ahead: list[Record] = field(default_factory=list)
    sides: dict[str, list[Row]] = field(default_factory=dict)
    """Rows for the sides of joins, by the name of the input that is joined; rows on the left are under ``LEFT``."""


class Intake:
    """All inputs of a pipeline: their clocks, and the ids that are remembered. What it takes goes to all outputs."""

    def __init__(self, pipeline: Pipeline, percentiles: Iterable[float]) -> None:
        self._pipeline = pipeline
        self._entrances = {
            output: Entrance(output_pipeline.edges or output_pipeline.stages[0])
            for output, output_pipeline in pipeline.of_records.items()
            if not output_pipeline.join
        }
        self._joins = {
            output: output_pipeline.join
            for output, output_pipeline in pipeline.of_records.items()
            if output_pipeline.join
        }
        self._left = [given_left_input.name for given_left_input in pipeline.left_inputs]
        own: dict[str, dict[str, Expr]] = {
            join.name: {name: Column(name) for name in join.right.source.columns} for join in pipeline.joins_of_inputs
        }
        expected = list(percentiles)
        self._inputs = {
            given_input.name: _Reader(
                SourceClock(given_input.event_time, given_input.source.columns, expected),
                own.get(given_input.name) or given_input.expressions(pipeline.schema),
                given_input.source,
                given_input.name,
            )
            for given_input in pipeline.inputs
        }
        self._ids: dict[object, Instant] = {}
        self.watermark = MIN_INSTANT
        """The minimum over inputs that are not idle (12.9, 12.11)."""

    @property
    def percentiles(self) -> dict[float, Instant]:
        """The percentile watermarks that were wanted; each the minimum over inputs."""
        clocks = [reader.clock for reader in self._inputs.values()]
        return {q: min(clock.percentile(q) for clock in clocks) for q in clocks[0].percentiles}

    def take(
        self, name: str, records: Iterable[Record], processing_time: Instant, epoch_inputs: Mapping[str, EpochInput]
    ) -> None:
        """Add what ``records`` of the input ``name`` become for each output to ``epoch_inputs``."""
        reader = self._inputs[name]
        for record in records:
            self._take(reader, record, processing_time, epoch_inputs)

    def pass_watermark(self, name: str, watermark: Instant) -> None:
        """Let the watermark of the input ``name`` be at least ``watermark``, as if its source had said so."""
        clock = self._inputs[name].clock
        clock.watermark = max(clock.watermark, watermark)

    def advance(self, processing_time: Instant, is_last: bool) -> None:
        """The end of an epoch: clocks move, ids past the horizon are forgotten."""
        for reader in self._inputs.values():
            reader.clock.advance(processing_time, is_last)
        clocks = [reader.clock for reader in self._inputs.values()]
        speaking = [clock for clock in clocks if not clock.is_idle] or clocks
        self.watermark = max(self.watermark, min(clock.watermark for clock in speaking))
        self._ids = {
            signed_id: timestamp
            for signed_id, timestamp in self._ids.items()
            if not self._is_beyond_the_horizon(timestamp)
        }

    def _take(
        self, reader: "_Reader", raw: Record, processing_time: Instant, epoch_inputs: Mapping[str, EpochInput]
    ) -> None:
        try:
            record = reader.record(raw)
            reader.clock.check(raw)
            if reader.name in self._left:
                self._check_id(record)
        except OverflowsInRecordError as error:
            for taken_value in epoch_inputs.values():
                taken_value.rejected.append(RejectedRecord(raw, error.what, why=str(error)))
            return
        if reader.clock.is_control(raw):
            self._observe(reader, raw, processing_time, epoch_inputs)
            return
        timestamp, sign = reader.clock.timestamp(raw, processing_time), reader.sign(raw)
        wrong = "event_time" if timestamp is None else None if sign in {1, -1} else SIGN
        taking = self._taking(reader, raw, record, wrong, epoch_inputs)
        if timestamp is None or not taking:  # what no output can take says nothing
            return
        self._observe(reader, raw, processing_time, epoch_inputs)
        row = Row(timestamp, record, sign == -1)
        if reader.name in self._left:
            self._take_elements(row, sign, taking, epoch_inputs)
            return
        for output in self._joins:
            if output in taking and reader.name in {join.name for join in self._joins[output]}:
                epoch_inputs[output].sides.setdefault(reader.name, []).append(row)

    def _taking(
        self, reader: "_Reader", raw: Record, record: Record, wrong: str | None, epoch_inputs: Mapping[str, EpochInput]
    ) -> list[str]:
        """The outputs that can take a record, as far as its key and columns go; for others it is a dead letter."""
        taking: list[str] = []
        for output, joins in self._joins.items():
            unfit, why = self._unfit_for_side(reader, joins, record, wrong)
            if unfit is None:
                taking.append(output)
            else:
                epoch_inputs[output].rejected.append(RejectedRecord(raw, unfit, why=why))
        for output, entrance in self._entrances.items():
            try:
                missing = wrong or (self._missing(record, entrance) if reader.name in self._left else None)
            except OverflowsInRecordError as error:
                epoch_inputs[output].rejected.append(RejectedRecord(raw, error.what, why=str(error)))
                continue
            if missing is None:
                taking.append(output)
            else:
                why = missing if missing in entrance.unfit_reasons else ""
                epoch_inputs[output].rejected.append(RejectedRecord(raw, missing, why=why))
        return taking

    def _take_elements(
        self, row: Row, sign: object, outputs: Iterable[str], epoch_inputs: Mapping[str, EpochInput]
    ) -> None:
        """Add a record as an element of ``outputs``, where their filters let it pass, unless it is a duplicate."""
        admitting = [output for output in outputs if self._admits(output, row.record)]
        cause = self._duplicate(row.record, row.timestamp, sign) if admitting else None
        for output in admitting:
            if output in self._joins:
                element = Element((), row.timestamp, None, row.is_retraction, row.record)
            else:
                element = self._entrances[output].element(row.record, row.timestamp, row.is_retraction)
            if cause is not None:
                epoch_inputs[output].drops.append(DroppedElement(element, None, cause, is_late=cause is DropCause.LATE))
            elif output in self._joins:
                epoch_inputs[output].sides.setdefault(LEFT, []).append(row)
            else:
                epoch_inputs[output].elements.append(element)

    def _admits(self, output: str, record: Record) -> bool:
        """Whether ``output`` takes a record, if it is the first of its id: its filter lets it pass, or it may leave its
        first join.
        """
        if output not in self._joins:
            return self._entrances[output].admits(record)
        first = self._joins[output][0]
        return first.outer or None not in key_of(first, record, self._pipeline.schema)

    def _unfit_for_side(
        self, reader: "_Reader", joins: Sequence[Join], record: Record, wrong: str | None
    ) -> tuple[str | None, str]:
        """Why ``joins`` cannot take a record on the side that its input is on, and how that is said; None: they can."""
        try:
            if wrong is None and reader.name in self._left:
                check_key(joins[0], record, self._pipeline.schema)
                wrong = self._missing_id(record)
            for join in joins if wrong is None else ():
                if join.name == reader.name:
                    for purpose, expr in join.expressions():
                        evaluate_of(purpose, expr, record, reader.clock.schema)
        except OverflowsInRecordError as error:
            return error.what, str(error)
        return wrong, ""

    def _observe(
        self, reader: "_Reader", raw: Record, processing_time: Instant, epoch_inputs: Mapping[str, EpochInput]
    ) -> None:
        if not reader.clock.observe(raw, processing_time):
            for taken_value in epoch_inputs.values():
                taken_value.ahead.append(raw)

    def _check_id(self, record: Record) -> None:
        deduplicate = self._pipeline.deduplicate
        if deduplicate is not None:
            evaluate_of("id", deduplicate.id, record, self._pipeline.schema)

    def _missing_id(self, record: Record) -> str | None:
        deduplicate = self._pipeline.deduplicate
        has_none = deduplicate is not None and evaluate(deduplicate.id, record, self._pipeline.schema) is None
        return "id" if has_none else None

    def _missing(self, record: Record, entrance: Entrance) -> str | None:
        if self._missing_id(record) is not None:
            return "id"
        missing = entrance.missing(record)
        return entrance.unfit(record) if missing is None and entrance.admits(record) else missing

    def _duplicate(self, record: Record, timestamp: Instant, sign: object) -> DropCause | None:
        """Why a record is not the first of its id and sign; it is remembered if it is."""
        deduplicate = self._pipeline.deduplicate
        if deduplicate is None:
            return None
        if self._is_beyond_the_horizon(timestamp):
            return DropCause.LATE
        signed_id = identity_key(evaluate(deduplicate.id, record, self._pipeline.schema)), sign
        if signed_id in self._ids:
            return DropCause.DUPLICATE
        self._ids[signed_id] = timestamp
        return None

    def _is_beyond_the_horizon(self, timestamp: Instant) -> bool:
        deduplicate = self._pipeline.deduplicate
        return deduplicate is not None and self.watermark > timestamp + deduplicate.horizon


@dataclass
class _Reader:
    """One input: its clock, the pipeline's columns over its own, and its source."""

    clock: SourceClock
    columns: dict[str, Expr]
    source: Source
    name: str

    def record(self, raw: Record) -> Record:
        """``raw`` with the columns of the pipeline."""
        columns = self.columns.items()
        return {name: evaluate_of(f"column {name}", expr, raw, self.clock.schema) for name, expr in columns}

    def sign(self, raw: Record) -> object:
        """1 if ``raw`` adds a row, -1 if it withdraws one, anything else if it is wrong (14.1). A record that was read
        already says it itself.
        """
        changelog = self.source.changelog
        if changelog is None or SIGN in raw:
            return raw.get(SIGN, 1)
        assert isinstance(changelog, RecordSign)  # an envelope is read as changes first
        with suppress(ValueOverflowError):  # which is neither
            return evaluate(changelog.sign_of(self.source.schema), raw, self.source.as_read.columns)
        return None
