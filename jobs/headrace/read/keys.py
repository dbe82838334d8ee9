"""Keys as people write them, on a command line, in Python or on a page, become values of the key's columns."""

import base64
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headrace.errors import FixConfigError
from headrace.kernel.types import ARROW_TYPES
from headrace.model.arguments import shown
from headrace.model.expressions.data_types import DataType
from headrace.model.time import Instant, parse

Given = Any
"""The key that is asked about: a value, several in the order of the key's columns, by their names, or None."""


class ExplainError(FixConfigError, code="config.explain"):
    """The key or the window that is asked about is not written as one."""


def typed_key(kinds: Mapping[str, DataType], given: Given, whose: str) -> dict[str, Any]:
    """The value of each column of the key that is ``given``; ``whose`` it is, for people. Raises ExplainError."""
    names = ", ".join(kinds) or "none: leave key out"
    if isinstance(given, Mapping):
        values = [given.get(name) for name in kinds] if given.keys() == kinds.keys() else []
    else:
        values = [] if given is None else list(given) if isinstance(given, list | tuple) else [given]
    if len(values) != len(kinds):
        raise ExplainError(
            f"key={shown(given)} does not name a key of {whose}: give a value for each of its columns, in their order "
            f"({names})"
        )
    return {name: _value(name, kind, value) for (name, kind), value in zip(kinds.items(), values, strict=True)}


def time_from_text(text: str) -> datetime | Instant:
    """The time that people write, also one that Python has no datetime for, as it is printed. Raises ValueError."""
    return parse(text) if text[:1] in ("+", "-") else datetime.fromisoformat(text)


_READ = {
    DataType.INT: int,
    DataType.TIMESTAMP: time_from_text,
    DataType.DATE: date.fromisoformat,
    DataType.DECIMAL: Decimal,
    DataType.BYTES: base64.b64decode,
    DataType.BOOL: {"true": True, "false": False}.__getitem__,
}
"""How text becomes the value of a key."""


def _value(name: str, kind: DataType, given: Any) -> Any:
    try:
        value = _READ[kind](given) if isinstance(given, str) and kind in _READ else given  # type: ignore[operator]
        if value is None or (isinstance(value, datetime) and value.tzinfo is None):
            raise ValueError("no time zone" if value is not None else "NULL is no key")
        if kind is DataType.TIMESTAMP and isinstance(given, str) and isinstance(value, int):
            return value  # beyond what Arrow gives Python
        return pa.scalar(value, ARROW_TYPES[kind]).as_py()
    except (ValueError, TypeError, KeyError, ArithmeticError, AttributeError, pa.ArrowException) as error:
        raise ExplainError(f"key: {given!r} is not the {kind} that {name} is ({error})") from error
