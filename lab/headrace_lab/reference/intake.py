"""The way from records of all inputs into the first aggregation: event time, rejects, filter, duplicates (12.9, 12.10).

Every accepted record moves the watermark of its split, also if it is filtered, a duplicate, or late.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from headrace.errors import ValueOverflowError
from headrace.model.changelog import SIGN, RecordSign
from headrace.model.expressions.expr import Expr
from headrace.model.time import MIN_INSTANT, Instant
from headrace.pipeline.endpoints import Source
from headrace.pipeline.pipeline import Pipeline
from headrace_lab.reference.elements import DropCause, DroppedElement, Element
from headrace_lab.reference.evaluate import OverflowsInRecordError, Record, evaluate, evaluate_of
from headrace_lab.reference.source_clock import SourceClock
from headrace_lab.reference.stages import Entrance


@dataclass(frozen=True)
class Rejected:
    """A record without an event time, a sign, a key, or an id; ``column`` is ``event_time``, ``SIGN``, the name of the
    key that is NULL, or ``id``. Of an edge that no loop can go over, it is why, as ``why`` says, too. Where a value
    leaves its type, ``column`` says which it is, and ``why`` also how.

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
class Taken:
    """What an epoch's records became for one output: ``elements`` in order of arrival, and what went elsewhere.
    ``ahead``: those that
    were too far ahead of processing time to move a watermark, whatever they became (12.14).
    """

    elements: list[Element] = field(default_factory=list)
    drops: list[DroppedElement] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    ahead: list[Record] = field(default_factory=list)


class Intake:
    """All inputs of a pipeline: their clocks, and the ids that are remembered. What it takes goes to all outputs."""

    def __init__(self, pipeline: Pipeline, percentiles: Iterable[float]) -> None:
        self._pipeline = pipeline
        self._entrances = {
            output: Entrance(alone.edges or alone.stages[0]) for output, alone in pipeline.of_records.items()
        }
        wanted = list(percentiles)
        self._inputs = {
            given.name: _Reader(
                SourceClock(given.event_time, given.source.columns, wanted),
                given.expressions(pipeline.schema),
                given.source,
            )
            for given in pipeline.inputs
        }
        self._ids: dict[object, Instant] = {}
        self.watermark = MIN_INSTANT
        """The minimum over inputs that are not idle (12.9, 12.11)."""

    @property
    def percentiles(self) -> dict[float, Instant]:
        """The percentile watermarks that were wanted; each the minimum over inputs."""
        clocks = [reader.clock for reader in self._inputs.values()]
        return {q: min(clock.percentile(q) for clock in clocks) for q in clocks[0].percentiles}

    def take(self, name: str, records: Iterable[Record], processing_time: Instant, into: Mapping[str, Taken]) -> None:
        """Add what ``records`` of the input ``name`` become for each output to ``into``."""
        reader = self._inputs[name]
        for record in records:
            self._take(reader, record, processing_time, into)

    def pass_watermark(self, name: str, to: Instant) -> None:
        """Let the watermark of the input ``name`` be at least ``to``, as if its source had said so."""
        clock = self._inputs[name].clock
        clock.watermark = max(clock.watermark, to)

    def advance(self, processing_time: Instant, is_last: bool) -> None:
        """The end of an epoch: clocks move, ids past the horizon are forgotten."""
        for reader in self._inputs.values():
            reader.clock.advance(processing_time, is_last)
        clocks = [reader.clock for reader in self._inputs.values()]
        speaking = [clock for clock in clocks if not clock.is_idle] or clocks
        self.watermark = max(self.watermark, min(clock.watermark for clock in speaking))
        self._ids = {known: at for known, at in self._ids.items() if not self._is_beyond_the_horizon(at)}

    def _take(self, reader: "_Reader", raw: Record, processing_time: Instant, into: Mapping[str, Taken]) -> None:
        try:
            record = reader.record(raw)
            reader.clock.check(raw)
            self._check_id(record)
        except OverflowsInRecordError as error:
            for taken in into.values():
                taken.rejected.append(Rejected(raw, error.what, why=str(error)))
            return
        if reader.clock.is_control(raw):
            self._observe(reader, raw, processing_time, into)
            return
        timestamp, sign = reader.clock.timestamp(raw, processing_time), reader.sign(raw)
        wrong = "event_time" if timestamp is None else None if sign in {1, -1} else SIGN
        taking: list[str] = []
        for output, entrance in self._entrances.items():
            try:
                missing = wrong or self._missing(record, entrance)
            except OverflowsInRecordError as error:
                into[output].rejected.append(Rejected(raw, error.what, why=str(error)))
                continue
            if missing is None:
                taking.append(output)
            else:
                why = missing if missing in entrance.unfit_reasons else ""
                into[output].rejected.append(Rejected(raw, missing, why=why))
        if timestamp is None or not taking:  # what no output can take says nothing
            return
        self._observe(reader, raw, processing_time, into)
        admitting = [output for output in taking if self._entrances[output].admits(record)]
        cause = self._duplicate(record, timestamp, sign) if admitting else None
        for output in admitting:
            element = self._entrances[output].element(record, timestamp, sign == -1)
            if cause is None:
                into[output].elements.append(element)
            else:
                into[output].drops.append(DroppedElement(element, None, cause, is_late=cause is DropCause.LATE))

    def _observe(self, reader: "_Reader", raw: Record, processing_time: Instant, into: Mapping[str, Taken]) -> None:
        if not reader.clock.observe(raw, processing_time):
            for taken in into.values():
                taken.ahead.append(raw)

    def _check_id(self, record: Record) -> None:
        deduplicate = self._pipeline.deduplicate
        if deduplicate is not None:
            evaluate_of("id", deduplicate.id, record, self._pipeline.schema)

    def _missing(self, record: Record, entrance: Entrance) -> str | None:
        deduplicate = self._pipeline.deduplicate
        if deduplicate is not None and evaluate(deduplicate.id, record, self._pipeline.schema) is None:
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
        known = evaluate(deduplicate.id, record, self._pipeline.schema), sign
        if known in self._ids:
            return DropCause.DUPLICATE
        self._ids[known] = timestamp
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
