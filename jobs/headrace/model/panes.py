"""What a window emits: panes and their timing (semantics, section 5), and the names of their columns in every sink."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from headrace.model.time import Instant
from headrace.model.windows import Window


class Timing(StrEnum):
    """Where a pane stands to the watermark's passing of the window's end."""

    EARLY = "EARLY"
    ON_TIME = "ON_TIME"
    LATE = "LATE"


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


WINDOW_START = "window_start"
WINDOW_END = "window_end"
PANE_COLUMNS: tuple[str, ...] = (
    WINDOW_START,
    WINDOW_END,
    "pane_time",
    "timing",
    "pane_index",
    "nonspeculative_index",
    "is_first",
    "is_last",
    "is_retraction",
    "epoch",
    "sequence",
)
"""Columns of every pane, after the key's and the aggregates': timestamps in UTC (NULL for the global window's ends),
``epoch`` the micro-batch that emitted it, ``sequence`` its order within (epoch, key)."""

LATE_COLUMNS: tuple[str, ...] = ("event_time", "reason", "input", "file", "raw")
"""Columns of every late record, after the key's, that are not pane columns."""
