"""What comes to a grouping operator, and what a step of it gives."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from headrace.model.accumulation import Timing
from headrace.model.time import Instant
from headrace.model.windows import Window

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Pane:
    """One result of one (key, window). A retraction repeats the pane that it withdraws (semantics 9.1).

    ``values`` are the aggregates in declared order, ``timestamp`` is event time, ``nonspeculative_index`` is -1 for
    EARLY.
    """

    key: tuple[Any, ...]
    window: Window
    values: tuple[Any, ...]
    timestamp: Instant
    timing: Timing
    index: int
    nonspeculative_index: int
    is_first: bool
    is_last: bool
    is_retraction: bool = False


@dataclass(frozen=True)
class Element:
    """What comes to an operator. ``value`` is what its ``extract`` reads, ``record`` what data-driven triggers do.

    ``size`` is in bytes (9.5); a retraction withdraws an element of the same key, timestamp and value.
    """

    key: Key
    timestamp: Instant
    value: Any
    is_retraction: bool = False
    record: Mapping[str, Any] = field(default_factory=dict)
    size: int = 0


class DropCause(StrEnum):
    """Why an element was not accepted into a window."""

    LATE = "late"
    CLOSED = "closed"
    RETRACTION = "retraction"
    DUPLICATE = "duplicate"


@dataclass(frozen=True)
class DroppedElement:
    """An element that was dropped from one of its windows (5.2), or before it had any (None; 12.10). ``is_late``: it
    was so because it came too late, also if it was a retraction.
    """

    element: Element
    window: Window | None
    cause: DropCause
    is_late: bool = False


@dataclass(frozen=True)
class Output:
    """What a step gave, in order of emission."""

    panes: tuple[Pane, ...] = ()
    drops: tuple[DroppedElement, ...] = ()
