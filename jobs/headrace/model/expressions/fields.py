"""Columns of a source as users write them: what each holds and, where it has another name there, which field it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.model.arguments import Arguments
from headrace.model.expressions.data_types import DataType, is_text
from headrace.model.expressions.schemas import column_name
from headrace.model.expressions.value_types import ListType, StoredType, in_words, stored_type
from headrace.model.suggestions import keywords
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
