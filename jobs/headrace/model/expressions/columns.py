"""Columns as users write them, of sources and of results, and functions of several.

The name of a column may stand for an expression in functions, as pipelines write them: ``hr.coalesce``, ``hr.if_else``
and others. Columns of a source say what each holds and, where it has another name there, which field it is. Columns of
results are expressions over one row of results: its key, aggregates and window (semantics 8.4).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.errors import PipelineError
from headrace.model.arguments import REQUIRED, Arguments, as_expression, did_you_mean, keywords, word
from headrace.model.expressions import data_types
from headrace.model.expressions.expr import Binary, Column, Expr, Function, Operand, lift, render
from headrace.model.expressions.typing import columns_of, type_of

Read = Expr | str
"""What is read of a record: an expression, or the name of a column."""

Key = Expr | str | Collection[str | Column] | Mapping[str, Expr] | None
"""The columns of a key: the name of one, several names, expressions by name, or None for one group of all."""

_SIGNS = {"and": "&", "or": "|"}

_KEY = 'the name of a column, a list of names, {"name": expression}, or None for one group of all'


def expression(given: Arguments, name: str, value: object) -> Expr:
    """An expression. Text is refused: it could mean a column or a constant."""
    if isinstance(value, Expr):
        return value
    raise given.wrong(name, value, f"not an expression; write {as_expression(value)}")


def read(given: Arguments, name: str, value: object) -> Expr:
    """An expression, or text, which is the name of a column."""
    if isinstance(value, str) and value:
        return Column(value)
    if isinstance(value, Expr):
        return value
    raise given.wrong(name, value, 'write the name of a column, or an expression such as col("price") * 2')


def key_columns(given: Arguments, name: str, value: object, forms: str = _KEY) -> dict[str, Expr]:
    """The columns of a key, by name and in order. ``forms`` says how they may be written, for messages."""
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return given.mapping(name, value, Expr, forms, least=0)
    if isinstance(value, Expr) and not isinstance(value, Column):
        column = min(columns_of(value), default="name")
        raise PipelineError(
            f"{given.owner}({name}={render(value)}): an expression in a key needs a name; write "
            f'{name}={{"{column}": {_in_python(value)}}}'
        )
    written = [value] if isinstance(value, str | Column) else value if isinstance(value, list | tuple) else []
    names = [part.name if isinstance(part, Column) else part for part in written]
    columns = [part for part in names if isinstance(part, str) and part]
    if not columns or len(columns) < len(names):
        raise given.wrong(name, value, f"write {forms}")
    twice = sorted({part for part in columns if columns.count(part) > 1})
    if twice:
        raise given.wrong(name, value, f"it names {', '.join(twice)} twice")
    return {part: Column(part) for part in columns}


def _in_python(expr: Expr) -> str:
    """``expr`` as users write it, with its columns as ``col("name")``."""
    match expr:
        case Column(name):
            return f'col("{name}")'
        case Function(name, args):
            return render(Function(name, tuple(Column(_in_python(part)) for part in args)))
        case Binary(op, left, right):
            return render(Binary(_SIGNS.get(op, op), Column(_in_python(left)), Column(_in_python(right))))
    return render(expr)


@keywords
def coalesce(*args: Operand) -> Expr:
    """The first argument that is not NULL.

    >>> hr.coalesce(hr.col("nickname"), hr.col("name"), "nobody").distinct().describe()
    "distinct of coalesce(nickname, name, 'nobody')"
    """
    return _of_several("coalesce", args)


@keywords
def if_else(condition: Operand, then: Operand, otherwise: Operand) -> Expr:
    """``then`` where ``condition`` is TRUE, ``otherwise`` where it is FALSE or NULL.

    >>> hr.if_else(hr.col("delay") > 60, 1, 0).sum().describe()
    'sum of if_else((delay > 60), 1, 0)'
    """
    return Function("if", (lift(condition), lift(then), lift(otherwise)))


@keywords
def least(*args: Operand) -> Expr:
    """The smallest argument that is not NULL; NULL only if all are.

    >>> hr.least(hr.col("sent"), hr.col("received")).min().describe()
    'min of least(sent, received)'
    """
    return _of_several("least", args)


@keywords
def greatest(*args: Operand) -> Expr:
    """The largest argument that is not NULL; NULL only if all are.

    >>> hr.greatest(hr.col("sent"), hr.col("received")).max().describe()
    'max of greatest(sent, received)'
    """
    return _of_several("greatest", args)


@keywords
def concat(*args: Operand) -> Expr:
    """The strings one after another; NULL if one is NULL.

    >>> hr.concat(hr.col("origin"), "-", hr.col("dest")).distinct().describe()
    "distinct of concat(origin, '-', dest)"
    """
    return _of_several("concat", args)


def _of_several(name: str, args: tuple[object, ...]) -> Expr:
    if not args:
        raise PipelineError(f'{name}(): write at least one argument, {name}(col("a"), col("b"))')
    return Function(name, tuple(lift(a) for a in args))


Path = str | Sequence[str]
"""Where a field is: "user.id" is ``id`` in the object ``user``; a sequence has one name for each level."""

ColumnType = data_types.DataType | data_types.ListType
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
        return f"field({[*self.path] if has_dots else self.place!r}, {data_types.in_words(self.type)})"

    def __str__(self) -> str:
        return f"{data_types.in_words(self.type)} ({self.place})"


SourceFields = Mapping[str, SourceField]
"""The fields of columns, by their names."""

SourceColumns = Mapping[str, ColumnType | SourceField]
"""Columns of a source by name; of those that are called otherwise there, the field."""

WrittenColumns = Mapping[str, data_types.StoredType | SourceField]
"""The same as users write them: a Python type, a DataType, a list of one (``list[str]``), or a field."""


@keywords
def field(path: Path, type: data_types.StoredType) -> SourceField:  # noqa: A002 (the word of the domain)
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
    if not all(map(data_types.is_text, names)):
        raise given.wrong("path", path, "half of a surrogate pair is not a character")
    return SourceField(tuple(names), data_types.stored_type(given, "type", type))


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
    text = data_types.column_name(given, name, column, kind, 'give the column another name: {"id": field("_id", str)}')
    if isinstance(kind, SourceField):
        return kind.type if kind.path == (text,) else kind
    return data_types.stored_type(given, f"{name}[{text!r}]", kind)


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


def result_types(results: Mapping[str, Expr], columns: data_types.Schema) -> dict[str, data_types.DataType]:
    """The types of ``results``, in the order in which they are declared, over a row that has ``columns`` besides.

    Raises PipelineError for operands that do not fit.
    """
    types, made = dict(columns), dict[str, data_types.DataType]()
    for name, expr in in_order(results).items():
        try:
            kind = type_of(expr, types)
        except PipelineError as error:
            raise PipelineError(f"what[{name!r}]: {error}") from None
        if kind is None:
            raise PipelineError(f"what[{name!r}]: {render(expr)} is always NULL; name a result in it")
        types[name] = made[name] = kind
    return {name: made[name] for name in results}
