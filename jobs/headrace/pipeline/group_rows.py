"""What rows are made of, where an output gives some of the rows of each group: the newest, the first few, the distinct.

A group is a key in a window, as of an aggregation, and fires as one does. What leaves is the difference to what left
before: a row that counts no more is withdrawn.
"""

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Final

from headrace.model.accumulation import Accumulation, How, retracting
from headrace.model.arguments import REQUIRED, Arguments, Suggesting, keywords, word
from headrace.model.expressions.columns import Key, expression, key_columns
from headrace.model.expressions.expr import Expr
from headrace.model.expressions.typing import same
from headrace.model.triggers import Trigger
from headrace.model.triggers.composites import on_update
from headrace.model.triggers.elementary import Default, inputs
from headrace.model.windows import GlobalWindows, WindowFn
from headrace.pipeline.rows import RowColumns, Selection, refuse_given
from headrace.pipeline.stages import new_names, trigger_nodes


@dataclass(frozen=True)
class Take(Suggesting):
    """Which rows of a group leave."""

    @property
    def by(self) -> Expr | None:
        """What they go by before their event time."""
        return None

    @property
    def unless(self) -> Expr | None:
        """Where it is TRUE, a row counts and does not leave."""
        return None


@word("newest", order=None, deleted=None)
@dataclass(frozen=True)
class Newest(Take):
    """The row with the largest ``order``; None: with the latest event time. Nothing where that is ``deleted``."""

    order: Expr | None = None
    deleted: Expr | None = None

    @property
    def by(self) -> Expr | None:
        return self.order

    @property
    def unless(self) -> Expr | None:
        return self.deleted


@word("top", number=REQUIRED, value=REQUIRED)
@dataclass(frozen=True)
class Top(Take):
    """The ``number`` rows with the largest ``value``."""

    number: int
    value: Expr

    @property
    def by(self) -> Expr | None:
        return self.value


@word("distinct")
@dataclass(frozen=True)
class Distinct(Take):
    """Each row once."""


@keywords
def newest(order: Expr | str | None = None, *, deleted: Expr | None = None) -> Take:
    """The newest row of each group, as a whole: that with the largest ``order``, an expression or the name of a column;
    without it, the one with the latest event time. A NULL is lower than any value; of two with the same the later
    counts, then the one whose columns are larger. Where ``deleted`` is TRUE of the newest row, no row leaves: it is
    remembered, so that an older one which comes late does not come back to life.

    >>> latest = hr.Rows(key="id", take=hr.newest("updated_at", deleted=hr.col("op") == "d"))
    >>> list(latest.key)
    ['id']
    """
    given = Arguments("newest")
    by = None if order is None else _one(given, "order", order)
    return Newest(by, None if deleted is None else expression(given, "deleted", deleted))


@keywords
def top(number: int, *, by: Expr | str) -> Take:
    """The ``number`` rows of each group with the largest ``by``, an expression or the name of a column. A NULL is lower
    than any value; of two with the same the later counts, then the one whose columns are larger.

    >>> dearest = hr.Rows(key="shop", where=hr.FixedWindows("1h"), take=hr.top(3, by="price"))
    >>> cheapest = hr.Rows(key="shop", where=hr.FixedWindows("1h"), take=hr.top(3, by=-hr.col("price")))
    """
    given = Arguments("top")
    return Top(given.whole("number", number, least=1), _one(given, "by", by))


@keywords
def distinct() -> Take:
    """Each row of a group once, however often it came; with the event time of the first.

    >>> shops = hr.Rows(["shop", "city"], key="shop", take=hr.distinct())
    """
    return Distinct()


def _one(given: Arguments, name: str, value: object) -> Expr:
    if isinstance(value, Expr):
        return expression(given, name, value)
    (column,) = key_columns(given, name, value if isinstance(value, str) else given.text(name, value, "price")).values()
    return column


_TAKE: Final = 'newest("updated_at"), top(3, by="price") or distinct()'


@dataclass(frozen=True, init=False)
class GroupRows(Selection):
    """What stands in the place of an aggregation where some of the rows of each group leave. ``columns`` are those of
    its rows, the key's first.
    """

    take: Take | None = field(default=None)

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
        given = Arguments(owner)
        keys, own = key_columns(given, "key", key), key_columns(given, "rows", rows or None)
        for name in keys.keys() & own.keys():
            if not same(keys[name], own[name]):
                raise given.wrong("rows", rows, f"{name!r} is the key, which rows have by itself; leave it out")
        columns = {**keys, **own}
        windows = given.instance("where", GlobalWindows() if where is None else where, WindowFn, 'FixedWindows("1h")')
        trigger = given.instance("when", Default() if when is None else when, Trigger, "on_update()")
        if isinstance(windows, GlobalWindows) and isinstance(trigger, Default):
            trigger = on_update()
        relation = given.instance(
            "how", retracting() if how is None else how, How, "retracting(...) or discarding(...)"
        )
        if relation.accumulation is Accumulation.ACCUMULATING:
            raise given.wrong(
                "how",
                how,
                "a row that counts no more is withdrawn by retracting(...); discarding() gives "
                "the rows of what came since the last pane; write one of these",
            )
        parts = {"key": keys, "what": {}, "where": windows, "when": trigger, "how": relation}
        parts |= {"filter": None if condition is None else expression(given, "filter", condition), "having": None}
        parts |= {"transform": None, "renamed": new_names(given, renamed, columns), "columns": columns}
        parts |= {"take": given.instance("take", take, Take, _TAKE)}
        for name, value in parts.items():
            object.__setattr__(self, name, value)

    def settled(self, when: Trigger | None, how: How) -> "GroupRows":
        settled = copy(self)
        object.__setattr__(settled, "when", when)
        object.__setattr__(settled, "how", how)
        return settled

    @property
    def takes_rows(self) -> bool:
        return True

    @property
    def taken_by(self) -> Expr | None:
        return None if self.take is None else self.take.by

    @property
    def taken_unless(self) -> Expr | None:
        return None if self.take is None else self.take.unless

    @property
    def fields(self) -> Mapping[str, object]:
        return {**super().fields, "take": self.take}

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        yield from ((f"key {name}", expr) for name, expr in self.key.items())
        yield from super().expressions()
        if self.taken_by is not None:
            yield "what rows are taken by", self.taken_by
        if self.taken_unless is not None:
            yield "whether they are deleted", self.taken_unless
        for node in () if self.when is None else trigger_nodes(self.when):
            yield from ((type(node).__name__, expr) for expr in inputs(node))


def check_no_aggregate(given: Arguments, own: Mapping[str, object]) -> None:
    """Raise PipelineError if one of the arguments that aggregations alone have of their ``own`` is given beside
    ``take``.
    """
    of_aggregations = {name: own[name] for name in ("what", "having", "loop", "then")}
    refuse_given(given, of_aggregations, "take= gives rows of a group, and an aggregation has it; leave it out")
