"""Columns as users write them, of sources and of results, and functions of several.

The name of a column may stand for an expression in functions, as pipelines write them: ``hr.coalesce``, ``hr.if_else``
and others. Columns of a source say what each holds and, where it has another name there, which field it is. Columns of
results are expressions over one row of results: its key, aggregates and window (semantics 8.4).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.errors import PipelineError
from headrace.model.arguments import (
    REQUIRED,
    Arguments,
    as_expression,
    check_keywords,
    did_you_mean,
    locate_errors,
    register_word,
)
from headrace.model.expressions import data_types
from headrace.model.expressions.expr import Binary, Column, Expr, Function, Operand, render, to_expression
from headrace.model.expressions.typing import columns_of, type_of

Read = Expr | str
"""What is read of a record: an expression, or the name of a column."""

Key = Expr | str | Collection[str | Column | Mapping[str, Expr]] | Mapping[str, Expr] | None
"""The columns of a key: the name of one, expressions by name, several of both, or None for one group of all."""

_PYTHON_SIGNS = {"and": "&", "or": "|"}

_KEY_FORMS = (
    'the name of a column, a list of names, {"name": expression}, ["name", {"other": expression}], or None for one '
    "group of all"
)


def require_expression(arguments: Arguments, name: str, value: object) -> Expr:
    """An expression. Text is refused: it could mean a column or a constant."""
    if isinstance(value, Expr):
        return value
    raise arguments.refusal(name, value, f"not an expression; write {as_expression(value)}")


def column_or_expression(arguments: Arguments, name: str, value: object) -> Expr:
    """An expression, or text, which is the name of a column."""
    if isinstance(value, str) and value:
        return Column(value)
    if isinstance(value, Expr):
        return value
    raise arguments.refusal(name, value, 'write the name of a column, or an expression such as col("price") * 2')


def key_columns(arguments: Arguments, name: str, value: object, forms: str = _KEY_FORMS) -> dict[str, Expr]:
    """The columns of a key, by name and in order. ``forms`` says how they may be written, for messages."""
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return arguments.mapping(name, value, Expr, forms, least=0)
    several = isinstance(value, list | tuple)
    written_parts = value if isinstance(value, list | tuple) else [value]
    parts = [_key_part_columns(arguments, name, part, "" if several else f"{name}=") for part in written_parts]
    if not all(parts) or not parts:
        raise arguments.refusal(name, value, f"write {forms}")
    names = [column for part in parts for column in part]
    duplicates = sorted({column for column in names if names.count(column) > 1})
    if duplicates:
        raise arguments.refusal(name, value, f"it names {', '.join(duplicates)} twice")
    return {column: expr for part in parts for column, expr in part.items()}


def _key_part_columns(arguments: Arguments, name: str, part: object, place: str) -> Mapping[str, Expr]:
    """The columns that one ``part`` of a key names, which stands behind ``place``; none if it names none."""
    match part:
        case Column(column):
            return {column: part}
        case Expr():
            column, of_key = min(columns_of(part), default="name"), " in a key" * (name == "key")
            raise PipelineError(
                f"{arguments.owner}({name}={render(part)}): an expression{of_key} needs a name; write "
                f'{place}{{"{column}": {_in_python(part)}}}'
            )
        case str() if part:
            return {part: Column(part)}
        case Mapping():
            return arguments.mapping(name, part, Expr, '{"name": expression}')
    return {}


def _in_python(expr: Expr) -> str:
    """``expr`` as users write it, with its columns as ``col("name")``."""
    match expr:
        case Column(name):
            return f'col("{name}")'
        case Function(name, args):
            return render(Function(name, tuple(Column(_in_python(part)) for part in args)))
        case Binary(op, left, right):
            return render(Binary(_PYTHON_SIGNS.get(op, op), Column(_in_python(left)), Column(_in_python(right))))
    return render(expr)


@check_keywords
def coalesce(*args: Operand) -> Expr:
    """The first argument that is not NULL.

    >>> hr.coalesce(hr.col("nickname"), hr.col("name"), "nobody").distinct().describe()
    "distinct of coalesce(nickname, name, 'nobody')"
    """
    return _of_several("coalesce", args)


@check_keywords
def if_else(condition: Operand, then: Operand, otherwise: Operand) -> Expr:
    """``then`` where ``condition`` is TRUE, ``otherwise`` where it is FALSE or NULL.

    >>> hr.if_else(hr.col("delay") > 60, 1, 0).sum().describe()
    'sum of if_else((delay > 60), 1, 0)'
    """
    return Function("if", (to_expression(condition), to_expression(then), to_expression(otherwise)))


@check_keywords
def case(*branches: tuple[Expr, Operand], otherwise: Operand = None) -> Expr:
    """The value of the first of ``branches`` whose condition is TRUE, ``otherwise`` where none is: SQL's ``CASE``. Each
    branch is a condition with its value.

    >>> km = hr.col("km")
    >>> size = hr.case((km > 1000, "long"), (km > 100, "medium"), otherwise="short")
    >>> str(size)
    "if_else((km > 1000), 'long', if_else((km > 100), 'medium', 'short'))"
    """
    arguments = Arguments("case")
    write = 'branches such as (col("km") > 1000, "long"), (col("km") > 100, "medium")'
    if not branches:
        raise arguments.refusal("branches", branches, f"it has no branch; write {write}")
    expression = to_expression(otherwise)
    for branch in reversed(branches):
        if not (isinstance(branch, tuple) and len(branch) == _PAIR and isinstance(branch[0], Expr)):
            raise arguments.refusal("branches", branch, f"a branch is a condition and its value; write {write}")
        expression = Function("if", (branch[0], to_expression(branch[1]), expression))
    return expression


_PAIR = 2


@check_keywords
def least(*args: Operand) -> Expr:
    """The smallest argument that is not NULL; NULL only if all are.

    >>> hr.least(hr.col("sent"), hr.col("received")).min().describe()
    'min of least(sent, received)'
    """
    return _of_several("least", args)


@check_keywords
def greatest(*args: Operand) -> Expr:
    """The largest argument that is not NULL; NULL only if all are.

    >>> hr.greatest(hr.col("sent"), hr.col("received")).max().describe()
    'max of greatest(sent, received)'
    """
    return _of_several("greatest", args)


@check_keywords
def concat(*args: Operand) -> Expr:
    """The strings one after another; NULL if one is NULL.

    >>> hr.concat(hr.col("origin"), "-", hr.col("dest")).distinct().describe()
    "distinct of concat(origin, '-', dest)"
    """
    return _of_several("concat", args)


def _of_several(name: str, args: tuple[object, ...]) -> Expr:
    if not args:
        raise PipelineError(f'{name}(): write at least one argument, {name}(col("a"), col("b"))')
    return Function(name, tuple(to_expression(a) for a in args))


Path = str | Sequence[str]
"""Where a field is: "user.id" is ``id`` in the object ``user``; a sequence has one name for each level."""

ColumnType = data_types.ColumnType
"""What a column of a source holds: a value, or several: a list, a struct, a map."""


@register_word("field", path=REQUIRED, type=REQUIRED, through=0)
@dataclass(frozen=True, repr=False)
class SourceField:
    """A field of records. ``path`` are the names that lead to it, from the outermost; ``type`` is what it holds.
    Written ``field(...)``.

    ``through``: so many of the names lead to a list of objects, each of which has it; then it is the list of them all.
    """

    path: tuple[str, ...]
    type: ColumnType
    through: int = 0

    def inside(self, *outer: str) -> "SourceField":
        """Give the same field of an object that these names lead to. It raises nothing.

        :param outer: the names, from the outermost.
        :returns: the field.
        """
        return SourceField((*outer, *self.path), self.type, self.through and self.through + len(outer))

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
"""Columns of a source by name; a column that the source calls otherwise has its field."""

WrittenColumns = Mapping[str, data_types.WrittenType | SourceField]
"""The same as users write them: a Python type, a DataType, a list of one (``list[str]``), a struct (``{"city": str}``),
a map (``dict[str, int]``), or a field."""


@check_keywords
def field(path: Path, type: data_types.WrittenType) -> SourceField:  # noqa: A002 (the word of the domain)
    """A column of a source that is called otherwise in its records, or lies in an object there.

    ``path``: "user.id" is the field ``id`` of the object ``user``; where names have dots themselves, write one for each
    level: ``["user", "e.mail"]``. Formats without objects (CSV) have one name, with the dots. ``type`` as in a schema.

    >>> hr.json("landing/clicks", {"id": hr.field("_id", str), "user": hr.field("user.id", int)}).types["user"].value
    'int'
    """
    arguments = Arguments("field")
    return SourceField(path_of(arguments, "path", path), data_types.column_type(arguments, "type", type))


def path_of(arguments: Arguments, name: str, path: object) -> tuple[str, ...]:
    """The argument ``name``, the names that lead to a field. Raises the error of ``arguments``."""
    names = path.split(".") if isinstance(path, str) else path
    if not isinstance(names, list | tuple) or not names or not all(isinstance(n, str) and n for n in names):
        raise arguments.refusal(
            name, path, 'write the names that lead to the field, such as "user.id" or ["user", "id"]'
        )
    if not all(map(data_types.is_text, names)):
        raise arguments.refusal(name, path, "half of a surrogate pair is not a character")
    return tuple(names)


def columns_of_source(arguments: Arguments, name: str, value: object) -> dict[str, ColumnType | SourceField]:
    """The columns of ``value``, in order; a field that has the name of its column is its type alone. Raises
    PipelineError, also for two columns that would be one field, or of which one lies in the other.
    """
    if not isinstance(value, Mapping) or not value:
        raise arguments.refusal(name, value, 'name the columns and their types, such as {"origin": str, "delay": int}')
    columns = {column: _column_type(arguments, name, column, kind) for column, kind in value.items()}
    fields = fields_of(columns)
    by_path = {source_field.path: column for column, source_field in fields.items()}
    for column, source_field in fields.items():
        for depth in range(1, len(source_field.path) + 1):
            outer = source_field.path[:depth]
            if (other := by_path.get(outer, column)) != column:
                how = "is the same field as" if outer == source_field.path else "lies in the field of"
                why = f"it {how} column {other!r}, {'.'.join(outer)!r}: declare only one"
                raise arguments.refusal(f"{name}[{column!r}]", value[column], why)
    return columns


def _column_type(arguments: Arguments, name: str, column: object, kind: object) -> ColumnType | SourceField:
    text = data_types.column_name(
        arguments, name, column, kind, 'give the column another name: {"id": field("_id", str)}'
    )
    if isinstance(kind, SourceField):
        return kind.type if kind.path == (text,) else kind
    return data_types.column_type(arguments, f"{name}[{text!r}]", kind)


def in_list(columns: SourceColumns, place: str) -> dict[str, SourceField]:
    """Choose the ``columns`` that are fields in what lies at ``place``, each as the list of them all."""
    names = tuple(place.split("."))
    fields_inside: dict[str, SourceField] = {}
    for name, source_field in fields_of(columns).items():
        if source_field.path[: len(names)] == names != source_field.path:
            kind = source_field.type if source_field.through else data_types.ListType(source_field.type)
            fields_inside[name] = SourceField(source_field.path, kind, len(names))
    return fields_inside


def fields_of(columns: SourceColumns) -> dict[str, SourceField]:
    return {
        name: column if isinstance(column, SourceField) else SourceField((name,), column)
        for name, column in columns.items()
    }


def types_of(columns: SourceColumns) -> dict[str, ColumnType]:
    return {name: column.type if isinstance(column, SourceField) else column for name, column in columns.items()}


def in_objects(values: Mapping[str, Any], fields: SourceFields) -> dict[str, Any]:
    """The ``values`` of columns where their fields are: in objects within objects, by name."""
    objects: dict[str, Any] = {}
    for name, value in values.items():
        list_depth, path = fields[name].through, fields[name].path
        if not list_depth:
            _put_at_path(objects, path, value)
        elif value is not None:
            parent = objects
            for part in path[: list_depth - 1]:
                parent = parent.setdefault(part, {})
            items = parent.setdefault(path[list_depth - 1], [{} for _ in value])
            for item, own in zip(items, value, strict=True):
                _put_at_path(item, path[list_depth:], own)
    return objects


def _put_at_path(parent: dict[str, Any], path: Sequence[str], value: Any) -> None:
    *outer, last = path
    for part in outer:
        parent = parent.setdefault(part, {})
    parent[last] = value


def out_of_objects(record: Mapping[str, Any], fields: SourceFields) -> dict[str, Any]:
    """The values of a ``record`` that is written with its objects, by the columns ``fields`` that it is read with."""
    by_path = {source_field.path: name for name, source_field in fields.items()}
    objects = {path[:depth] for path in by_path for depth in range(len(path))}
    values: dict[str, Any] = {}

    def flatten_value(path: tuple[str, ...], value: Any) -> None:
        if path in objects and isinstance(value, Mapping | None):
            for name, field_value in ({} if value is None else value).items():
                flatten_value((*path, name), field_value)
        else:
            values[by_path.get(path, ".".join(path))] = value

    flatten_value((), record)
    return values


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
    columns_in_order: dict[str, Expr] = {}
    for name in results:
        _order_result(name, results, columns_in_order, ())
    return columns_in_order


def _order_result(
    name: str, results: Mapping[str, Expr], columns_in_order: dict[str, Expr], readers: tuple[str, ...]
) -> None:
    if name in readers:
        cycle = " reads ".join([*readers[readers.index(name) :], name])
        raise PipelineError(f"{cycle}: nothing can be computed first; let one of them read aggregates alone")
    if name in columns_in_order:
        return
    for other in sorted(columns_of(results[name]) & {*results}):
        _order_result(other, results, columns_in_order, (*readers, name))
    columns_in_order[name] = results[name]


def result_types(results: Mapping[str, Expr], columns: data_types.Schema) -> dict[str, data_types.DataType]:
    """The types of ``results``, in the order in which they are declared, over a row that has ``columns`` besides.

    Raises PipelineError for operands that do not fit.
    """
    types, computed_types = dict(columns), dict[str, data_types.DataType]()
    for name, expr in in_order(results).items():
        with locate_errors(f"what[{name!r}]"):
            kind = type_of(expr, types)
            if kind is None:
                raise PipelineError(f"{render(expr)} is always NULL; name a result in it")
        types[name] = computed_types[name] = kind
    return {name: computed_types[name] for name in results}
