"""Inputs that are hard to judge, and what must become of them (docs/judging.md), for any reader: no Spark in here.

All of them are for a source with the columns ``SCHEMA``, whose event time is ``time`` and whose key is ``user``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from headrace.model.expressions.data_types import DataType

SCHEMA = {
    "time": DataType.TIMESTAMP,
    "user": DataType.STRING,
    "n": DataType.INT,
    "x": DataType.FLOAT,
    "ok": DataType.BOOL,
}

T = "2013-01-01T05:00:00Z"
T_MICROS = 1_357_016_400_000_000


@dataclass(frozen=True)
class Line:
    """One line of a file, with the line breaks in its quotes: ``reason`` is why it is a dead letter. If it is None the
    record is accepted, with ``values`` among its columns (an event time in microseconds as ``time``).
    """

    name: str
    text: bytes
    reason: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)


def positions(lines: Sequence[Line], first: int = 0) -> list[int]:
    """The numbers of the lines where ``lines`` begin, one below the other from number ``first`` on."""
    return [*accumulate((1 + len(line.text.splitlines()[1:]) for line in lines[:-1]), initial=first)]


@dataclass(frozen=True)
class BrokenFile:
    """A file that is a dead letter as a whole: what it is called, what is in it, a part of the reason."""

    name: str
    file: str
    content: bytes
    reason: str


def good_line(name: str, text: bytes | str, **values: Any) -> Line:
    """A line that is a record."""
    return Line(name, text.encode() if isinstance(text, str) else text, None, values)


def bad_line(name: str, text: bytes | str, reason: str) -> Line:
    """A line that is a dead letter."""
    return Line(name, text.encode() if isinstance(text, str) else text, reason)
