"""Joins of records with those of other inputs: which of their rows a row on the left meets.

For each row on the left there is an interval of event times on the right, and a choice of the rows there.

One operator does them all: the version of a table that held (as of), all events within an interval, those of the same
window. It also does the next event, and what is known when a row comes (lookup). What comes out is a multiset of rows
at the time of the left row. After each epoch it is the function of all rows that were accepted. An older version that
comes late corrects what it should have met (design note 0023). A lookup alone goes by when input was read.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import ClassVar, Final, assert_never

from headrace.errors import PipelineError
from headrace.model.accumulation import EVENT_TIME, WINDOW_END, WINDOW_START
from headrace.model.arguments import Arguments, Length, Suggesting, check_keywords
from headrace.model.changelog import Changelog, SignedBy
from headrace.model.event_time import EventTime, FromSource
from headrace.model.expressions.columns import (
    Key,
    Read,
    SourceColumns,
    column_or_expression,
    key_columns,
    require_expression,
)
from headrace.model.expressions.data_types import ColumnType, DataType, Schema, in_words
from headrace.model.expressions.expr import Column, Expr, Literal, render
from headrace.model.expressions.typing import columns_of, kind_of, type_of
from headrace.model.time import Duration, render_duration
from headrace.model.windows import CalendarWindows, FixedWindows, WindowFn, describe_windows
from headrace.pipeline.endpoints import OWN, Input, Source

On = str | Sequence[str] | Mapping[str, Read] | Mapping[Read, Read]
"""Names of columns that both sides have, or what the right side has for columns or expressions of the left."""

JoinColumns = Key | Mapping[str, Read]
"""What comes along: names of columns of the right side, or what of it by name."""

MOST_SPREAD: Final = 1024
"""Over so many places a key is spread at most."""

_ON_FORM: Final = (
    '"currency", ["user", "ad"], or {"customer": "id"} of a left column and a right one; either may be computed, '
    '{col("airport").lower(): "station"}'
)


@dataclass(frozen=True)
class OutputPanes(Source):
    """The panes of an ``output`` of the same pipeline, as the right side of a join. ``panes``: their columns, and with
    a ``changelog`` they can be withdrawn; neither is known before the pipeline is whole.
    """

    kind: ClassVar[str] = "output"

    output: str
    panes: Schema = field(default_factory=dict)
    schema: SourceColumns = field(default_factory=dict)
    changelog: Changelog | None = None

    def __post_init__(self) -> None:
        """Nothing is read, so there is no schema to check."""

    @property
    def place(self) -> str:
        return self.output

    @property
    def columns(self) -> Schema:
        return self.panes

    @property
    def columns_beside(self) -> frozenset[str]:
        """The times of panes, which come along only where they are named."""
        return frozenset({WINDOW_START, WINDOW_END, EVENT_TIME})

    def __str__(self) -> str:
        return f"panes of output {self.output}"


_CAN_BE_WITHDRAWN: Final = SignedBy(Literal(1, DataType.INT))
"""Says that panes of an output have signs, which come with them."""


class Meets(StrEnum):
    """Which of the rows on the right that lie in its interval a left row meets."""

    ALL = "all"
    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True)
class Join(Suggesting):
    """Rows that come, the left ones, with rows of the input ``right`` that have equal values ``on`` both sides. These
    lie in an interval of event time, both ends of which count. It goes from ``begin`` after the left row (None: from
    any time before it) to ``end`` after it. Or they lie in the same ``window``.

    ``meets``: all of them, or the first or last one alone. Among versions at one moment, the one counts that is
    greatest by ``order``, then one that is ``deleted``, then the values of ``columns``. Where the last version is
    deleted the left row meets nothing. ``where``: right rows that it is not TRUE of are left out. ``outer``: a left row
    that meets nothing leaves with NULLs. ``lateness``: for how long behind the watermark rows of either side still
    change what left; None: as long as the first aggregation behind it says. ``spread``: over so many places the left
    rows of a key are spread, at each of which are all right rows. ``history``: for how long beyond the lateness
    versions can be withdrawn; None: for ever. ``computed``: what is compared of left rows that is no column, under its
    text, by which ``on`` knows it. ``takes_rest``: what comes along of an output is not said, and known with its
    columns. ``by_arrival``: in place of an interval, a left row meets what has come up to the epoch in which it comes
    itself. ``made_by`` is the function that users wrote.
    """

    right: Input
    on: Mapping[str, Expr]
    columns: Mapping[str, Expr]
    meets: Meets
    begin: Duration | None
    end: Duration
    window: WindowFn | None = None
    order: Expr | None = None
    deleted: Expr | None = None
    where: Expr | None = None
    outer: bool = False
    lateness: Duration | None = None
    spread: int = 1
    history: Duration | None = None
    computed: Mapping[str, Expr] = field(default_factory=dict)
    takes_rest: bool = False
    by_arrival: bool = False
    made_by: str = "join"

    @property
    def name(self) -> str:
        """The name of the input, or output, on its right."""
        return self.right.name

    @property
    def is_of_output(self) -> bool:
        """Whether its right side is an output of the same pipeline."""
        return isinstance(self.right.source, OutputPanes)

    def with_panes(self, panes: Schema, *, can_be_withdrawn: bool) -> "Join":
        """The join, whose right side is an output, given the columns of its ``panes``. Raises PipelineError."""
        source = OutputPanes(self.name, panes, changelog=_CAN_BE_WITHDRAWN if can_be_withdrawn else None)
        columns = self.columns
        if self.takes_rest:
            columns = {name: Column(name) for name in _uncompared_columns(source, self.on.values())}
        join = replace(self, right=replace(self.right, source=source), columns=columns)
        join.check_history()
        return join

    def check_history(self) -> None:
        """Raise PipelineError for a ``history`` that bounds nothing."""
        if self.history is None:
            return
        if self.begin is not None:
            raise self.wrong("history", "max_age= bounds what is kept; leave it out")
        if self.right.source.changelog is None:
            which = "panes" if self.is_of_output else "records"
            why = f"none of its {which} can be withdrawn, so newer ones bound what is kept; leave it out"
            raise self.wrong("history", why)

    @property
    def withdraws(self) -> bool:
        """Whether rows that left can be withdrawn again, though no record can."""
        return not self.by_arrival and (self.outer or self.meets is not Meets.ALL)

    def describe_met_rows(self) -> str:
        """Which rows of the right side a left row meets, for a description."""
        order_text = ""
        if self.order is not None:
            moment = "in one epoch" if self.by_arrival else "at one moment"
            order_text = f", of several {moment} that with the greatest {render(self.order)}"
        if self.by_arrival:
            return f"the version of {self.name} that came last, in the same epoch or before{order_text}"
        if self.window is not None:
            return f"all rows of {self.name} in its window ({describe_windows(self.window)})"
        match self.meets:
            case Meets.LAST:
                age = "" if self.begin is None else f" and at most {render_duration(Duration(-self.begin))} old"
                return f"the last version of {self.name} that is not later{age}{order_text}"
            case Meets.FIRST:
                return f"the next row of {self.name} within {render_duration(self.end)}{order_text}"
            case Meets.ALL:
                assert self.begin is not None
                ends = " to ".join(render_duration(end) for end in (self.begin, self.end))
                return f"all rows of {self.name} from {ends} after it"
            case unknown:
                assert_never(unknown)

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        """What is computed of right rows, each with its purpose."""
        yield from ((f"on {name}", expr) for name, expr in self.on.items())
        yield from ((f"column {name}", expr) for name, expr in self.columns.items())
        named_exprs = (("order", self.order), ("deleted", self.deleted), ("where", self.where))
        yield from ((f"{name} of {self.made_by}", expr) for name, expr in named_exprs if expr is not None)

    def joined_types(self) -> Schema:
        """The types of the columns that come along. Raises PipelineError for one that has none."""
        types: dict[str, ColumnType] = {}
        for name, expr in self.columns.items():
            kind = kind_of(expr, self.right.source.columns)
            if not isinstance(kind, ColumnType):
                what = "always NULL" if kind is None else f"a {in_words(kind)}"
                raise self.wrong(f"columns[{name!r}]", f"it is {what}; name a column that holds a value")
            types[name] = kind
        return types

    def computed_types(self, left: Schema) -> Schema:
        """The types of what is ``computed`` of rows with the columns ``left``. Raises PipelineError."""
        types: dict[str, DataType] = {}
        for name, expr in self.computed.items():
            try:
                kind = type_of(expr, left)
            except PipelineError as error:
                raise self.wrong("on", str(error)) from None
            if kind is None:
                raise self.wrong("on", f"{name!r} is always NULL, which meets nothing")
            types[name] = kind
        return types

    def wrong(self, argument: str, why: str) -> PipelineError:
        """The error of an argument, as users wrote it."""
        return PipelineError(f"{self.made_by}({self.name}, {argument}): {why}")


@check_keywords
def as_of(
    right: Input | str,
    on: On,
    *,
    columns: JoinColumns = None,
    max_age: Length | None = None,
    order: Read | None = None,
    deleted: Expr | None = None,
    where: Expr | None = None,
    outer: bool = False,
    lateness: Length | None = None,
    spread: int = 1,
    history: Length | None = None,
) -> Join:
    """Join each record with the version of ``right`` that held at its event time: the last one that is not later.

    :param right: versions, each of which holds from its event time on; a named input, or the name of an output.
    :param on: columns that both sides have, or ``{"left column": "right column"}``, either of which may be computed.
    :param columns: what comes along, names or expressions by name; None: all but those of ``on`` and event time.
    :param max_age: how old a version may be; None: as old as it likes.
    :param order: which of several versions at one moment counts: the greatest.
    :param deleted: TRUE of a version that says that there is nothing from its moment on. Where the source of ``right``
        has ``versions=``, these say both.
    :param where: right rows that it is not TRUE of are left out.
    :param outer: whether a record that meets no version leaves with NULLs.
    :param lateness: for how long a late record of either side corrects what left; None: as the aggregation behind it.
    :param spread: over so many places the records of a key are spread, where one key has a large part of them; all of
        ``right`` is kept at each. What comes out is the same.
    :param history: for how long beyond that versions of ``right`` can be withdrawn, where its records can be; older
        ones that newer ones hide are let go. None: for ever.
    :raises PipelineError: an argument is wrong.

    >>> rates = hr.json("landing/rates", {"ccy": str, "rate": float, "at": datetime})
    >>> hr.as_of(rates.event_time("at", bound="1m").named("rates"), "ccy", max_age="2d").meets.value
    'last'
    """
    arguments = Arguments("as_of")
    begin = None if max_age is None else Duration(-arguments.duration("max_age", max_age))
    join = _make_join(arguments, right, on, columns=columns, where=where, lateness=lateness, outer=outer, spread=spread)
    order_expr = None if order is None else column_or_expression(arguments, "order", order)
    is_deleted = None if deleted is None else require_expression(arguments, "deleted", deleted)
    history_length = None if history is None else arguments.duration("history", history, is_capped=True)
    join = replace(join, meets=Meets.LAST, begin=begin, order=order_expr, deleted=is_deleted, history=history_length)
    if not join.is_of_output:
        join.check_history()
    return _of_versions(join)


@check_keywords
def lookup(
    right: Input,
    on: On,
    *,
    columns: JoinColumns = None,
    order: Read | None = None,
    deleted: Expr | None = None,
    where: Expr | None = None,
    outer: bool = False,
    lateness: Length | None = None,
    spread: int = 1,
) -> Join:
    """Join each record with what is known of ``right`` when it is read: the version that came last, in the same epoch
    or before. What left is never corrected. A replay repeats it; a batch, in which all comes at once, is refused.

    :param right: versions by the time of their arrival: a named input with ``.arrival_time()``.
    :param on: columns that both sides have, or ``{"left column": "right column"}``, either of which may be computed.
    :param columns: what comes along, names or expressions by name; None: all but those of ``on``.
    :param order: which of several versions that came in one epoch counts: the greatest.
    :param deleted: TRUE of a version that says that there is nothing from its arrival on. Where the source of ``right``
        has ``versions=``, these say both.
    :param where: right rows that it is not TRUE of are left out.
    :param outer: whether a record that meets no version leaves with NULLs.
    :param lateness: how late a record may be by its own event time; None: as the aggregation behind it says.
    :param spread: over so many places the records of a key are spread, where one key has a large part of them; all of
        ``right`` is kept at each. What comes out is the same.
    :raises PipelineError: an argument is wrong.

    >>> shops = hr.json("landing/shops", {"id": int, "country": str}).arrival_time().named("shops")
    >>> hr.lookup(shops, {"shop": "id"}, outer=True).by_arrival
    True
    """
    arguments = Arguments("lookup")
    join = _make_join(arguments, right, on, columns=columns, where=where, lateness=lateness, outer=outer, spread=spread)
    if join.is_of_output:
        why = "panes of an output come with what they are made of; as_of(...) joins them by their times"
        raise arguments.refusal("right", right, why)
    if join.right.event_time.expr is not None:
        why = "it has an event time, by which as_of(...) joins; write .arrival_time() in place of .event_time(...)"
        raise join.wrong("right", why)
    order_expr = None if order is None else column_or_expression(arguments, "order", order)
    is_deleted = None if deleted is None else require_expression(arguments, "deleted", deleted)
    join = replace(join, meets=Meets.LAST, begin=None, by_arrival=True, order=order_expr, deleted=is_deleted)
    return _of_versions(join)


def _of_versions(join: Join) -> Join:
    """``join`` with order and deletions of its right side, if that says that it has versions. Raises PipelineError
    where they would not be those of a row.
    """
    versions = join.right.source.versions
    if versions is None:
        return join
    key = {expr.name if isinstance(expr, Column) else "" for expr in join.on.values()}
    if key != {*versions.key}:
        of_key = f"it has versions of the row of {', '.join(versions.key)}; join on just that"
        raise join.wrong("on", f"{of_key}, so that those of one row meet")
    if join.where is not None and columns_of(join.where) - {*versions.key}:
        raise join.wrong("where", "a version that it leaves out would leave the one before it standing; use deleted=")
    try:
        return replace(join, order=versions.order_beside(join.order), deleted=versions.deleted_beside(join.deleted))
    except PipelineError as error:
        raise join.wrong("order", str(error)) from None


@check_keywords
def within(
    right: Input | str,
    on: On,
    *,
    between: tuple[Length, Length],
    columns: JoinColumns = None,
    where: Expr | None = None,
    outer: bool = False,
    lateness: Length | None = None,
    spread: int = 1,
) -> Join:
    """Join each record with all of ``right`` whose event time lies ``between`` two distances from its own.

    :param right: events; a named input, or the name of an output of the same pipeline.
    :param on: columns that both sides have, or ``{"left column": "right column"}``, either of which may be computed.
    :param between: from how long after it to how long after it, as ("0s", "1h"); negative: before it ("-30m").
    :param columns: what comes along, names or expressions by name; None: all but those of ``on`` and event time.
    :param where: right rows that it is not TRUE of are left out.
    :param outer: whether a record that meets nothing leaves with NULLs.
    :param lateness: for how long a late record of either side corrects what left; None: as the aggregation behind it.
    :param spread: over so many places the records of a key are spread, where one key has a large part of them; all of
        ``right`` is kept at each. What comes out is the same.
    :raises PipelineError: an argument is wrong.

    >>> payments = hr.json("landing/payments", {"order_id": int, "amount": int, "at": datetime})
    >>> paid = payments.event_time("at", bound="1m").named("payments")
    >>> hr.within(paid, {"id": "order_id"}, between=("0s", "1h"), outer=True).meets.value
    'all'
    """
    arguments = Arguments("within")
    if not isinstance(between, tuple | list) or len(between) != len(("begin", "end")):
        raise arguments.refusal("between", between, 'write two lengths of time, such as ("0s", "1h")')
    begin, end = (arguments.duration("between", bound, least=None) for bound in between)
    if begin > end:
        raise arguments.refusal("between", between, "it ends before it begins; write the smaller one first")
    join = _make_join(arguments, right, on, columns=columns, where=where, lateness=lateness, outer=outer, spread=spread)
    return replace(join, begin=begin, end=end)


@check_keywords
def same_window(
    right: Input | str,
    on: On,
    *,
    window: WindowFn,
    columns: JoinColumns = None,
    where: Expr | None = None,
    outer: bool = False,
    lateness: Length | None = None,
    spread: int = 1,
) -> Join:
    """Join each record with all of ``right`` in the same window of event time.

    :param right: events; a named input, or the name of an output of the same pipeline.
    :param on: columns that both sides have, or ``{"left column": "right column"}``, either of which may be computed.
    :param window: windows of one length, or of a calendar.
    :param columns: what comes along, names or expressions by name; None: all but those of ``on`` and event time.
    :param where: right rows that it is not TRUE of are left out.
    :param outer: whether a record that meets nothing leaves with NULLs.
    :param lateness: for how long a late record of either side corrects what left; None: as the aggregation behind it.
    :param spread: over so many places the records of a key are spread, where one key has a large part of them; all of
        ``right`` is kept at each. What comes out is the same.
    :raises PipelineError: an argument is wrong.

    >>> weather = hr.json("landing/weather", {"station": str, "wind": int, "at": datetime})
    >>> hourly = weather.event_time("at", bound="1m").named("weather")
    >>> hr.same_window(hourly, {"airport": "station"}, window=hr.FixedWindows("1h")).meets.value
    'all'
    """
    arguments = Arguments("same_window")
    is_fixed = isinstance(window, FixedWindows) and window.phase is None
    if not is_fixed and not isinstance(window, CalendarWindows):
        raise arguments.refusal("window", window, 'write FixedWindows("1h") without a phase, or CalendarWindows("day")')
    return replace(
        _make_join(arguments, right, on, columns=columns, where=where, lateness=lateness, outer=outer, spread=spread),
        window=window,
    )


@check_keywords
def next_event(
    right: Input | str,
    on: On,
    *,
    within: Length,
    columns: JoinColumns = None,
    order: Read | None = None,
    where: Expr | None = None,
    outer: bool = False,
    lateness: Length | None = None,
    spread: int = 1,
) -> Join:
    """Join each record with the next of ``right``: the first one at its event time or after it.

    :param right: events; a named input, or the name of an output of the same pipeline.
    :param on: columns that both sides have, or ``{"left column": "right column"}``, either of which may be computed.
    :param within: how long after it at most.
    :param columns: what comes along, names or expressions by name; None: all but those of ``on`` and event time.
    :param order: which of several events at one moment counts: the greatest.
    :param where: right rows that it is not TRUE of are left out.
    :param outer: whether a record that meets nothing leaves with NULLs.
    :param lateness: for how long a late record of either side corrects what left; None: as the aggregation behind it.
    :param spread: over so many places the records of a key are spread, where one key has a large part of them; all of
        ``right`` is kept at each. What comes out is the same.
    :raises PipelineError: an argument is wrong.

    >>> orders = hr.json("landing/orders", {"user": str, "amount": int, "at": datetime})
    >>> hr.next_event(orders.event_time("at", bound="1m").named("orders"), "user", within="1d").meets.value
    'first'
    """
    arguments = Arguments("next_event")
    end = arguments.duration("within", within)
    join = _make_join(arguments, right, on, columns=columns, where=where, lateness=lateness, outer=outer, spread=spread)
    order_expr = None if order is None else column_or_expression(arguments, "order", order)
    return replace(join, meets=Meets.FIRST, end=end, order=order_expr)


def _make_join(
    arguments: Arguments,
    right: object,
    conditions: object,
    *,
    columns: JoinColumns,
    where: Expr | None,
    lateness: Length | None,
    outer: object,
    spread: object,
) -> Join:
    own = _right_side(arguments, right)
    pairs, computed_keys = _key_pairs(arguments, conditions)
    takes_rest = columns is None and isinstance(own.source, OutputPanes)
    rest = _uncompared_columns(own.source, [own.event_time.expr, *pairs.values()])
    return Join(
        right=own,
        on=pairs,
        columns={} if takes_rest else _carried_columns(arguments, rest if columns is None else columns),
        meets=Meets.ALL,
        begin=Duration(0),
        end=Duration(0),
        where=None if where is None else require_expression(arguments, "where", where),
        outer=arguments.flag("outer", outer),
        lateness=None if lateness is None else arguments.duration("lateness", lateness, is_capped=True),
        spread=_spread(arguments, spread),
        computed=computed_keys,
        takes_rest=takes_rest,
        made_by=arguments.owner,
    )


def _right_side(arguments: Arguments, right: object) -> Input:
    if isinstance(right, str):
        output = arguments.text("right", right, "rates")
        return Input(OutputPanes(output), EventTime(Column(EVENT_TIME), FromSource(), max_ahead=None), output)
    such_as = (
        'an input such as json("landing/rates", {...}).event_time("at", bound="1m").named("rates"), or the name of an '
        "output"
    )
    own = arguments.instance("right", right, Input, such_as)
    if own.name == OWN:
        raise arguments.refusal("right", right, 'an input that is joined has a name: write .named("rates") after it')
    if own.columns:
        raise arguments.refusal(
            "right", right, "it keeps its own columns: leave columns= out of .named(...), and give them here"
        )
    return own


def _uncompared_columns(source: Source, exprs: Iterable[Expr | None]) -> list[str]:
    """The columns that come along where nothing else is said: none that is one of ``exprs``, key and event time."""
    names = {expr.name for expr in exprs if isinstance(expr, Column)}
    names |= source.different_in_withdrawals | source.columns_beside
    return [name for name, kind in source.columns.items() if name not in names and isinstance(kind, ColumnType)]


def _spread(arguments: Arguments, spread: object) -> int:
    if not isinstance(spread, int) or isinstance(spread, bool) or not 1 <= spread <= MOST_SPREAD:
        raise arguments.refusal(
            "spread", spread, f"write a number from 1 to {MOST_SPREAD}; each keeps all of the other side"
        )
    return spread


def _key_pairs(arguments: Arguments, conditions: object) -> tuple[dict[str, Expr], dict[str, Expr]]:
    """The argument ``on``: what the right side has, by the column of the left, or the text of what is computed of it;
    and that, by its text.
    """
    if isinstance(conditions, Mapping):
        if not conditions or not all(isinstance(left, str | Expr) for left in conditions):
            raise arguments.refusal("on", conditions, f"write {_ON_FORM}")
        texts = {left: left if isinstance(left, str) else render(left) for left in conditions}
        computed_keys = {
            texts[left]: left for left in conditions if isinstance(left, Expr) and not isinstance(left, Column)
        }
        if len({*texts.values()}) < len(conditions):
            raise arguments.refusal("on", conditions, "it has two conditions of one column; name it once")
        return {
            texts[left]: column_or_expression(arguments, f"on[{texts[left]!r}]", expr)
            for left, expr in conditions.items()
        }, computed_keys
    names = [conditions] if isinstance(conditions, str) else conditions
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
        raise arguments.refusal("on", conditions, f"write {_ON_FORM}")
    return {name: Column(name) for name in names}, {}


def _carried_columns(arguments: Arguments, columns: object) -> dict[str, Expr]:
    if isinstance(columns, Mapping):
        if not all(isinstance(name, str) and name for name in columns):
            raise arguments.refusal("columns", columns, 'write names, or other names for them, {"paid": "amount"}')
        return {name: column_or_expression(arguments, f"columns[{name!r}]", expr) for name, expr in columns.items()}
    return key_columns(arguments, "columns", columns)


def joined_schema(joins: Sequence[Join], schema: Schema) -> Schema:
    """The columns of what comes out of ``joins`` of records of ``schema``, one behind the other. Raises PipelineError
    if sides do not fit.
    """
    columns = dict(schema)
    for join in joins:
        _check_sides(join, columns)
        for name, kind in join.joined_types().items():
            if name in columns:
                raise join.wrong(
                    f"columns[{name!r}]",
                    f'the left side has a column {name!r}, too; write columns={{"other": "{name}"}}',
                )
            columns[name] = kind
    return columns


def payload_of(inputs: Sequence[Input], schema: Schema) -> dict[str, ColumnType]:
    """The columns of ``schema`` that left rows bring along: those that a withdrawal has in common with the row that it
    withdraws.
    """
    different = set[str]()
    for input_ in inputs:
        own = input_.source.different_in_withdrawals
        different |= {name for name, expr in input_.expressions(schema).items() if columns_of(expr) & own}
    return {name: kind for name, kind in schema.items() if isinstance(kind, ColumnType) and name not in different}


def lateness_of(joins: Sequence[Join], own: Duration | None, minimum: Duration | None) -> tuple[Duration | None, ...]:
    """For how long each of ``joins`` takes late rows: as long as those before it and the ``minimum`` at least; where it
    does not say, as long as what is behind them, which takes its ``own``.
    """
    so_far: list[Duration | None] = []
    for join in joins:
        join_lateness = own if join.lateness is None else join.lateness
        previous = so_far[-1] if so_far else minimum
        so_far.append(None if join_lateness is None or previous is None else max(join_lateness, previous))
    return tuple(so_far)


def wrong_beside_joins(joins: Sequence[Join], left: Sequence[Input], *, has_loop: bool) -> str | None:
    """What ``joins`` of records of the ``left`` inputs do not go with, and what to write; None if all is well."""
    if has_loop:
        return "loop: the values of a loop hold each other up, and joined rows are withdrawn; leave out join="
    names = [join.name for join in joins]
    if duplicates := [name for name in names if names.count(name) > 1]:
        return f"join: two joins are of input {duplicates[0]}; name the second one otherwise, .named(...)"
    by_arrival = any(input_.event_time.expr is None for input_ in left)
    wrong_rights = (_wrong_right(join, by_arrival=by_arrival) for join in joins)
    return next((wrong for wrong in (*wrong_rights, _wrong_left_of_lookup(joins, left)) if wrong is not None), None)


def _wrong_left_of_lookup(joins: Sequence[Join], left: Sequence[Input]) -> str | None:
    """Why rows on the left of a lookup can be withdrawn, and what to write; None if none can."""
    withdrawing = next((f"records of input {own.name}" for own in left if own.source.changelog is not None), None)
    for join in joins:
        if join.by_arrival and withdrawing is not None:
            return (
                f"join: {withdrawing} can be withdrawn, and {join.made_by} of {join.name} keeps no row that it has "
                "joined, so a withdrawal would meet another version; give that an event time and take as_of(...), or "
                f"put {join.made_by}(...) before what withdraws"
            )
        if join.withdraws or join.right.source.changelog is not None:
            withdrawing = f"rows of {join.made_by} of {join.name}"
    return None


def _wrong_right(join: Join, *, by_arrival: bool) -> str | None:
    """What is wrong with the right side of ``join``. ``by_arrival``: left rows go by the time of arrival."""
    changelog, arrives = join.right.source.changelog, join.right.event_time.expr is None
    if join.right.source.versions is not None and join.meets is not Meets.LAST:
        return (
            f"join: {join.name} has versions of rows, and {join.made_by} would meet several of one; as_of(...) takes "
            "the one that held"
        )
    if arrives and not by_arrival and not join.by_arrival:
        return (
            f"join: {join.name} goes by the time of arrival, and the rows that it is joined to by their own. What had "
            f"arrived would depend on how input is cut; give {join.name} an event time, or take lookup(...) if just "
            "that is meant"
        )
    if changelog is not None and arrives:
        return f"join: records of {join.name} can be withdrawn, and go by the time of arrival; give it an event time"
    if read := sorted(join.right.source.different_in_withdrawals & {*columns_of_right(join)}):
        return (
            f"join: {join.made_by}({join.name}) reads {read[0]!r}, in which a withdrawal differs from the row that it "
            "withdraws; leave it out"
        )
    return None


def _check_sides(join: Join, left: Schema) -> None:
    """Raise PipelineError if what ``join`` reads is not there, or is of a type that does not fit."""
    right = join.right.source.columns
    if both := sorted({*join.computed} & {*left}):
        raise join.wrong("on", f"{both[0]!r} is a column of the left side, too; name that one otherwise")
    left = {**left, **join.computed_types(left)}
    for name, expr in join.on.items():
        if name not in left:
            raise join.wrong("on", f"the left side has no column {name!r}; it has {', '.join(left)}")
        try:
            kind = type_of(expr, right)
        except PipelineError as error:
            raise join.wrong("on", str(error)) from None
        if kind is not left[name] or kind is DataType.FLOAT:
            why = f"{name!r} is {in_words(left[name])} on the left and {kind} on the right"
            raise join.wrong("on", f"{why}: both are of one type, which compares exactly; cast one of them")
    for what, part in (("deleted", join.deleted), ("where", join.where)):
        if part is not None and (kind := type_of(part, right)) is not DataType.BOOL:
            raise join.wrong(what, f"it is {kind}, and must be bool")
    if join.order is not None and not isinstance(kind_of(join.order, right), DataType):
        raise join.wrong("order", "it has no order; name a column that holds a value")


def columns_of_right(join: Join) -> dict[str, str]:
    """The columns of its right side that ``join`` reads, each with what reads it first."""
    purposes: dict[str, str] = {}
    for purpose, expr in join.expressions():
        for name in columns_of(expr):
            purposes.setdefault(name, purpose)
    return purposes
