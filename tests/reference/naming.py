"""Column names that are hard on an executor: every word that the code uses, SQL's, and what is no word at all; and
pipelines whose columns are called so.
"""

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import headrace
from headrace import Aggregation, Pipeline
from headrace.model.accumulation import LATE_COLUMNS, PANE_COLUMNS
from headrace.model.expressions.expr import Binary, Column, Expr, Function
from headrace.model.triggers.custom import CustomTrigger
from headrace_lab import reference
from headrace_lab.reference import Epoch
from tests.reference.scenarios import SCHEMA, Scenario

_ROOMS = ("kernel", "program", "distribute", "state", "sources", "read", "audit")
_WORD = re.compile(r"""(['"])([a-z_][a-z0-9_]*)\1""")


def words_of_the_code() -> set[str]:
    """All quoted words in the rooms that handle columns: names of internal columns, of fields
    of structs and of tables among them.
    """
    root = Path(headrace.__file__).parent
    rooms = [*(root / room for room in _ROOMS), Path(reference.__file__).parent]
    files = [file for room in rooms for file in room.rglob("*.py")]
    return {word for file in files for _, word in _WORD.findall(file.read_text())}


_SQL = """
select from where group order by limit offset having union join on using as case when then else end null true false and
or not in is like all any distinct with values table view create drop insert update delete cast row struct map list
date time timestamp interval user current_user current_date qualify pivot window over partition rowid filename
file_row_number file_index default check primary key unique index at asof lateral exclude replace columns coalesce if
min max sum count first last epoch_ms __index_level_0__
"""
OF_SQL = _SQL.split()

ODD = (
    "a b",
    " a",
    "a ",
    "a\tb",
    "a\nb",
    'a"b',
    '"a"',
    "a'b",
    "a''b",
    "a;b",
    "a--b",
    "a/*b*/",
    "a%sb",
    "a{0}b",
    "a$1",
    "a\\b",
    "a:b",
    "a=b",
    "a,b",
    "a/b",
    "a(b)",
    "a[0]",
    "a?b",
    "a*",
    "*",
    "1",
    "1a",
    "-1",
    "0x1",
    "1e3",
    "NaN",
    "Größe",
    "ß",
    "é",
    "e\u0301",
    "ﬁ",
    "İ",
    "\u0131",
    "名前",
    "🚰",
    "שם",
    "a\u00a0b",
    "a\u200bb",
    "\ufeffa",
    "a\u202eb",
    "x" * 300,
    "User",
    "ID",
)
"""Unicode, spaces, quotes, and what looks like a number or like code. Dots and backticks are refused."""

INTERNAL = words_of_the_code()
UNTAKEN = sorted(
    name
    for name in {*INTERNAL, *OF_SQL, *ODD}
    if not name.startswith("_") and name.lower() not in {*PANE_COLUMNS, *LATE_COLUMNS}
)
"""Names that a key or an aggregate may have. Those of Headrace's own columns begin with _, or are in every view."""

NAMES = sorted({*SCHEMA, "n", "total", "share", "low", "number", "ends", *(f"a{i}" for i in range(3))})
"""What scenarios call columns of records, keys and aggregates."""


def rename_columns(scenario: Scenario, names: Mapping[str, str]) -> Scenario:
    """``scenario`` with columns of other ``names``, wherever they stand. Raises PipelineError if it cannot be."""
    own = scenario.pipeline
    source = replace(own.source, schema=_rename_value(own.source.schema, names))
    parts = {name: _rename_value(getattr(own, name), names) for name in ("key", "what", "where", "when", "filter")}
    pipeline = Pipeline(
        own.name,
        replace(own.input, source=source, event_time=_rename_value(own.event_time, names)),
        how=own.how,
        deduplicate=_rename_value(own.deduplicate, names),
        then=[_aggregation(each, names) for each in own.then],
        null_keys=own.null_keys,
        allow_finishing=own.allow_finishing,
        allow_double_counting=own.allow_double_counting,
        **parts,
    )
    epochs = [
        Epoch(e.processing_time, [_rename_value(row, names) for row in e.records], e.is_last, e.signals)
        for e in scenario.epochs
    ]
    return Scenario(pipeline, epochs)


def _aggregation(own: Aggregation, names: Mapping[str, str]) -> Aggregation:
    parts = {name: _rename_value(getattr(own, name), names) for name in ("key", "what", "where", "when", "filter")}
    return Aggregation(how=own.how, **parts)


def _rename_value(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, Expr):
        return _expression(value, names)
    if isinstance(value, Mapping):
        return {names.get(name, name): _rename_value(part, names) for name, part in value.items()}
    if isinstance(value, tuple):
        return tuple(_rename_value(part, names) for part in value)
    return _with_parts(value, names) if is_dataclass(value) and not isinstance(value, type) else value


def _expression(expr: Expr, names: Mapping[str, str]) -> Expr:
    match expr:
        case Column(name):
            return Column(names.get(name, name))
        case Binary(op, left, right):
            return Binary(op, _expression(left, names), _expression(right, names))
        case Function(name, args):
            return Function(name, tuple(_expression(arg, names) for arg in args))
    return expr


def _with_parts(value: Any, names: Mapping[str, str]) -> Any:
    made_copy = copy.copy(value)
    for name, part in _parts(value):
        is_name = isinstance(value, CustomTrigger) and isinstance(part, str)
        object.__setattr__(made_copy, name, names.get(part, part) if is_name else _rename_value(part, names))
    return made_copy


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    yield from ((each.name, getattr(value, each.name)) for each in fields(value))
