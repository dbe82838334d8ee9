"""Snapshots drawn below each other, newest first, each in the lane of what was made from it. (A snapshot has one
parent, so lanes join and never cross out of one another.)
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Drawn:
    """What stands ``beside`` a snapshot; a row ``above`` it where its lane would seem to come from another one; and the
    rows ``below`` it in which lanes move to the left.
    """

    beside: str
    above: tuple[str, ...] = ()
    below: tuple[str, ...] = ()


class Lanes:
    """The lanes of a drawing from left to right, each of which waits for a snapshot further down."""

    def __init__(self) -> None:
        self._waiting: list[str] = []
        self._ended: int | None = None

    def beside(self) -> str:
        """The lanes beside something that is no snapshot."""
        self._ended = None
        return "| " * len(self._waiting)

    def snapshot(self, name: str, parent: str | None, mark: str) -> Drawn:
        """Snapshot ``name``, drawn as ``mark``; its lane goes on to ``parent``, or ends where there is none."""
        above: tuple[str, ...] = ()
        if name not in self._waiting:
            above = (("| " * len(self._waiting)).rstrip(),) if self._ended == len(self._waiting) else ()
            self._waiting.append(name)
        place, count = self._waiting.index(name), len(self._waiting)
        beside = "".join(f"{mark if lane == place else '|'} " for lane in range(count))
        self._ended = place if parent is None and place == count - 1 else None
        return Drawn(beside, above, (*self._gone_on(place, parent),))

    def _gone_on(self, place: int, parent: str | None) -> Iterable[str]:
        count = len(self._waiting)
        if parent is None:
            del self._waiting[place]
            return [_closing(place, count)] if place < count - 1 else []
        if parent not in self._waiting:
            self._waiting[place] = parent
            return []
        left, right = sorted((place, self._waiting.index(parent)))
        self._waiting[left] = parent
        del self._waiting[right]
        return _joining(left, right, count)


def _joining(left: int, right: int, count: int) -> Iterable[str]:
    """Rows in which lane ``right`` of ``count`` moves over to lane ``left``, and those right of it one to the left."""
    yield _row({2 * lane: "|" for lane in range(right)} | {2 * lane - 1: "/" for lane in range(right, count)})
    for over in range(right - 2, left - 1, -1):
        yield _row({2 * lane: "|" for lane in range(count - 1)} | {2 * over + 1: "/"})


def _closing(place: int, count: int) -> str:
    """A row in which the lanes right of ``place``, which has ended, move one to the left."""
    return _row({2 * lane: "|" for lane in range(place)} | {2 * lane - 1: "/" for lane in range(place + 1, count)})


def _row(marks: dict[int, str]) -> str:
    return "".join(marks.get(column, " ") for column in range(max(marks) + 1))
