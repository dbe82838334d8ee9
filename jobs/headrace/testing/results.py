"""What a run of a test gives: panes and rows as plain values."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, overload

from headrace.model.accumulation import Timing
from headrace.model.arguments import Suggesting
from headrace.model.time import instant, parse
from headrace.testing.steps import text_of

Row = dict[str, Any]


class TimeSpan(NamedTuple):
    """A window: both ends, None where it has none."""

    start: datetime | None
    end: datetime | None

    def __str__(self) -> str:
        return f"[{text_of(self.start)}, {text_of(self.end)})"


@dataclass(frozen=True, repr=False)
class PaneRow:
    """One result of one (key, window), or the retraction of one (``is_retraction``).

    ``step`` is the number of the step that gave it, ``time`` its event time. ``pane["flights"]`` and ``row`` have all
    of it under the names of the columns that readers see.
    """

    step: int
    key: Mapping[str, Any]
    window: TimeSpan
    values: Mapping[str, Any]
    timing: Timing
    index: int
    is_retraction: bool
    is_first: bool
    is_last: bool
    time: datetime | None

    @property
    def row(self) -> Row:
        """Its columns, as the view ``panes`` has them."""
        return {
            **self.key,
            **self.values,
            "window_start": self.window.start,
            "window_end": self.window.end,
            "pane_time": self.time,
            "timing": str(self.timing),
            "pane_index": self.index,
            "is_first": self.is_first,
            "is_last": self.is_last,
            "is_retraction": self.is_retraction,
        }

    def __getitem__(self, column: str) -> Any:
        return self.row[column]

    def __repr__(self) -> str:
        sign = "retraction of " if self.is_retraction else ""
        columns = " ".join(f"{name}={shown(value)}" for name, value in {**self.key, **self.values}.items())
        return f"<{sign}{self.timing} #{self.index} {self.window} {columns}>"


def shown(value: Any) -> str:
    """A value in one line."""
    return text_of(value) if isinstance(value, datetime) else repr(value)


class Panes(Sequence[PaneRow]):
    """Panes in order. ``only`` gives some of their columns as plain dicts, to compare with."""

    def __init__(self, panes: Iterable[PaneRow]) -> None:
        self._panes = tuple(panes)

    @overload
    def __getitem__(self, index: int) -> PaneRow: ...

    @overload
    def __getitem__(self, index: slice) -> "Panes": ...

    def __getitem__(self, index: int | slice) -> "PaneRow | Panes":
        return Panes(self._panes[index]) if isinstance(index, slice) else self._panes[index]

    def __len__(self) -> int:
        return len(self._panes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and not isinstance(other, str) and list(self._panes) == list(other)

    def __repr__(self) -> str:
        return f"[{', '.join(map(repr, self._panes))}]"

    def only(self, *columns: str) -> list[Row]:
        """These ``columns`` of each pane: ``result.current.only("origin", "flights") == [{...}]``."""
        return [{name: pane[name] for name in columns} for pane in self._panes]


@dataclass(frozen=True)
class StepResults(Suggesting):
    """What one step gave, or several.

    ``panes`` are in order: by step, key and window, and those of a window as they were emitted. ``current`` is what
    counts after it: the newest pane of each key and window that was not withdrawn, by window and key. ``late`` are
    dropped records, ``rejected`` those that could not be used and ``reason`` why, as the views of these names have
    them. ``ahead`` counts the records dated too far ahead of the clock to move the watermark. ``columns``
    are those that there are, by view.
    """

    panes: Panes
    current: Panes
    late: list[Row]
    rejected: list[Row]
    watermark: datetime
    processing_time: datetime | None
    ahead: int = 0
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)

    @property
    def retractions(self) -> Panes:
        """The retractions among ``panes``."""
        return Panes(pane for pane in self.panes if pane.is_retraction)


@dataclass(frozen=True)
class Result(StepResults):
    """What a whole test gave, and each of its ``steps``."""

    steps: tuple[StepResults, ...] = ()


def current_of(panes: Iterable[PaneRow]) -> Panes:
    """The newest of ``panes`` for each key and window, unless it is a retraction; by window and key."""
    newest: dict[tuple[Any, ...], PaneRow] = {}
    for pane in panes:
        newest[(*pane.key.values(), pane.window)] = pane
    left = [pane for pane in newest.values() if not pane.is_retraction]
    rank = _ranking(left)
    return Panes(sorted(left, key=lambda pane: (_first(pane.window.start), *rank(pane), _last(pane.window.end))))


def in_order(panes: Iterable[PaneRow]) -> list[PaneRow]:
    """Panes of one step as ``StepResults.panes`` has them; those of a window are in order already."""
    listed = [*panes]
    rank = _ranking(listed)
    return sorted(listed, key=lambda p: (*rank(p), _first(p.window.start), _last(p.window.end)))


def _ranking(panes: Collection[PaneRow]) -> Callable[[PaneRow], list[Any]]:
    """What orders panes by key: beside datetimes, times that are text count as what they say."""
    times = {name for pane in panes for name, value in pane.key.items() if isinstance(value, datetime)}

    def rank(name: str, value: Any) -> Any:
        if name not in times:
            return value
        return instant(value) if isinstance(value, datetime) else parse(value)

    return lambda pane: [rank(name, value) for name, value in pane.key.items()]


def _first(start: datetime | None) -> tuple[bool, datetime | None]:
    return (start is not None, start)


def _last(end: datetime | None) -> tuple[bool, datetime | None]:
    return (end is None, end)
