"""Columns of results: expressions over one row of results, its key, aggregates and window (semantics 8.4)."""

from collections.abc import Collection, Mapping

from headrace.errors import PipelineError
from headrace.model.expressions.data_types import DataType, Schema
from headrace.model.expressions.expr import Expr, render
from headrace.model.expressions.traversal import columns_of
from headrace.model.expressions.typing import type_of
from headrace.model.suggestions import did_you_mean


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
