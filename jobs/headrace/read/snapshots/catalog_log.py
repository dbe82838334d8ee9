"""The catalog's log as people read it: its entries, and its snapshots as a graph.

``Lanes`` draws snapshots below each other, newest first, each in the lane of what was made from it. A snapshot has one
parent, so lanes join and never cross out of one another.

``SnapshotGraph`` says what each snapshot was made from, what points to it, and what people did to it. All of it stands
in the entries of the log, so a graph costs a request for each entry and reads no manifest.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headrace_snapshots.catalog import Catalog, LostEntry
from headrace_snapshots.log import Entry
from headrace_snapshots.names import TAGS, is_published
from headrace_snapshots.protocol.moves import Kind

COLUMNS = ("entry", "at", "kind", "moves", "message")


class LogEntries(tuple[Entry | LostEntry, ...]):
    """Entries of the log, newest first: a tuple that shows itself as a table."""

    __slots__ = ()

    def to_json(self) -> list[Any]:
        """A JSON value."""
        return [entry.to_json() for entry in self]

    def rows(self) -> list[tuple[int, str, str, str, str]]:
        """A row of COLUMNS for each."""
        return [_entry_row(entry) for entry in self]

    def __repr__(self) -> str:
        return "\n".join("  ".join(map(str, row)).rstrip() for row in self.rows()) or "no entries"

    def _repr_html_(self) -> str:
        from headrace.read.shown_values import html_table  # of notebooks

        return html_table(COLUMNS, (dict(zip(COLUMNS, row, strict=True)) for row in self.rows()), "log")


def moves_text(refs: Mapping[str, tuple[str | None, str | None]]) -> str:
    """From where to where each ref is moved."""
    return ", ".join(f"{ref}: {old or '-'} → {new or '-'}" for ref, (old, new) in refs.items())


def _entry_row(entry: Entry | LostEntry) -> tuple[int, str, str, str, str]:
    if isinstance(entry, LostEntry):
        return entry.number, "", "lost", "", entry.problem
    return entry.number, entry.at, entry.kind.value, moves_text(entry.moves), entry.message


@dataclass(frozen=True)
class DrawnSnapshot:
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
        self._ended_place: int | None = None

    def draw_lanes(self) -> str:
        """The lanes beside something that is no snapshot."""
        self._ended_place = None
        return "| " * len(self._waiting)

    def draw_snapshot(self, name: str, parent: str | None, mark: str) -> DrawnSnapshot:
        """Snapshot ``name``, drawn as ``mark``; its lane goes on to ``parent``, or ends where there is none."""
        rows_above: tuple[str, ...] = ()
        if name not in self._waiting:
            rows_above = (("| " * len(self._waiting)).rstrip(),) if self._ended_place == len(self._waiting) else ()
            self._waiting.append(name)
        place, count = self._waiting.index(name), len(self._waiting)
        lanes_text = "".join(f"{mark if lane == place else '|'} " for lane in range(count))
        self._ended_place = place if parent is None and place == count - 1 else None
        return DrawnSnapshot(lanes_text, rows_above, (*self._gone_on(place, parent),))

    def _gone_on(self, place: int, parent: str | None) -> Iterable[str]:
        count = len(self._waiting)
        if parent is None:
            del self._waiting[place]
            return [_closing_row(place, count)] if place < count - 1 else []
        if parent not in self._waiting:
            self._waiting[place] = parent
            return []
        left, right = sorted((place, self._waiting.index(parent)))
        self._waiting[left] = parent
        del self._waiting[right]
        return _joining_rows(left, right, count)


def _joining_rows(left: int, right: int, count: int) -> Iterable[str]:
    """Rows in which lane ``right`` of ``count`` moves over to lane ``left``, and those right of it one to the left."""
    yield _drawn_row({2 * lane: "|" for lane in range(right)} | {2 * lane - 1: "/" for lane in range(right, count)})
    for lane_moving in range(right - 2, left - 1, -1):
        yield _drawn_row({2 * lane: "|" for lane in range(count - 1)} | {2 * lane_moving + 1: "/"})


def _closing_row(place: int, count: int) -> str:
    """A row in which the lanes right of ``place``, which has ended, move one to the left."""
    return _drawn_row(
        {2 * lane: "|" for lane in range(place)} | {2 * lane - 1: "/" for lane in range(place + 1, count)}
    )


def _drawn_row(marks: dict[int, str]) -> str:
    return "".join(marks.get(column, " ") for column in range(max(marks) + 1))


_ROUTINE = {Kind.INIT, Kind.CLAIM, Kind.PUBLISH}
"""What every run does besides its commits: where that led to is where branches and ``published`` point."""


@dataclass(frozen=True)
class GraphRow:
    """An entry of the log: the ``snapshot`` that it committed and the one that it was made from; None if it is none."""

    entry: Entry | LostEntry
    snapshot: str | None = None
    parent: str | None = None

    @classmethod
    def from_entry(cls, entry: Entry | LostEntry) -> "GraphRow":
        """Makes the row of any entry."""
        if isinstance(entry, LostEntry) or entry.kind is not Kind.COMMIT:
            return cls(entry)
        ((parent, snapshot),) = entry.moves.values()
        return cls(entry, snapshot, parent)


@dataclass(frozen=True, repr=False)
class SnapshotGraph:
    """Entries of the log, newest first, and the ``refs`` behind the newest of them: branches and tags by name."""

    rows: tuple[GraphRow, ...]
    refs: Mapping[str, str]

    @cached_property
    def reached_snapshots(self) -> frozenset[str]:
        """Snapshots that a branch or a tag points to or comes from."""
        reachable = {*self.refs.values()}
        for row in self.rows:  # children stand before their parents
            if row.snapshot in reachable and row.parent is not None:
                reachable.add(row.parent)
        return frozenset(reachable)

    def lines(self) -> Iterator[str]:
        """The graph as ``git log --graph`` draws it: ``*`` a snapshot, ``o`` one that no branch or tag leads to now."""
        lanes = Lanes()
        for row in self.rows:
            if row.snapshot is None:
                yield f"{lanes.draw_lanes()}{_entry_line(row.entry)}"
                continue
            drawn_snapshot = lanes.draw_snapshot(
                row.snapshot, row.parent, "*" if row.snapshot in self.reached_snapshots else "o"
            )
            yield from drawn_snapshot.above
            yield f"{drawn_snapshot.beside}{self._snapshot_line(row)}"
            yield from drawn_snapshot.below

    def to_json(self) -> dict[str, Any]:
        """A JSON value: ``snapshots`` with parents, also as ``edges`` (snapshot, parent), ``refs``, other entries."""
        snapshot_rows = [row for row in self.rows if row.snapshot is not None]
        return {
            "snapshots": [self._snapshot_to_json(row) for row in snapshot_rows],
            "edges": [[row.snapshot, row.parent] for row in snapshot_rows if row.parent is not None],
            "refs": {ref.removeprefix(TAGS): snapshot for ref, snapshot in sorted(self.refs.items())},
            "entries": [row.entry.to_json() for row in self.rows if row.snapshot is None],
        }

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _ref_names(self, snapshot: str | None) -> list[str]:
        """The refs at a snapshot: branches, ``published``, tags."""
        names = [name for name, ref_snapshot in self.refs.items() if ref_snapshot == snapshot]
        return sorted(names, key=lambda name: (name.startswith(TAGS), is_published(name), name))

    def _snapshot_line(self, row: GraphRow) -> str:
        assert isinstance(row.entry, Entry)
        names = [
            f"tag: {name.removeprefix(TAGS)}" if name.startswith(TAGS) else name
            for name in self._ref_names(row.snapshot)
        ]
        names_text = f" ({', '.join(names)})" if names else ""
        return f"{row.snapshot}{names_text} {_time_to_second(row.entry)} {row.entry.message} on {row.entry.branch}"

    def _snapshot_to_json(self, row: GraphRow) -> dict[str, Any]:
        assert isinstance(row.entry, Entry)
        return {
            "snapshot": row.snapshot,
            "parent": row.parent,
            "branch": row.entry.branch,
            "epoch": row.entry.detail["epoch"],
            "entry": row.entry.number,
            "at": row.entry.at,
            "message": row.entry.message,
            "refs": [name.removeprefix(TAGS) for name in self._ref_names(row.snapshot)],
            "reached": row.snapshot in self.reached_snapshots,
        }


def snapshot_graph(catalog: Catalog, *, limit: int, before_entry: int | None = None) -> SnapshotGraph:
    """The newest ``limit`` snapshots and doings of people in the log, of entries below number ``before_entry``. Claims
    and publishes are left out, but for their effect.
    """
    rows: list[GraphRow] = []
    refs: Mapping[str, str] | None = None
    for entry in catalog.history(before_entry):
        if refs is None and isinstance(entry, Entry):
            refs = entry.refs
        if isinstance(entry, LostEntry) or entry.kind not in _ROUTINE:
            rows.append(GraphRow.from_entry(entry))
        if len(rows) == limit:
            break
    return SnapshotGraph(tuple(rows), refs or {})


def _entry_line(entry: Entry | LostEntry) -> str:
    if isinstance(entry, LostEntry):
        return f"entry {entry.number} is lost: {entry.problem}"
    moves = ", ".join(
        f"{ref.removeprefix(TAGS)}: {old or '-'} -> {new or '-'}" for ref, (old, new) in entry.moves.items()
    )
    return f"{_time_to_second(entry)} {entry.kind.value} {moves}  {entry.message}".rstrip()


def _time_to_second(entry: Entry) -> str:
    """When an entry was written, to the second."""
    return f"{entry.at[:19]}Z"
