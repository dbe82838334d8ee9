"""Columns as users write them: of sources, and of results.

Columns of a source as users write them: what each holds and, where it has another name there, which field it is.

Columns of results: expressions over one row of results, its key, aggregates and window (semantics 8.4).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.errors import PipelineError
from headrace.model.arguments import Arguments, did_you_mean, keywords
from headrace.model.expressions.data_types import (
    DataType,
    ListType,
    Schema,
    StoredType,
    column_name,
    in_words,
    is_text,
    stored_type,
)
from headrace.model.expressions.expr import Expr, render
from headrace.model.expressions.trees import columns_of
from headrace.model.expressions.typing import type_of
from headrace.model.vocabulary import REQUIRED, word

Path = str | Sequence[str]
"""Where a field is: "user.id" is ``id`` in the object ``user``; a sequence has one name for each level."""

ColumnType = DataType | ListType
"""What a column of a source holds: a value, or a list of values."""


@word("field", path=REQUIRED, type=REQUIRED)
@dataclass(frozen=True, repr=False)
class SourceField:
    """A field of records: the names that lead to it, from the outermost, and what it holds. Written ``field(...)``."""

    path: tuple[str, ...]
    type: ColumnType

    @property
    def place(self) -> str:
        """The names in one text, as messages have it; what the column is called in formats without objects."""
        return ".".join(self.path)

    def named(self, column: str) -> str:
        """Give the name of a column, with the place of its field where that is another. It raises nothing.

        :param column: the column's name.
        :returns: words for a message.
        """
        return column if self.place == column else f"{column} ({self.place})"

    def __repr__(self) -> str:
        has_dots = any("." in name for name in self.path)
        return f"field({[*self.path] if has_dots else self.place!r}, {in_words(self.type)})"

    def __str__(self) -> str:
        return f"{in_words(self.type)} ({self.place})"


SourceFields = Mapping[str, SourceField]
"""The fields of columns, by their names."""

SourceColumns = Mapping[str, ColumnType | SourceField]
"""Columns of a source by name; of those that are called otherwise there, the field."""

WrittenColumns = Mapping[str, StoredType | SourceField]
"""The same as users write them: a Python type, a DataType, a list of one (``list[str]``), or a field."""


@keywords
def field(path: Path, type: StoredType) -> SourceField:  # noqa: A002 (the word of the domain)
    """A column of a source that is called otherwise in its records, or lies in an object there.

    ``path``: "user.id" is the field ``id`` of the object ``user``; where names have dots themselves, write one for each
    level: ``["user", "e.mail"]``. Formats without objects (CSV) have one name, with the dots. ``type`` as in a schema.

    >>> hr.json("landing/clicks", {"id": hr.field("_id", str), "user": hr.field("user.id", int)}).types["user"].value
    'int'
    """
    given = Arguments("field")
    names = path.split(".") if isinstance(path, str) else path
    if not isinstance(names, list | tuple) or not names or not all(isinstance(n, str) and n for n in names):
        raise given.wrong("path", path, 'write the names that lead to the field, such as "user.id" or ["user", "id"]')
    if not all(map(is_text, names)):
        raise given.wrong("path", path, "half of a surrogate pair is not a character")
    return SourceField(tuple(names), stored_type(given, "type", type))


def columns_of_source(given: Arguments, name: str, value: object) -> dict[str, ColumnType | SourceField]:
    """The columns of ``value``, in order; a field that has the name of its column is its type alone. Raises
    PipelineError, also for two columns that would be one field, or of which one lies in the other.
    """
    if not isinstance(value, Mapping) or not value:
        raise given.wrong(name, value, 'name the columns and their types, such as {"origin": str, "delay": int}')
    columns = {column: _column(given, name, column, kind) for column, kind in value.items()}
    fields = fields_of(columns)
    by_path = {source_field.path: column for column, source_field in fields.items()}
    for column, source_field in fields.items():
        for depth in range(1, len(source_field.path) + 1):
            outer = source_field.path[:depth]
            if (other := by_path.get(outer, column)) != column:
                how = "is the same field as" if outer == source_field.path else "lies in the field of"
                why = f"it {how} column {other!r}, {'.'.join(outer)!r}: declare only one"
                raise given.wrong(f"{name}[{column!r}]", value[column], why)
    return columns


def _column(given: Arguments, name: str, column: object, kind: object) -> ColumnType | SourceField:
    text = column_name(given, name, column, kind, 'give the column another name: {"id": field("_id", str)}')
    if isinstance(kind, SourceField):
        return kind.type if kind.path == (text,) else kind
    return stored_type(given, f"{name}[{text!r}]", kind)


def fields_of(columns: SourceColumns) -> dict[str, SourceField]:
    """The field of each column."""
    return {
        name: column if isinstance(column, SourceField) else SourceField((name,), column)
        for name, column in columns.items()
    }


def types_of(columns: SourceColumns) -> dict[str, ColumnType]:
    """The type of each column."""
    return {name: column.type if isinstance(column, SourceField) else column for name, column in columns.items()}


def in_objects(values: Mapping[str, Any], fields: SourceFields) -> dict[str, Any]:
    """The ``values`` of columns where their fields are: in objects within objects, by name."""
    objects: dict[str, Any] = {}
    for name, value in values.items():
        *outer, last = fields[name].path
        inside = objects
        for part in outer:
            inside = inside.setdefault(part, {})
        inside[last] = value
    return objects


def check_reads(expr: Expr, columns: Collection[str]) -> None:
    """Raise PipelineError if ``expr`` reads what a row of results with these ``columns`` does not have."""
    for name in sorted(columns_of(expr) - {*columns}):
        raise PipelineError(
            f"there is no result {name!r}; {did_you_mean(name, columns)}it reads a row of results, which has "
            f"{', '.join(columns)}; of records name an aggregate in what=, such as "
            f'"{name}": col("{name}").max()'
        )


def in_order(results: Mapping[str, Expr]) -> dict[str, Expr]:
    """The columns so that each stands after those that it reads. Raises PipelineError if they read each other in a
    cycle.
    """
    ordered: dict[str, Expr] = {}
    for name in results:
        _place(name, results, ordered, ())
    return ordered


def _place(name: str, results: Mapping[str, Expr], ordered: dict[str, Expr], above: tuple[str, ...]) -> None:
    if name in above:
        cycle = " reads ".join([*above[above.index(name) :], name])
        raise PipelineError(f"{cycle}: nothing can be computed first; let one of them read aggregates alone")
    if name in ordered:
        return
    for other in sorted(columns_of(results[name]) & {*results}):
        _place(other, results, ordered, (*above, name))
    ordered[name] = results[name]


def result_types(results: Mapping[str, Expr], columns: Schema) -> dict[str, DataType]:
    """The types of ``results``, in the order in which they are declared, over a row that has ``columns`` besides.

    Raises PipelineError for operands that do not fit.
    """
    types, made = dict(columns), dict[str, DataType]()
    for name, expr in in_order(results).items():
        try:
            kind = type_of(expr, types)
        except PipelineError as error:
            raise PipelineError(f"what[{name!r}]: {error}") from None
        if kind is None:
            raise PipelineError(f"what[{name!r}]: {render(expr)} is always NULL; name a result in it")
        types[name] = made[name] = kind
    return {name: made[name] for name in results}
