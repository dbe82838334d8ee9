"""What the command line prints: results on stdout (tables for people, JSON for machines), all else on stderr.

Data, names and arguments may hold anything. Whatever is printed here for people is text to look at (``terminal``): it
moves no cursor, sets no colour, and is no markup of Rich's.

Rich is imported by what is printed with it: the commands that print JSON, or plain lines, start without it.
"""

import json
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from textwrap import indent
from typing import TYPE_CHECKING, Any, Protocol

from click.exceptions import Exit

from headrace.errors import HeadraceError
from headrace.this_process import (
    LONGEST_CELL,
    LONGEST_MESSAGE,
    escape_invisible,
    flush_output,
    in_one_line,
    shorten_text,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console


WIDE = 10_000
"""Columns of a console that never wraps: an id that is broken in two cannot be copied or searched for."""


class Format(StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


def as_typed(text: str) -> str:
    """``text`` with commands that name a pipeline as the command line did. A pipeline found by its file is named by the
    file, since its name alone need not resolve.
    """
    registry = sys.modules.get("headrace.pipeline.loading.registry")  # else no pipeline was resolved
    for name, reference in ({} if registry is None else registry.REFERENCES).items():
        text = _with_reference(text, name, shlex.quote(reference))
    return text


def _with_reference(text: str, name: str, reference: str) -> str:
    command = re.compile(rf"(\bheadrace [a-z]+(?:-[a-z]+)* ){re.escape(name)}(?![\w./:-])")
    return command.sub(lambda match: match[1] + reference, text)


def print_notice(message: str) -> None:
    """Something for people to know, on stderr; never wrapped."""
    message = as_typed(message)
    sys.stderr.write(f"{escape_invisible(shorten_text(message, LONGEST_MESSAGE))}\n")


@contextmanager
def despite_closed_output() -> Iterator[None]:
    """Print in the block how something ended; a reader that has left (``| head -1``) does not change the outcome."""
    with suppress(BrokenPipeError):
        yield
    flush_output()


def print_json(value: Any) -> None:
    """``value`` as one JSON document. Dates and times become ISO 8601 (in UTC), bytes base64, decimals text; so do NaN
    and infinities.
    """
    sys.stdout.write(_json_text(value) + "\n")


def _json_text(value: Any) -> str:
    from headrace.model.expressions.data_types import replace_non_finite
    from headrace.read.shown_values import as_json

    return json.dumps(replace_non_finite(value), indent=1, default=as_json, allow_nan=False)


class _HasJson(Protocol):
    def to_json(self) -> Any: ...


def print_if_json(value: _HasJson, output: Format) -> bool:
    """Print ``value`` as JSON where that is asked for. Returns whether it was; else it is to be printed for people."""
    if output is Format.JSON:
        print_json(value.to_json())
    return output is Format.JSON


def print_json_rows(batches: "Iterable[pa.RecordBatch]") -> None:
    """Rows as ``print_json`` prints a list of them, of which no more than a batch is in memory."""
    from headrace.read.views.arrow_types import zoneless_rows

    separator = "[\n"
    for batch in batches:
        for row in zoneless_rows(batch):
            sys.stdout.write(separator + indent(_json_text(row), " "))
            separator = ",\n"
    sys.stdout.write("[]\n" if separator == "[\n" else "\n]\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> None:
    """A table as wide as what is in it; numbers to the right, times in UTC, of long values the beginning."""
    from rich.table import Table

    row_lists = [list(row) for row in rows]
    table = Table(title=title and in_one_line(title), title_justify="left", header_style="bold")
    for number, name in enumerate(columns):
        numeric = any(isinstance(row[number], int | float | Decimal) for row in row_lists)
        table.add_column(in_one_line(name), justify="right" if numeric else "left")
    for row in row_lists:
        table.add_row(*[_format_cell(value) for value in row])
    _stdout_console().print(table)


def print_fields(fields: Mapping[str, Any], title: str | None = None) -> None:
    """Names and values, one line each."""
    from rich.table import Table

    table = Table(title=title and in_one_line(title), title_justify="left", show_header=False)
    for name, value in fields.items():
        table.add_row(in_one_line(name), _format_cell(value, LONGEST_MESSAGE))
    _stdout_console().print(table)


def print_lines(lines: Iterable[str]) -> None:
    """Plain lines, never wrapped."""
    sys.stdout.writelines(f"{escape_invisible(line)}\n" for line in lines)


def print_names(names: Iterable[str]) -> None:
    """Names for shells to read, a line each: exactly as they are, but in a terminal."""
    sys.stdout.writelines(f"{in_one_line(name) if sys.stdout.isatty() else name}\n" for name in names)


@contextmanager
def report_errors(output: Format) -> Iterator[None]:
    """Turn an error that Headrace raises on purpose into one message and its exit code; no traceback."""
    try:
        yield
    except HeadraceError as error:
        if output is Format.JSON:
            print_json({"error": {"code": error.code, "remedy": error.remedy, "message": str(error)}})
        else:
            for note in getattr(error, "__notes__", ()):
                print_notice(note)
            _print_error(error)
        raise Exit(error.exit_code) from error


def _print_error(error: HeadraceError) -> None:
    from rich.console import Console
    from rich.text import Text

    text = escape_invisible(shorten_text(as_typed(str(error)), LONGEST_MESSAGE))
    message = Text.assemble(("error", "bold red"), " ", (text, "red"), " ", (f"({error.code})", "dim"))
    Console(stderr=True, highlight=False, soft_wrap=True).print(message)


def _stdout_console() -> "Console":
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False, width=WIDE)


def _format_cell(value: object, longest: int = LONGEST_CELL) -> str:
    return in_one_line(shorten_text(_format_value(value), longest))


def _format_value(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, datetime | Decimal):
        from headrace.read.shown_values import constant_text, in_utc

        return f"{in_utc(value):%Y-%m-%d %H:%M:%S}Z" if isinstance(value, datetime) else constant_text(value)
    return str(value)
