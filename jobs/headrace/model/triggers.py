"""When in processing time: triggers (semantics, section 4; Dataflow paper, section 2.3).

A trigger is a tree of these frozen values. Executors give each node its state; the meaning of every node is the table
in semantics 4.2. ``may_finish`` says whether the node can finish and so close the window for good (4.8);
``continuation`` is the trigger of a second grouping that has none of its own (4.7).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from headrace.errors import PipelineError
from headrace.model.combiners import Aggregate, Combiner
from headrace.model.expr import Expr
from headrace.model.patterns import (
    MAX_PREDICATES,
    PatternTable,
    compile_pattern,
    is_nullable,
    letters_of,
    parse_pattern,
)
from headrace.model.time import Duration, duration
from headrace.model.windows import Window


def _granules(value: timedelta | int) -> Duration:
    return duration(value) if isinstance(value, timedelta) else Duration(value)


class Trigger:
    """A node of a trigger tree."""

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
        """The trigger for panes that this one emitted, in a grouping behind it (semantics 4.7)."""
        return self


@dataclass(frozen=True)
class Default(Trigger):
    """Fires when the watermark passes the end of the window and for every later bundle; never finishes."""

    @property
    def may_finish(self) -> bool:
        return False


@dataclass(frozen=True)
class AfterWatermark(Trigger):
    """Fires once when the watermark passes the end of the window.

    ``early`` fires before it and ``late`` after it, each implicitly repeated; with ``late`` it never finishes.
    """

    early: Trigger | None = None
    late: Trigger | None = None

    @property
    def children(self) -> tuple[Trigger, ...]:
        return tuple(t for t in (self.early, self.late) if t is not None)

    @property
    def may_finish(self) -> bool:
        return self.late is None

    @property
    def continuation(self) -> Trigger:
        return AfterWatermark(_continued(self.early), _continued(self.late))


@dataclass(frozen=True)
class AfterCount(Trigger):
    """Fires once ``count`` elements have come since its last reset. Bundles are atomic: a pane may hold more."""

    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise PipelineError(f"AfterCount needs at least 1 element, not {self.count}")

    @property
    def continuation(self) -> Trigger:
        return AfterCount(1)


@dataclass(frozen=True, init=False)
class AfterProcessingTime(Trigger):
    """Fires once the processing-time clock reaches the first element's time plus ``delay``, rounded up to the next
    multiple of ``align`` (shifted by ``align_offset``) when that is given. Its precision is the schedule's interval."""

    delay: Duration
    align: Duration | None
    align_offset: Duration

    def __init__(
        self, delay: timedelta | int = 0, align: timedelta | int | None = None, align_offset: timedelta | int = 0
    ) -> None:
        if _granules(delay) < 0:
            raise PipelineError(f"the delay of AfterProcessingTime must not be negative: {delay}")
        if align is not None and _granules(align) <= 0:
            raise PipelineError(f"the alignment of AfterProcessingTime must be longer than zero, not {align}")
        object.__setattr__(self, "delay", _granules(delay))
        object.__setattr__(self, "align", None if align is None else _granules(align))
        object.__setattr__(self, "align_offset", _granules(align_offset))

    @property
    def continuation(self) -> Trigger:
        return AfterSynchronizedProcessingTime()


@dataclass(frozen=True)
class Repeatedly(Trigger):
    """Fires whenever ``trigger`` fires and starts it again when it finishes; never finishes itself."""

    trigger: Trigger

    @property
    def children(self) -> tuple[Trigger, ...]:
        return (self.trigger,)

    @property
    def may_finish(self) -> bool:
        return False

    @property
    def continuation(self) -> Trigger:
        return Repeatedly(self.trigger.continuation)


@dataclass(frozen=True)
class AfterSynchronizedProcessingTime(Trigger):
    """Fires once everything upstream that was in flight when the first element came has arrived (semantics 4.6)."""


@dataclass(frozen=True)
class Never(Trigger):
    """Never fires; what the window holds is emitted when it expires."""

    @property
    def may_finish(self) -> bool:
        return False


@dataclass(frozen=True)
class Always(Trigger):
    """Fires whenever it is asked: for every bundle, and when the watermark passes the end of the window."""

    @property
    def may_finish(self) -> bool:
        return False


@dataclass(frozen=True)
class AfterBytes(Trigger):
    """Fires once elements of ``size`` bytes in all have come since its last reset (semantics 9.5)."""

    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise PipelineError(f"AfterBytes needs at least 1 byte, not {self.size}")

    @property
    def continuation(self) -> Trigger:
        return AfterCount(1)


@dataclass(frozen=True, eq=False)
class AfterPunctuation(Trigger):
    """Fires once an element came for which ``predicate`` is TRUE (semantics 9.4).

    Elements behind it in its bundle join the pane.
    """

    predicate: Expr

    @property
    def continuation(self) -> Trigger:
        return AfterCount(1)


@dataclass(frozen=True, eq=False)
class DataDriven(Trigger):
    """Fires once ``ready_if`` is TRUE of aggregates over the elements since its own last reset, which need not be the
    last pane (semantics 12.7)::

        DataDriven({"total": sum_of(col("amount")), "n": count()}, (col("total") > 100) & (col("n") >= 3))

    It is asked at the end of a bundle, so what was TRUE only within one does not count. A retraction counts as what it
    is for a trigger, one more element. The aggregates are of count, sum, min, max and mean.
    """

    what: Mapping[str, Aggregate]
    ready_if: Expr

    ALLOWED = frozenset({Combiner.COUNT, Combiner.SUM, Combiner.MIN, Combiner.MAX, Combiner.MEAN})

    def __post_init__(self) -> None:
        for name, aggregate in self.what.items():
            if aggregate.combiner not in self.ALLOWED:
                raise PipelineError(
                    f"DataDriven cannot look at {aggregate.combiner} ({name!r}); use {', '.join(sorted(self.ALLOWED))}"
                )

    @property
    def continuation(self) -> Trigger:
        return AfterCount(1)


@dataclass(frozen=True, eq=False)
class AfterPattern(Trigger):
    """Fires once a run of elements in their order of arrival matches ``pattern`` (semantics 9.6)::

        AfterPattern("ab*c", {"a": col("v") > 9, "b": col("v") > 5, "c": col("v") <= 5})

    The letters of the regular expression (see ``model.patterns``) name ``predicates``; an element may satisfy several.
    A match may begin at any element since the last reset. When windows merge the search restarts: progress is lost,
    data is not.
    """

    pattern: str
    predicates: Mapping[str, Expr]

    def __post_init__(self) -> None:
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


@dataclass(frozen=True)
class AfterSignal(Trigger):
    """Fires once a ``Signal`` of this ``name`` came while the window was open, since its last reset (semantics 9.3)."""

    name: str

    @property
    def signals(self) -> Collection[str]:
        return (self.name,)

    @property
    def continuation(self) -> Trigger:
        return AfterCount(1)


@dataclass(frozen=True)
class Signal:
    """Something that happened outside: a step like one of processing time. It is for every open window, or those of one
    ``key``, or one ``window``."""

    name: str
    key: tuple[Any, ...] | None = None
    window: Window | None = None

    def is_for(self, key: tuple[Any, ...], window: Window) -> bool:
        """Whether that window of that key hears of it."""
        return self.key in (None, key) and self.window in (None, window)


@dataclass(frozen=True)
class AfterPercentileWatermark(Trigger):
    """Fires once when the watermark of the fastest ``percentile`` % of the input passes the end of the window (9.2).

    Its pane is EARLY until the watermark itself has passed.
    """

    percentile: float

    def __post_init__(self) -> None:
        if not 0 < self.percentile <= 100:
            raise PipelineError(f"a percentile lies above 0 and is at most 100, not {self.percentile}")


@dataclass(frozen=True, init=False)
class _Several(Trigger):
    """A trigger made of others: ``AfterAny(AfterCount(100), AfterWatermark())``."""

    triggers: tuple[Trigger, ...]

    def __init__(self, *triggers: Trigger) -> None:
        if not triggers:
            raise PipelineError(f"{type(self).__name__} needs at least one trigger")
        object.__setattr__(self, "triggers", triggers)

    @property
    def children(self) -> tuple[Trigger, ...]:
        return self.triggers

    @property
    def _continuations(self) -> list[Trigger]:
        return [trigger.continuation for trigger in self.triggers]


class AfterAny(_Several):
    """Fires once when one of ``triggers`` fires."""

    @property
    def continuation(self) -> Trigger:
        return AfterAny(*self._continuations)


class AfterAll(_Several):
    """Fires once when all of ``triggers`` are ready at the same evaluation."""

    @property
    def continuation(self) -> Trigger:
        return AfterAll(*self._continuations)


class AfterEach(_Several):
    """Fires as its first unfinished trigger does and moves on to the next when that finishes."""

    @property
    def may_finish(self) -> bool:
        return all(trigger.may_finish for trigger in self.triggers)

    @property
    def continuation(self) -> Trigger:
        return Repeatedly(AfterAny(*self._continuations))


@dataclass(frozen=True)
class OrFinally(Trigger):
    """Fires as ``main`` does until ``until`` fires; ``until`` keeps its progress across the panes of ``main``."""

    main: Trigger
    until: Trigger

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
