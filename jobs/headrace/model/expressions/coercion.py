"""Expressions as users write them, where the name of a column may stand for it."""

from collections.abc import Collection, Mapping

from headrace.model.arguments import Arguments
from headrace.model.expressions.expr import Column, Expr

Read = Expr | str
"""What is read of a record: an expression, or the name of a column."""

Key = Expr | str | Collection[str | Column] | Mapping[str, Expr] | None
"""The columns of a key: the name of one, several names, expressions by name, or None for one group of all."""

_KEY = 'the name of a column, a list of names, {"name": expression}, or None for one group of all'


def expression(given: Arguments, name: str, value: object) -> Expr:
    """An expression. Text is refused: it could mean a column or a constant."""
    if isinstance(value, Expr):
        return value
    column = f"col({value!r})" if isinstance(value, str) and value else 'col("price") > 10'
    raise given.wrong(name, value, f"not an expression; write one such as {column}")


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
    written = [value] if isinstance(value, str | Column) else value if isinstance(value, list | tuple) else []
    names = [each.name if isinstance(each, Column) else each for each in written]
    columns = [each for each in names if isinstance(each, str) and each]
    if not columns or len(columns) < len(names):
        raise given.wrong(name, value, f"write {_KEY}")
    twice = sorted({each for each in columns if columns.count(each) > 1})
    if twice:
        raise given.wrong(name, value, f"it names {', '.join(twice)} twice")
    return {each: Column(each) for each in columns}
