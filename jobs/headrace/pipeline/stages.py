"""What a pipeline computes, stage by stage: aggregations, and those that a loop stands for.

An aggregation is one grouping as users write it. Its trigger is checked without data (semantics 4.8): which nodes there
are, and which roots can lose data by finishing. A loop stands for two aggregations: of records grouped as edges, and of
the values that it gives to vertices, the first of its output.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

from headrace.errors import PipelineError
from headrace.model.accumulation import (
    EVENT_TIME,
    WINDOW_END,
    WINDOW_START,
    Accumulation,
    How,
    retracting,
    with_upstream_lateness,
)
from headrace.model.arguments import Arguments, Suggesting, check_keywords, kinds_by_word
from headrace.model.expressions.columns import Key, check_reads, in_order, key_columns, require_expression, result_types
from headrace.model.expressions.data_types import ColumnType, DataType, PairsType, Schema, ValueType
from headrace.model.expressions.expr import Aggregate, Column, Expr, count, render
from headrace.model.expressions.typing import columns_of, output_type, readable_types, row_type, type_of
from headrace.model.triggers import Trigger
from headrace.model.triggers.custom import CustomTrigger, check_trigger
from headrace.model.triggers.data_driven import AfterPattern, AfterPunctuation, DataDriven
from headrace.model.triggers.elementary import Default, inputs, predicates
from headrace.model.windows import GlobalWindows, WindowFn
from headrace.pipeline.endpoints import OwnFunction, own_function
from headrace.pipeline.loops import LOOP_EXAMPLE, VALUE, VERTEX, Loop, LoopError, StepTerm, terms_named

TRIGGER_KINDS: tuple[type[Trigger], ...] = (*kinds_by_word(Trigger).values(), CustomTrigger)
"""What may stand in a pipeline: what fingerprints have words for, and triggers of a user's own."""

_VALUE_TRIGGERS = (AfterPattern, AfterPunctuation, CustomTrigger, DataDriven)


def trigger_nodes(trigger: Trigger) -> Iterator[Trigger]:
    """``trigger`` and everything below it. Raises PipelineError for what is not a trigger."""
    if not isinstance(trigger, TRIGGER_KINDS):
        raise PipelineError(
            f"{trigger!r} is not a trigger; use one of {', '.join(sorted(t.__name__ for t in TRIGGER_KINDS))}"
        )
    yield trigger
    for child in trigger.children:
        yield from trigger_nodes(child)


def looks_at_values(trigger: Trigger) -> str | None:
    """The first node of ``trigger`` that looks at what elements hold, for which a withdrawn one counts as one more."""
    return next((type(node).__name__ for node in trigger_nodes(trigger) if isinstance(node, _VALUE_TRIGGERS)), None)


def check_trigger_reads(trigger: Trigger, schema: Schema) -> None:
    """Raise PipelineError if a node of ``trigger`` reads what elements of ``schema`` do not have."""
    for node in trigger_nodes(trigger):
        for name, predicate, columns in predicates(node, schema):
            kind = type_of(predicate, columns)
            if kind is not DataType.BOOL:
                raise PipelineError(f"the predicate of {name} is {kind}, not bool")


def check_own_triggers(trigger: Trigger, merging: bool) -> None:
    """Raise PipelineError if a user's own node of ``trigger`` cannot run; ``merging``: over windows that merge."""
    for node in trigger_nodes(trigger):
        if isinstance(node, CustomTrigger):
            check_trigger(node, merging)


def check_finishing(trigger: Trigger, lateness: int | None) -> None:
    """Raise PipelineError if ``trigger`` can finish, and so close its window, before the window expires."""
    if trigger.may_finish_early:
        raise PipelineError(
            f"the trigger {trigger!r} can finish, after which its window drops all data; "
            "wrap it in Repeatedly(...), or accept it with allow_finishing=True"
        )
    if trigger.may_finish and lateness != 0:
        raise PipelineError(
            f"the trigger {trigger!r} finishes at the end of the window, so data within the allowed lateness is "
            "dropped; give AfterWatermark a late trigger, or accept it with allow_finishing=True"
        )


@dataclass(frozen=True, init=False, repr=False, eq=False)
class GroupingFields(Suggesting):
    """What a grouping says: the four questions of the model, and of which rows they are asked."""

    key: Mapping[str, Expr]
    what: Mapping[str, Aggregate | Expr]
    where: WindowFn
    when: Trigger | None
    how: How
    filter: Expr | None
    having: Expr | None
    renamed: Mapping[str, str]


@dataclass(frozen=True, init=False)
class Aggregation(GroupingFields):
    """One grouping: *what* is computed of each ``key``, *where* in event time, *when* in processing time, and *how*
    refinements relate, over rows that pass ``filter``.

    ``what`` names aggregates, and expressions over them: columns of results, which read the key, the aggregates, each
    other and the window of their row (8.4). Panes have the aggregates first. Only rows of which ``having`` is TRUE
    leave, to readers and to the aggregation below it; one that no longer is so is withdrawn (9.10).

    An aggregation of ``then`` reads the key, aggregates, ``window_start`` and ``window_end`` of the panes of the one
    before it; their event time is the panes' own timestamp (semantics 7). A pane whose key is NULL there goes to the
    dead letters, which ``max_rejected`` of a source does not count, unless the output has ``null_keys``. ``when`` None
    continues the trigger of the aggregation before it (4.7). ``transform``, a ``BatchFunction`` or a ``SparkFunction``,
    makes other rows of the panes, before anything else reads them.
    ``renamed`` says what columns of its key and aggregates were called before, ``{"old name": "name"}``. So a run
    continues from snapshots that know them by their old names.

    >>> what = {"best": hr.col("total").max()}
    >>> hr.Aggregation(key="shop", what=what, where=hr.CalendarWindows("day")).where.unit.value
    'day'
    """

    transform: OwnFunction | None

    takes_rows: ClassVar[bool] = False
    """Whether some of the rows of each group leave (``pipeline.rows``)."""
    takes_each: ClassVar[bool] = False
    """Whether each of these leaves by itself, once the watermark has passed it."""

    @check_keywords
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
        transform: OwnFunction | None = None,
        renamed: Mapping[str, str] | None = None,
        _owner: str = "Aggregation",
    ) -> None:
        arguments = Arguments(_owner)
        set_ = object.__setattr__
        set_(self, "key", key_columns(arguments, "key", key))
        set_(self, "what", arguments.mapping("what", what, (Aggregate, Expr), _WHAT))  # type: ignore[arg-type] # one of the two
        set_(self, "where", arguments.instance("where", where, WindowFn, 'windows such as FixedWindows("1h")'))
        trigger = "a trigger such as AfterWatermark(early=AfterCount(100))"
        set_(self, "when", arguments.optional_instance("when", when, Trigger, trigger))
        relation = 'retracting("2d"), accumulating(...) or discarding(...)'
        set_(self, "how", retracting() if how is None else arguments.instance("how", how, How, relation))
        set_(self, "filter", None if filter is None else require_expression(arguments, "filter", filter))
        set_(self, "having", None if having is None else require_expression(arguments, "having", having))
        set_(self, "transform", own_function(arguments, transform))
        set_(self, "renamed", new_names(arguments, renamed, {*self.key, *self.what}))
        self._check_results(arguments)

    @property
    def rows(self) -> Mapping[str, Expr]:
        """The columns of rows, where these leave as they are (``pipeline.rows``); none of an aggregation."""
        return {}

    def with_trigger(self, when: Trigger | None, how: How) -> "Aggregation":
        """The same aggregation with the trigger ``when`` and the lateness of ``how``."""
        return replace(self, when=when, how=how)

    def computed_columns(self, rows: Mapping[str, ColumnType]) -> Mapping[str, ColumnType] | None:
        """The columns that are computed of all ``rows`` of a group; None: these leave as they are, if any do."""
        del rows
        return None

    @cached_property
    def aggregates(self) -> Mapping[str, Aggregate]:
        """What is computed of elements."""
        return {name: aggregate for name, aggregate in self.what.items() if isinstance(aggregate, Aggregate)}

    @cached_property
    def results(self) -> Mapping[str, Expr]:
        """What is computed of a row of results."""
        return {name: result for name, result in self.what.items() if isinstance(result, Expr)}

    def _check_results(self, arguments: Arguments) -> None:
        if not self.aggregates:
            raise arguments.refusal("what", self.what, f"there is no aggregate; write {_WHAT}")
        columns = [*self.key, *self.aggregates, *self.results, WINDOW_START, WINDOW_END]
        place = "what"
        try:
            in_order(self.results)
            for argument, expr in self.result_expressions():
                place = f"{argument}={render(expr)}"
                check_reads(expr, columns)
        except PipelineError as error:
            raise PipelineError(f"{arguments.owner}({place}): {error}") from None

    def result_expressions(self) -> Iterator[tuple[str, Expr]]:
        """What is computed of its rows of results, each with the argument that says so."""
        yield from ((f"what[{name!r}]", expr) for name, expr in self.results.items())
        if self.having is not None:
            yield "having", self.having

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        """What is computed of rows that reach it, each with its purpose."""
        yield from ((f"key {name}", expr) for name, expr in self.key.items())
        if self.filter is not None:
            yield "the filter", self.filter
        for name, aggregate in self.aggregates.items():
            yield from ((f"aggregate {name}", expr) for expr in aggregate.inputs)
        for node in () if self.when is None else trigger_nodes(self.when):
            yield from ((type(node).__name__, expr) for expr in inputs(node))


def new_names(arguments: Arguments, renamed: object, columns: Collection[str]) -> dict[str, str]:
    if renamed is None:
        return {}
    renames = arguments.mapping("renamed", renamed, str, '{"old name": "name"}', least=0)
    for old, name in renames.items():
        if old.startswith("_"):
            raise arguments.refusal("renamed", renamed, f"column {old!r}: names that start with _ belong to Headrace")
        if name not in columns:
            known_columns = ", ".join(sorted(columns))
            raise arguments.refusal("renamed", renamed, f"there is no column {name!r}; there are {known_columns}")
        if old in columns:
            why = f"there is a column {old!r}: leave out what is not renamed any more"
            raise arguments.refusal("renamed", renamed, why)
    return renames


_WHAT = (
    '{"name": aggregate}, such as {"flights": count(), "worst": col("delay").max()}, and expressions over them by name'
)


_ROW_TIME: Mapping[str, DataType] = {EVENT_TIME: DataType.TIMESTAMP}
_WINDOW_TYPES: Schema = {WINDOW_START: DataType.TIMESTAMP, WINDOW_END: DataType.TIMESTAMP}


@dataclass(frozen=True)
class Stage:
    """An aggregation as it runs: its trigger and lateness settled, and the types of the rows that reach it.

    ``withdrawable``: these rows can be withdrawn again. ``terms``: columns of the key that a loop's step reads, where
    the rows are its edges. ``null_keys``: those whose key is NULL are a group, and no dead letters.
    """

    aggregation: Aggregation
    schema: Schema
    withdrawable: bool = False
    terms: tuple[StepTerm, ...] = ()
    null_keys: bool = False

    @property
    def when(self) -> Trigger:
        """Its trigger, never None."""
        if self.aggregation.when is None:
            raise PipelineError("when= is missing: the first aggregation of a pipeline has no trigger to continue")
        return self.aggregation.when

    def followed_by(self, aggregation: Aggregation) -> "Stage":
        """The next stage. It continues the trigger if it has none (4.7), and its allowed lateness is at
        least that of this one (5.2)."""
        how_above = self.aggregation.how
        how = with_upstream_lateness(how_above, aggregation.how)
        settled_aggregation = aggregation.with_trigger(aggregation.when or self.when.continuation, how)
        schema = self.pane_schema if aggregation.transform is None else aggregation.transform.returns
        return Stage(settled_aggregation, read_by(aggregation, schema), self.withdraws, null_keys=self.null_keys)

    @property
    def gives_rows(self) -> bool:
        """Whether what leaves are rows: of what reaches it, or some of each group."""
        return bool(self.aggregation.rows)

    @property
    def is_stateless(self) -> bool:
        """Whether each element leaves as a row by itself, without a key."""
        return self.gives_rows and not self.aggregation.takes_rows

    @property
    def fires_once(self) -> bool:
        """Whether a window has at most one pane: it waits for its end, and expires there."""
        return self.when.waits_for_the_end and self.aggregation.how.allowed_lateness == 0

    @property
    def appending_once(self) -> "Stage":
        """The same; rows of groups that have one pane each stay as it gave them: nothing is kept to withdraw them. So
        do rows that wait by themselves if none is withdrawn, or none can be once they have left.
        """
        aggregation, how = self.aggregation, self.aggregation.how
        stays = (any if aggregation.takes_each else all)((self.fires_once, not self.withdrawable))
        if not (aggregation.takes_rows and stays):
            return self
        return replace(
            self, aggregation=aggregation.with_trigger(self.when, replace(how, accumulation=Accumulation.DISCARDING))
        )

    @property
    def withdraws(self) -> bool:
        """Whether its rows can be withdrawn again: where it retracts, and where what replaces a row can be withheld by
        ``having`` (9.10); rows as they are, where what they are made of can be.
        """
        if self.is_stateless:
            return self.withdrawable
        accumulation = self.aggregation.how.accumulation
        if accumulation is not Accumulation.ACCUMULATING:
            return accumulation is Accumulation.RETRACTING
        return self.aggregation.having is not None and not self.fires_once

    @cached_property
    def row_columns(self) -> Mapping[str, Expr]:
        """The columns of rows, but for their event time, which each has by itself."""
        return {name: expr for name, expr in self.aggregation.rows.items() if name != EVENT_TIME}

    @cached_property
    def row_types(self) -> Mapping[str, ValueType]:
        """The columns of rows as they are made of elements, and their types."""
        return {name: row_type(name, expr, self.schema) for name, expr in self.row_columns.items()}

    @cached_property
    def given_types(self) -> Mapping[str, ColumnType]:
        """The columns that a function of a group, or a query, gets."""
        return {**{name: kind for name, kind in self.row_types.items() if isinstance(kind, ColumnType)}, **_ROW_TIME}

    @cached_property
    def computed_types(self) -> Mapping[str, ColumnType] | None:
        """The columns that it gives; None: rows leave as they were made of elements."""
        return self.aggregation.computed_columns(self.given_types)

    @cached_property
    def leaving_types(self) -> Mapping[str, ValueType]:
        """The columns of rows that leave, but for those that each has by itself, and their types."""
        if self.computed_types is None:
            return self.row_types
        keys = {name: self.row_types[name] for name in self.aggregation.key}
        return {**keys, **{name: kind for name, kind in self.computed_types.items() if name != EVENT_TIME}}

    @property
    def shows_windows(self) -> bool:
        """Whether its rows say the window of their group."""
        where, aggregation = self.aggregation.where, self.aggregation
        return aggregation.takes_rows and not aggregation.takes_each and not isinstance(where, GlobalWindows)

    @cached_property
    def key_types(self) -> Mapping[str, DataType]:
        """Key columns and their types, in order."""
        return {name: type_of(expr, self.schema) or DataType.STRING for name, expr in self.aggregation.key.items()}

    @cached_property
    def value_types(self) -> Mapping[str, ValueType]:
        """Aggregates, then columns of results, and their types, in order; or the columns of rows."""
        if self.gives_rows:
            return {**self.leaving_types, **_WINDOW_TYPES} if self.shows_windows else self.leaving_types
        aggregates = {
            name: output_type(aggregate, self.schema) for name, aggregate in self.aggregation.aggregates.items()
        }
        return {**aggregates, **self._result_types}

    @cached_property
    def pane_schema(self) -> Schema:
        """Columns of its panes that the next stage, columns of results and ``having`` can read; or those of rows."""
        if self.gives_rows:
            columns = {name: kind for name, kind in self.value_types.items() if not isinstance(kind, PairsType)}
            return {**columns, **_ROW_TIME}
        values = readable_types(self.aggregation.aggregates, self.schema)
        return {**self.key_types, **values, **self._result_types, **_WINDOW_TYPES}

    @cached_property
    def _result_types(self) -> Schema:
        results = self.aggregation.results
        if not results:
            return {}
        values = readable_types(self.aggregation.aggregates, self.schema)
        return result_types(results, {**self.key_types, **values, **_WINDOW_TYPES})


def read_by(aggregation: Aggregation, schema: Schema) -> Schema:
    """``schema`` of panes without the lists that ``aggregation`` does not read: its state may have whole elements."""
    read = frozenset[str]().union(*(columns_of(expr) for _, expr in aggregation.expressions()))
    return {name: kind for name, kind in schema.items() if isinstance(kind, DataType) or name in read}


_ENDS_OF_AN_EDGE = 2
_WRITTEN_PARTS = ("key", "what", "where", "when", "how", "filter", "having", "renamed")


@dataclass(frozen=True)
class Grouping:
    """The ``first`` aggregation; with a ``loop`` what makes its elements, and records grouped as ``edges``."""

    first: Aggregation
    loop: Loop | None = None
    edges: Aggregation | None = None

    @property
    def fields(self) -> Mapping[str, Any]:
        """The fields of who has it: the parts as the user wrote them are there by themselves. Key and filter are those
        of records, and the value of a loop is not named.
        """
        parts = {name: getattr(self.first, name) for name in _WRITTEN_PARTS}
        if self.edges is not None:
            ends = dict([*self.edges.key.items()][:_ENDS_OF_AN_EDGE])
            parts |= {"key": ends, "filter": self.edges.filter, "what": self.first.results}
        return {**parts, "first": self.first, "loop": self.loop}


def make_grouping(
    arguments: Arguments,
    loop: object,
    *,
    key: Key,
    what: Mapping[str, Aggregate | Expr] | None,
    filter: Expr | None,  # noqa: A002 (the word of the domain)
    **questions: Any,
) -> Grouping:
    """The first aggregation of ``arguments``. Raises PipelineError for an argument that is wrong."""
    owner, what = arguments.owner, {} if what is None else what
    if loop is None:
        return Grouping(Aggregation(key=key, what=what, filter=filter, **questions, _owner=owner))
    checked_loop = arguments.instance("loop", loop, Loop, LOOP_EXAMPLE)
    return _loop_grouping(Arguments(owner, LoopError), checked_loop, questions, key=key, what=what, condition=filter)


def _loop_grouping(
    arguments: Arguments,
    loop: Loop,
    questions: Mapping[str, Any],
    *,
    key: Key,
    what: Mapping[str, Aggregate | Expr],
    condition: Expr | None,
) -> Grouping:
    ends = key_columns(arguments, "key", key)
    if len(ends) != _ENDS_OF_AN_EDGE:
        raise arguments.refusal(
            "key", key, 'a loop goes over edges: name the columns of their two ends, key=["a", "b"]'
        )
    write = '{"distance": col("value")}'
    columns: dict[str, Aggregate | Expr] = arguments.mapping("what", what, (Aggregate, Expr), write, least=0)  # type: ignore[arg-type]
    for name, expression in columns.items():
        if isinstance(expression, Aggregate):
            why = f"what a loop computes is {VALUE!r}; expressions over it may stand here"
            raise arguments.refusal(f"what[{name!r}]", expression, why)
    keys: dict[str, Expr] = {**ends, **terms_named(loop.compiled_step.terms)}
    edges = Aggregation(
        key=keys,
        what={"edges": count()},
        when=Default(),  # which nothing asks: edges do not fire
        where=questions["where"],
        how=questions["how"],
        filter=condition,
        _owner=arguments.owner,
    )
    value = Column(VALUE).min() if loop.keeps_least else Column(VALUE).max()
    first = Aggregation(key=VERTEX, what={VALUE: value, **columns}, **questions, _owner=arguments.owner)
    return Grouping(first, loop, edges)
