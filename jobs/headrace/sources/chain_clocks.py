"""The clocks of a chain of aggregations after an epoch, as far as they are its own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.model.time import END_OF_CALENDAR, NEVER, Instant, render
from headrace.sources.stored_times import in_calendar, instant_of, instants_of, optional_instant_of
from headrace_snapshots.format.codec import Fields
from headrace_snapshots.format.manifest import INPUT_WATERMARK, OUTPUTS
from headrace_snapshots.format.table_names import UNNAMED

T = TypeVar("T")


@dataclass(frozen=True)
class Parked:
    """Why the output of a chain goes no further, an error with its ``code`` and ``message``; and where it is: as the
    ``epoch`` left it, whose snapshot has the id ``snapshot`` (-1 and None: it has not begun). ``since``: the first
    epoch that went on without it.
    """

    epoch: int
    snapshot: str | None
    code: str
    message: str
    since: int

    def to_json(self) -> dict[str, Any]:
        """Fields for those of the chain."""
        reason = {"code": self.code, "message": self.message, "since": self.since}
        return {"epoch": self.epoch, "snapshot": self.snapshot, "parked": reason}

    def describe(self) -> str:
        """For people: since when, and why."""
        return f"since epoch {self.since}: {self.message} ({self.code})"

    @classmethod
    def from_json(cls, fields: Fields) -> "Parked | None":
        """The inverse of ``to_json``; None for a chain that is not parked. Raises MalformedError."""
        reason = fields.optional_fields("parked")
        if reason is None:
            return None
        code, message, since = reason.text("code"), reason.text("message"), reason.integer("since")
        return cls(fields.integer("epoch"), fields.optional_text("snapshot"), code, message, since)


@dataclass(frozen=True)
class ChainClocks:
    """The output watermark of each stage; lower bounds of the watermark and of the processing time at which the chain
    wants its next activation, NEVER where it wants none. ``watermark``: the one that comes to its first stage, where
    that takes panes of other outputs, or what a loop makes of records; None: that of the source. ``parked``: the chain
    stands still, and wants none.
    """

    output_watermarks: tuple[Instant, ...] = ()
    due_event: Instant = NEVER
    due_time: Instant = NEVER
    watermark: Instant | None = None
    parked: Parked | None = None

    def to_json(self) -> dict[str, Any]:
        """Instants as ISO 8601 in UTC, or -inf and +inf; a due that never comes is null."""
        own = {} if self.watermark is None else {INPUT_WATERMARK: render(in_calendar(self.watermark))}
        return {
            **own,
            "output_watermarks": [render(in_calendar(value)) for value in self.output_watermarks],
            "next_event_time_deadline": _due_to_json(self.due_event),
            "next_processing_time_deadline": _due_to_json(self.due_time),
            **({} if self.parked is None else self.parked.to_json()),
        }

    @classmethod
    def from_json(cls, fields: Fields) -> "ChainClocks":
        """The inverse of ``to_json``. Raises MalformedError."""
        return cls(
            output_watermarks=instants_of(fields, "output_watermarks"),
            due_event=_due(fields, "next_event_time_deadline"),
            due_time=_due(fields, "next_processing_time_deadline"),
            watermark=instant_of(fields, INPUT_WATERMARK) if INPUT_WATERMARK in fields.value else None,
            parked=Parked.from_json(fields),
        )


def by_output_to_json(chains: Mapping[str, T], to_json: Callable[[T], dict[str, Any]]) -> dict[str, Any]:
    """What is stored of each of the ``chains``, by output: fields of their own where outputs have names."""
    if UNNAMED.output in chains:
        return to_json(chains[UNNAMED.output])
    return {OUTPUTS: {output: to_json(chain) for output, chain in chains.items()}}


def by_output(fields: Fields, from_json: Callable[[Fields], T]) -> dict[str, T]:
    """The inverse of ``by_output_to_json``. Raises MalformedError."""
    named = fields.optional_fields(OUTPUTS)
    if named is None:
        return {UNNAMED.output: from_json(fields)}
    return {output: from_json(named.fields(output)) for output in named.value}


def _due_to_json(due: Instant) -> str | None:
    """A due beyond the calendar, as at the end of the global window, is +inf."""
    return None if due >= NEVER else "+inf" if due > END_OF_CALENDAR else render(due)


def _due(fields: Fields, name: str) -> Instant:
    """At or below the due that was written: a due is a lower bound."""
    due = optional_instant_of(fields, name)
    return NEVER if due is None else min(due, END_OF_CALENDAR)
