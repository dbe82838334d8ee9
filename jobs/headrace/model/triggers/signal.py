"""Signals: what happened outside, which triggers may wait for (semantics 9.3)."""

from dataclasses import dataclass
from typing import Any

from headrace.model.arguments import Arguments
from headrace.model.expressions.identity import constant_to_json
from headrace.model.suggestions import keywords
from headrace.model.windows import Window


@keywords
@dataclass(frozen=True)
class Signal:
    """Something that happened outside: a step like one of processing time. It is for every open window, or those of one
    ``key``, or one ``window``.

    >>> hr.Signal("close", key=("EWR",)).is_for(("EWR",), hr.Window(0, 60))
    True
    """

    name: str
    key: tuple[Any, ...] | None = None
    window: Window | None = None

    def __post_init__(self) -> None:
        given = Arguments("Signal")
        given.text("name", self.name, "close")
        if self.key is not None:
            given.instance("key", self.key, tuple, 'the values of a key, such as ("EWR",)')
        if self.window is not None:
            given.instance("window", self.window, Window, "a Window")

    def is_for(self, key: tuple[Any, ...], window: Window) -> bool:
        """Whether it is for that window of that key."""
        return self.written_key in (None, _written(key)) and self.window in (None, window)

    @property
    def written_key(self) -> list[Any] | None:
        """The key as JSON has it: days, bytes and decimals are text."""
        return None if self.key is None else _written(self.key)


def _written(key: tuple[Any, ...]) -> list[Any]:
    return [constant_to_json(part) for part in key]
