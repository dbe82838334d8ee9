"""When in processing time: triggers (semantics, section 4; Dataflow paper, section 2.3).

A trigger is a tree of these frozen values. Executors give each node its state; the meaning of every node is the table
in semantics 4.2. ``may_finish`` says whether the node can finish and so close the window for good (4.8);
``continuation`` is the trigger of a second grouping that has none of its own (4.7).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headrace.errors import PipelineError
from headrace.model.arguments import Arguments, Length
from headrace.model.combiners import Aggregate, Combiner
from headrace.model.expressions.coercion import expression
from headrace.model.expressions.expr import Expr, constant_to_json
from headrace.model.patterns import (
    MAX_PREDICATES,
    PatternTable,
    compile_pattern,
    is_nullable,
    letters_of,
    parse_pattern,
)
from headrace.model.suggestions import keywords
from headrace.model.time import Duration
from headrace.model.windows import Window


class Trigger:
    """A node of a trigger tree.

    >>> isinstance(hr.AfterCount(1), hr.Trigger)
    True
    """

    @property
    def children(self) -> tuple["Trigger", ...]:
        """Direct sub-triggers, in order."""
        return ()

    @property
    def may_finish(self) -> bool:
        """Whether this node can finish; a finished root closes its window and later elements are dropped."""
        return True

    @property
    def signals(self) -> Collection[str]:
        """Names of the signals that this node itself waits for (semantics 9.3)."""
        return ()

    @property
    def continuation(self) -> "Trigger":
        """The trigger that continues this one in an aggregation downstream (semantics 4.7)."""
        return self


@keywords
@dataclass(frozen=True)
class Default(Trigger):
    """Fires when the watermark passes the end of the window and for every later bundle; never finishes.

    >>> hr.Default() == hr.on_window_close()
    True
    """

    @property
    def may_finish(self) -> bool:
        return False


@keywords
@dataclass(frozen=True)
class AfterWatermark(Trigger):
    """Fires once when the watermark passes the end of the window.

    ``early`` fires before it and ``late`` after it, each implicitly repeated; with ``late`` it never finishes.

    >>> hr.AfterWatermark(early=hr.AfterCount(100), late=hr.AfterCount(1)).may_finish
    False
    """

    early: Trigger | None = None
    late: Trigger | None = None

    def __post_init__(self) -> None:
        for name, trigger in (("early", self.early), ("late", self.late)):
            if trigger is not None:
                _trigger("AfterWatermark", name, trigger)

    @property
    def children(self) -> tuple[Trigger, ...]:
        return tuple(t for t in (self.early, self.late) if t is not None)

    @property
    def may_finish(self) -> bool:
        return self.late is None

    @property
    def continuation(self) -> Trigger:
        return AfterWatermark(_continued(self.early), _continued(self.late))


@keywords
@dataclass(frozen=True)
class AfterCount(Trigger):
    """Fires once ``count`` elements have arrived since its last reset. Bundles are atomic: a pane may hold more.

    >>> hr.AfterWatermark(early=hr.AfterCount(100)).early
    AfterCount(count=100)
    """

    count: int

    def __post_init__(self) -> None:
        Arguments("AfterCount").whole("count", self.count, least=1)

    @property
    def continuation(self) -> Trigger:
        return AfterCount(1)


@keywords
def on_update() -> Trigger:
    """Fire whenever a window changes, and once when the watermark passes its end: SQL's ``EMIT ON UPDATE``.

    Short for ``AfterWatermark(early=AfterCount(1), late=AfterCount(1))``.

    >>> hr.on_update() == hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1))
    True
    """
    return AfterWatermark(early=AfterCount(1), late=AfterCount(1))


@keywords
def on_window_close() -> Trigger:
    """Fire when the watermark passes the end of the window, and for late data: SQL's ``EMIT ON WINDOW CLOSE``.

    Short for ``Default()``, the trigger of a pipeline that names none.

    >>> hr.on_window_close()
    Default()
    """
    return Default()


@keywords
@dataclass(frozen=True, init=False)
class AfterProcessingTime(Trigger):
    """Fires once the processing-time clock reaches the first element's time plus ``delay``, rounded up to the next
    multiple of ``align`` (shifted by ``align_offset``) when that is given. Its precision is the schedule's interval.

    >>> hr.AfterProcessingTime("1m") == hr.AfterProcessingTime(timedelta(minutes=1))
    True
    """

    delay: Duration
    align: Duration | None
    align_offset: Duration

    def __init__(self, delay: Length = "0s", align: Length | None = None, align_offset: Length = "0s") -> None:
        given = Arguments("AfterProcessingTime")
        step = None if align is None else given.duration("align", align, least=1)
        object.__setattr__(self, "delay", given.duration("delay", delay))
        object.__setattr__(self, "align", step)
        object.__setattr__(self, "align_offset", given.duration("align_offset", align_offset, least=None))

    @property
    def continuation(self) -> Trigger:
        return AfterSynchronizedProcessingTime()


@keywords
@dataclass(frozen=True)
class Repeatedly(Trigger):
    """Fires whenever ``trigger`` fires and starts it again when it finishes; never finishes itself.

    >>> hr.Repeatedly(hr.AfterCount(100)).may_finish
    False
    """

    trigger: Trigger

    def __post_init__(self) -> None:
        _trigger("Repeatedly", "trigger", self.trigger)

    @property
    def children(self) -> tuple[Trigger, ...]:
        return (self.trigger,)

    @property
    def may_finish(self) -> bool:
        return False

    @property
    def continuation(self) -> Trigger:
        return Repeatedly(self.trigger.continuation)


@keywords
@dataclass(frozen=True)
class AfterSynchronizedProcessingTime(Trigger):
    """Fires once all that was in flight upstream when the first element arrived has arrived too (semantics 4.6).

    >>> hr.AfterProcessingTime("1m").continuation
    AfterSynchronizedProcessingTime()
    """


@keywords
@dataclass(frozen=True)
class Never(Trigger):
    """Never fires; what the window holds is emitted when it expires.

    >>> hr.Never().may_finish
    False
    """

    @property
    def may_finish(self) -> bool:
        return False


@keywords
@dataclass(frozen=True)
class Always(Trigger):
    """Fires whenever it is asked: for every bundle, and when the watermark passes the end of the window.

    >>> hr.Always().may_finish
    False
    """

    @property
    def may_finish(self) -> bool:
        return False


@keywords
@dataclass(frozen=True)
class AfterBytes(Trigger):
    """Fires once elements of ``size`` bytes in all have arrived since its last reset (semantics 9.5).

    >>> hr.Repeatedly(hr.AfterBytes(64 * 1024 * 1024))
    Repeatedly(trigger=AfterBytes(size=67108864))
    """

    size: int

    def __post_init__(self) -> None:
        Arguments("AfterBytes").whole("size", self.size, least=1)

    @property
    def continuation(self) -> Trigger:
        return AfterCount(1)


@keywords
@dataclass(frozen=True, eq=False)
class AfterPunctuation(Trigger):
    """Fires once an element has arrived for which ``predicate`` is TRUE (semantics 9.4).

    Elements after it in its bundle join the pane.

    >>> early = hr.AfterPunctuation(hr.col("kind") == "end of day")
    >>> hr.AfterWatermark(early=early).may_finish
    True
    """

    predicate: Expr

    def __post_init__(self) -> None:
        expression(Arguments("AfterPunctuation"), "predicate", self.predicate)

    @property
    def continuation(self) -> Trigger:
        return AfterCount(1)


@keywords
@dataclass(frozen=True, eq=False)
class DataDriven(Trigger):
    """Fires once ``ready_if`` is TRUE of aggregates over the elements since its own last reset, which need not be the
    last pane (semantics 12.7)::

        DataDriven({"total": col("amount").sum(), "n": count()}, (col("total") > 100) & (col("n") >= 3))

    It is asked at the end of a bundle, so what was TRUE only within one does not count. A retraction counts as what it
    is for a trigger, one more element. The aggregates may be count, sum, min, max and mean.

    >>> hr.DataDriven({"n": hr.count()}, hr.col("n") >= 3).may_finish
    True
    """

    what: Mapping[str, Aggregate]
    ready_if: Expr

    ALLOWED = frozenset({Combiner.COUNT, Combiner.SUM, Combiner.MIN, Combiner.MAX, Combiner.MEAN})

    def __post_init__(self) -> None:
        given = Arguments("DataDriven")
        given.mapping("what", self.what, Aggregate, '{"name": aggregate}, such as {"total": col("amount").sum()}')
        expression(given, "ready_if", self.ready_if)
        for name, aggregate in self.what.items():
            if aggregate.combiner not in self.ALLOWED:
                raise PipelineError(
                    f"DataDriven cannot look at {aggregate.combiner} ({name!r}); use {', '.join(sorted(self.ALLOWED))}"
                )

    @property
    def continuation(self) -> Trigger:
        return AfterCount(1)


@keywords
@dataclass(frozen=True, eq=False)
class AfterPattern(Trigger):
    """Fires once a run of elements in their order of arrival matches ``pattern`` (semantics 9.6)::

        AfterPattern("ab*c", {"a": col("v") > 9, "b": col("v") > 5, "c": col("v") <= 5})

    The letters of the regular expression (see ``model.patterns``) name ``predicates``; an element may satisfy several.
    A match may begin at any element since the last reset. When windows merge the search restarts: progress is lost,
    data is not.

    >>> hr.AfterPattern("ab", {"a": hr.col("v") > 9, "b": hr.col("v") < 1}).pattern
    'ab'
    """

    pattern: str
    predicates: Mapping[str, Expr]

    def __post_init__(self) -> None:
        given = Arguments("AfterPattern")
        given.text("pattern", self.pattern, "ab*c")
        given.mapping("predicates", self.predicates, Expr, '{"a": condition}, such as {"a": col("v") > 9}')
        regex = parse_pattern(self.pattern)
        for name in self.predicates:
            if len(name) != 1 or not name.isalpha():
                raise PipelineError(f"AfterPattern names its predicates by single letters, not {name!r}")
        different = letters_of(regex) ^ self.predicates.keys()
        if different:
            names = ", ".join(sorted(different))
            raise PipelineError(f"pattern {self.pattern!r} and its predicates do not name the same letters: {names}")
        if len(self.predicates) > MAX_PREDICATES:
            raise PipelineError(f"AfterPattern takes at most {MAX_PREDICATES} predicates, not {len(self.predicates)}")
        if is_nullable(regex):
            raise PipelineError(f"pattern {self.pattern!r} matches before any element came; demand at least one")
        _ = self.table

    @cached_property
    def table(self) -> PatternTable:
        """Its automaton over codes of elements, bit i for the i-th of ``predicates``."""
        return compile_pattern(self.pattern, list(self.predicates))

    @property
    def continuation(self) -> Trigger:
        return AfterCount(1)


@keywords
@dataclass(frozen=True)
class AfterSignal(Trigger):
    """Fires once a ``Signal`` of this ``name`` came while the window was open, since its last reset (semantics 9.3).

    >>> hr.AfterWatermark(early=hr.AfterSignal("close")).early.signals
    ('close',)
    """

    name: str

    def __post_init__(self) -> None:
        Arguments("AfterSignal").text("name", self.name, "close")

    @property
    def signals(self) -> Collection[str]:
        return (self.name,)

    @property
    def continuation(self) -> Trigger:
        return AfterCount(1)


@keywords
@dataclass(frozen=True)
class Signal:
    """Something that happened outside: a step like one of processing time. It is for every open window, or those of one
    ``key``, or one ``window``.

    >>> hr.Signal("close", key=("EWR",)).is_for(("EWR",), hr.Window(0, 60))
    True
    """

    name: str
    key: tuple[Any, ...] | None = None
    window: Window | None = None

    def __post_init__(self) -> None:
        given = Arguments("Signal")
        given.text("name", self.name, "close")
        if self.key is not None:
            given.instance("key", self.key, tuple, 'the values of a key, such as ("EWR",)')
        if self.window is not None:
            given.instance("window", self.window, Window, "a Window")

    def is_for(self, key: tuple[Any, ...], window: Window) -> bool:
        """Whether it is for that window of that key."""
        return self.written_key in (None, _written(key)) and self.window in (None, window)

    @property
    def written_key(self) -> list[Any] | None:
        """The key as JSON has it: days, bytes and decimals are text."""
        return None if self.key is None else _written(self.key)


def _written(key: tuple[Any, ...]) -> list[Any]:
    return [constant_to_json(part) for part in key]


@keywords
@dataclass(frozen=True)
class AfterPercentileWatermark(Trigger):
    """Fires once when the watermark of the fastest ``percentile`` % of the input passes the end of the window (9.2).

    Its pane is EARLY until the watermark itself has passed.

    >>> hr.AfterWatermark(early=hr.AfterPercentileWatermark(95))
    AfterWatermark(early=AfterPercentileWatermark(percentile=95), late=None)
    """

    percentile: float

    def __post_init__(self) -> None:
        Arguments("AfterPercentileWatermark").number("percentile", self.percentile, above=0, most=100)


@keywords
@dataclass(frozen=True, init=False)
class _Several(Trigger):
    """A trigger made of others: ``AfterAny(AfterCount(100), AfterWatermark())``."""

    triggers: tuple[Trigger, ...]

    def __init__(self, *triggers: Trigger) -> None:
        if not triggers:
            raise PipelineError(f"{type(self).__name__} needs at least one trigger")
        for number, trigger in enumerate(triggers, start=1):
            _trigger(type(self).__name__, f"trigger {number}", trigger)
        object.__setattr__(self, "triggers", triggers)

    @property
    def children(self) -> tuple[Trigger, ...]:
        return self.triggers

    @property
    def _continuations(self) -> list[Trigger]:
        return [trigger.continuation for trigger in self.triggers]


class AfterAny(_Several):
    """Fires once when one of ``triggers`` fires.

    >>> hr.Repeatedly(hr.AfterAny(hr.AfterCount(100), hr.AfterProcessingTime("1m"))).may_finish
    False
    """

    @property
    def continuation(self) -> Trigger:
        return AfterAny(*self._continuations)


class AfterAll(_Several):
    """Fires once when all of ``triggers`` are ready at the same evaluation.

    >>> hr.AfterAll(hr.AfterCount(10), hr.AfterWatermark()).may_finish
    True
    """

    @property
    def continuation(self) -> Trigger:
        return AfterAll(*self._continuations)


class AfterEach(_Several):
    """Fires as its first unfinished trigger does and moves on to the next when that finishes.

    >>> hr.AfterEach(hr.AfterCount(1), hr.Repeatedly(hr.AfterCount(100))).may_finish
    False
    """

    @property
    def may_finish(self) -> bool:
        return all(trigger.may_finish for trigger in self.triggers)

    @property
    def continuation(self) -> Trigger:
        return Repeatedly(AfterAny(*self._continuations))


@keywords
@dataclass(frozen=True)
class OrFinally(Trigger):
    """Fires as ``main`` does until ``until`` fires; ``until`` keeps its progress across the panes of ``main``.

    >>> hr.OrFinally(hr.Repeatedly(hr.AfterCount(100)), until=hr.AfterWatermark()).may_finish
    True
    """

    main: Trigger
    until: Trigger

    def __post_init__(self) -> None:
        _trigger("OrFinally", "main", self.main)
        _trigger("OrFinally", "until", self.until)

    @property
    def children(self) -> tuple[Trigger, ...]:
        return (self.main, self.until)

    @property
    def may_finish(self) -> bool:
        return self.main.may_finish or self.until.may_finish

    @property
    def continuation(self) -> Trigger:
        return Repeatedly(OrFinally(self.main.continuation, self.until.continuation))


def _continued(trigger: Trigger | None) -> Trigger | None:
    return None if trigger is None else trigger.continuation


def _trigger(owner: str, name: str, value: object) -> None:
    Arguments(owner).instance(name, value, Trigger, "a trigger such as AfterCount(100)")
