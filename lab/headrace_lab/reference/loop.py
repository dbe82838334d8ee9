"""A loop between two epochs, edge by edge: edges of each window, the values of vertices, and what is in flight (13).

Every step is taken as the specification writes it. Nothing here knows of keys, parts or tasks.
"""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.model.expressions.data_types import Schema
from headrace.model.expressions.typing import columns_of
from headrace.model.time import MIN_INSTANT, Instant
from headrace.model.windows import Window
from headrace.pipeline.loops import VALUE, VERTEX, Loop
from headrace.pipeline.stages import Stage
from headrace_lab.reference.chain import Chain, PaneToElements
from headrace_lab.reference.elements import DropCause, DroppedElement, Element, Output
from headrace_lab.reference.evaluate import evaluate
from headrace_lab.reference.operator import Grouping
from headrace_lab.reference.stages import Entrance

Vertex = Any
Value = Any
Drops = tuple[DroppedElement, ...]


@dataclass(frozen=True)
class Edge:
    """An edge from the vertex ``of`` to the vertex ``to``; ``reads`` are the values of it that ``step`` reads."""

    of: Vertex
    to: Vertex
    reads: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Functions:
    """What a loop computes (13.1). ``start`` is the value that a vertex has by itself. ``step`` is the value that an
    edge makes of the one at its beginning. ``is_better`` says whether a value is better than another one. None is no
    value.
    """

    start: Callable[[Vertex], Value]
    step: Callable[[Value, Edge], Value]
    is_better: Callable[[Value, Value], bool]


@dataclass
class Graph:
    """The loop of one window: its ``edges`` by the vertex where they begin, and the ``values`` of vertices that have
    one. What is ``in_flight`` is, for a vertex, a value that is better than its own.
    """

    functions: Functions
    edges: dict[Vertex, set[Edge]] = field(default_factory=dict)
    values: dict[Vertex, Value] = field(default_factory=dict)
    in_flight: dict[Vertex, Value] = field(default_factory=dict)

    def epoch(self, edges: Iterable[Edge], rounds: int | None) -> Mapping[Vertex, Value]:
        """Add ``edges``, and turn so many ``rounds`` at most, or without a bound; the vertices whose value changed."""
        values_before = dict(self.values)
        messages = [*self.in_flight.items()]
        for edge in edges:
            self.edges.setdefault(edge.of, set()).add(edge)
            messages += [(vertex, self.functions.start(vertex)) for vertex in (edge.of, edge.to)]
            if edge.of in values_before:
                messages.append((edge.to, self.functions.step(values_before[edge.of], edge)))
        self.in_flight = self._better(messages)
        round_number = 0
        while self.in_flight and (rounds is None or round_number < rounds):
            self._turn()
            round_number += 1
        return {vertex: value for vertex, value in self.values.items() if values_before.get(vertex) != value}

    def _turn(self) -> None:
        """One round (13.3): what is on the back-edge is delivered; vertices that it changed send along all edges."""
        changed_in_flight = self.in_flight
        self.values |= changed_in_flight
        sent_pairs = [
            (edge.to, self.functions.step(self.values[vertex], edge))
            for vertex in changed_in_flight
            for edge in self.edges.get(vertex, ())
        ]
        self.in_flight = self._better(sent_pairs)

    def _better(self, messages: Iterable[tuple[Vertex, Value]]) -> dict[Vertex, Value]:
        """The best of ``messages`` for each vertex, if it is better than the vertex's value."""
        best: dict[Vertex, Value] = {}
        for vertex, value in messages:
            best_value = best.get(vertex, self.values.get(vertex))
            if value is not None and (best_value is None or self.functions.is_better(value, best_value)):
                best[vertex] = value
        return best


class LoopRun:
    """The loop of an output between two epochs: of records as ``edges`` it makes the elements of the ``first``
    aggregation.
    """

    def __init__(self, edges: Stage, first: Stage, loop: Loop) -> None:
        self._loop, self._first = loop, Entrance(first)
        self._reads = sorted(columns_of(loop.step) - {VALUE})
        self._functions = _functions(loop, edges, first.schema, self._reads)
        self._grouping = self._first.grouping
        self._graphs: dict[Window, Graph] = {}

    def turn(self, edges: Iterable[Element], watermark: Instant, *, is_last: bool) -> tuple[list[Element], Drops]:
        """The rounds of an epoch (13.3, 13.4). They give an element for each vertex and window whose value changed, and
        the edges that were late under the last epoch's ``watermark``.
        """
        accepted_by_window: dict[Window, list[Edge]] = {window: [] for window in self._graphs}
        drops: Drops = ()
        for edge in edges:
            (window,) = self._grouping.assign(edge)
            if watermark > self._grouping.expiry(window):
                drops += (DroppedElement(edge, window, DropCause.LATE, is_late=True),)
            else:
                accepted_by_window.setdefault(window, []).extend(self._directions(edge))
        rounds = None if is_last else self._loop.rounds
        elements: list[Element] = []
        for window in sorted(accepted_by_window):
            graph = self._graphs.setdefault(window, Graph(self._functions))
            for vertex, value in graph.epoch(accepted_by_window[window], rounds).items():
                elements.append(self._first.element({VERTEX: vertex, VALUE: value}, window.max_timestamp))
        return elements, drops

    @property
    def in_flight(self) -> dict[tuple[Vertex, Window], Value]:
        """What is in flight (13.4)."""
        graphs = self._graphs.items()
        return {(vertex, window): value for window, graph in graphs for vertex, value in graph.in_flight.items()}

    def hold(self, watermark: Instant) -> Instant:
        """``watermark``, or the last moment of the earliest window with something in flight (13.5)."""
        return min([watermark, *(window.max_timestamp for _, window in self.in_flight)])

    def expire(self, watermark: Instant) -> None:
        """Forget windows that have expired (5.2)."""
        self._graphs = {
            window: graph for window, graph in self._graphs.items() if watermark <= self._grouping.expiry(window)
        }

    def _directions(self, edge: Element) -> list[Edge]:
        start, end, *_ = edge.key
        reads = tuple(edge.record.get(name) for name in self._reads)
        return [Edge(start, end, reads), *([Edge(end, start, reads)] if self._loop.both_ways else ())]


class LoopedChain(Chain):
    """A chain behind a loop: what it is given are edges."""

    def __init__(self, loop: LoopRun, groupings: Sequence[Grouping], links: Sequence[PaneToElements]) -> None:
        super().__init__(groupings, links)
        self.loop = loop
        self._source = MIN_INSTANT

    @property
    def in_flight(self) -> dict[tuple[Vertex, Window], Value]:
        """What is in flight (13.4)."""
        return self.loop.in_flight

    def step(
        self,
        elements: Iterable[Element] = (),
        *,
        watermark: Instant | None = None,
        is_batch: bool = False,
        is_last: bool = False,
        **clocks: Any,
    ) -> Output:
        """One epoch, as of other chains: the rounds are turned before anything else, and the watermark waits for what
        is in flight after them. ``is_last``: nothing is.
        """
        clock = self.operators[0].clocks
        updates, late = self.loop.turn(elements, clock.watermark, is_last=is_last or is_batch)
        self._source = self._source if watermark is None else max(self._source, watermark)
        output = super().step(updates, watermark=self.loop.hold(self._source), is_batch=is_batch, **clocks)
        self.loop.expire(self.operators[0].clocks.watermark)
        return Output(output.panes, late + output.drops)


def _functions(loop: Loop, edges: Stage, element: Schema, reads: Sequence[str]) -> Functions:
    schema: Schema = {**edges.schema, **element}

    def start(vertex: Vertex) -> Value:
        return evaluate(loop.start, {VERTEX: vertex}, element)

    def step(value: Value, edge: Edge) -> Value:
        return evaluate(loop.step, {**dict(zip(reads, edge.reads, strict=True)), VALUE: value}, schema)

    return Functions(start, step, operator.lt if loop.keeps_least else operator.gt)
