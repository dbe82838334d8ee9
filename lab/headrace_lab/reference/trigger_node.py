"""What every node of a trigger tree is to the operator: the state of one trigger in one window (semantics 4.1)."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any, Self

from headrace.errors import PipelineError
from headrace.model.expressions.data_types import Schema
from headrace.model.time import MIN_INSTANT, Instant
from headrace.model.triggers import Trigger
from headrace.model.windows import Window
from headrace_lab.reference.windows import last_unpassed


@dataclass(frozen=True)
class FiringClocks:
    """The watermark, the percentile watermarks and the processing-time clock of an operator."""

    watermark: Instant = MIN_INSTANT
    processing_time: Instant = MIN_INSTANT
    percentiles: Mapping[float, Instant] = field(default_factory=dict)

    def percentile(self, q: float) -> Instant:
        """The watermark of the fastest ``q`` % of the input, never below the watermark itself (9.2)."""
        return max(self.watermark, self.percentiles.get(q, MIN_INSTANT))


@dataclass(frozen=True)
class Moment:
    """What a trigger may look at: the clocks, the window that it is in, and the types of what elements hold."""

    clocks: FiringClocks
    window: Window
    schema: Schema

    @property
    def passed_end(self) -> bool:
        """``eow`` of the table: whether the watermark is past the window (1.4)."""
        return self.clocks.watermark > last_unpassed(self.window)


@dataclass(frozen=True)
class Arrival:
    """What a trigger sees of an element."""

    record: Mapping[str, Any]
    size: int = 0
    timestamp: Instant = MIN_INSTANT


class Node(ABC):
    """The state of one trigger node in one window."""

    def __init__(self, children: "Sequence[Node]" = ()) -> None:
        self.children = list(children)
        self.finished = False

    @property
    def hearing(self) -> "Sequence[Node]":
        """The children that learn of elements and signals; all, unless a node says otherwise."""
        return self.children

    def on_element(self, moment: Moment, element: Arrival) -> None:
        """An element came."""
        for child in self.hearing:
            child.on_element(moment, element)

    def on_signal(self, moment: Moment, name: str) -> None:
        """A signal came."""
        for child in self.hearing:
            child.on_signal(moment, name)

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
    def signals(self) -> Iterator[str]:
        """Signals at which the node wants to be asked."""
        for child in self.children:
            yield from child.signals

    @property
    def percentiles(self) -> Iterator[float]:
        """Percentile watermarks whose passing of the window's end the node wants to be asked at."""
        for child in self.children:
            yield from child.percentiles


@singledispatch
def start(trigger: Trigger, merging: bool) -> Node:
    """The state of ``trigger`` in a fresh window; ``merging`` says whether windows of the key can merge. Each node
    registers its triggers where it is defined.
    """
    raise PipelineError(f"{trigger!r} is not a trigger that the reference knows")
