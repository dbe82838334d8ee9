"""Entries of the catalog's log as people read them."""

from collections.abc import Mapping
from typing import Any

from headrace_snapshots.catalog import LostEntry
from headrace_snapshots.format.entry import Entry

COLUMNS = ("entry", "at", "kind", "moves", "message")


class LogEntries(tuple[Entry | LostEntry, ...]):
    """Entries of the log, newest first: a tuple that shows itself as a table."""

    __slots__ = ()

    def to_json(self) -> list[Any]:
        """A JSON value."""
        return [entry.to_json() for entry in self]

    def rows(self) -> list[tuple[int, str, str, str, str]]:
        """A row of COLUMNS for each."""
        return [_row(entry) for entry in self]

    def __repr__(self) -> str:
        return "\n".join("  ".join(map(str, row)).rstrip() for row in self.rows()) or "no entries"

    def _repr_html_(self) -> str:
        from headrace.read.shown_values import html_table  # of notebooks

        return html_table(COLUMNS, (dict(zip(COLUMNS, row, strict=True)) for row in self.rows()), "log")


def moves(refs: Mapping[str, tuple[str | None, str | None]]) -> str:
    """From where to where each ref is moved."""
    return ", ".join(f"{ref}: {old or '-'} → {new or '-'}" for ref, (old, new) in refs.items())


def _row(entry: Entry | LostEntry) -> tuple[int, str, str, str, str]:
    if isinstance(entry, LostEntry):
        return entry.number, "", "lost", "", entry.problem
    return entry.number, entry.at, entry.kind.value, moves(entry.moves), entry.message
