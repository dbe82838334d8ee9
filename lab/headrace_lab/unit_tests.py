"""Epochs of a test on the reference interpreter, which is short, slow, and the definition of what is right."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from headrace.distribute.views import BEHIND_JOIN, BEYOND_HORIZON, OF_WITHDRAWAL, WINDOW_EXPIRED
from headrace.errors import ValueOverflowError
from headrace.model.changelog import SIGN
from headrace.model.event_time import SplitStrategy
from headrace.model.expressions.data_types import DataType, ListType, MapType, PairsType, StructType, ValueType
from headrace.model.expressions.expr import Expr
from headrace.model.time import EARLIEST, GLOBAL_WINDOW_END, LATEST, Instant, iso_8601
from headrace.pipeline.endpoints import OWN, Input
from headrace.pipeline.pipeline import Pipeline
from headrace.sources.landing import SHOWN_LETTERS, check_budgets
from headrace.testing.deployment import ReadRecord
from headrace.testing.pipeline_run import GivenEpoch, StepOutput
from headrace.testing.results import OutputRow, PaneRow, Row, TimeSpan
from headrace.testing.steps import datetime_or_none
from headrace_lab.reference import DroppedElement, Epoch, OutputsRun, RejectedRecord
from headrace_lab.reference.elements import Pane as ModelPane
from headrace_lab.reference.evaluate import evaluate
from headrace_lab.reference.pipeline import JOINED_ROWS
from headrace_snapshots.format.manifest import UNNAMED


class ReferenceTestExecutor:
    """An ``output`` of a pipeline on the reference."""

    def __init__(self, pipeline: Pipeline, output: str = UNNAMED.output) -> None:
        self._pipeline, self._output = pipeline, output
        self._output_pipeline = pipeline.by_output[output]
        self._run = OutputsRun(pipeline)

    def compute(self, epoch: GivenEpoch) -> StepOutput:
        """The next epoch."""
        rejected_rows: list[Row] = []
        origins: dict[int, tuple[str, ReadRecord]] = {}
        rows_by_input: dict[str, list[Mapping[str, Any]]] = {}
        for name, file in epoch.files.items():
            for record in file.records:
                why = record.unparsed or _judge_time(file.input, record)
                if why is not None:
                    rejected_rows.append(_dead_letter(name, record, why))
                    continue
                origins[id(record.values)] = (name, record)
                rows_by_input.setdefault(name, []).append(record.values)
        self._run.pass_watermark(epoch.watermarks)
        own = rows_by_input.pop(OWN, [])
        outcomes = self._run.run(Epoch(epoch.processing_time, own, epoch.is_last, epoch.signals, union=rows_by_input))
        outcome = outcomes[self._output]
        rejected_rows = [] if self._output_pipeline.upstream else rejected_rows
        for rejection in outcome.rejected:
            origin = origins.get(id(rejection.record))
            rejected_rows.append(
                _dead_pane(rejection) if origin is None else _dead_letter(*origin, self._reason(origin[0], rejection))
            )
        rejected_rows.sort(key=self._place)
        self._check_budgets(epoch.number, rejected_rows)
        return StepOutput(
            panes=[self._pane(epoch.number, pane) for pane in outcome.panes],
            late=[self._late(drop) for drop in outcome.drops if self._is_late_record(drop)],
            rejected=rejected_rows,
            watermark=outcome.watermark,
            ahead=len(outcome.ahead),
        )

    def _reason(self, name: str, rejection: RejectedRecord) -> str:
        """The reason that the kernel gives (docs/judging.md)."""
        sources = {given_input.name: given_input.source for given_input in self._pipeline.inputs}
        changelog = sources[name].changelog
        return changelog.wrong if changelog is not None and rejection.column == SIGN else _reason(rejection)

    def _place(self, row: Row) -> tuple[int, int]:
        names = [given_input.name for given_input in self._pipeline.inputs]
        return (names.index(row["input"]), row["position"]) if row["input"] in names else (len(names), 0)

    def _check_budgets(self, number: int, rejected_rows: Iterable[Row]) -> None:
        by_input: dict[str, list[str]] = {}
        for row in rejected_rows:
            by_input.setdefault(row["input"], []).append(f"record {row['position']}: {row['reason']}")
        sample = {name: rejected_rows[:SHOWN_LETTERS] for name, rejected_rows in by_input.items()}
        check_budgets(
            self._pipeline, number, {name: len(rejected_rows) for name, rejected_rows in by_input.items()}, sample
        )

    def _is_late_record(self, drop: DroppedElement) -> bool:
        is_record = not self._output_pipeline.upstream
        is_of_source = drop.element.record.keys() == self._pipeline.schema.keys()
        return is_record and drop.is_late and (is_of_source or self._is_behind_join(drop))

    def _is_behind_join(self, drop: DroppedElement) -> bool:
        """Whether a record came too late for a join; it has come to no window."""
        return bool(self._output_pipeline.join) and drop.window is None

    def _late(self, drop: DroppedElement) -> Row:
        keys = self._output_pipeline.record_key_types
        window = drop.window
        why = BEYOND_HORIZON if window is None else WINDOW_EXPIRED
        why = BEHIND_JOIN if self._is_behind_join(drop) else why
        return {
            **_name_values(keys, drop.element.key[: len(keys)]),  # an edge has what a loop reads of it, too
            "event_time": datetime_or_none(drop.element.timestamp),
            "window_start": None if window is None else datetime_or_none(window.start),
            "window_end": None if window is None else datetime_or_none(window.end),
            "reason": f"{OF_WITHDRAWAL if drop.element.is_retraction else ''}{why}",
            "input": None,
            "raw": None,
        }

    def _pane(self, number: int, pane: ModelPane) -> PaneRow:
        if self._output_pipeline.rows:
            values = _name_values(self._output_pipeline.value_types, pane.values)
            return OutputRow.from_values(
                number, values, _pane_time(pane), pane.timing, is_retraction=pane.is_retraction
            )
        return PaneRow(
            step=number,
            key=_name_values(self._output_pipeline.key_types, pane.key),
            window=TimeSpan(datetime_or_none(pane.window.start), datetime_or_none(pane.window.end)),
            values=_name_values(self._output_pipeline.value_types, pane.values),
            timing=pane.timing,
            index=pane.index,
            is_retraction=pane.is_retraction,
            is_first=pane.is_first,
            is_last=pane.is_last,
            time=_pane_time(pane),
        )


def _pane_time(pane: ModelPane) -> datetime | None:
    return None if pane.timestamp >= GLOBAL_WINDOW_END - 1 else datetime_or_none(pane.timestamp)


def _name_values(types: Mapping[str, ValueType], values: Iterable[Any]) -> dict[str, Any]:
    return {name: _plain(value, kind) for (name, kind), value in zip(types.items(), values, strict=True)}


def _plain(value: Any, kind: ValueType) -> Any:
    """A value as readers see it: times as datetimes."""
    if value is None:
        return None
    match kind:
        case ListType(item):
            return [_plain(element, item) for element in value]
        case StructType(fields):
            return {name: _plain(one, own) for one, (name, own) in zip(value, fields, strict=True)}
        case MapType(own):
            return {key: _plain(one, own) for key, one in value}
        case PairsType(left, right):
            return [(_plain(one, left), _plain(other, right)) for one, other in value]
    return (datetime_or_none(Instant(value)) or iso_8601(value)) if kind is DataType.TIMESTAMP else value


def _judge_time(given_input: Input, record: ReadRecord) -> str | None:
    """Why a record has no time that can be meant (docs/judging.md)."""
    event_time, schema = given_input.event_time, given_input.source.columns

    def is_outside(expr: Expr) -> bool:
        with suppress(ValueOverflowError):  # which the interpreter says itself
            value = evaluate(expr, record.values, schema)
            return value is not None and not EARLIEST <= value <= LATEST
        return False

    if event_time.expr is None:
        return None
    strategy = event_time.watermark
    if isinstance(strategy, SplitStrategy):
        mark = strategy.mark(event_time.expr)
        if mark is not event_time.expr and is_outside(mark):
            return "asserted watermark is outside the years 1900 to 9998"
    return "event time is outside the years 1900 to 9998" if is_outside(event_time.expr) else None


def _reason(rejection: RejectedRecord) -> str:
    """The reason that the kernel gives (docs/judging.md)."""
    column = rejection.column
    if rejection.why:
        return rejection.why
    if column == "event_time":
        return "event time is null"
    return "id is null" if column == "id" else f"key is null: {column}"


def _dead_letter(name: str, record: ReadRecord, reason: str) -> Row:
    return {"input": name, "position": record.position, "reason": reason, "raw": record.raw}


def _dead_pane(pane: RejectedRecord) -> Row:
    text_above = f"output {pane.of}" if pane.of else f"aggregation {pane.stage}"
    text_above = JOINED_ROWS if pane.of == JOINED_ROWS else text_above
    return {"input": text_above, "position": None, "reason": _reason(pane), "raw": None}
