"""What a pipeline computes, stage by stage: aggregations, and loops with the aggregations that they stand for.

An aggregation is one grouping as users write it. Its trigger is checked without data (semantics 4.8): which nodes there
are, and which roots can lose data by finishing.

A loop (semantics 13) stands for two aggregations: of records grouped as edges, and of the values that it gives to
vertices, the first of its output. It has one result, however its rounds are cut, if its step is monotone and never
makes a value better: around a circle a value would become better for ever. Nobody can tell that of any expression; of a
few forms everybody can.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from functools import cached_property
from typing import Any

from headrace.errors import PipelineError
from headrace.model.accumulation import EVENT_TIME, WINDOW_END, WINDOW_START, Accumulation, How, behind, retracting
from headrace.model.arguments import REQUIRED, Arguments, Suggesting, keywords, word, words
from headrace.model.combiners import Aggregate, count
from headrace.model.expressions.columns import Key, check_reads, expression, in_order, key_columns, result_types
from headrace.model.expressions.data_types import DataType, Schema, ValueType
from headrace.model.expressions.expr import Binary, Column, Expr, Function, Literal, render
from headrace.model.expressions.typing import columns_of, output_type, readable_types, row_type, too_large, type_of
from headrace.model.triggers import Trigger
from headrace.model.triggers.custom import CustomTrigger, check_trigger
from headrace.model.triggers.data_driven import AfterPattern, AfterPunctuation, DataDriven
from headrace.model.triggers.elementary import Default, inputs, predicates
from headrace.model.windows import GlobalWindows, WindowFn
from headrace.pipeline.endpoints import SparkFunction

TRIGGER_KINDS: tuple[type[Trigger], ...] = (*words(Trigger).values(), CustomTrigger)
"""What may stand in a pipeline: what fingerprints have words for, and triggers of a user's own."""

_OF_VALUES = (AfterPattern, AfterPunctuation, CustomTrigger, DataDriven)


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
    return next((type(node).__name__ for node in trigger_nodes(trigger) if isinstance(node, _OF_VALUES)), None)


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


VALUE = "value"
"""The column of the value of a vertex, in ``step`` and in panes."""

_FORMS = (
    "a step is value, or that plus or minus what the record says, or least(...) or greatest(...) of such values and "
    "what the record says"
)


class LoopError(PipelineError, code="config.loop"):
    """A loop that would have no result, or more than one."""


@dataclass(frozen=True)
class StepTerm:
    """What a step reads of a record: ``expr``, kept by the edge as column ``name``. It must be at least zero where
    ``sign`` is 1, at most zero where it is -1.
    """

    name: str
    expr: Expr
    sign: int

    @property
    def of_null(self) -> str:
        """Why a record is a dead letter whose term is NULL."""
        return f"the step of the loop is null: {render(self.expr)}"

    @property
    def of_wrong_sign(self) -> str:
        """Why a record is a dead letter that makes values better on the way."""
        return f"the step of the loop descends: {render(self.expr)}"


@dataclass(frozen=True)
class EdgeStep:
    """A step as ``expr`` over the value and the ``terms`` of an edge."""

    expr: Expr
    terms: tuple[StepTerm, ...]


def step_of(step: Expr, *, descends_upwards: bool) -> EdgeStep:
    """``step``, taken apart. ``descends_upwards``: greater values are better. Raises LoopError if it is of no form that
    is known to be monotone.
    """
    if VALUE not in columns_of(step):
        raise LoopError(f"{render(step)} does not read the value: write an expression over col({VALUE!r}); {_FORMS}")
    terms = _Terms(-1 if descends_upwards else 1)
    return EdgeStep(terms.moved(step), tuple(terms.taken))


class _Terms:
    """The terms of a step as they are met. ``away``: the sign of what makes a value worse."""

    def __init__(self, away: int) -> None:
        self.away = away
        self.taken: list[StepTerm] = []

    def moved(self, expr: Expr) -> Expr:
        """``expr``, which reads the value, with terms in place of what it reads of the record."""
        match expr:
            case Column():
                return expr
            case Binary("+", left, right) if not _both(left, right):
                if _reads(left):
                    return Binary("+", self.moved(left), self.term(right, self.away))
                return Binary("+", self.term(left, self.away), self.moved(right))
            case Binary("-", left, right) if not _reads(right):
                return Binary("-", self.moved(left), self.term(right, -self.away))
            case Function("plus_us" | "plus_days" as name, (time, amount)) if not _reads(amount):
                return Function(name, (self.moved(time), self.term(amount, self.away)))
            case Function("least" | "greatest" as name, args):
                return Function(name, tuple(self.moved(part) if _reads(part) else self.term(part, 0) for part in args))
        raise LoopError(f"{render(expr)}: {_reason(expr)}; {_FORMS}")

    def term(self, expr: Expr, sign: int) -> Expr:
        """``expr``, which does not read the value, as the edge has it."""
        if isinstance(expr, Literal):
            return self._constant(expr, sign)
        name = f"_e{len(self.taken)}"
        self.taken.append(StepTerm(name, expr, sign))
        return Column(name)

    def _constant(self, literal: Literal, sign: int) -> Expr:
        if literal.value is None:
            raise LoopError("it is always NULL, so nothing would ever arrive: leave NULL out of it")
        value = literal.value  # what is no number has the wrong type, which is said later
        if sign and isinstance(value, int | float | Decimal) and value * sign < 0:
            better = "smaller" if self.away > 0 else "greater"
            raise LoopError(
                f"{render(literal)} makes the value better, which is {better} here, at every step: around a circle it "
                "would never end"
            )
        return literal


def _reads(expr: Expr) -> bool:
    return VALUE in columns_of(expr)


def _both(*parts: Expr) -> bool:
    return all(map(_reads, parts))


def _reason(expr: Expr) -> str:
    """Why a step of that form is refused."""
    match expr:
        case Function("negate") | Binary("-"):
            return "it turns the order of values round: what is better at one end would be worse at the other"
        case Binary("+", left, right) if _both(left, right):
            return "nobody can tell whether the value plus itself is better or worse"
    return "it is not known to keep the order of values"


def terms_named(terms: Sequence[StepTerm]) -> dict[str, Expr]:
    """What edges keep of their records, by column."""
    return {term.name: term.expr for term in terms}


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
        set_(self, "renamed", new_names(given, renamed, {*self.key, *self.what}))
        self._check_results(given)

    @property
    def rows(self) -> Mapping[str, Expr]:
        """The columns of rows, where these leave as they are (``pipeline.rows``); none of an aggregation."""
        return {}

    def settled(self, when: Trigger | None, how: How) -> "Aggregation":
        """The same with another trigger and lateness."""
        return replace(self, when=when, how=how)

    @property
    def takes_rows(self) -> bool:
        """Whether some of the rows of each group leave (``pipeline.group_rows``)."""
        return False

    @property
    def taken_by(self) -> Expr | None:
        """What these are taken by, before their event time."""
        return None

    @property
    def taken_unless(self) -> Expr | None:
        """Where it is TRUE, one of these counts and does not leave."""
        return None

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
        for node in () if self.when is None else trigger_nodes(self.when):
            yield from ((type(node).__name__, expr) for expr in inputs(node))


def new_names(given: Arguments, renamed: object, columns: Collection[str]) -> dict[str, str]:
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


_ROW: Schema = {EVENT_TIME: DataType.TIMESTAMP}
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
        settled = aggregation.settled(aggregation.when or self.when.continuation, behind(above, aggregation.how))
        schema = self.pane_schema if aggregation.transform is None else aggregation.transform.returns
        return Stage(settled, schema, self.withdraws)

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
        """The same; rows of groups that have one pane each stay as it gave them: nothing is kept to withdraw them."""
        made, how = self.aggregation, self.aggregation.how
        if self.withdrawable or not (made.takes_rows and self.fires_once):
            return self
        return replace(self, aggregation=made.settled(self.when, replace(how, accumulation=Accumulation.DISCARDING)))

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

    @property
    def shows_windows(self) -> bool:
        """Whether its rows say the window of their group."""
        where = self.aggregation.where
        return self.aggregation.takes_rows and not isinstance(where, GlobalWindows)

    @cached_property
    def key_types(self) -> Mapping[str, DataType]:
        """Key columns and their types, in order."""
        return {name: type_of(expr, self.schema) or DataType.STRING for name, expr in self.aggregation.key.items()}

    @cached_property
    def value_types(self) -> Mapping[str, ValueType]:
        """Aggregates, then columns of results, and their types, in order; or the columns of rows."""
        if self.gives_rows:
            columns = {name: row_type(name, expr, self.schema) for name, expr in self.row_columns.items()}
            return {**columns, **_WINDOW} if self.shows_windows else columns
        aggregates = {name: output_type(made, self.schema) for name, made in self.aggregation.aggregates.items()}
        return {**aggregates, **self._result_types}

    @cached_property
    def pane_schema(self) -> Schema:
        """Columns of its panes that the next stage, columns of results and ``having`` can read; or those of rows."""
        if self.gives_rows:
            columns = {name: kind for name, kind in self.value_types.items() if isinstance(kind, DataType)}
            return {**columns, **_ROW}
        values = readable_types(self.aggregation.aggregates, self.schema)
        return {**self.key_types, **values, **self._result_types, **_WINDOW}

    @cached_property
    def _result_types(self) -> Schema:
        results = self.aggregation.results
        if not results:
            return {}
        values = readable_types(self.aggregation.aggregates, self.schema)
        return result_types(results, {**self.key_types, **values, **_WINDOW})


VERTEX = "vertex"
"""The column of a vertex, in ``start`` and in panes."""


class Combine(StrEnum):
    """Which of several values a vertex keeps."""

    LEAST = "least"
    GREATEST = "greatest"


@word("loop", start=REQUIRED, step=REQUIRED, combine=REQUIRED, both_ways=False)
@keywords
@dataclass(frozen=True, init=False)
class Loop(Suggesting):
    """Gives each vertex of a graph a value, which goes round over its edges until nothing changes. Records are the
    edges; the two columns of the output's ``key`` are their ends (semantics 13).

    ``start`` is the value that a vertex has by itself, an expression over ``vertex``; NULL: none. ``step`` is what the
    value at the first end of an edge is at its other end: an expression over ``value`` and the columns of the record
    that never turns the order of values round, and never makes them better. ``combine`` says which of several values a
    vertex keeps: "least" or "greatest". ``both_ways``: edges have no direction. ``rounds``: how far a change goes in
    one epoch; what is in flight then is part of the snapshot, and the next epoch takes it up first. None: until nothing
    changes.

    Panes have the columns ``vertex`` and ``value``. Connected components, then distances from one vertex:

    >>> components = hr.Loop(start=hr.col("vertex"), step=hr.col("value"), combine="least", both_ways=True)
    >>> components.rounds
    64
    >>> at_the_start = hr.if_else(hr.col("vertex") == "FRA", 0, None)
    >>> hr.Loop(start=at_the_start, step=hr.col("value") + hr.col("minutes"), combine="least").combine.value
    'least'
    """

    start: Expr
    step: Expr
    combine: Combine
    both_ways: bool
    rounds: int | None

    def __init__(
        self,
        *,
        start: Expr,
        step: Expr,
        combine: Combine | str,
        both_ways: bool = False,
        rounds: int | None = 64,
    ) -> None:
        given = Arguments("Loop", LoopError)
        set_ = object.__setattr__
        for name, value in (("start", start), ("step", step)):
            expr = expression(given, name, value)
            if why := too_large(expr):
                raise LoopError(f"Loop({name}): {why}")
            set_(self, name, expr)
        set_(self, "combine", given.choice("combine", combine, Combine))
        set_(self, "both_ways", given.flag("both_ways", both_ways))
        set_(self, "rounds", None if rounds is None else given.whole("rounds", rounds, least=1))
        if others := sorted(columns_of(self.start) - {VERTEX}):
            raise given.wrong(
                "start", start, f"it reads {others[0]!r}; a vertex has the column {VERTEX!r} alone, whatever its edges"
            )
        self.compiled_step  # noqa: B018 - which says what is wrong with it

    @property
    def keeps_least(self) -> bool:
        """Whether a smaller value is a better one."""
        return self.combine is Combine.LEAST

    @cached_property
    def compiled_step(self) -> EdgeStep:
        """``step`` over the value and what edges keep of their records. Raises LoopError if it is not monotone."""
        try:
            return step_of(self.step, descends_upwards=not self.keeps_least)
        except PipelineError as error:
            raise LoopError(f"Loop(step): {error}") from None


LOOP_EXAMPLE = 'Loop(start=col("vertex"), step=col("value"), combine="least", both_ways=True)'

OF_PANES = (
    "it reads panes of other outputs, which are withdrawn or replaced, and values that go round a circle keep each "
    "other up when what they came from is withdrawn: give the loop to an output that reads records"
)

_ENDS = 2
_COMPARED = frozenset(DataType) - {DataType.FLOAT, DataType.BYTES}
_WRITTEN = ("key", "what", "where", "when", "how", "filter", "having", "renamed")


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
        parts = {name: getattr(self.first, name) for name in _WRITTEN}
        if self.edges is not None:
            ends = dict([*self.edges.key.items()][:_ENDS])
            parts |= {"key": ends, "filter": self.edges.filter, "what": self.first.results}
        return {**parts, "first": self.first, "loop": self.loop}


def grouping(
    given: Arguments,
    loop: object,
    *,
    key: Key,
    what: Mapping[str, Aggregate | Expr],
    filter: Expr | None,  # noqa: A002 (the word of the domain)
    **questions: Any,
) -> Grouping:
    """The first aggregation of what was ``given``. Raises PipelineError for an argument that is wrong."""
    owner = given.owner
    if loop is None:
        return Grouping(Aggregation(key=key, what=what, filter=filter, **questions, _owner=owner))
    made = given.instance("loop", loop, Loop, LOOP_EXAMPLE)
    return _looped(Arguments(owner, LoopError), made, questions, key=key, what=what, condition=filter)


def _looped(
    given: Arguments,
    loop: Loop,
    questions: Mapping[str, Any],
    *,
    key: Key,
    what: Mapping[str, Aggregate | Expr],
    condition: Expr | None,
) -> Grouping:
    ends = key_columns(given, "key", key)
    if len(ends) != _ENDS:
        raise given.wrong("key", key, 'a loop goes over edges: name the columns of their two ends, key=["a", "b"]')
    write = '{"distance": col("value")}'
    columns: dict[str, Aggregate | Expr] = given.mapping("what", what, (Aggregate, Expr), write, least=0)  # type: ignore[arg-type]
    for name, made in columns.items():
        if isinstance(made, Aggregate):
            raise given.wrong(
                f"what[{name!r}]", made, f"what a loop computes is {VALUE!r}; expressions over it may stand here"
            )
    keys: dict[str, Expr] = {**ends, **terms_named(loop.compiled_step.terms)}
    edges = Aggregation(
        key=keys,
        what={"edges": count()},
        when=Default(),  # which nothing asks: edges do not fire
        where=questions["where"],
        how=questions["how"],
        filter=condition,
        _owner=given.owner,
    )
    value = Column(VALUE).min() if loop.keeps_least else Column(VALUE).max()
    first = Aggregation(key=VERTEX, what={VALUE: value, **columns}, **questions, _owner=given.owner)
    return Grouping(first, loop, edges)


def element_schema(loop: Loop, ends: Mapping[str, Expr], schema: Schema) -> Schema:
    """What a loop gives of records of ``schema`` with these ``ends``: each a vertex and its value.

    Raises LoopError if a type does not fit.
    """
    kinds = {name: type_of(expr, schema) for name, expr in ends.items()}
    kind, *others = kinds.values()
    if kind is None or others != [kind]:
        written = " and ".join(f"{name} is {kind}" for name, kind in kinds.items())
        raise LoopError(f"key: {written}: the ends of an edge are of one type, for both are vertices; cast one of them")
    if VALUE in schema:
        raise LoopError(
            f"records have a column {VALUE!r}, which in the step of a loop is the value of a vertex: give the column "
            "another name in the source's schema"
        )
    try:
        value = type_of(loop.start, {VERTEX: kind})
    except PipelineError as error:
        raise LoopError(f"Loop(start): {error}") from None
    if value not in _COMPARED:
        why = {None: "always NULL", DataType.FLOAT: "a float, which does not compare exactly"}.get(value, str(value))
        raise LoopError(f"Loop(start): it is {why}; give values that can be compared, such as ints or decimals")
    try:
        step = type_of(loop.step, {**schema, VALUE: value})
    except PipelineError as error:
        raise LoopError(f"Loop(step): {error}") from None
    for term in loop.compiled_step.terms:
        if type_of(term.expr, schema) is None:
            raise LoopError(f"Loop(step): {render(term.expr)} is always NULL, so nothing would ever arrive")
    if step is not value:
        raise LoopError(f"Loop(step): it is {step}, and the value that comes to an edge is {value}; cast what it reads")
    return {VERTEX: kind, VALUE: value}
