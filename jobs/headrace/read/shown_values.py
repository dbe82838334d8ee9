"""Values of rows, keys and aggregates as people are shown them: in JSON, and as tables of a notebook.

JSON is for the command line and for pages. Tables are small, and text whatever the data holds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, fields
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from html import escape
from typing import Any, ClassVar

from headrace.model.expressions.data_types import replace_non_finite
from headrace.this_process import LONGEST_CELL, in_one_line, shorten_text


def as_json(value: object) -> str:
    """``value``, for which JSON has no form, as text: times as ISO 8601 in UTC, bytes as base64. Raises TypeError."""
    if isinstance(value, datetime):
        return in_utc(value).isoformat().replace("+00:00", "Z")
    if isinstance(value, bytes | date | Decimal):
        return constant_text(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def json_value(value: Any) -> Any:
    """``value``, also inside, with what JSON lacks as its ``to_json`` or ``as_json`` gives it. Raises TypeError."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, str | int | float):
        return replace_non_finite(value)
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if isinstance(value, Mapping):
        return {name: json_value(item) for name, item in value.items()}
    return value.to_json() if hasattr(value, "to_json") else as_json(value)


class JsonFields:
    """A dataclass whose JSON value is that of its fields, by name."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {field.name: json_value(getattr(self, field.name)) for field in fields(self)}


def in_utc(value: datetime) -> datetime:
    """``value`` in UTC, which it is taken for if it names no zone."""
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def constant_text(value: bytes | date | Decimal) -> str:
    """A constant as text, spelled as expressions and snapshots spell it."""
    from headrace.model.expressions.typing import constant_to_json

    return str(constant_to_json(value))


def html_table(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], caption: str) -> str:
    """A table of ``rows`` below ``caption``, in HTML."""
    head = "".join(f"<th>{_escape_html(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_cell_html(row[name])}</td>' for name in columns)}</tr>" for row in rows)
    return (
        f"<table><caption>{_escape_html(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def html_note(text: str) -> str:
    """A paragraph."""
    return f"<p>{_escape_html(text)}</p>"


def _cell_html(value: object) -> str:
    if value is None:
        return ""
    text = f"{value:%Y-%m-%d %H:%M:%S}Z" if isinstance(value, datetime) else str(value)
    return _escape_html(shorten_text(text, LONGEST_CELL))


def _escape_html(text: str) -> str:
    return escape(in_one_line(text))
