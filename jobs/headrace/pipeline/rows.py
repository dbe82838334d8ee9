"""What rows are made of, where an output gives rows: of each record or pane, or of each group.

A row of a record, or of a pane of another output, has no key and no window. It has the event time of its record or
pane, leaves with that epoch, and is withdrawn only with it. What stands of an output is a multiset of rows.

Rows of a group are the newest, the first few, the distinct; or those that a function of a user's own, or SQL, makes of
all of them. A group is a key in a window, as of an aggregation, and fires as one does. What leaves is the difference to
what left before: a row that counts no more is withdrawn.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headrace.errors import PipelineError
from headrace.model.accumulation import EVENT_TIME, Accumulation, How, discarding, retracting
from headrace.model.arguments import REQUIRED, Arguments, Suggesting, check_keywords, register_word
from headrace.model.changelog import Versions
from headrace.model.expressions.columns import Key, key_columns, require_expression
from headrace.model.expressions.data_types import ColumnType, WrittenSchema, nested_schema
from headrace.model.expressions.expr import Column, Expr, Function
from headrace.model.expressions.typing import is_same_expression, to_json
from headrace.model.time import Duration
from headrace.model.triggers import Trigger
from headrace.model.triggers.composites import on_update
from headrace.model.triggers.elementary import Default, inputs
from headrace.model.windows import FixedWindows, GlobalWindows, WindowFn
from headrace.pipeline.endpoints import OwnFunction
from headrace.pipeline.stages import Aggregation, new_names, trigger_nodes

if TYPE_CHECKING:
    from headrace.pipeline.queries import BoundQuery

INSTANT: Final = FixedWindows(Duration(1))
"""The window of a row: its own instant."""

RowColumns = Mapping[str, Expr] | Sequence[str | Column | Mapping[str, Expr]] | str
"""Expressions by the name of a column, names of columns that are taken as they are, or several of both."""


@dataclass(frozen=True, repr=False)
class AtTheEnd(Default):
    """``Default()`` where nobody wrote a trigger. Rows that are not grouped leave with their epoch then."""

    def __repr__(self) -> str:
        return "Default()"


AT_THE_END: Final = AtTheEnd()
"""The trigger of who names none."""

BUCKET: Final = "_row"
"""The key of rows that wait for the watermark, which nobody sees: it spreads them over the parts of the keys."""

_OF_ITSELF: Final = {"where": INSTANT, "when": AT_THE_END, "how": discarding()}
_DEFAULTS_AS_COPIED: Final = {**_OF_ITSELF, "key": {}, "what": {}, "then": ()}
"""What a pipeline of rows has for these, as who copies one passes it on."""

_PART_NAMES = ("key", "what", "where", "when", "how", "filter", "having", "renamed")
FORMS: Final = (
    '["id", "shop"], {"id": col("order"), "amount": col("price") * 2}, or ["id", {"amount": col("price") * 2}]'
)


@dataclass(frozen=True, init=False)
class Selection(Aggregation):
    """What stands in the place of an aggregation where rows leave as they are: without a key, each in the window of its
    own instant.
    """

    columns: Mapping[str, Expr]

    def __init__(
        self, owner: str, rows: object, condition: Expr | None = None, renamed: Mapping[str, str] | None = None
    ) -> None:
        arguments = Arguments(owner)
        columns = key_columns(arguments, "rows", rows, FORMS)
        if not columns:
            raise arguments.refusal("rows", rows, f"it names no column; write {FORMS}")
        parts: dict[str, object] = {"key": {}, "what": {}, **_OF_ITSELF, "having": None, "transform": None}
        parts["filter"] = None if condition is None else require_expression(arguments, "filter", condition)
        parts |= {"renamed": new_names(arguments, renamed, columns), "columns": columns}
        for name, value in parts.items():
            object.__setattr__(self, name, value)

    @property
    def rows(self) -> Mapping[str, Expr]:
        return self.columns

    def id_columns(self, arguments: Arguments, id_: object) -> tuple[str, ...]:
        """The argument ``id``, as far as it can be told without types. Raises PipelineError."""
        return id_columns(arguments, id_, self.rows)

    @property
    def fields(self) -> Mapping[str, object]:
        """The fields of a pipeline that has it."""
        parts = {name: getattr(self, name) for name in _PART_NAMES}
        return {**parts, "first": self, "loop": None, "rows": self.columns, "take": None}

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        yield from ((f"column {name}", expr) for name, expr in self.rows.items())
        if self.filter is not None:
            yield "the filter", self.filter


def bucket_of(columns: Mapping[str, Expr]) -> dict[str, Expr]:
    """A key of rows of these ``columns``: a number that equal rows share, whatever the order of their columns."""
    return {BUCKET: Function("bucket", tuple(sorted(columns.values(), key=lambda expr: str(to_json(expr)))))}


def named_columns(arguments: Arguments, id_: object) -> tuple[str, ...]:
    """The argument ``id``: names of columns. Raises PipelineError."""
    if isinstance(id_, tuple) and not id_:  # of a pipeline that is copied; an expression has no truth
        return ()
    parts = id_ if isinstance(id_, list | tuple) else [id_]
    if any(isinstance(part, Mapping | Expr) and not isinstance(part, Column) for part in parts):
        raise arguments.refusal("id", id_, "it names columns of rows; write an expression there, and its name here")
    return tuple(key_columns(arguments, "id", id_))


def id_columns(arguments: Arguments, id_: object, rows: Mapping[str, Expr]) -> tuple[str, ...]:
    """The argument ``id``: columns of ``rows``. Raises PipelineError."""
    columns = named_columns(arguments, id_)
    for name in columns:
        if name not in rows:
            raise arguments.refusal("id", id_, f"there is no column {name!r}; rows have {', '.join(rows)}")
    return columns


def check_without_windows(arguments: Arguments, own: Mapping[str, object]) -> None:
    """Raise PipelineError if one of the arguments that aggregations have of their ``own`` is given beside ``rows``."""
    for name, value in own.items():
        is_expr = isinstance(value, Expr)  # the truth of an expression is nobody's to tell
        is_left_out = value is None or value is False or (not is_expr and value == _DEFAULTS_AS_COPIED.get(name, ...))
        if name not in ("rows", "take") and not is_left_out:
            why = "rows= gives each record as a row, and an aggregation has it; leave it out"
            if name == "how":
                why += ", or write when=on_window_close() beside it: then rows wait for the watermark"
            raise arguments.refusal(name, value, why)


def refuse_given(arguments: Arguments, own: Mapping[str, object], why: str) -> None:
    """Raise PipelineError that says ``why`` if one of the arguments ``own`` is given."""
    for name, value in own.items():
        if isinstance(value, Expr) or value:  # the truth of an expression is nobody's to tell
            raise arguments.refusal(name, value, why)


def check_event_time_name(rows: Mapping[str, Expr], times: Sequence[Expr | None]) -> None:
    """Raise PipelineError if ``rows`` have a column with the name of their event time that differs from any of
    ``times``. These are the event times of all inputs.
    """
    own = rows.get(EVENT_TIME)
    if own is None or all(time is not None and is_same_expression(own, time) for time in times):
        return
    raise PipelineError(
        f"rows[{EVENT_TIME!r}]: every row has its event time under this name; choose another name for the column"
    )


@dataclass(frozen=True)
class Take(Suggesting):
    """Which rows of a group leave."""

    @property
    def by(self) -> tuple[Expr, ...]:
        """What they go by before their event time, the first first."""
        return ()

    @property
    def unless(self) -> Expr | None:
        """Where it is TRUE, a row counts and does not leave."""
        return None

    @property
    def computes(self) -> bool:
        """Whether it makes other rows of those of a group."""
        return False

    def computed_columns(self, rows: Mapping[str, ColumnType]) -> Mapping[str, ColumnType] | None:
        """The columns that it makes of ``rows``; None: these leave as they are."""
        del rows
        return None


@register_word("newest", order=None, deleted=None)
@dataclass(frozen=True)
class Newest(Take):
    """The row with the largest ``order``; None: with the latest event time. Nothing where that is ``deleted``."""

    order: Expr | None = None
    deleted: Expr | None = None

    @property
    def by(self) -> tuple[Expr, ...]:
        return () if self.order is None else (self.order,)

    @property
    def unless(self) -> Expr | None:
        return self.deleted

    def of_versions(self, arguments: Arguments, versions: Versions) -> "Newest":
        """The newest of the ``versions`` of each row, nothing where that is a tombstone. Raises PipelineError where it
        has another order than they.
        """
        try:
            return Newest(versions.order_beside(self.order), versions.deleted_beside(self.deleted))
        except PipelineError as error:
            raise arguments.refusal("take", self, str(error)) from None


@register_word("top", number=REQUIRED, value=REQUIRED, then=((),))
@dataclass(frozen=True)
class Top(Take):
    """The ``number`` rows with the largest ``value``; among equal ones, those with the largest ``then``."""

    number: int
    value: Expr
    then: tuple[Expr, ...] = ()

    @property
    def by(self) -> tuple[Expr, ...]:
        return (self.value, *self.then)


@register_word("distinct")
@dataclass(frozen=True)
class Distinct(Take):
    """Each row once."""


@register_word("every")
@dataclass(frozen=True)
class Every(Take):
    """Each row by itself, as often as it is there: rows that have no key, and wait for the watermark."""


@register_word("function", name=REQUIRED, returns=REQUIRED)
@dataclass(frozen=True)
class GroupFunction(OwnFunction, Take):
    """What a user's own function ``module:function`` makes of the rows of a group, an Arrow table."""

    noun: ClassVar[str] = "function of a group"
    computes = True

    def computed_columns(self, rows: Mapping[str, ColumnType]) -> Mapping[str, ColumnType]:
        del rows
        return nested_schema(Arguments("function"), "returns", self.returns)


@register_word("query", sql=REQUIRED)
@dataclass(frozen=True)
class GroupQuery(Take):
    """What ``sql`` makes of the rows of a group."""

    sql: str

    computes = True

    def computed_columns(self, rows: Mapping[str, ColumnType]) -> Mapping[str, ColumnType]:
        return self.bind_to(rows).columns

    def bind_to(self, rows: Mapping[str, ColumnType]) -> "BoundQuery":
        """The query over ``rows``. Raises GroupQueryError."""
        from headrace.pipeline.queries import bind_query  # which few pipelines need

        return bind_query(self.sql, rows)


@check_keywords
def newest(order: Expr | str | None = None, *, deleted: Expr | None = None) -> Take:
    """The newest row of each group, as a whole: that with the largest ``order``, an expression or the name of a column;
    without it, the one with the latest event time. A NULL is lower than any value; between two equal rows the later
    counts, then the one whose columns are larger. Where ``deleted`` is TRUE of the newest row, no row leaves. The
    deletion is remembered, so an older row that comes late does not come back to life.

    >>> latest = hr.Rows(key="id", take=hr.newest("updated_at", deleted=hr.col("op") == "d"))
    >>> list(latest.key)
    ['id']
    """
    arguments = Arguments("newest")
    order_expression = None if order is None else _single_expression(arguments, "order", order)
    return Newest(order_expression, None if deleted is None else require_expression(arguments, "deleted", deleted))


@check_keywords
def top(number: int, *, by: Expr | str | Sequence[Expr | str]) -> Take:
    """The ``number`` rows of each group with the largest ``by``: an expression, the name of a column, or a list of
    these. In a list, a further one counts where those before it are equal. A NULL is lower than any value; between two
    equal rows the later counts, then the one whose columns are larger.

    >>> dearest = hr.Rows(key="shop", where=hr.FixedWindows("1h"), take=hr.top(3, by="price"))
    >>> cheapest = hr.Rows(key="shop", where=hr.FixedWindows("1h"), take=hr.top(3, by=-hr.col("price")))
    """
    arguments = Arguments("top")
    several = by if isinstance(by, list | tuple) else [by]
    if not several:
        raise arguments.refusal("by", by, 'write "price", or several, ["price", -col("weight")]')
    value, *further_values = (_single_expression(arguments, "by", one) for one in several)
    return Top(arguments.whole_number("number", number, least=1), value, tuple(further_values))


@check_keywords
def distinct() -> Take:
    """Each row of a group once, however often it came; with the event time of the first.

    >>> shops = hr.Rows(["shop", "city"], key="shop", take=hr.distinct())
    """
    return Distinct()


@check_keywords
def function(name: str, returns: WrittenSchema) -> Take:
    """What a function of your own makes of the rows of each group: it gets a pyarrow Table and gives one with the
    columns ``returns``. ``name`` is ``module:function``.

    The table has the key's columns, those of ``rows`` and ``event_time``; its rows are in the order of event time, then
    by their columns from the first on, NULL first. The function may do anything that depends on these rows alone. It is
    called again when they change, and the new result replaces the earlier one. The key's columns are put before those
    of ``returns``. Rows have the ``event_time`` that is one of ``returns``, else the last instant of their window. The
    module lies beside the pipeline's file, or is installed.

    >>> visits = hr.function("scoring:visits", returns={"score": int})
    >>> scored = hr.Rows(key="user", where=hr.Sessions("30m"), take=visits)
    """
    types = nested_schema(Arguments("function"), "returns", returns)
    return GroupFunction(name, types, deterministic=True)


@check_keywords
def query(sql: str) -> Take:
    """What ``sql``, a SELECT of DuckDB's, makes of the rows of each group, which are the table ``rows``.

    It has the key's columns, those of ``rows=`` and ``event_time``. The query is asked again when rows of the group
    change, and what it gives then replaces what it gave before. It sees nothing but these rows: no other table, no
    file, no clock, no chance. The key's columns are put before those that it gives. Rows have the ``event_time`` that
    it gives, else the last instant of their window.

    >>> running = hr.Rows(
    ...     ["price"], key="user", take=hr.query("select *, sum(price) over (order by event_time) as spent from rows")
    ... )
    """
    from headrace.pipeline.queries import parse_query

    text = Arguments("query").text("sql", sql, "select * from rows")
    return GroupQuery(parse_query(text).text)


def _single_expression(arguments: Arguments, name: str, value: object) -> Expr:
    if isinstance(value, Expr):
        return require_expression(arguments, name, value)
    (column,) = key_columns(
        arguments, name, value if isinstance(value, str) else arguments.text(name, value, "price")
    ).values()
    return column


_TAKE: Final = 'newest("updated_at"), top(3, by="price"), distinct(), function(...) or query(...)'


@dataclass(frozen=True, init=False)
class GroupRows(Selection):
    """What stands in the place of an aggregation where some of the rows of each group leave. ``columns`` are those of
    its rows, the key's first.
    """

    take: Take

    takes_rows = True

    def __init__(
        self,
        owner: str,
        rows: RowColumns,
        *,
        key: Key,
        where: WindowFn | None,
        when: Trigger | None,
        how: How | None,
        take: Take,
        condition: Expr | None = None,
        renamed: Mapping[str, str] | None = None,
    ) -> None:
        arguments = Arguments(owner)
        keys, own = key_columns(arguments, "key", key), key_columns(arguments, "rows", rows or None, FORMS)
        for name in keys.keys() & own.keys():
            if not is_same_expression(keys[name], own[name]):
                raise arguments.refusal("rows", rows, f"{name!r} is the key, which rows have by itself; leave it out")
        columns = {**keys, **own}
        windows = arguments.instance(
            "where", GlobalWindows() if where is None else where, WindowFn, 'FixedWindows("1h")'
        )
        is_left_out = when is None or isinstance(when, AtTheEnd)
        trigger = arguments.instance("when", Default() if is_left_out else when, Trigger, "on_update()")
        if isinstance(windows, GlobalWindows) and isinstance(trigger, Default):
            trigger = on_update()
        relation = arguments.instance(
            "how", retracting() if how is None else how, How, "retracting(...) or discarding(...)"
        )
        if relation.accumulation is Accumulation.ACCUMULATING:
            raise arguments.refusal(
                "how",
                how,
                "a row that counts no more is withdrawn by retracting(...); discarding() gives "
                "the rows of what came since the last pane; write one of these",
            )
        parts: dict[str, object] = {"key": keys, "what": {}, "where": windows, "when": trigger, "how": relation}
        parts["filter"] = None if condition is None else require_expression(arguments, "filter", condition)
        if renamed and arguments.instance("take", take, Take, _TAKE).computes:
            why = "columns are called what take= calls them: write the new name there, which is a replay"
            raise arguments.refusal("renamed", renamed, why)
        parts |= {"having": None, "transform": None, "renamed": new_names(arguments, renamed, columns)}
        parts |= {"columns": columns, "take": arguments.instance("take", take, Take, _TAKE)}
        for name, value in parts.items():
            object.__setattr__(self, name, value)

    def with_trigger(self, when: Trigger | None, how: How) -> "GroupRows":
        settled_rows = copy(self)
        object.__setattr__(settled_rows, "when", when)
        object.__setattr__(settled_rows, "how", how)
        return settled_rows

    def computed_columns(self, rows: Mapping[str, ColumnType]) -> Mapping[str, ColumnType] | None:
        return self.take.computed_columns(rows)

    def id_columns(self, arguments: Arguments, id_: object) -> tuple[str, ...]:
        return named_columns(arguments, id_) if self.take.computes else id_columns(arguments, id_, self.rows)

    @property
    def fields(self) -> Mapping[str, object]:
        return {**super().fields, "take": self.take}

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        yield from ((f"key {name}", expr) for name, expr in self.key.items())
        yield from super().expressions()
        yield from (("what rows are taken by", expr) for expr in self.take.by)
        if self.take.unless is not None:
            yield "whether they are deleted", self.take.unless
        for node in () if self.when is None else trigger_nodes(self.when):
            yield from ((type(node).__name__, expr) for expr in inputs(node))


@dataclass(frozen=True, init=False)
class WaitingRows(GroupRows):
    """What stands in the place of an aggregation where each row leaves by itself, once the watermark has passed its
    event time. It is kept until then, in a group of its own: equal rows at the same instant.
    """

    takes_each = True

    def __init__(
        self,
        owner: str,
        rows: RowColumns,
        *,
        when: Trigger,
        how: How | None,
        condition: Expr | None = None,
        renamed: Mapping[str, str] | None = None,
    ) -> None:
        arguments = Arguments(owner)
        if type(when) is not Default:
            raise arguments.refusal("when", when, _WITHOUT_KEY)
        if how is not None and arguments.instance("how", how, How, "retracting(...)").keep_last is not None:
            raise arguments.refusal("how", how, "each row leaves by itself, and keep_last= is of groups; leave it out")
        columns = Selection(owner, rows, condition, renamed)
        key = bucket_of(columns.rows)
        super().__init__(owner, {}, key=key, where=INSTANT, when=when, how=how, take=Every(), condition=condition)
        for name in ("columns", "renamed"):
            object.__setattr__(self, name, getattr(columns, name))

    @property
    def fields(self) -> Mapping[str, object]:
        return {**super().fields, "key": {}}

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        yield from (
            named_expression
            for named_expression in super().expressions()
            if named_expression[1] is not self.key[BUCKET]
        )


_WITHOUT_KEY = (
    "a row without a key leaves with its epoch, where when= is left out, or behind the watermark by on_window_close(); "
    "write one of these, or a key= and take="
)


def select_columns(
    owner: str,
    rows: RowColumns,
    own: Mapping[str, Any],
    *,
    condition: Expr | None,
    renamed: Mapping[str, str] | None,
) -> Selection:
    """What rows without a key are made of, given the arguments ``own``. Rows leave with their epoch, or ``when`` the
    watermark has passed them. Raises PipelineError.
    """
    when, how = own["when"], own["how"]
    if when is None or isinstance(when, AtTheEnd):
        check_without_windows(Arguments(owner), own)
        return Selection(owner, rows, condition, renamed)
    check_without_windows(Arguments(owner), {name: value for name, value in own.items() if name not in ("when", "how")})
    return WaitingRows(owner, rows, when=when, how=how, condition=condition, renamed=renamed)


def check_no_aggregate(arguments: Arguments, own: Mapping[str, object]) -> None:
    """Raise PipelineError if one of the arguments that aggregations alone have of their ``own`` is given beside
    ``take``.
    """
    of_aggregations = {name: own[name] for name in ("what", "having", "loop", "then")}
    refuse_given(arguments, of_aggregations, "take= gives rows of a group, and an aggregation has it; leave it out")
