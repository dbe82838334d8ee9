"""What the kit must know of a target: how a definition names it, and what it holds."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from headrace.ext.sinks import EPOCH, NUMBER, SIGN, Sink
from headrace.testing.connectors.values import plain


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
