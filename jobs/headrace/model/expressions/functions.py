"""Functions of several expressions, and where the name of a column may stand for one.

Expressions as users write them, where the name of a column may stand for it.

Functions of several expressions, as pipelines write them: ``hr.coalesce``, ``hr.if_else`` and others.
"""

from collections.abc import Collection, Mapping

from headrace.errors import PipelineError
from headrace.model.arguments import Arguments, as_expression, keywords
from headrace.model.expressions.expr import Binary, Column, Expr, Function, Operand, lift, render
from headrace.model.expressions.trees import columns_of

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


def key_columns(given: Arguments, name: str, value: object) -> dict[str, Expr]:
    """The columns of a key, by name and in order."""
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return given.mapping(name, value, Expr, _KEY, least=0)
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
        raise given.wrong(name, value, f"write {_KEY}")
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
