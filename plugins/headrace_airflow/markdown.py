"""Markdown of which only the structure is ours. What data, names and messages say is text, whatever it holds.

Airflow shows it by react-markdown with remark-gfm. That takes addresses for links also where they are escaped, in all
text but code, and ends the cell of a table at a ``|`` inside code.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from headrace.terminal import LONGEST_CELL, LONGEST_MESSAGE, cut, in_one_line

_STRUCTURE: Final = re.compile(r"""[^\w\s,:;'"?/%$(]|_|^\s|\s$""", re.ASCII)
"""Characters of ASCII that may begin or end something; at its ends, spaces, too."""
_ADDRESS: Final = re.compile(r"://|@|www\.", re.IGNORECASE)
_NOT_IN_CODE: Final = re.compile(r"([`|\\]+)")


def text(value: str) -> str:
    """``value`` in the words of a paragraph, a list or a table; of a long one the beginning. Words with an address are
    code, and so no link.
    """
    words = in_one_line(cut(value, LONGEST_MESSAGE)).split(" ")
    shown = [_code(word) if _ADDRESS.search(word) else _escaped(word) for word in words]
    return _spaced(" ".join(shown))


def code(value: str) -> str:
    """A ``value`` of data, set apart from the words around it, which it cannot imitate; of a long one the start."""
    shown = in_one_line(cut(value, LONGEST_CELL))
    return _code(shown) if shown else "(empty)"


def bullets(lines: Iterable[str]) -> Iterator[str]:
    """A list of lines of text."""
    for line in lines:
        yield f"* {text(line)}"


def fenced(lines: Sequence[str]) -> Iterator[str]:
    """Lines as they are, in letters of one width; none of them can end that."""
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"{fence}text"
    yield from lines
    yield fence


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table, whose header is text, and whose cells are Markdown."""
    yield _row([text(column) for column in columns])
    yield _row(["---"] * len(columns))
    for row in rows:
        yield _row(row)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _code(value: str) -> str:
    pieces = _NOT_IN_CODE.split(value)
    return "".join(_reference(piece) if number % 2 else _in_backticks(piece) for number, piece in enumerate(pieces))


def _in_backticks(piece: str) -> str:
    if not piece:
        return ""
    is_stripped = piece.startswith(" ") and piece.endswith(" ") and piece.strip()
    return f"` {piece} `" if is_stripped else f"`{piece}`"


def _escaped(word: str) -> str:
    return _STRUCTURE.sub(lambda match: _reference(match[0]), word)


def _spaced(shown: str) -> str:
    return re.sub("^ | $", lambda match: _reference(match[0]), shown)


def _reference(characters: str) -> str:
    return "".join(f"&#{ord(character)};" for character in characters)
