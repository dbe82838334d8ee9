"""The clocks of a chain of aggregations after an epoch, as far as they are its own."""

from dataclasses import dataclass
from typing import Any

from headrace.model.time import END_OF_CALENDAR, NEVER, Instant, render
from headrace.sources.stored_times import in_calendar, instants_of, optional_instant_of
from headrace_snapshots.format.codec import Fields


@dataclass(frozen=True)
class ChainClocks:
    """The output watermark of each stage; lower bounds of the watermark and of the processing time at which the chain
    wants its next activation, NEVER where it wants none.
    """

    output_watermarks: tuple[Instant, ...] = ()
    due_event: Instant = NEVER
    due_time: Instant = NEVER

    def to_json(self) -> dict[str, Any]:
        """Instants as ISO 8601 in UTC, or -inf and +inf; a due that never comes is null."""
        return {
            "output_watermarks": [render(in_calendar(value)) for value in self.output_watermarks],
            "next_event_time_deadline": _due_to_json(self.due_event),
            "next_processing_time_deadline": _due_to_json(self.due_time),
        }

    @classmethod
    def from_json(cls, fields: Fields) -> "ChainClocks":
        """The inverse of ``to_json``. Raises MalformedError."""
        return cls(
            output_watermarks=instants_of(fields, "output_watermarks"),
            due_event=_due(fields, "next_event_time_deadline"),
            due_time=_due(fields, "next_processing_time_deadline"),
        )


def _due_to_json(due: Instant) -> str | None:
    """A due beyond the calendar, as at the end of the global window, is +inf."""
    return None if due >= NEVER else "+inf" if due > END_OF_CALENDAR else render(due)


def _due(fields: Fields, name: str) -> Instant:
    """At or below the due that was written: a due is a lower bound."""
    due = optional_instant_of(fields, name)
    return NEVER if due is None else min(due, END_OF_CALENDAR)
