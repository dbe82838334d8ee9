"""Loops on columns (semantics 13): a loop compiled, its vertices in memory, and the rounds in which messages go.

In a round messages are delivered to vertices, and those whose value has become better send it over their edges. Only
vertices that an epoch touches are in memory, each with its value in a window at a *place*. Edges are in memory if their
vertex has sent. All other edges stay where they are stored.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.errors import OPERANDS, ValueOverflowError
from headrace.kernel.aggregates.ordering import CodedValues, code_values, extreme_values
from headrace.kernel.columns import (
    DECIMAL,
    Groups,
    Ints,
    arrow_scalar,
    arrow_type,
    as_numpy,
    of_sorted,
    true_mask,
    valid_mask,
)
from headrace.kernel.delta import Columns
from headrace.kernel.expressions.evaluation import Overflow, column_apart, evaluate_column
from headrace.kernel.keys import group_by_key, hash_keys, in_order_of_hashes
from headrace.kernel.stage import CompiledStage
from headrace.kernel.state import Hashes, distinct_hashes, no_rows
from headrace.model.expressions.data_types import Schema
from headrace.model.expressions.expr import render
from headrace.model.time import Instant
from headrace.pipeline.loops import VALUE, VERTEX, Loop
from headrace.pipeline.stages import Stage
from headrace.program import columns as c
from headrace.this_process import Size

NO_PLACE = -1
"""The place of a vertex that is not in memory."""

_SPREAD = np.uint64(0x9E3779B97F4A7C15)


def in_order_of(numbers: Ints) -> Ints:
    """The rows of ``numbers``, none of which is negative, in ascending order, equal ones in their own.

    A row is packed after its number where both fit, for numpy sorts numbers several times faster than rows.
    """
    bits = len(numbers).bit_length()
    if not len(numbers) or int(numbers.max()).bit_length() + bits > 63:
        return np.argsort(numbers, kind="stable")
    sort_words = (numbers << bits) | np.arange(len(numbers), dtype=np.int64)
    sort_words.sort()
    order: Ints = sort_words & ((1 << bits) - 1)
    return order


class PlacedVertices:
    """Vertices in windows, numbered as they come: rows with ``_h``, the column ``vertex``, ``_ws``, ``_we``."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self.rows = rows
        self._codes, self._places = np.zeros(0, np.uint64), np.zeros(0, np.int64)
        self._origin = 0

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def places_of(self, hashes: pa.Array, vertices: pa.Array, start: pa.Array, end: pa.Array) -> Ints:
        """The place of each, ``NO_PLACE`` for those that have none. Vertices of one hash are told apart."""
        places = np.full(len(hashes), NO_PLACE, np.int64)
        if not len(self):
            return places
        codes = self._codes_of(hashes, start)
        low = np.empty(len(codes), np.int64)
        order = _ascending_order(codes)  # a search in order takes a tenth of the time
        low[order] = np.searchsorted(self._codes, codes[order], "left")
        rows = np.arange(len(codes))
        while len(rows):  # mostly once: several candidates have one code where vertices have one hash
            rows = rows[low[rows] < len(self._codes)]
            rows = rows[self._codes[low[rows]] == codes[rows]]
            candidates = self._places[low[rows]]
            same = self._are_same(candidates, rows, vertices, start, end)
            places[rows[same]] = candidates[same]
            rows = rows[~same]
            low[rows] += 1
        return places

    def _are_same(
        self, places: Ints, rows: Ints, vertices: pa.Array, start: pa.Array, end: pa.Array
    ) -> NDArray[np.bool_]:
        row_vertices = vertices if len(rows) == len(vertices) else vertices.take(pa.array(rows))
        same = true_mask(pc.equal(self.rows.column(VERTEX).take(pa.array(places)), row_vertices))
        for name, side in ((c.WINDOW_START, start), (c.WINDOW_END, end)):
            same = same & (as_numpy(self.rows.column(name))[places] == as_numpy(side)[rows])
        return same

    def add(self, rows: pa.RecordBatch) -> Ints:
        """``rows`` that have no place, each once, and the places that they get."""
        new_places = np.arange(len(self), len(self) + rows.num_rows, dtype=np.int64)
        if not len(self) and rows.num_rows:
            self._origin = rows.column(c.WINDOW_START)[0].as_py()
        self.rows = pa.concat_batches([self.rows, rows])
        codes = self._codes_of(rows.column(c.HASH), rows.column(c.WINDOW_START))
        order = _ascending_order(codes)
        insert_at = np.searchsorted(self._codes, codes[order], "right")
        self._codes = np.insert(self._codes, insert_at, codes[order])
        self._places = np.insert(self._places, insert_at, new_places[order])
        return new_places

    def _codes_of(self, hashes: pa.Array, start: pa.Array) -> Hashes:
        """A number to look up a vertex in a window by, which others may have: in the first window the hash itself."""
        distance = as_numpy(start) - self._origin
        codes: Hashes = as_numpy(hashes)
        return codes ^ (distance.view(np.uint64) * _SPREAD) if distance.any() else codes


def _ascending_order(codes: Hashes) -> slice | Ints:
    """The rows of ``codes`` in ascending order: mostly they stand in it, as what is stored does."""
    return slice(None) if (codes[1:] >= codes[:-1]).all() else in_order_of_hashes(codes)


class ValuesByPlace(ABC):
    """The value at each place, NULL where there is none."""

    @staticmethod
    def empty_like(none: pa.Array) -> "ValuesByPlace":
        kind = none.type
        has_alphabet = pa.types.is_string(kind) or pa.types.is_binary(kind) or kind == DECIMAL
        return _Arrays(none) if has_alphabet else _Numbers(kind)

    @abstractmethod
    def values_at(self, places: Ints) -> pa.Array:
        """The values at ``places``."""

    @abstractmethod
    def put(self, places: Ints, values: pa.Array) -> None:
        """Let the values at ``places``, which are different, be these."""

    @abstractmethod
    def append(self, values: pa.Array) -> None:
        """Values of further places."""


class _Arrays(ValuesByPlace):
    def __init__(self, none: pa.Array) -> None:
        self._values = none

    def values_at(self, places: Ints) -> pa.Array:
        return self._values.take(pa.array(places))

    def put(self, places: Ints, values: pa.Array) -> None:
        rows = np.arange(len(self._values), dtype=np.int64)
        rows[places] = len(self._values) + np.arange(len(places))
        self._values = pa.concat_arrays([self._values, values]).take(pa.array(rows))

    def append(self, values: pa.Array) -> None:
        self._values = pa.concat_arrays([self._values, values])


class _Numbers(ValuesByPlace):
    """Values that are 64-bit integers in their order: what a round changes is written in place."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._codes, self._is_there = np.zeros(0, np.int64), np.zeros(0, np.bool_)

    def values_at(self, places: Ints) -> pa.Array:
        return CodedValues(self._codes[places], self._kind).decode_values(self._codes[places], ~self._is_there[places])

    def put(self, places: Ints, values: pa.Array) -> None:
        self._codes[places] = code_values(values).codes
        self._is_there[places] = True

    def append(self, values: pa.Array) -> None:
        is_there = valid_mask(values)
        codes = np.zeros(len(values), np.int64)
        codes[is_there] = code_values(values.drop_null()).codes
        self._codes = np.concatenate([self._codes, codes])
        self._is_there = np.concatenate([self._is_there, is_there])


Part = tuple[Ints, Ints, pa.RecordBatch]
"""Edges: the places of their first ends, those of their other ends, what the step reads of them."""


class EdgesByPlace:
    """The edges out of some vertices, those of one together."""

    def __init__(self, no_terms: pa.RecordBatch) -> None:
        self._begin, self._end = np.full(0, NO_PLACE, np.int64), np.full(0, NO_PLACE, np.int64)
        self._targets = np.zeros(0, np.int64)
        self._terms = no_terms

    def places_without_edges(self, places: Ints, number: int) -> Ints:
        """The ``places``, of which there are ``number`` in all, whose edges are not known."""
        unknown = np.full(number - len(self._begin), NO_PLACE, np.int64)
        self._begin, self._end = (np.concatenate([bounds, unknown]) for bounds in (self._begin, self._end))
        lacking: Ints = places[self._begin[places] == NO_PLACE]
        return lacking

    def add(self, places: Ints, parts: Sequence[Part]) -> None:
        """All edges out of vertices at ``places``."""
        sources = np.concatenate([np.zeros(0, np.int64), *(part[0] for part in parts)])
        targets = np.concatenate([np.zeros(0, np.int64), *(part[1] for part in parts)])
        order = in_order_of(sources)
        sources_in_order, number_before = sources[order], len(self._targets)
        self._begin[places] = number_before + np.searchsorted(sources_in_order, places, "left")
        self._end[places] = number_before + np.searchsorted(sources_in_order, places, "right")
        self._targets = np.concatenate([self._targets, targets[order]])
        if self._terms.num_columns:
            terms = pa.concat_batches([self._terms.slice(0, 0), *(part[2] for part in parts)])
            self._terms = pa.concat_batches([self._terms, terms.take(pa.array(order))])

    def out_of(self, places: Ints) -> tuple[Ints, Ints]:
        """The numbers of all edges out of vertices at ``places``, and the place of the first end of each."""
        sizes = self._end[places] - self._begin[places]
        number_before = np.cumsum(sizes) - sizes
        numbers: Ints = np.arange(int(sizes.sum())) - np.repeat(number_before - self._begin[places], sizes)
        return numbers, np.repeat(places, sizes)

    def edges_at(self, numbers: Ints) -> tuple[Ints, pa.RecordBatch]:
        """The places of the other ends of edges, and what the step reads of them."""
        terms = self._terms.take(pa.array(numbers)) if self._terms.num_columns else self._terms
        return self._targets[numbers], terms


FROM_VERTEX, TO_VERTEX = "from", "to"
HASH_OF_TO = "_h_to"
"""The hash of the other end of an edge, of which it has the hash in ``_h``."""

_WINDOW_FIELDS = [(c.WINDOW_START, pa.int64()), (c.WINDOW_END, pa.int64())]


@dataclass(frozen=True)
class NewEdges:
    """Edges of an epoch in the order of their first end's hash. ``opposites``: of each the row of the same edge the
    other way round, where all go both ways.
    """

    rows: pa.RecordBatch
    opposites: Ints | None = None


@dataclass(frozen=True)
class CompiledLoop:
    """A loop over records grouped as ``edges``, which makes elements of ``stage``, the first of its chain.

    A *message* is a row of ``messages``: a value for a vertex in a window.
    """

    loop: Loop
    edges: CompiledStage
    stage: CompiledStage

    @classmethod
    def from_loop(cls, loop: Loop, edges: Stage, stage: CompiledStage) -> "CompiledLoop":
        return cls(loop, CompiledStage(edges), stage)

    @cached_property
    def ends(self) -> tuple[str, str]:
        """The columns of records that are the ends of an edge."""
        first, second = self.edges.record_keys
        return first, second

    @cached_property
    def terms(self) -> Schema:
        """What edges keep of their records for the step."""
        kinds = self.edges.stage.key_types
        return {term.name: kinds[term.name] for term in self.edges.stage.terms}

    @cached_property
    def value_part(self) -> str:
        """The column of the value in rows of state of the stage."""
        (part,) = self.stage.accumulators[VALUE].parts
        return part.name

    @cached_property
    def edge_schema(self) -> pa.Schema:
        """A stored edge, which stands in the order of the hash of its first end."""
        vertex = arrow_type(self.stage.stage.schema[VERTEX])
        terms = [(name, arrow_type(kind)) for name, kind in self.terms.items()]
        ends = [(c.HASH, pa.uint64()), (HASH_OF_TO, pa.uint64()), (FROM_VERTEX, vertex), (TO_VERTEX, vertex)]
        return pa.schema([*ends, *terms, *_WINDOW_FIELDS])

    @cached_property
    def message_schema(self) -> pa.Schema:
        schema = self.stage.stage.schema
        ends = [(c.HASH, pa.uint64()), (VERTEX, arrow_type(schema[VERTEX])), (VALUE, arrow_type(schema[VALUE]))]
        return pa.schema([*ends, *_WINDOW_FIELDS])

    @cached_property
    def vertex_schema(self) -> pa.Schema:
        """A vertex in a window: a message without its value."""
        return pa.schema([field for field in self.message_schema if field.name != VALUE])

    def edges_of(self, delta: pa.RecordBatch) -> NewEdges:
        """The edges of a ``delta`` of records grouped as edges."""
        first, second = self.ends
        hashes = {name: hash_keys([delta.column(name)]) for name in self.ends}
        ways = [(first, second), *([(second, first)] if self.loop.both_ways else ())]
        rest = {name: delta.column(name) for name in (*self.terms, c.WINDOW_START, c.WINDOW_END)}
        edges = pa.concat_batches(
            pa.RecordBatch.from_pydict(
                {
                    c.HASH: hashes[a],
                    HASH_OF_TO: hashes[b],
                    FROM_VERTEX: delta.column(a),
                    TO_VERTEX: delta.column(b),
                    **rest,
                },
                schema=self.edge_schema,
            )
            for a, b in ways
        )
        order = in_order_of_hashes(as_numpy(edges.column(c.HASH)))
        return NewEdges(edges.take(pa.array(order)), _opposite_places(order) if self.loop.both_ways else None)

    def sources_of(self, edges: pa.RecordBatch) -> pa.RecordBatch:
        """The vertices at the first ends of ``edges``: messages without a value."""
        return self._vertex_rows(edges, c.HASH, FROM_VERTEX)

    def targets_of(self, edges: pa.RecordBatch) -> pa.RecordBatch:
        """The vertices at the other ends of ``edges``."""
        return self._vertex_rows(edges, HASH_OF_TO, TO_VERTEX)

    def _vertex_rows(self, edges: pa.RecordBatch, hash_column: str, vertex: str) -> pa.RecordBatch:
        columns = [edges.column(name) for name in (hash_column, vertex, c.WINDOW_START, c.WINDOW_END)]
        return pa.RecordBatch.from_arrays(columns, schema=self.vertex_schema)

    def start_values(self, vertices: pa.Array) -> pa.Array:
        """The values that ``vertices`` have by themselves; NULL is none."""
        kind = self.stage.stage.schema[VERTEX]
        return evaluate_column(self.loop.start, {VERTEX: vertices}, {VERTEX: kind}, len(vertices))

    def arriving_values(self, values: pa.Array, terms: pa.RecordBatch) -> pa.Array:
        """What the ``values`` at the first ends of edges are at the other ends; what is NULL does not arrive."""
        rows: Columns = {VALUE: values, **{name: terms.column(name) for name in self.terms}}
        kinds = {VALUE: self.stage.stage.schema[VALUE], **self.terms}
        arriving, overflows = column_apart(self.loop.compiled_step.expr, rows, kinds, len(values))
        if overflows:
            raise self._overflow_error(overflows[0], values)
        if values.null_count and arriving.null_count < values.null_count:  # least(...) leaves NULL out
            arriving = pc.if_else(values.is_valid(), arriving, pa.scalar(None, arriving.type))
        return arriving

    def _overflow_error(self, overflow: Overflow, values: pa.Array) -> ValueOverflowError:
        """The error of a step, which names the columns of edges as users do."""
        value = values[int(np.flatnonzero(overflow.rows)[0])].as_py()
        how = overflow.why.rpartition(" leaves ")[2]
        step = render(self.loop.step)
        return overflow.error(f"the step of the loop, {step}, from the value {value!r}: it leaves {how}{OPERANDS}")

    def best_of(self, places: Ints, values: pa.Array) -> tuple[Ints, pa.Array]:
        """The best of the ``values`` for each of the ``places``, which ascend then."""
        if not len(places):
            return places, values
        order = in_order_of(places)
        places_in_order = places[order]
        groups = of_sorted(np.append(True, places_in_order[1:] != places_in_order[:-1]))
        best = extreme_values(values.take(pa.array(order)), groups, is_largest=not self.loop.keeps_least)
        return places_in_order[groups.offsets[:-1]], best

    @staticmethod
    def by_vertex(rows: pa.RecordBatch) -> Groups:
        """Vertices, or messages, of one vertex in a window together."""
        window = (as_numpy(rows.column(name)) for name in (c.WINDOW_START, c.WINDOW_END))
        return group_by_key(as_numpy(rows.column(c.HASH)), [rows.column(VERTEX)], *window)

    @cached_property
    def no_edges(self) -> pa.RecordBatch:
        return no_rows(self.edge_schema)

    @cached_property
    def no_messages(self) -> pa.RecordBatch:
        return no_rows(self.message_schema)

    def are_better(self, values: pa.Array, others: pa.Array) -> pa.Array:
        """Which of ``values`` are better than the ``others`` beside them; NULL is no value."""
        is_better = (pc.less if self.loop.keeps_least else pc.greater)(values, others)
        return is_better.fill_null(True)

    def to_elements(self, messages: pa.RecordBatch) -> dict[str, pa.Array]:
        """``messages`` as elements of the stage, each at the end of its window."""
        event_times = pc.subtract(messages.column(c.WINDOW_END), arrow_scalar(1))
        return {VERTEX: messages.column(VERTEX), VALUE: messages.column(VALUE), c.EVENT_TIME: event_times}

    def distinct_edges(self, edges: pa.RecordBatch, watermark: Instant) -> pa.RecordBatch:
        """Stored ``edges`` of windows that have not expired at ``watermark``, each once, in the order of hashes."""
        is_over = self.stage.expired_mask(as_numpy(edges.column(c.WINDOW_END)), watermark)
        rows = edges.filter(pa.array(~is_over)) if is_over.any() else edges
        if not rows.num_rows:
            return rows
        columns = [rows.column(name) for name in (FROM_VERTEX, TO_VERTEX, *self.terms)]
        window = (as_numpy(rows.column(name)) for name, _ in _WINDOW_FIELDS)
        return rows.take(pa.array(group_by_key(as_numpy(rows.column(c.HASH)), columns, *window).first_rows))


def _opposite_places(order: Ints) -> Ints:
    """Where the other half of what was put in ``order`` is: of its first half the second, and the other way round."""
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    opposites: Ints = np.roll(places, len(order) // 2)[order]
    return opposites


SLICE_ROWS: Final = Size(1 << 18)
"""So many edges are followed at a time: a vertex may have millions."""

StoredValues = Callable[[Hashes], Iterable[pa.RecordBatch]]
"""Stored values, as messages, of vertices of which some have one of these hashes, which ascend. The last of a vertex
counts; NULL is none.
"""

StoredEdges = Callable[[Hashes], Iterable[pa.RecordBatch]]
"""All edges out of vertices that have one of these hashes, which ascend; some of others may be among them."""


@dataclass(frozen=True)
class Messages:
    """Values on their way to vertices, by the places of these."""

    places: Ints
    values: pa.Array

    def __len__(self) -> int:
        return len(self.places)


class Rounds:
    """The values of vertices in an epoch of ``loop``, given the ``stored_values`` and all ``edges``."""

    def __init__(self, loop: CompiledLoop, edges: StoredEdges, stored_values: StoredValues) -> None:
        self.loop, self._edges, self._stored_values = loop, edges, stored_values
        self._placed_vertices = PlacedVertices(loop.no_messages.select(loop.vertex_schema.names))
        self._values = ValuesByPlace.empty_like(loop.no_messages.column(VALUE))
        self._known_edges = EdgesByPlace(loop.no_edges.select([*loop.terms]))
        self._is_changed = np.zeros(0, np.bool_)

    def first_messages(self, in_flight: pa.RecordBatch, new: NewEdges) -> Messages:
        """What the first round delivers. It is what was ``in_flight``, the values that ends of ``new`` edges have by
        themselves, and what older values send over these edges.
        """
        messages = [Messages(self._take_up(in_flight), in_flight.column(VALUE))]
        edges, opposites = new.rows, new.opposites
        if not edges.num_rows:
            return messages[0]
        sources = self._take_up_all(self.loop.sources_of(edges))
        targets = self._take_up_all(self.loop.targets_of(edges)) if opposites is None else sources[opposites]
        messages.append(self._start_messages(sources, targets))
        terms = edges.select([*self.loop.terms])
        for begin in range(0, edges.num_rows, SLICE_ROWS.value):
            places = slice(begin, begin + SLICE_ROWS.value)
            messages.append(self._send_over_edges(sources[places], targets[places], terms[places]))
        return self._merge_messages(messages)

    def deliver(self, messages: Messages) -> Ints:
        """Let ``messages``, at most one for a place, come to their vertices: places of those that became better."""
        improving = self._improving_messages(messages)
        self._values.put(improving.places, improving.values)
        self._is_changed[improving.places] = True
        return improving.places

    def send(self, changed_places: Ints) -> Messages:
        """What vertices at ``changed_places`` send, the best for each place."""
        self._load_edges(changed_places)
        rows, sources = self._known_edges.out_of(changed_places)
        messages = []
        for begin in range(0, len(rows), SLICE_ROWS.value):
            rows_sent = rows[begin : begin + SLICE_ROWS.value]
            targets, terms = self._known_edges.edges_at(rows_sent)
            messages.append(self._send_over_edges(sources[begin : begin + SLICE_ROWS.value], targets, terms))
        return self._merge_messages(messages)

    def improving_rows(self, messages: Messages) -> pa.RecordBatch:
        """The ``messages`` that would make a value better, as they are stored."""
        improving = self._improving_messages(messages)
        return self._message_rows(improving.places, improving.values)

    def changed_vertices(self) -> pa.RecordBatch:
        """The vertices whose values have changed in the epoch, with these values, as messages."""
        places = np.flatnonzero(self._is_changed)
        return self._message_rows(places, self._values.values_at(places))

    def _send_over_edges(self, sources: Ints, targets: Ints, terms: pa.RecordBatch) -> Messages:
        """What vertices at the places ``sources`` send over edges with these ``terms``, the best for each of the
        ``targets``; vertices without a value send nothing.
        """
        messages = self._improving_messages(
            _messages_of_values(targets, self.loop.arriving_values(self._values.values_at(sources), terms))
        )
        return Messages(*self.loop.best_of(messages.places, messages.values))

    def _start_messages(self, *ends: Ints) -> Messages:
        """The values that vertices at these places have by themselves."""
        is_end = np.zeros(len(self._placed_vertices), np.bool_)
        for places in ends:
            is_end[places] = True
        own = np.flatnonzero(is_end)
        return self._improving_messages(
            _messages_of_values(
                own, self.loop.start_values(self._placed_vertices.rows.column(VERTEX).take(pa.array(own)))
            )
        )

    def _improving_messages(self, messages: Messages) -> Messages:
        """The ``messages`` that are better than the values there are: of the others none ever will be."""
        is_better = true_mask(self.loop.are_better(messages.values, self._values.values_at(messages.places)))
        return Messages(messages.places[is_better], messages.values.filter(pa.array(is_better)))

    def _merge_messages(self, messages: list[Messages]) -> Messages:
        """The best for each place of ``messages``, of which each part has one for a place."""
        nonempty = [part for part in messages if len(part)]
        if not nonempty:
            return Messages(np.zeros(0, np.int64), self.loop.no_messages.column(VALUE))
        if len(nonempty) == 1:
            return nonempty[0]
        places = np.concatenate([part.places for part in nonempty])
        return Messages(*self.loop.best_of(places, pa.concat_arrays([part.values for part in nonempty])))

    def _message_rows(self, places: Ints, values: pa.Array) -> pa.RecordBatch:
        """Values of vertices at ``places`` as messages are stored, in the order of hashes."""
        rows = self._placed_vertices.rows.take(pa.array(places))
        order = pa.array(in_order_of_hashes(as_numpy(rows.column(c.HASH))))
        columns = {name: rows.column(name).take(order) for name in rows.schema.names} | {VALUE: values.take(order)}
        return pa.RecordBatch.from_pydict(columns, schema=self.loop.message_schema)

    def _load_edges(self, places: Ints) -> None:
        """Have the edges out of vertices at ``places`` in memory."""
        lacking = self._known_edges.places_without_edges(places, len(self._placed_vertices))
        if not len(lacking):
            return
        is_wanted = np.zeros(len(self._placed_vertices), np.bool_)
        is_wanted[lacking] = True
        wanted_hashes = distinct_hashes([as_numpy(self._placed_vertices.rows.column(c.HASH))[lacking]])
        parts = []
        for edges in _join_batches(self._edges(wanted_hashes)):
            sources = self._places_of(edges, c.HASH, FROM_VERTEX)
            wanted_edges = np.flatnonzero(
                (sources != NO_PLACE) & (sources < len(is_wanted))
            )  # targets have got places since
            wanted_edges = wanted_edges[is_wanted[sources[wanted_edges]]]
            rows = _take_rows(edges, wanted_edges)
            targets = self.loop.targets_of(rows)
            parts.append((sources[wanted_edges], self._take_up_all(targets), rows.select([*self.loop.terms])))
        self._known_edges.add(lacking, parts)

    def _places_of(self, rows: pa.RecordBatch, hash_column: str, vertex: str) -> Ints:
        window = (rows.column(name) for name in (c.WINDOW_START, c.WINDOW_END))
        return self._placed_vertices.places_of(rows.column(hash_column), rows.column(vertex), *window)

    def _take_up(self, vertices: pa.RecordBatch) -> Ints:
        """The places of ``vertices``, or of messages, which differ; new ones get one, with their stored value."""
        places = self._places_of(vertices, c.HASH, VERTEX)
        lacking = np.flatnonzero(places == NO_PLACE)
        if len(lacking):
            places[lacking] = self._add_places(vertices.select(self.loop.vertex_schema.names).take(pa.array(lacking)))
        return places

    def _take_up_all(self, vertices: pa.RecordBatch) -> Ints:
        """The places of ``vertices``, of which some may be the same."""
        places = self._places_of(vertices, c.HASH, VERTEX)
        lacking = np.flatnonzero(places == NO_PLACE)
        if len(lacking):
            rows = _take_rows(vertices, lacking)
            groups = self.loop.by_vertex(rows)
            places[lacking] = self._add_places(rows.take(pa.array(groups.first_rows)))[groups.of_each]
        return places

    def _add_places(self, vertices: pa.RecordBatch) -> Ints:
        """New places of ``vertices`` that have none, each once, with their stored values: of several the last one."""
        new_places = self._placed_vertices.add(vertices)
        values, rows, rows_before = (
            [self.loop.no_messages.column(VALUE)],
            np.full(len(new_places), NO_PLACE, np.int64),
            0,
        )
        for stored_rows in self._stored_values(distinct_hashes([as_numpy(vertices.column(c.HASH))])):
            places = self._places_of(stored_rows, c.HASH, VERTEX)
            is_new = places >= new_places[0]
            rows[places[is_new] - new_places[0]] = rows_before + np.flatnonzero(is_new)
            values.append(stored_rows.column(VALUE))
            rows_before += stored_rows.num_rows
        self._values.append(pa.concat_arrays(values).take(pa.array(rows, mask=rows == NO_PLACE)))
        self._is_changed = np.append(self._is_changed, np.zeros(len(new_places), np.bool_))
        return new_places


def _join_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All rows, in few batches: what is looked up for a batch is looked up in all layers."""
    batches_together: list[pa.RecordBatch] = []
    for batch in batches:
        for begin in range(0, batch.num_rows, SLICE_ROWS.value):
            slice_of_batch = batch.slice(begin, SLICE_ROWS.value)
            if (
                batches_together
                and sum(rows.num_rows for rows in batches_together) + slice_of_batch.num_rows > SLICE_ROWS.value
            ):
                yield pa.concat_batches(batches_together)
                batches_together = []
            batches_together.append(slice_of_batch)
    if batches_together:
        yield pa.concat_batches(batches_together)


def _take_rows(rows: pa.RecordBatch, which: Ints) -> pa.RecordBatch:
    """The rows at these places, which ascend."""
    return rows if len(which) == rows.num_rows else rows.take(pa.array(which))


def _messages_of_values(places: Ints, values: pa.Array) -> Messages:
    """Messages out of ``values``; NULL is none."""
    if not values.null_count:
        return Messages(places, values)
    is_there = values.is_valid()
    return Messages(places[true_mask(is_there)], values.filter(is_there))
