"""Writes ``jobs/headrace/pipeline/expectations.json``: the expectations of the installed Great Expectations.

Each has its arguments with the kinds of their values, so that a pipeline is checked without importing the library.
``python -m scripts.expectations``; a test holds the file and the installed library together.
"""

import json
import types
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parents[1] / "jobs/headrace/pipeline/expectations.json"
OTHER_TABLES = {
    "expect_query_results_to_match_comparison",
    "expect_table_row_count_to_equal_other_table",
    "unexpected_rows_expectation",
}
"""What asks a database, and cannot be asked of a view."""
OURS = {"id", "meta", "result_format", "catch_exceptions", "rendered_content", "windows", "batch_id"}
"""Arguments that the audit gives, and others that say nothing of the data."""


def read_installed() -> dict[str, dict[str, str]]:
    """Arguments by expectation; the name of one that may be left out ends in ``?``."""
    from great_expectations.expectations import core
    from great_expectations.expectations.expectation import Expectation

    arguments_by_name = {}
    classes: list[Any] = [value for value in vars(core).values() if isinstance(value, type)]
    for value in classes:
        if issubclass(value, Expectation):
            name = value.expectation_type or ""
            if name and name not in OTHER_TABLES:
                arguments_by_name[name] = dict(sorted(_arguments(value)))
    return dict(sorted(arguments_by_name.items()))


def _arguments(expectation: Any) -> Iterator[tuple[str, str]]:
    for name, field in expectation.__fields__.items():
        if name not in OURS and name != "library_metadata":
            yield (name if field.required else f"{name}?"), " | ".join(sorted(set(_kinds(field.outer_type_))))


def _kinds(kind: Any) -> Iterator[str]:
    """The JSON values that an annotation takes: a name of theirs, or ``=`` and a literal."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        yield from _kinds(inner[0])
    elif origin in (typing.Union, types.UnionType):
        are_dicts = all(part in (dict, type(None)) for part in inner)
        for part in inner:
            if part is not type(None) and (
                are_dicts or part is not dict
            ):  # a dict beside others is a run-time parameter
                yield from _kinds(part)
    elif origin is typing.Literal:
        yield from (f"={value}" for value in inner)
    elif isinstance(origin or kind, type):
        yield _of_class(origin or kind)
    else:
        yield "anything"


def _of_class(kind: type) -> str:
    if issubclass(kind, bool):
        return "flag"
    if issubclass(kind, str | date | datetime):
        return "text"
    if issubclass(kind, int):
        return "whole number"
    if issubclass(kind, float):
        return "number"
    if issubclass(kind, Mapping):
        return "mapping"
    return "list" if issubclass(kind, Sequence | Collection) else "anything"


if __name__ == "__main__":
    lines = [f"{json.dumps(name)}: {json.dumps(arguments)}" for name, arguments in read_installed().items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
