"""What rows are made of, where an output gives one of each record, or of each pane of another output.

A row has no key and no window: it has the event time of what it was made of, leaves with its epoch, and is withdrawn
only if that is. What stands of an output is a multiset of rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace.errors import PipelineError
from headrace.model.accumulation import EVENT_TIME, discarding
from headrace.model.arguments import Arguments
from headrace.model.combiners import Aggregate
from headrace.model.expressions.columns import expression, key_columns
from headrace.model.expressions.expr import Column, Expr
from headrace.model.expressions.typing import same
from headrace.model.time import Duration
from headrace.model.triggers.elementary import Default
from headrace.model.windows import FixedWindows
from headrace.pipeline.stages import Aggregation, new_names

INSTANT: Final = FixedWindows(Duration(1))
"""The window of a row: its own instant."""

RowColumns = Mapping[str, Expr] | Sequence[str] | str
"""Expressions by the name of a column, or names of columns that are taken as they are."""

_OF_ITSELF: Final = {"where": INSTANT, "when": Default(), "how": discarding()}
_AS_THEY_ARE: Final = {**_OF_ITSELF, "key": {}, "what": {}, "then": ()}
"""What a pipeline of rows has for these, as who copies one passes it on."""

_FIELDS = ("key", "what", "where", "when", "how", "filter", "having", "renamed")
_ROWS = '{"id": col("id"), "amount": col("price") * col("quantity")}, or ["id", "amount"]'


@dataclass(frozen=True, init=False)
class Selection(Aggregation):
    """What stands in the place of an aggregation where rows leave as they are: without a key, each in the window of its
    own instant.
    """

    columns: Mapping[str, Expr] = field(default_factory=dict)

    def __init__(
        self, owner: str, rows: object, condition: Expr | None = None, renamed: Mapping[str, str] | None = None
    ) -> None:
        given = Arguments(owner)
        columns = key_columns(given, "rows", rows, _ROWS)
        if not columns:
            raise given.wrong("rows", rows, f"it names no column; write {_ROWS}")
        nothing: dict[str, Aggregate | Expr] = {}
        parts = {"key": {}, "what": nothing, **_OF_ITSELF}
        parts |= {"filter": None if condition is None else expression(given, "filter", condition), "having": None}
        parts |= {"transform": None, "renamed": new_names(given, renamed, columns), "columns": columns}
        for name, value in parts.items():
            object.__setattr__(self, name, value)

    @property
    def rows(self) -> Mapping[str, Expr]:
        """The columns."""
        return self.columns

    @property
    def fields(self) -> Mapping[str, object]:
        """The fields of a pipeline that has it."""
        parts = {name: getattr(self, name) for name in _FIELDS}
        return {**parts, "first": self, "loop": None, "rows": self.columns, "take": None}

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        """What is computed of what reaches it, each with its purpose."""
        yield from ((f"column {name}", expr) for name, expr in self.rows.items())
        if self.filter is not None:
            yield "the filter", self.filter


def named_columns(given: Arguments, id_: object) -> tuple[str, ...]:
    """The argument ``id``: names of columns. Raises PipelineError."""
    if isinstance(id_, Mapping | Expr) and not isinstance(id_, Column):
        raise given.wrong("id", id_, "it names columns of rows; write an expression there, and its name here")
    is_empty = isinstance(id_, tuple) and not id_  # of a pipeline that is copied; an expression has no truth
    return () if is_empty else tuple(key_columns(given, "id", id_))


def id_columns(given: Arguments, id_: object, rows: Mapping[str, Expr]) -> tuple[str, ...]:
    """The argument ``id``: columns of ``rows``. Raises PipelineError."""
    columns = named_columns(given, id_)
    for name in columns:
        if name not in rows:
            raise given.wrong("id", id_, f"there is no column {name!r}; rows have {', '.join(rows)}")
    return columns


def check_without_windows(given: Arguments, own: Mapping[str, object]) -> None:
    """Raise PipelineError if one of the arguments that aggregations have of their ``own`` is given beside ``rows``."""
    for name, value in own.items():
        is_expr = isinstance(value, Expr)  # the truth of an expression is nobody's to tell
        is_left_out = value is None or value is False or (not is_expr and value == _AS_THEY_ARE.get(name, ...))
        if name not in ("rows", "take") and not is_left_out:
            raise given.wrong(name, value, "rows= gives each record as a row, and an aggregation has it; leave it out")


def refuse_given(given: Arguments, own: Mapping[str, object], why: str) -> None:
    """Raise PipelineError that says ``why`` if one of the arguments ``own`` is given."""
    for name, value in own.items():
        if isinstance(value, Expr) or value:  # the truth of an expression is nobody's to tell
            raise given.wrong(name, value, why)


def check_event_time_name(rows: Mapping[str, Expr], times: Sequence[Expr | None]) -> None:
    """Raise PipelineError if ``rows`` have a column with the name of their event time that is something else than all
    ``times``: what the event time is of each input.
    """
    own = rows.get(EVENT_TIME)
    if own is None or all(time is not None and same(own, time) for time in times):
        return
    raise PipelineError(
        f"rows[{EVENT_TIME!r}]: every row has its event time under this name; choose another name for the column"
    )
