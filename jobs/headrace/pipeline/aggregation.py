"""One grouping of a pipeline as users write it, and as a stage that runs."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from headrace.errors import PipelineError
from headrace.model.accumulation import WINDOW_END, WINDOW_START, Accumulation, How, behind, retracting
from headrace.model.arguments import Arguments, Suggesting, keywords
from headrace.model.combiners import Aggregate
from headrace.model.expressions.columns import check_reads, in_order, result_types
from headrace.model.expressions.data_types import DataType, Schema, ValueType
from headrace.model.expressions.expr import Expr, render
from headrace.model.expressions.functions import Key, expression, key_columns
from headrace.model.expressions.typing import output_type, readable_types, type_of
from headrace.model.triggers import Trigger
from headrace.model.triggers.trigger import inputs
from headrace.model.windows import WindowFn
from headrace.pipeline.checks.trigger_checks import nodes
from headrace.pipeline.loop_step import StepTerm
from headrace.pipeline.source import SparkFunction


@dataclass(frozen=True, init=False)
class Aggregation(Suggesting):
    """One grouping: *what* is computed of each ``key``, *where* in event time, *when* in processing time, and *how*
    refinements relate, over rows that pass ``filter``.

    ``what`` names aggregates, and expressions over them: columns of results, which read the key, the aggregates, each
    other and the window of their row (8.4). Panes have the aggregates first. Only rows of which ``having`` is TRUE
    leave, to readers and to the aggregation below it; one that no longer is so is withdrawn (9.10).

    As one of ``then``, it reads the key, aggregates, ``window_start`` and ``window_end`` of the panes of the one before
    it; their event time is the panes' own timestamp (semantics 7). A pane whose key is NULL there goes to the
    dead letters, which ``max_rejected`` of a source does not count. ``when`` None continues the trigger of the
    aggregation before it (4.7). ``transform`` makes other rows of the panes, before anything else reads them.
    ``renamed`` says what columns of its key and aggregates were called before, ``{"old name": "name"}``, so that a run
    continues from snapshots that know them by their old names.

    >>> what = {"best": hr.col("total").max()}
    >>> hr.Aggregation(key="shop", what=what, where=hr.CalendarWindows("day")).where.unit.value
    'day'
    """

    key: Mapping[str, Expr]
    what: Mapping[str, Aggregate | Expr]
    where: WindowFn
    when: Trigger | None
    how: How
    filter: Expr | None
    having: Expr | None
    transform: SparkFunction | None
    renamed: Mapping[str, str]

    @keywords
    def __init__(
        self,
        *,
        key: Key = None,
        what: Mapping[str, Aggregate | Expr],
        where: WindowFn,
        when: Trigger | None = None,
        how: How | None = None,
        filter: Expr | None = None,  # noqa: A002 (the word of the domain)
        having: Expr | None = None,
        transform: SparkFunction | None = None,
        renamed: Mapping[str, str] | None = None,
        _owner: str = "Aggregation",
    ) -> None:
        given = Arguments(_owner)
        set_ = object.__setattr__
        set_(self, "key", key_columns(given, "key", key))
        set_(self, "what", given.mapping("what", what, (Aggregate, Expr), _WHAT))  # type: ignore[arg-type] # one of the two
        set_(self, "where", given.instance("where", where, WindowFn, 'windows such as FixedWindows("1h")'))
        trigger = "a trigger such as AfterWatermark(early=AfterCount(100))"
        set_(self, "when", given.optional("when", when, Trigger, trigger))
        relation = 'retracting("2d"), accumulating(...) or discarding(...)'
        set_(self, "how", retracting() if how is None else given.instance("how", how, How, relation))
        set_(self, "filter", None if filter is None else expression(given, "filter", filter))
        set_(self, "having", None if having is None else expression(given, "having", having))
        function = 'SparkFunction("module:function", ...)'
        set_(self, "transform", given.optional("transform", transform, SparkFunction, function))
        set_(self, "renamed", _renamed(given, renamed, {*self.key, *self.what}))
        self._check_results(given)

    @cached_property
    def aggregates(self) -> Mapping[str, Aggregate]:
        """What is computed of elements."""
        return {name: made for name, made in self.what.items() if isinstance(made, Aggregate)}

    @cached_property
    def results(self) -> Mapping[str, Expr]:
        """What is computed of a row of results."""
        return {name: made for name, made in self.what.items() if isinstance(made, Expr)}

    def _check_results(self, given: Arguments) -> None:
        if not self.aggregates:
            raise given.wrong("what", self.what, f"there is no aggregate; write {_WHAT}")
        columns = [*self.key, *self.aggregates, *self.results, WINDOW_START, WINDOW_END]
        place = "what"
        try:
            in_order(self.results)
            for argument, expr in self.result_expressions():
                place = f"{argument}={render(expr)}"
                check_reads(expr, columns)
        except PipelineError as error:
            raise PipelineError(f"{given.owner}({place}): {error}") from None

    def result_expressions(self) -> Iterator[tuple[str, Expr]]:
        """What is computed of its rows of results, each with the argument that says so."""
        yield from ((f"what[{name!r}]", expr) for name, expr in self.results.items())
        if self.having is not None:
            yield "having", self.having

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        """What is computed of rows that reach it, each with its purpose."""
        for name, expr in self.key.items():
            yield f"key {name}", expr
        if self.filter is not None:
            yield "the filter", self.filter
        for name, aggregate in self.aggregates.items():
            yield from ((f"aggregate {name}", expr) for expr in aggregate.inputs)
        for node in () if self.when is None else nodes(self.when):
            yield from ((type(node).__name__, expr) for expr in inputs(node))


def _renamed(given: Arguments, renamed: object, columns: Collection[str]) -> dict[str, str]:
    if renamed is None:
        return {}
    renames = given.mapping("renamed", renamed, str, '{"old name": "name"}', least=0)
    for old, name in renames.items():
        if old.startswith("_"):
            raise given.wrong("renamed", renamed, f"column {old!r}: names that start with _ belong to Headrace")
        if name not in columns:
            raise given.wrong(
                "renamed", renamed, f"there is no column {name!r}; there are {', '.join(sorted(columns))}"
            )
        if old in columns:
            raise given.wrong("renamed", renamed, f"there is a column {old!r}: leave out what is not renamed any more")
    return renames


_WHAT = (
    '{"name": aggregate}, such as {"flights": count(), "worst": col("delay").max()}, and expressions over them by name'
)


_WINDOW: Schema = {WINDOW_START: DataType.TIMESTAMP, WINDOW_END: DataType.TIMESTAMP}


@dataclass(frozen=True)
class Stage:
    """An aggregation as it runs: its trigger and lateness settled, and the types of the rows that reach it.

    ``withdrawable``: these rows can be withdrawn again. ``terms``: columns of the key that a loop's step reads, where
    the rows are its edges.
    """

    aggregation: Aggregation
    schema: Schema
    withdrawable: bool = False
    terms: tuple[StepTerm, ...] = ()

    @property
    def when(self) -> Trigger:
        """Its trigger, never None."""
        if self.aggregation.when is None:
            raise PipelineError("when= is missing: the first aggregation of a pipeline has no trigger to continue")
        return self.aggregation.when

    def followed_by(self, aggregation: Aggregation) -> "Stage":
        """The next stage. It continues the trigger if it has none (4.7), and its allowed lateness is at
        least that of this one (5.2)."""
        above = self.aggregation.how
        settled = replace(
            aggregation, when=aggregation.when or self.when.continuation, how=behind(above, aggregation.how)
        )
        schema = self.pane_schema if aggregation.transform is None else aggregation.transform.returns
        return Stage(settled, schema, self.withdraws)

    @property
    def fires_once(self) -> bool:
        """Whether a window has at most one pane: it waits for its end, and expires there."""
        return self.when.waits_for_the_end and self.aggregation.how.allowed_lateness == 0

    @property
    def withdraws(self) -> bool:
        """Whether its rows can be withdrawn again: where it retracts, and where what replaces a row can be withheld by
        ``having`` (9.10).
        """
        accumulation = self.aggregation.how.accumulation
        if accumulation is not Accumulation.ACCUMULATING:
            return accumulation is Accumulation.RETRACTING
        return self.aggregation.having is not None and not self.fires_once

    @cached_property
    def key_types(self) -> Mapping[str, DataType]:
        """Key columns and their types, in order."""
        return {name: type_of(expr, self.schema) or DataType.STRING for name, expr in self.aggregation.key.items()}

    @cached_property
    def value_types(self) -> Mapping[str, ValueType]:
        """Aggregates, then columns of results, and their types, in order."""
        aggregates = {name: output_type(made, self.schema) for name, made in self.aggregation.aggregates.items()}
        return {**aggregates, **self._result_types}

    @cached_property
    def pane_schema(self) -> Schema:
        """Columns of its panes that the next stage, columns of results and ``having`` can read."""
        values = readable_types(self.aggregation.aggregates, self.schema)
        return {**self.key_types, **values, **self._result_types, **_WINDOW}

    @cached_property
    def _result_types(self) -> Schema:
        results = self.aggregation.results
        if not results:
            return {}
        values = readable_types(self.aggregation.aggregates, self.schema)
        return result_types(results, {**self.key_types, **values, **_WINDOW})
