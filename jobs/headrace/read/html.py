"""Tables as notebooks show them: small, and text whatever the data holds."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any

from headrace.terminal import LONGEST_CELL, cut, in_one_line


def html_table(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], caption: str) -> str:
    """A table of ``rows`` below ``caption``, in HTML."""
    head = "".join(f"<th>{_escaped(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(row[name])}</td>' for name in columns)}</tr>" for row in rows)
    return f"<table><caption>{_escaped(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_note(text: str) -> str:
    """A paragraph."""
    return f"<p>{_escaped(text)}</p>"


def _cell(value: object) -> str:
    if value is None:
        return ""
    text = f"{value:%Y-%m-%d %H:%M:%S}Z" if isinstance(value, datetime) else str(value)
    return _escaped(cut(text, LONGEST_CELL))


def _escaped(text: str) -> str:
    return escape(in_one_line(text))
