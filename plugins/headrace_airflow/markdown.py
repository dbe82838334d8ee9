"""Texts for people, on pages and in logs: Markdown, proposals, and commands as pages say them.

Only the structure of Markdown is ours. What data, names and messages say is text, whatever it holds. Airflow shows it
by react-markdown with remark-gfm. That takes addresses for links also where they are escaped, in all text but code. It
ends the cell of a table at a ``|`` inside code. A proposal is shown to the person who is to approve something: as
Markdown on the page that asks, in plain lines in the log. Errors, warnings and explanations are written once, for all
who read them. Where one names a command of the shell whose work a page does, a page names that page. A command that no
page does stays.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from headrace.model.accumulation import PANE_COLUMNS
from headrace.runs.reporting.results import redact_secrets
from headrace.this_process import LONGEST_CELL, LONGEST_MESSAGE, in_one_line, shorten_text

_STRUCTURE: Final = re.compile(r"""[^\w\s,:;'"?/%$(]|_|^\s|\s$""", re.ASCII)
"""Characters of ASCII that may begin or end something; at its ends, spaces, too."""
_ADDRESS: Final = re.compile(r"://|@|www\.", re.IGNORECASE)
_NOT_IN_CODE: Final = re.compile(r"([`|\\]+)")


def escaped_text(value: str) -> str:
    """``value`` in the words of a paragraph, a list or a table; a long one gives its beginning. Words with an address
    are code, and so no link.
    """
    words = in_one_line(shorten_text(value, LONGEST_MESSAGE)).split(" ")
    words_shown = [_as_code(word) if _ADDRESS.search(word) else _escape_word(word) for word in words]
    return _keep_outer_spaces(" ".join(words_shown))


def value_as_code(value: str) -> str:
    """A ``value`` of data, set apart from the words around it, which it cannot imitate; a long one gives its start."""
    code_text = in_one_line(shorten_text(value, LONGEST_CELL))
    return _as_code(code_text) if code_text else "(empty)"


def fenced_block(lines: Sequence[str]) -> Iterator[str]:
    """Lines as they are, in letters of one width; none of them can end that."""
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"{fence}text"
    yield from lines
    yield fence


def table_lines(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table, whose header is text, and whose cells are Markdown."""
    yield _table_row([escaped_text(column) for column in columns])
    yield _table_row(["---"] * len(columns))
    for row in rows:
        yield _table_row(row)


def _table_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _as_code(value: str) -> str:
    pieces = _NOT_IN_CODE.split(value)
    return "".join(
        _character_references(piece) if number % 2 else _in_backticks(piece) for number, piece in enumerate(pieces)
    )


def _in_backticks(piece: str) -> str:
    if not piece:
        return ""
    is_stripped = piece.startswith(" ") and piece.endswith(" ") and piece.strip()
    return f"` {piece} `" if is_stripped else f"`{piece}`"


def _escape_word(word: str) -> str:
    return _STRUCTURE.sub(lambda match: _character_references(match[0]), word)


def _keep_outer_spaces(text: str) -> str:
    return re.sub("^ | $", lambda match: _character_references(match[0]), text)


def _character_references(characters: str) -> str:
    return "".join(f"&#{ord(character)};" for character in characters)


_NULL_TEXT: Final = "(NULL)"


@dataclass(frozen=True)
class Proposal:
    """The same twice: ``markdown`` for Airflow's page, ``lines`` for the log."""

    markdown: str
    lines: tuple[str, ...]

    @classmethod
    def from_parts(cls, parts: "Sequence[Sentence | ChangedRows]") -> "Proposal":
        """Parts below each other."""
        markdown = "\n\n".join("\n".join(part.markdown()) for part in parts)
        return cls(markdown, tuple(line for part in parts for line in part.lines()))

    @classmethod
    def as_list(cls, lines: Sequence[str]) -> "Proposal":
        """Lines of text, a point of a list each."""
        return cls("\n".join(f"* {escaped_text(line)}" for line in lines), tuple(map(in_one_line, lines)))


@dataclass(frozen=True)
class Sentence:
    """A paragraph, whatever it quotes."""

    text: str

    def markdown(self) -> Iterator[str]:
        yield escaped_text(self.text)

    def lines(self) -> Iterator[str]:
        yield in_one_line(self.text)


@dataclass(frozen=True)
class ChangedRows:
    """How many rows that readers see become what, and the ``first``: key, window, values, nothing of their panes."""

    counts: Mapping[str, int]
    first: Sequence[Mapping[str, Any]]

    def markdown(self) -> Iterator[str]:
        """Numbers, and a table: values are set apart from what stands around them, which no value can imitate."""
        yield self._counts_sentence()
        if self.first:
            yield ""
            names = self._column_names()
            cells = [
                [row["kind"], *(_before_and_after(row, name, _in_markdown) for name in names)] for row in self.first
            ]
            yield from table_lines(["change", *names], cells)

    def lines(self) -> Iterator[str]:
        """Numbers, and a line for each row."""
        yield self._counts_sentence()
        names = self._column_names()
        for row in self.first:
            values = [f"{in_one_line(name)} = {_before_and_after(row, name, _in_log)}" for name in names]
            yield f"{row['kind']}: {', '.join(values)}"

    def _counts_sentence(self) -> str:
        return "Readers would see " + ", ".join(f"{number:,} rows {kind}" for kind, number in self.counts.items()) + "."

    def _column_names(self) -> list[str]:
        keys = dict.fromkeys(name for row in self.first for name in row["key"])
        values = [
            name for row in self.first for side in _existing_sides(row) for name in side if name not in PANE_COLUMNS
        ]
        return [*(keys | dict.fromkeys(values))]


def _existing_sides(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [side for side in (row["before"], row["after"]) if side is not None]


def _before_and_after(row: Mapping[str, Any], name: str, render_value: Callable[[Any], str]) -> str:
    """The value before and after, or the one that there is."""
    if name in row["key"]:
        return render_value(row["key"][name])
    values = [render_value(side.get(name)) for side in _existing_sides(row)]
    return " → ".join(dict.fromkeys(values))


def _in_markdown(value: Any) -> str:
    return _NULL_TEXT if value is None else value_as_code(str(value))


def _in_log(value: Any) -> str:
    if value is None:
        return _NULL_TEXT
    return in_one_line(
        shorten_text(json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value), LONGEST_CELL)
    )


_NAME_PATTERN: Final = r"[A-Za-z]\w*"
_SNAPSHOT_PATTERN: Final = "(?P<snapshot>[0-9a-f]{16})"

_ON_PAGES: Final[Mapping[str, str]] = {
    rf"read (?:{_NAME_PATTERN} )?--view (?:late|rejected)": "the tab Records",
    rf"log {_NAME_PATTERN}": "the tab History",
    "plot": "the tab Epochs",
    rf"replay-(?:late|rejected)(?: {_NAME_PATTERN})?": "Land again… in the tab Records",
    rf"release(?: {_NAME_PATTERN}(?:\.{_NAME_PATTERN})?(?: \S+)?)?(?: --message WHY)?": "Release…",
    rf"promote {_NAME_PATTERN} [\w.-]+(?: --patch)?": "Promote… in the tab Overview",
    rf"drop {_NAME_PATTERN} [\w./-]+": "Drop… in the tab Overview",
    rf"rollback {_NAME_PATTERN} --to {_SNAPSHOT_PATTERN}": "Roll back to here… at {snapshot} in the tab History",
    rf"recover {_NAME_PATTERN} {_SNAPSHOT_PATTERN}": "Recover from here… at {snapshot} in the tab History",
    rf"run(?: {_NAME_PATTERN})?": "Process now in the tab Overview",
    rf"backfill {_NAME_PATTERN}(?: --promote)?": "the DAG backfill",
    rf"backfill {_NAME_PATTERN}\.(?P<output>{_NAME_PATTERN})(?: --promote)?": "the DAG backfill of output {output}",
}
"""Commands without the word that all begin with, and what pages have instead of each."""

_COMMAND_BEGIN: Final = "headrace "
_COMMANDS: Final = [
    (
        re.compile(rf"(?:(?P<tick>`)|(?<=\()){_COMMAND_BEGIN}{command}(?(tick)`(?: \(or the backfill DAG\))?|(?=\)))"),
        words,
    )
    for command, words in _ON_PAGES.items()
]


def text_for_page(text: str) -> str:
    """``text``, which may quote secrets, as a page says it."""
    text = redact_secrets(text)
    for command, words in _COMMANDS if _COMMAND_BEGIN in text else ():
        text = command.sub(partial(_in_words, words), text)
    return text


def _in_words(words: str, command: re.Match[str]) -> str:
    return words.format(**command.groupdict())


def told_of(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The summary of a pipeline as a JSON value: its texts as a page says them."""
    outputs = [{**one, "parked": one["parked"] and _told_of_parked(one["parked"])} for one in summary["outputs"]]
    return {**summary, "run": summary["run"] and told_of_run(summary["run"]), "outputs": outputs}


def _told_of_parked(parked_chain: Mapping[str, Any]) -> dict[str, Any]:
    return {**parked_chain, "message": text_for_page(parked_chain["message"])}


def told_of_run(result: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a run, or the line that a summary has of it, as a JSON value: its texts as a page says them."""
    return {**result, "error": _told_of_error(result["error"]), "warnings": [*map(text_for_page, result["warnings"])]}


def _told_of_error(error: Mapping[str, Any] | str | None) -> Mapping[str, Any] | str | None:
    if isinstance(error, Mapping):
        return {**error, "message": text_for_page(error["message"])}
    return error if error is None else text_for_page(error)
