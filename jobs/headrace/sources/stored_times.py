"""Times as a manifest's progress has them: read, and written where they lie beyond the calendar."""

from typing import Any

from headrace.model.time import END_OF_CALENDAR, GLOBAL_WINDOW_END, Instant, parse
from headrace_snapshots.format.codec import Fields, MalformedError


def in_calendar(watermark: Instant) -> Instant:
    """``watermark``, or if it is that of a global window that is still open, the lower bound of it that has a name."""
    return min(watermark, END_OF_CALENDAR) if watermark < GLOBAL_WINDOW_END else watermark


def instant_of(fields: Fields, name: str) -> Instant:
    return _parsed(fields.text(name), fields, name)


def instants_of(fields: Fields, name: str) -> tuple[Instant, ...]:
    return tuple(_parsed(text, fields, name) for text in fields.array(name))


def optional_instant_of(fields: Fields, name: str) -> Instant | None:
    return None if fields.json(name) is None else instant_of(fields, name)


def _parsed(text: Any, fields: Fields, name: str) -> Instant:
    try:
        return parse(text)
    except (ValueError, TypeError, AttributeError) as error:
        raise MalformedError(f"{fields.where}.{name} has {text!r}, which is not a time") from error
