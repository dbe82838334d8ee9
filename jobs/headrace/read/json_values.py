"""Values of rows, keys and aggregates in JSON: for the command line and for pages."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any


def as_json(value: object) -> str:
    """``value``, for which JSON has no form, as text: times as ISO 8601 in UTC, bytes as base64. Raises TypeError."""
    if isinstance(value, datetime):
        return in_utc(value).isoformat().replace("+00:00", "Z")
    if isinstance(value, bytes | date | Decimal):
        return constant_text(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def json_value(value: Any) -> Any:
    """``value`` with what JSON has no form for as ``as_json`` spells it, also inside of it. Raises TypeError."""
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if isinstance(value, Mapping):
        return {name: json_value(item) for name, item in value.items()}
    return value if value is None or isinstance(value, str | int | float) else as_json(value)


def in_utc(value: datetime) -> datetime:
    """``value`` in UTC, which it is taken for if it names no zone."""
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def constant_text(value: bytes | date | Decimal) -> str:
    """A constant as text, spelled as expressions and snapshots spell it."""
    from headrace.model.expressions.identity import constant_to_json

    return str(constant_to_json(value))
