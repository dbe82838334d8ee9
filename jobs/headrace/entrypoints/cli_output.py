"""What the command line prints: results on stdout (tables for people, JSON for machines), all else on stderr."""

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

PIPED_WIDTH = 200
"""Columns of a table whose reader is no terminal."""


class Format(StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


def notice(message: str) -> None:
    """Something for people to know, on stderr."""
    Console(stderr=True, highlight=False).print(escape(message))


def print_json(value: Any) -> None:
    """``value`` as one JSON document; datetimes become ISO 8601 in UTC."""
    sys.stdout.write(json.dumps(value, indent=1, default=_iso) + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> None:
    """A table; numbers to the right, times in UTC."""
    listed = [list(row) for row in rows]
    table = Table(title=title, title_justify="left", header_style="bold")
    for number, name in enumerate(columns):
        numeric = any(isinstance(row[number], int | float) for row in listed)
        table.add_column(escape(name), justify="right" if numeric else "left", overflow="fold")
    for row in listed:
        table.add_row(*[escape(_text(value)) for value in row])
    _stdout().print(table)


def print_fields(fields: Mapping[str, Any], title: str | None = None) -> None:
    """Names and values, one line each."""
    table = Table(title=title, title_justify="left", show_header=False)
    for name, value in fields.items():
        table.add_row(escape(name), escape(_text(value)))
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
            message = f"[bold red]error[/] [red]{escape(str(error))}[/] [dim]({error.code})[/]"
            Console(stderr=True, highlight=False, soft_wrap=True).print(message)
        raise typer.Exit(error.exit_code) from error


def _stdout() -> Console:
    return Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=PIPED_WIDTH)


def _iso(value: object) -> str:
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
