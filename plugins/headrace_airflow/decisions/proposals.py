"""What a person is shown who is to approve something: as Markdown on the page that asks, in plain lines in the log."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headrace.model.accumulation import PANE_COLUMNS
from headrace.terminal import LONGEST_CELL, cut, in_one_line
from headrace_airflow import markdown

_NULL: Final = "(NULL)"


@dataclass(frozen=True)
class Proposal:
    """The same twice: ``markdown`` for Airflow's page, ``lines`` for the log."""

    markdown: str
    lines: tuple[str, ...]

    @classmethod
    def of(cls, parts: "Sequence[Sentence | ChangedRows]") -> "Proposal":
        """Parts below each other."""
        shown = "\n\n".join("\n".join(part.markdown()) for part in parts)
        return cls(shown, tuple(line for part in parts for line in part.lines()))

    @classmethod
    def as_list(cls, lines: Sequence[str]) -> "Proposal":
        """Lines of text, a point of a list each."""
        return cls("\n".join(markdown.bullets(lines)), tuple(map(in_one_line, lines)))


@dataclass(frozen=True)
class Sentence:
    """A paragraph, whatever it quotes."""

    text: str

    def markdown(self) -> Iterator[str]:
        """The text as Markdown."""
        yield markdown.text(self.text)

    def lines(self) -> Iterator[str]:
        """The text for a log."""
        yield in_one_line(self.text)


@dataclass(frozen=True)
class ChangedRows:
    """How many rows of what readers see become what, and the ``first`` of them: keys, windows and values, without what
    is said of their panes.
    """

    counts: Mapping[str, int]
    first: Sequence[Mapping[str, Any]]

    def markdown(self) -> Iterator[str]:
        """Numbers, and a table: values are set apart from what stands around them, which no value can imitate."""
        yield self._numbers()
        if self.first:
            yield ""
            names = self._names()
            cells = [[row["kind"], *(_sides(row, name, _in_markdown) for name in names)] for row in self.first]
            yield from markdown.table(["change", *names], cells)

    def lines(self) -> Iterator[str]:
        """Numbers, and a line for each row."""
        yield self._numbers()
        names = self._names()
        for row in self.first:
            values = [f"{in_one_line(name)} = {_sides(row, name, _in_log)}" for name in names]
            yield f"{row['kind']}: {', '.join(values)}"

    def _numbers(self) -> str:
        return "Readers would see " + ", ".join(f"{number:,} rows {kind}" for kind, number in self.counts.items()) + "."

    def _names(self) -> list[str]:
        keys = dict.fromkeys(name for row in self.first for name in row["key"])
        values = [name for row in self.first for side in _values(row) for name in side if name not in PANE_COLUMNS]
        return [*(keys | dict.fromkeys(values))]


def _values(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [side for side in (row["before"], row["after"]) if side is not None]


def _sides(row: Mapping[str, Any], name: str, shown: Callable[[Any], str]) -> str:
    """The value before and after, or the one that there is."""
    if name in row["key"]:
        return shown(row["key"][name])
    values = [shown(side.get(name)) for side in _values(row)]
    return " → ".join(dict.fromkeys(values))


def _in_markdown(value: Any) -> str:
    return _NULL if value is None else markdown.code(str(value))


def _in_log(value: Any) -> str:
    if value is None:
        return _NULL
    return in_one_line(
        cut(json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value), LONGEST_CELL)
    )
