"""Columns of rows while they are computed: their names, and programs over them.

Names start with ``_``, which users' columns may not.

A program is straight-line code over the columns of one row, built once and run by every executor. Every ``let`` names
an intermediate result, so that a value used twice is computed once: expressions stay small where nested substitution
would grow exponentially.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import and_, or_

from headrace.model import changelog
from headrace.model.expressions.data_types import DataType, Schema
from headrace.model.expressions.expr import Binary, Column, Expr, Function, Literal, to_expression
from headrace.model.expressions.typing import type_of
from headrace.model.triggers.custom import CustomTrigger

EVENT_TIME = "_event_time"  # long, granules; of elements
REJECT = "_reject"  # why a record takes no part; NULL if it does
IS_ADMITTED = "_admitted"  # whether the filter is TRUE
ID_FATE = "_seen"  # what its id says of a record (``duplicates``); NULL if it is new
SPLIT = "_split"  # the split that a record speaks for
MARK = "_mark"  # ... and what it says of it, in granules: its event time, or what the strategy reads instead
ID = "_id"  # what duplicates of a record have in common
WINDOW_START = "_ws"  # long, granules; accounting groups of a delta sit at codes below every real window
WINDOW_END = "_we"
HASH = "_h"  # uint64, the hash of the key (kernel.keys)
EPOCH = "_epoch"  # the epoch that wrote a state row
STATUS = "_status"  # of a window: STATUS_OPEN, STATUS_CLOSED (drops what comes), STATUS_GONE (hides older layers)
DUE_EVENT = "_due_event"  # the row wants an activation once the watermark exceeds this
DUE_TIME = "_due_time"  # ... once the processing-time clock reaches this
NEW = "_new"  # elements since the last pane
HOLD = "_hold"  # timestamp that pending on-time elements give their pane; NULL when none is pending
NET = "_net"  # elements less retractions (kept where withdrawing all of them ends a pane)
INDEX = "_index"  # index of the next pane
NONSPECULATIVE = "_nonspec"  # index of the next pane that is not EARLY
LIVE = "_live"  # the retractions of emitted, not yet retracted panes (retracting only)

SAME = "_same"  # the only live pane has the window and the values that a pane would have now
LIVE_TIME = "_live_time"  # ... and its timestamp

COUNT = "_n"  # elements of the delta, retractions included
RETRACTION_COUNT = "_nr"  # retractions among the elements of the delta
HELD_TIME = "_held"  # of the delta's elements that are not behind the output watermark the earliest or latest timestamp
SIZE = "_size"  # bytes of an element
RECORD = "_record"  # what users' own objects see of an element
TIMES = "_times"  # event times of the delta's elements, where a user's own function stamps them in merged windows
ROWS = "_rows"  # the rows of a group that leave
LAST_ELEMENTS = "_kept_last"  # the last elements of a window, where it holds no more
MOMENT = "_moment"  # when in the epoch a pane was emitted (kernel.step)
SEQUENCE = "_sequence"  # its place among the records of its window
OUTPUT = "_output"  # the place among the outputs that another one reads of the one that gave a pane
SIGN = changelog.SIGN  # 1 for an element, -1 for one that is withdrawn
TOMBSTONE_AT = changelog.TOMBSTONE_AT  # the time of a message without a value, which deletes a row
HAS_STATE = "_has"  # an open window is in the state
WAS_CLOSED = "_was_closed"  # a closed marker is in the state
IS_STORED = "_stored"  # either of them is, of exactly this window: if it goes, a row with STATUS_GONE must hide it
WAS_MERGED = "_merged"  # the window came out of a merge that the trigger must learn of

# the clocks of the epoch, as the program reads them
WATERMARK_BEFORE = "_w0"
WATERMARK_AFTER = "_w1"
PROCESSING_TIME = "_p"
SIGNAL_PREFIX = "_heard_"  # whether a signal came; followed by the position of its name among those of the trigger
PERCENTILE_BEFORE = "_q0_"  # followed by the position of the percentile among those of the trigger
PERCENTILE_AFTER = "_q1_"

STATUS_OPEN, STATUS_CLOSED, STATUS_GONE = 0, 1, 2


TRUE = Literal(True)
FALSE = Literal(False)


@dataclass(frozen=True, eq=False)
class Call(Function):
    """A function that no expression can write: the method ``name`` of ``owner``, a user's own object, over Arrow
    batches of ``args`` (``kernel.custom_objects``).
    """

    owner: CustomTrigger


BOTH = "both"
ORDER_VALUE, VALUE = "by", "value"


def pair_values(order: Expr, value: Expr) -> Function:
    """A function that no expression can write: a struct of two values, NULL where one of them is."""
    return Function(BOTH, (order, value))


ROW = "row"


def row_of(values: Sequence[Expr]) -> Function:
    """A function that no expression can write: a struct of ``values``, each of which may be NULL."""
    return Function(ROW, tuple(values))


def is_literal(expr: Expr, value: object) -> bool:
    return isinstance(expr, Literal) and expr.value is value


def all_of(*terms: Expr) -> Expr:
    """Conjunction, with constants folded away."""
    return _fold_terms(and_, terms, empty=TRUE, decisive=FALSE)


def any_of(*terms: Expr) -> Expr:
    """Disjunction, with constants folded away."""
    return _fold_terms(or_, terms, empty=FALSE, decisive=TRUE)


def _fold_terms(
    join: Callable[[Expr, Expr], Expr], terms: Sequence[Expr], *, empty: Literal, decisive: Literal
) -> Expr:
    """``terms`` as one; ``empty`` is what none of them come to, ``decisive`` what one of them makes of all."""
    kept_terms = [term for term in terms if not is_literal(term, empty.value)]
    if any(is_literal(term, decisive.value) for term in kept_terms):
        return decisive
    return reduce(join, kept_terms) if kept_terms else empty


def negate(term: Expr) -> Expr:
    """Negation, with constants folded away."""
    if is_literal(term, True):
        return FALSE
    if is_literal(term, False):
        return TRUE
    return Function("not", (term,))


def choose(condition: Expr, if_true: Expr | int | bool | None, if_not: Expr | int | bool | None) -> Expr:
    """``if_true`` where the condition is TRUE, else ``if_not``; a constant condition is folded away."""
    yes, no = to_expression(if_true), to_expression(if_not)
    if is_literal(condition, True):
        return yes
    if is_literal(condition, False):
        return no
    if yes is no:
        return yes
    return Function("if", (condition, yes, no))


@dataclass
class Program:
    """A growing list of named expressions over the columns of a row."""

    prefix: str = "_v"
    lets: dict[str, Expr] = field(default_factory=dict)

    def let(self, hint: str, expr: Expr) -> Expr:
        """Name ``expr``; what comes back stands for its value. Columns and constants need no name."""
        if isinstance(expr, Column | Literal):
            return expr
        name = f"{self.prefix}{len(self.lets)}_{hint}"
        self.lets[name] = expr
        return Column(name)


def substitute_columns(expr: Expr, names: Mapping[str, Expr]) -> Expr:
    """``expr`` with each column of ``names`` replaced."""
    match expr:
        case Column(name):
            return names.get(name, expr)
        case Function(_, args):
            return replace(expr, args=tuple(substitute_columns(a, names) for a in args))
        case Binary(op, left, right):
            return Binary(op, substitute_columns(left, names), substitute_columns(right, names))
    return expr


CAST_FROM_PREFIX = "from_"
"""A cast that needs no schema (``settle_casts``) has the type of what it reads in its name: ``from_string_int``."""


def settle_casts(expr: Expr, schema: Schema) -> Expr:
    """``expr`` with casts that need no schema any more: what they read may then be put in place of its columns."""
    match expr:
        case Binary(op, left, right):
            return Binary(op, settle_casts(left, schema), settle_casts(right, schema))
        case Function(name, args):
            if name.startswith("cast_"):
                source = type_of(args[0], schema) or DataType.STRING  # a bare NULL is NULL as any type
                name = f"{CAST_FROM_PREFIX}{source.value}_{name.removeprefix('cast_')}"
            return Function(name, tuple(settle_casts(a, schema) for a in args))
    return expr
