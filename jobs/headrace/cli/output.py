"""What the command line prints: results on stdout (tables for people, JSON for machines), all else on stderr."""

import base64
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headrace.errors import HeadraceError

WIDE = 10_000
"""Columns of a console that never wraps: an id that is broken in two cannot be copied or searched for."""

LONGEST_CELL = 300
LONGEST_MESSAGE = 2_000
"""Characters of a value in a table, and of a message; JSON has all of them."""


class Format(StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


def notice(message: str) -> None:
    """Something for people to know, on stderr; never wrapped."""
    sys.stderr.write(f"{cut(message, LONGEST_MESSAGE)}\n")


def print_json(value: Any) -> None:
    """``value`` as one JSON document; datetimes become ISO 8601 in UTC, bytes base64."""
    sys.stdout.write(json.dumps(value, indent=1, default=_in_json) + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> None:
    """A table as wide as what is in it; numbers to the right, times in UTC, of long values the beginning."""
    listed = [list(row) for row in rows]
    table = Table(title=title, title_justify="left", header_style="bold")
    for number, name in enumerate(columns):
        numeric = any(isinstance(row[number], int | float) for row in listed)
        table.add_column(escape(name), justify="right" if numeric else "left")
    for row in listed:
        table.add_row(*[_cell(value) for value in row])
    _stdout().print(table)


def print_fields(fields: Mapping[str, Any], title: str | None = None) -> None:
    """Names and values, one line each."""
    table = Table(title=title, title_justify="left", show_header=False)
    for name, value in fields.items():
        table.add_row(escape(name), _cell(value, LONGEST_MESSAGE))
    _stdout().print(table)


def print_lines(lines: Iterable[str]) -> None:
    """Plain lines, never wrapped: for shells to read."""
    sys.stdout.writelines(f"{line}\n" for line in lines)


@contextmanager
def reported(output: Format) -> Iterator[None]:
    """Turn an error that Headrace raises on purpose into one message and its exit code; no traceback."""
    try:
        yield
    except HeadraceError as error:
        if output is Format.JSON:
            print_json({"error": {"code": error.code, "remedy": error.remedy, "message": str(error)}})
        else:
            for note in getattr(error, "__notes__", ()):
                notice(note)
            text = escape(cut(str(error), LONGEST_MESSAGE))
            message = f"[bold red]error[/] [red]{text}[/] [dim]({error.code})[/]"
            Console(stderr=True, highlight=False, soft_wrap=True).print(message)
        raise typer.Exit(error.exit_code) from error


def cut(text: str, longest: int) -> str:
    """``text``, or its beginning and how long it is."""
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text):,} characters)"


def _stdout() -> Console:
    return Console(highlight=False, width=WIDE)


def _cell(value: object, longest: int = LONGEST_CELL) -> str:
    """``value`` in one line; what would move the cursor or break the line is written as Python writes it."""
    text = cut(_text(value), longest)
    return escape("".join(each if each.isprintable() else repr(each)[1:-1] for each in text))


def _in_json(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
    return str(value)
