"""The leaves of trigger trees: what each looks at, remembers, and makes of a merge (semantics 4.2, 9.2 to 9.6)."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Self

from headrace.model.expressions.expr import Aggregate
from headrace.model.expressions.typing import readable_types
from headrace.model.time import Instant
from headrace.model.triggers.data_driven import (
    AfterPattern,
    AfterPunctuation,
    DataDriven,
    Either,
    Empty,
    EventRegex,
    Star,
    Symbol,
    Then,
    is_nullable,
    parse_pattern,
)
from headrace.model.triggers.elementary import (
    AfterBytes,
    AfterCount,
    AfterPercentileWatermark,
    AfterProcessingTime,
    AfterSignal,
    AfterSynchronizedProcessingTime,
    Always,
    Default,
    Never,
)
from headrace_lab.reference.contents import combine, read
from headrace_lab.reference.evaluate import evaluate
from headrace_lab.reference.trigger_node import Arrival, Moment, Node, start
from headrace_lab.reference.windows import last_unpassed


class Memoryless(Node):
    """default, never, always: no state, never finished, nothing to merge."""

    def on_fire(self, moment: Moment) -> None:
        pass


class DefaultNode(Memoryless):
    def ready(self, moment: Moment) -> bool:
        return moment.passed_end


@start.register
def _(trigger: Default, merging: bool) -> Node:
    return DefaultNode()


class NeverNode(Memoryless):
    def ready(self, moment: Moment) -> bool:
        return False


@start.register
def _(trigger: Never, merging: bool) -> Node:
    return NeverNode()


class AlwaysNode(Memoryless):
    def ready(self, moment: Moment) -> bool:
        return True


@start.register
def _(trigger: Always, merging: bool) -> Node:
    return AlwaysNode()


class OncePastEnd(Node):
    """after_watermark (plain): merged, it stays finished only if it was in all windows and the merged end is passed."""

    def ready(self, moment: Moment) -> bool:
        return moment.passed_end

    def on_fire(self, moment: Moment) -> None:
        self.finished = True

    def on_merge(self, moment: Moment, sources: Sequence[Self]) -> None:
        self.finished = all(source.finished for source in sources) and self.ready(moment)


class OncePercentilePastEnd(OncePastEnd):
    """after_percentile_watermark: as after_watermark, on the watermark of the fastest q %."""

    def __init__(self, percentile: float) -> None:
        super().__init__()
        self._percentile = percentile

    def ready(self, moment: Moment) -> bool:
        return moment.clocks.percentile(self._percentile) > last_unpassed(moment.window)

    @property
    def percentiles(self) -> Iterator[float]:
        yield self._percentile


@start.register
def _(trigger: AfterPercentileWatermark, merging: bool) -> Node:
    return OncePercentilePastEnd(trigger.percentile)


class OnceEnough(Node):
    """after_count, after_bytes, after_punctuation: ready once what elements add up to reaches a threshold."""

    def __init__(self, threshold: int) -> None:
        super().__init__()
        self._threshold = threshold
        self._total = 0

    @abstractmethod
    def weight(self, moment: Moment, element: Arrival) -> int:
        """What ``element`` adds."""

    def on_element(self, moment: Moment, element: Arrival) -> None:
        self._total += self.weight(moment, element)

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


class OnceCounted(OnceEnough):
    def weight(self, moment: Moment, element: Arrival) -> int:
        return 1


@start.register
def _(trigger: AfterCount, merging: bool) -> Node:
    return OnceCounted(trigger.count)


class OnceSized(OnceEnough):
    def weight(self, moment: Moment, element: Arrival) -> int:
        return element.size


@start.register
def _(trigger: AfterBytes, merging: bool) -> Node:
    return OnceSized(trigger.size)


class OncePunctuated(OnceEnough):
    def __init__(self, trigger: AfterPunctuation) -> None:
        super().__init__(1)
        self._predicate = trigger.predicate

    def weight(self, moment: Moment, element: Arrival) -> int:
        return int(evaluate(self._predicate, element.record, moment.schema) is True)


@start.register
def _(trigger: AfterPunctuation, merging: bool) -> Node:
    return OncePunctuated(trigger)


class OnceDelayed(Node):
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


@start.register
def _(trigger: AfterProcessingTime, merging: bool) -> Node:
    return OnceDelayed(trigger)


@start.register
def _(trigger: AfterSynchronizedProcessingTime, merging: bool) -> Node:
    # Everything upstream of a bundle has arrived when the bundle has: the slowest clock is the operator's own.
    return OnceDelayed(AfterProcessingTime())


class OnceTrue(Node):
    """data_driven: what came since the last reset, and a predicate over its aggregates."""

    def __init__(self, trigger: DataDriven) -> None:
        super().__init__()
        self._trigger = trigger
        self._seen_elements: list[Arrival] = []

    def on_element(self, moment: Moment, element: Arrival) -> None:
        self._seen_elements.append(element)

    def ready(self, moment: Moment) -> bool:
        what = self._trigger.what
        types = readable_types(what, moment.schema)
        values = {name: self._value(aggregate, moment) for name, aggregate in what.items()}
        return evaluate(self._trigger.ready_if, values, types) is True

    def _value(self, aggregate: Aggregate, moment: Moment) -> Any:
        return combine(
            aggregate, [(read(aggregate, e.record, moment.schema, Instant(0)), 1) for e in self._seen_elements]
        )

    def on_fire(self, moment: Moment) -> None:
        self._seen_elements = []
        self.finished = True

    def on_merge(self, moment: Moment, sources: Sequence[Self]) -> None:
        self.finished = any(source.finished for source in sources)
        self._seen_elements = [] if self.finished else [e for source in sources for e in source._seen_elements]

    def clear(self) -> None:
        self._seen_elements = []


@start.register
def _(trigger: DataDriven, merging: bool) -> Node:
    return OnceTrue(trigger)


class OnceMatched(Node):
    """after_pattern: what is left of the pattern after each place where a match may have begun. A merge restarts it."""

    def __init__(self, trigger: AfterPattern) -> None:
        super().__init__()
        self._regex = parse_pattern(trigger.pattern)
        self._predicates = trigger.predicates
        self._left: frozenset[EventRegex] = frozenset()
        self._has_matched = False

    def on_element(self, moment: Moment, element: Arrival) -> None:
        satisfied_letters = frozenset(
            letter
            for letter, predicate in self._predicates.items()
            if evaluate(predicate, element.record, moment.schema) is True
        )
        self._left = frozenset(
            rest for regex in self._left | {self._regex} for rest in advance(regex, satisfied_letters)
        )
        self._has_matched = self._has_matched or any(is_nullable(regex) for regex in self._left)

    def ready(self, moment: Moment) -> bool:
        return self._has_matched

    def on_fire(self, moment: Moment) -> None:
        self.clear()
        self.finished = True

    def on_merge(self, moment: Moment, sources: Sequence[Self]) -> None:
        self.finished = any(source.finished for source in sources)

    def clear(self) -> None:
        self._left, self._has_matched = frozenset(), False


@start.register
def _(trigger: AfterPattern, merging: bool) -> Node:
    return OnceMatched(trigger)


def advance(regex: EventRegex, satisfied_letters: frozenset[str]) -> frozenset[EventRegex]:
    """What may be left of ``regex`` after an element that satisfies just these letters (Antimirov's derivatives)."""
    match regex:
        case Symbol():
            return frozenset({Empty()}) if regex.matches(satisfied_letters) else frozenset()
        case Then(first, second):
            left: frozenset[EventRegex] = frozenset(Then(rest, second) for rest in advance(first, satisfied_letters))
            return left | advance(second, satisfied_letters) if is_nullable(first) else left
        case Either(left_one, right_one):
            return advance(left_one, satisfied_letters) | advance(right_one, satisfied_letters)
        case Star(inner):
            return frozenset(Then(rest, regex) for rest in advance(inner, satisfied_letters))
    return frozenset()


class OnceSignalled(Node):
    """after_signal: ready once the signal came."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._has_come = False

    def on_signal(self, moment: Moment, name: str) -> None:
        self._has_come = self._has_come or name == self._name

    def ready(self, moment: Moment) -> bool:
        return self._has_come

    def on_fire(self, moment: Moment) -> None:
        self._has_come = False
        self.finished = True

    def on_merge(self, moment: Moment, sources: Sequence[Self]) -> None:
        self.finished = any(source.finished for source in sources)
        self._has_come = not self.finished and any(source._has_come for source in sources)

    def clear(self) -> None:
        self._has_come = False

    @property
    def signals(self) -> Iterator[str]:
        yield self._name


@start.register
def _(trigger: AfterSignal, merging: bool) -> Node:
    return OnceSignalled(trigger.name)
