"""Worlds: what the kit must know of a system, to add, lose and change what it holds.

Values that systems like to change on the way: extremes, empty ones, and what looks like syntax.

What the kit must be able to do with a source: add records, lose some, change some.

What the kit must know of a target: how a definition names it, and what it holds.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any, ClassVar, Final
from uuid import uuid4

from headrace import DataType
from headrace.ext.sinks import EPOCH, NUMBER, SIGN, Sink
from headrace.ext.sources import Input, Source
from headrace.ext.stores import ObjectStore, open_store

_AT: Final = datetime(2026, 5, 1, tzinfo=UTC)

VALUES: Final[Mapping[DataType, list[Any]]] = {
    DataType.STRING: [
        *("", " ", "NULL", "\\N", 'a"b', "a'b", "a,b", "a\nb", "a\r\nb", "a\\b", "{}", "{a,b}"),
        *("œ🜁\u202e", "x" * 5000),
        *("a", "A", "a ", "ss", "ß", "\u00e9", "e\u0301"),  # one to collations that do not compare characters
    ],
    DataType.INT: [0, -1, 2**63 - 1, -(2**63)],
    DataType.FLOAT: [0.0, -0.0, 0.1, 5e-324, 1.7976931348623157e308, math.nan, math.inf, -math.inf, 1 / 3],
    DataType.BOOL: [True, False],
    DataType.TIMESTAMP: [
        _AT,
        _AT.replace(microsecond=1),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
    ],
    DataType.DATE: [date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)],
    DataType.BYTES: [b"", b"\x00", b"\xff\xfe", b"\\x41"],
    DataType.DECIMAL: [
        Decimal("0.000000001"),
        Decimal("-99999999999999999999999999999.999999999"),
        Decimal(0),
        Decimal("1.5"),
    ],
}


def plain(value: Any) -> Any:
    """``value`` such that two are equal if readers take them for one: with its type, times in UTC, NaN like NaN."""
    match value:
        case datetime():
            parts: Any = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        case float():
            parts = repr(value)
        case Decimal():
            parts = str(value.normalize())
        case bytes() | bytearray() | memoryview():
            return "bytes", bytes(value)
        case list() | tuple():
            return "list", *map(plain, value)
        case dict():
            parts = tuple(map(plain, value.values()))
        case _:
            parts = value
    return type(value).__name__, parts


COLUMNS: Mapping[str, Any] = {"number": int, "text": str, "at": datetime}
"""The columns of the source of a world, under whatever names it has them."""


class SourceWorld(ABC):
    """A source with nothing in it, for one test. What is not durable, so that runs land it, is lost and altered where
    it was landed: then ``lose`` and ``alter`` are not asked for.
    """

    has_unreadable: ClassVar[bool] = True
    """Whether a record can be one that does not parse. If not, ``append_unreadable`` is not asked for."""

    @property
    def input(self) -> Input:
        """How pipelines read the source."""
        return self.source.event_time("at", bound="1h")

    @cached_property
    def root(self) -> ObjectStore:
        """Where it is landed in tests that run no pipeline."""
        return open_store(f"memory://{uuid4().hex}")

    @property
    @abstractmethod
    def source(self) -> Source:
        """What a definition names, with ``COLUMNS``."""

    @abstractmethod
    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Add ``records``, values of ``COLUMNS`` by name, with times as datetimes; from then on they can be planned, as
        splits of their own.
        """

    def append_unreadable(self) -> None:
        """Add one record that does not parse, as a split of its own: its ``number`` is text or, where types do not let
        that in, its ``text`` is not UTF-8.
        """
        raise NotImplementedError("say how a record is added that does not parse, or has_unreadable = False")

    def lose(self) -> None:
        """Take away what was added first."""
        raise NotImplementedError("say how what was added first is lost")

    def alter(self) -> None:
        """Change what was added first, as nobody should."""
        raise NotImplementedError("say how what was added first is changed")


class SinkWorld(ABC):
    """A target that nobody has delivered to, for one test. It pickles: deliveries that are killed run in processes of
    their own.
    """

    secrets: ClassVar[tuple[str, ...]] = ()
    """Texts that no error and no delivery may show: the password of the connection."""

    @property
    @abstractmethod
    def sink(self) -> Sink:
        """What a definition names."""

    @property
    @abstractmethod
    def environment(self) -> Mapping[str, str]:
        """Variables of a process that delivers, by which it knows the connection."""

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """All rows that the target holds, none if it is not there, as its users read them: not through the sink."""

    def lose_a_row(self) -> bool:
        """Remove a row of the target, as somebody else does; False: the kit does without it."""
        return False

    def before_each_request(self, act: Callable[[], None]) -> None:
        """From here on, call ``act`` before each request of this process to the target: here, or in a process that was
        forked here.

        A delivery is then killed at each of them. Without it, it is killed where the kit can: before and after the
        sink applies a change, and at each batch of rows.
        """
        del act


class ChangeLogWorld(SinkWorld):
    """A target that only appends. What it holds is the sum of its records."""

    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """All records that the target holds, none if it is not there, in their order, as its users read them."""

    def rows(self) -> list[dict[str, Any]]:
        """The sum of the records. They are numbered from 1 without a gap, and none withdraws what is not there."""
        rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        for number, record in enumerate(self.records(), start=1):
            assert record[NUMBER] == number, f"record {record[NUMBER]} stands where {number} is due"
            row = {name: value for name, value in record.items() if name not in (NUMBER, SIGN, EPOCH)}
            same = tuple(map(plain, row.values()))
            match record[SIGN]:
                case 0:
                    rows.clear()
                case 1:
                    assert same not in rows, f"record {number} adds what is there: {row}"
                    rows[same] = row
                case -1:
                    assert rows.pop(same, None) is not None, f"record {number} withdraws what is not there: {row}"
        return [*rows.values()]
