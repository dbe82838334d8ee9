"""Functions of several expressions, as pipelines write them: ``hr.coalesce``, ``hr.if_else`` and others."""

from headrace.errors import PipelineError
from headrace.model.expressions.expr import Expr, Function, Operand, lift
from headrace.model.suggestions import keywords


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
