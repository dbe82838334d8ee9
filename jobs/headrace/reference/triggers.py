"""When: the state of a trigger tree in one window, node by node as in the table of semantics 4.2.

``start(trigger, merging)`` gives the state of a fresh window. An operator tells it of elements, asks once whether it is
ready, and tells it when its window fires. Progress is counted since that node's last reset (12.7).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from headrace.errors import PipelineError
from headrace.model.expr import Schema
from headrace.model.time import MIN_INSTANT, Instant
from headrace.model.triggers import (
    AfterAll,
    AfterAny,
    AfterBytes,
    AfterCount,
    AfterEach,
    AfterPercentileWatermark,
    AfterProcessingTime,
    AfterPunctuation,
    AfterSynchronizedProcessingTime,
    AfterWatermark,
    Always,
    Default,
    Never,
    OrFinally,
    Repeatedly,
    Trigger,
)
from headrace.model.windows import Window
from headrace.reference.evaluate import evaluate

_START_OF_PROCESSING_TIME = Instant(0)


@dataclass(frozen=True)
class Clocks:
    """The watermark, the percentile watermarks and the processing-time clock of an operator."""

    watermark: Instant = MIN_INSTANT
    processing_time: Instant = _START_OF_PROCESSING_TIME
    percentiles: Mapping[float, Instant] = field(default_factory=dict)

    def percentile(self, q: float) -> Instant:
        """The watermark of the fastest ``q`` % of the input, never below the watermark itself (9.2)."""
        return max(self.watermark, self.percentiles.get(q, MIN_INSTANT))


@dataclass(frozen=True)
class Moment:
    """What a trigger may look at: the clocks, and the window that it is in."""

    clocks: Clocks
    window: Window

    @property
    def passed_end(self) -> bool:
        """``eow`` of the table: whether the watermark is past the window (1.4)."""
        return self.clocks.watermark > self.window.max_timestamp


@dataclass(frozen=True)
class Arrival:
    """What a trigger sees of an element."""

    record: Mapping[str, Any]
    schema: Schema
    size: int


class Node(ABC):
    """The state of one trigger node in one window."""

    def __init__(self, children: "Sequence[Node]" = ()) -> None:
        self.children = list(children)
        self.finished = False

    def on_element(self, moment: Moment, element: Arrival) -> None:
        """An element came. By default every child hears of it."""
        for child in self.children:
            child.on_element(moment, element)

    @abstractmethod
    def ready(self, moment: Moment) -> bool:
        """Whether the node fires if asked now."""

    @abstractmethod
    def on_fire(self, moment: Moment) -> None:
        """The window fires and this node is ready."""

    def on_merge(self, moment: Moment, sources: Sequence[Self]) -> None:
        """Take over the state of the nodes of all merged open windows; this one is fresh, in the merged window."""
        self._merge_children(moment, sources)

    def _merge_children(self, moment: Moment, sources: Sequence["Node"]) -> None:
        for i, child in enumerate(self.children):
            child.on_merge(moment, [source.children[i] for source in sources])

    def clear(self) -> None:
        """Forget all progress; what has finished stays so."""
        for child in self.children:
            child.clear()

    def reset(self) -> None:
        """Start again from nothing."""
        self.clear()
        self.finished = False
        for child in self.children:
            child.reset()

    @property
    def deadlines(self) -> Iterator[Instant]:
        """Processing times at which the node wants to be asked."""
        for child in self.children:
            yield from child.deadlines

    @property
    def percentiles(self) -> Iterator[float]:
        """Percentile watermarks whose passing of the window's end the node wants to be asked at."""
        for child in self.children:
            yield from child.percentiles


class _Memoryless(Node):
    """default, never, always: no state, never finished, nothing to merge."""

    def on_fire(self, moment: Moment) -> None:
        pass


class _Default(_Memoryless):
    def ready(self, moment: Moment) -> bool:
        return moment.passed_end


class _Never(_Memoryless):
    def ready(self, moment: Moment) -> bool:
        return False


class _Always(_Memoryless):
    def ready(self, moment: Moment) -> bool:
        return True


class _OncePastEnd(Node):
    """after_watermark (plain): merged, it stays finished only if it was in all windows and the merged end is passed."""

    def ready(self, moment: Moment) -> bool:
        return moment.passed_end

    def on_fire(self, moment: Moment) -> None:
        self.finished = True

    def on_merge(self, moment: Moment, sources: Sequence[Self]) -> None:
        self.finished = all(source.finished for source in sources) and self.ready(moment)


class _OncePercentilePastEnd(_OncePastEnd):
    """after_percentile_watermark: as after_watermark, on the watermark of the fastest q %."""

    def __init__(self, percentile: float) -> None:
        super().__init__()
        self._percentile = percentile

    def ready(self, moment: Moment) -> bool:
        return moment.clocks.percentile(self._percentile) > moment.window.max_timestamp

    @property
    def percentiles(self) -> Iterator[float]:
        yield self._percentile


class _EarlyAndLate(Node):
    """after_watermark(early, late): phase 1 until the window fires with its end passed, then phase 2; both repeat."""

    def __init__(self, early: Trigger | None, late: Trigger | None, merging: bool) -> None:
        self._early = start(early or Never(), merging)
        self._late = start(late or Never(), merging)
        super().__init__([self._early, self._late])
        self._has_late = late is not None
        self._merging = merging
        self._past_end = False

    def on_element(self, moment: Moment, element: Arrival) -> None:
        for child in self.children if self._merging else [self._late if self._past_end else self._early]:
            child.on_element(moment, element)

    def ready(self, moment: Moment) -> bool:
        if self._past_end:
            return self._late.ready(moment)
        return self._early.ready(moment) or moment.passed_end

    def on_fire(self, moment: Moment) -> None:
        if self._past_end:
            self._late.on_fire(moment)
            self._late.reset()
        elif moment.passed_end:
            self._early.reset()
            self._late.reset()
            self._past_end = True
            self.finished = not self._has_late
        else:
            self._early.on_fire(moment)
            self._early.reset()

    def on_merge(self, moment: Moment, sources: Sequence[Self]) -> None:
        self._past_end = all(source._past_end for source in sources) and moment.passed_end
        active = 1 if self._past_end else 0
        self.children[active].on_merge(moment, [source.children[active] for source in sources])
        self.finished = self._past_end and not self._has_late

    def reset(self) -> None:
        super().reset()
        self._past_end = False


class _OnceEnough(Node):
    """after_count, after_bytes, after_punctuation: ready once what elements add up to reaches a threshold."""

    def __init__(self, threshold: int) -> None:
        super().__init__()
        self._threshold = threshold
        self._total = 0

    @abstractmethod
    def weight(self, element: Arrival) -> int:
        """What ``element`` adds."""

    def on_element(self, moment: Moment, element: Arrival) -> None:
        self._total += self.weight(element)

    def ready(self, moment: Moment) -> bool:
        return self._total >= self._threshold

    def on_fire(self, moment: Moment) -> None:
        self._total = 0
        self.finished = True

    def on_merge(self, moment: Moment, sources: Sequence[Self]) -> None:
        self.finished = any(source.finished for source in sources)
        self._total = 0 if self.finished else sum(source._total for source in sources)

    def clear(self) -> None:
        self._total = 0


class _OnceCounted(_OnceEnough):
    def weight(self, element: Arrival) -> int:
        return 1


class _OnceSized(_OnceEnough):
    def weight(self, element: Arrival) -> int:
        return element.size


class _OncePunctuated(_OnceEnough):
    def __init__(self, trigger: AfterPunctuation) -> None:
        super().__init__(1)
        self._predicate = trigger.predicate

    def weight(self, element: Arrival) -> int:
        return int(evaluate(self._predicate, element.record, element.schema) is True)


class _OnceDelayed(Node):
    """after_processing_time: due a delay after the first element since the last reset.

    Merged, the earliest pending deadline wins; it stays finished only if it was in all windows.
    """

    def __init__(self, trigger: AfterProcessingTime) -> None:
        super().__init__()
        self._trigger = trigger
        self._deadline: Instant | None = None

    def on_element(self, moment: Moment, element: Arrival) -> None:
        if self._deadline is None:
            self._deadline = self._due(moment.clocks.processing_time)

    def _due(self, now: Instant) -> Instant:
        due = now + self._trigger.delay
        if self._trigger.align is not None:  # rounded up to the next boundary
            due += (self._trigger.align_offset - due) % self._trigger.align
        return Instant(due)

    def ready(self, moment: Moment) -> bool:
        return self._deadline is not None and moment.clocks.processing_time >= self._deadline

    def on_fire(self, moment: Moment) -> None:
        self._deadline = None
        self.finished = True

    def on_merge(self, moment: Moment, sources: Sequence[Self]) -> None:
        self.finished = all(source.finished for source in sources)
        self._deadline = min((s._deadline for s in sources if s._deadline is not None), default=None)

    def clear(self) -> None:
        self._deadline = None

    @property
    def deadlines(self) -> Iterator[Instant]:
        if self._deadline is not None:
            yield self._deadline


class _Repeatedly(Node):
    """repeatedly(t): fires as t does and restarts it when it finishes."""

    def ready(self, moment: Moment) -> bool:
        return self.children[0].ready(moment)

    def on_fire(self, moment: Moment) -> None:
        (child,) = self.children
        child.on_fire(moment)
        if child.finished:
            child.reset()


class _Any(Node):
    """after_any: fires the ready ones, clears the others."""

    def ready(self, moment: Moment) -> bool:
        return any(child.finished or child.ready(moment) for child in self.children)

    def on_fire(self, moment: Moment) -> None:
        for child in self.children:
            if child.ready(moment):
                child.on_fire(moment)
            else:
                child.clear()
        self.finished = True

    def on_merge(self, moment: Moment, sources: Sequence[Self]) -> None:
        self._merge_children(moment, sources)
        self.finished = any(child.finished for child in self.children)


class _All(Node):
    """after_all: fires when every child is ready or finished at the same evaluation."""

    def ready(self, moment: Moment) -> bool:
        return all(child.finished or child.ready(moment) for child in self.children)

    def on_fire(self, moment: Moment) -> None:
        for child in self.children:
            if not child.finished:
                child.on_fire(moment)
        self.finished = True

    def on_merge(self, moment: Moment, sources: Sequence[Self]) -> None:
        self._merge_children(moment, sources)
        self.finished = all(child.finished for child in self.children)


class _Each(Node):
    """after_each: its position is the first unfinished child; a merge may move it back."""

    def __init__(self, triggers: Sequence[Trigger], merging: bool) -> None:
        super().__init__([start(trigger, merging) for trigger in triggers])
        self._merging = merging

    @property
    def _current(self) -> Node | None:
        return next((child for child in self.children if not child.finished), None)

    def on_element(self, moment: Moment, element: Arrival) -> None:
        # Where windows merge, a finished child may be revived, and a later one may become current: all keep up.
        hearing = self.children if self._merging else [c for c in [self._current] if c is not None]
        for child in hearing:
            child.on_element(moment, element)

    def ready(self, moment: Moment) -> bool:
        return self._current is not None and self._current.ready(moment)

    def on_fire(self, moment: Moment) -> None:
        current = self._current
        if current is None:
            raise AssertionError("a finished after_each fired")
        current.on_fire(moment)
        for child in self.children:
            if child is not current:
                child.clear()
        self.finished = self._current is None

    def on_merge(self, moment: Moment, sources: Sequence[Self]) -> None:
        for i, child in enumerate(self.children):
            child.on_merge(moment, [source.children[i] for source in sources])
            if not child.finished:
                break  # the rest stays fresh
        self.finished = self._current is None


class _OrFinally(Node):
    """or_finally(main, until): until keeps its progress while main fires."""

    def ready(self, moment: Moment) -> bool:
        return any(child.ready(moment) for child in self.children)

    def on_fire(self, moment: Moment) -> None:
        main, until = self.children
        if until.ready(moment):
            until.on_fire(moment)
            main.clear()
        else:
            main.on_fire(moment)
        self.finished = main.finished or until.finished

    def on_merge(self, moment: Moment, sources: Sequence[Self]) -> None:
        self._merge_children(moment, sources)
        self.finished = any(child.finished for child in self.children)


def start(trigger: Trigger, merging: bool) -> Node:  # noqa: PLR0911, PLR0912 (one line for each node of the model)
    """The state of ``trigger`` in a fresh window; ``merging`` says whether windows of the key can merge."""
    match trigger:
        case Default():
            return _Default()
        case AfterWatermark(None, None):
            return _OncePastEnd()
        case AfterWatermark(early, late):
            return _EarlyAndLate(early, late, merging)
        case AfterPercentileWatermark(percentile):
            return _OncePercentilePastEnd(percentile)
        case AfterCount(count):
            return _OnceCounted(count)
        case AfterBytes(size):
            return _OnceSized(size)
        case AfterPunctuation():
            return _OncePunctuated(trigger)
        case AfterProcessingTime():
            return _OnceDelayed(trigger)
        case AfterSynchronizedProcessingTime():
            # Everything upstream of a bundle has arrived when the bundle has: the slowest clock is the operator's own.
            return _OnceDelayed(AfterProcessingTime())
        case Repeatedly(repeated):
            return _Repeatedly([start(repeated, merging)])
        case AfterAny(triggers):
            return _Any([start(t, merging) for t in triggers])
        case AfterAll(triggers):
            return _All([start(t, merging) for t in triggers])
        case AfterEach(triggers):
            return _Each(triggers, merging)
        case OrFinally(main, until):
            return _OrFinally([start(main, merging), start(until, merging)])
        case Never():
            return _Never()
        case Always():
            return _Always()
    raise PipelineError(f"{trigger!r} is no trigger that the reference knows")
