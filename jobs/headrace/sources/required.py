"""Columns that a file must have: without them every record of it would be a dead letter."""

from collections.abc import Collection, Mapping

from headrace.model.expr import Binary, Expr, Function, columns_of
from headrace.pipeline.graph import Pipeline
from headrace.pipeline.inputs import Input
from headrace.program.lets import substitute
from headrace.sources.errors import FileColumnsError


def required_by(pipeline: Pipeline, given: Input) -> dict[str, Expr]:
    """What a record of ``given`` cannot do without, by purpose, over the columns in its files."""
    if given.source.transform is not None:
        return {}
    columns = given.expressions(pipeline.schema)
    keys = {f"key {name}": substitute(expr, columns) for name, expr in pipeline.key.items()}
    expr = given.event_time.expr
    return keys if expr is None else {"event time": expr, **keys}


def check_required(required: Mapping[str, Expr], stored: Collection[str], path: str, where: str) -> None:
    """Raise FileColumnsError if the ``stored`` columns of a file lack one without which all is NULL."""
    for purpose, expr in required.items():
        missing = sorted(nulling_columns(expr) - set(stored))
        if missing:
            raise FileColumnsError(
                path, f"its {where} lacks column {missing[0]}, without which every record has no {purpose}"
            )


def nulling_columns(expr: Expr) -> frozenset[str]:
    """Columns whose NULL alone makes ``expr`` NULL: ``a + b`` needs both, ``coalesce(a, b)`` needs neither."""
    match expr:
        case Binary("and" | "or", _, _) | Function("is_null", _):
            return frozenset()
        case Function("coalesce" | "least" | "greatest", args) | Function("if", (_, *args)):
            return frozenset.intersection(*(nulling_columns(arg) for arg in args))
        case Function(_, args):
            return frozenset().union(*(nulling_columns(arg) for arg in args))
        case Binary(_, left, right):
            return nulling_columns(left) | nulling_columns(right)
    return columns_of(expr)
