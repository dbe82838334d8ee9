"""Rounds: messages are delivered to vertices, and those whose value has become better send it over their edges.

Only vertices that an epoch touches are in memory, each with its value in a window at a *place*, and edges of those
that have sent. All other edges stay where they are stored.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.kernel.grouping import Ints, truths
from headrace.kernel.keys import in_order_of_hashes
from headrace.kernel.loops.compiled import FROM, CompiledLoop, NewEdges
from headrace.kernel.loops.places import NOWHERE, EdgesByPlace, PlacedVertices, ValuesByPlace
from headrace.kernel.state import Hashes, distinct
from headrace.pipeline.loop import VERTEX
from headrace.pipeline.loop_step import VALUE
from headrace.program import columns as c

PIECE_ROWS = 1 << 18
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
    """The values of vertices in an epoch of ``loop``, given what is ``stored`` of values, and all ``edges``."""

    def __init__(self, loop: CompiledLoop, edges: StoredEdges, stored: StoredValues) -> None:
        self.loop, self._edges, self._stored = loop, edges, stored
        self._placed = PlacedVertices(loop.no_messages.select(loop.vertex_schema.names))
        self._values = ValuesByPlace.of(loop.no_messages.column(VALUE))
        self._known_edges = EdgesByPlace(loop.no_edges.select([*loop.terms]))
        self._is_changed = np.zeros(0, np.bool_)

    def first_messages(self, in_flight: pa.RecordBatch, new: NewEdges) -> Messages:
        """What the first round delivers: what was ``in_flight``, the values that ends of ``new`` edges have by
        themselves, and what goes over these edges of values that there were before.
        """
        messages = [Messages(self._take_up(in_flight), in_flight.column(VALUE))]
        edges, opposites = new.rows, new.opposites
        if not edges.num_rows:
            return messages[0]
        sources = self._take_up_all(self.loop.sources_of(edges))
        targets = self._take_up_all(self.loop.targets_of(edges)) if opposites is None else sources[opposites]
        messages.append(self._starts(sources, targets))
        terms = edges.select([*self.loop.terms])
        for begin in range(0, edges.num_rows, PIECE_ROWS):
            piece = slice(begin, begin + PIECE_ROWS)
            messages.append(self._sent(sources[piece], targets[piece], terms[piece]))
        return self._together(messages)

    def deliver(self, messages: Messages) -> Ints:
        """Let ``messages``, at most one for a place, come to their vertices: the places of those that have become
        better.
        """
        improving = self._improving(messages)
        self._values.put(improving.places, improving.values)
        self._is_changed[improving.places] = True
        return improving.places

    def send(self, changed: Ints) -> Messages:
        """What vertices at the places that have ``changed`` send, the best for each place."""
        self._load(changed)
        rows, sources = self._known_edges.out_of(changed)
        messages = []
        for begin in range(0, len(rows), PIECE_ROWS):
            piece = rows[begin : begin + PIECE_ROWS]
            targets, terms = self._known_edges.at(piece)
            messages.append(self._sent(sources[begin : begin + PIECE_ROWS], targets, terms))
        return self._together(messages)

    def better(self, messages: Messages) -> pa.RecordBatch:
        """The ``messages`` that would make a value better, as they are stored."""
        improving = self._improving(messages)
        return self._rows(improving.places, improving.values)

    def changed(self) -> pa.RecordBatch:
        """The vertices whose values have changed in the epoch, with these values, as messages."""
        places = np.flatnonzero(self._is_changed)
        return self._rows(places, self._values.at(places))

    def _sent(self, sources: Ints, targets: Ints, terms: pa.RecordBatch) -> Messages:
        """What vertices at the places ``sources`` send over edges with these ``terms``, the best for each of the
        ``targets``; those without a value send nothing.
        """
        sent = self._improving(_there(targets, self.loop.arriving(self._values.at(sources), terms)))
        return Messages(*self.loop.best_of(sent.places, sent.values))

    def _starts(self, *ends: Ints) -> Messages:
        """The values that vertices at these places have by themselves."""
        is_end = np.zeros(len(self._placed), np.bool_)
        for places in ends:
            is_end[places] = True
        own = np.flatnonzero(is_end)
        return self._improving(_there(own, self.loop.starts(self._placed.rows.column(VERTEX).take(pa.array(own)))))

    def _improving(self, messages: Messages) -> Messages:
        """The ``messages`` that are better than the values there are: of the others none ever will be."""
        is_better = truths(self.loop.better(messages.values, self._values.at(messages.places)))
        return Messages(messages.places[is_better], messages.values.filter(pa.array(is_better)))

    def _together(self, messages: list[Messages]) -> Messages:
        """The best for each place of ``messages``, of which each part has one for a place."""
        filled = [part for part in messages if len(part)]
        if not filled:
            return Messages(np.zeros(0, np.int64), self.loop.no_messages.column(VALUE))
        if len(filled) == 1:
            return filled[0]
        places = np.concatenate([part.places for part in filled])
        return Messages(*self.loop.best_of(places, pa.concat_arrays([part.values for part in filled])))

    def _rows(self, places: Ints, values: pa.Array) -> pa.RecordBatch:
        """Values of vertices at ``places`` as messages are stored, in the order of hashes."""
        rows = self._placed.rows.take(pa.array(places))
        order = pa.array(in_order_of_hashes(rows.column(c.HASH).to_numpy()))
        columns = {name: rows.column(name).take(order) for name in rows.schema.names} | {VALUE: values.take(order)}
        return pa.RecordBatch.from_pydict(columns, schema=self.loop.message_schema)

    def _load(self, places: Ints) -> None:
        """Have the edges out of vertices at ``places`` in memory."""
        lacking = self._known_edges.lacking(places, len(self._placed))
        if not len(lacking):
            return
        is_wanted = np.zeros(len(self._placed), np.bool_)
        is_wanted[lacking] = True
        wanted = distinct([self._placed.rows.column(c.HASH).to_numpy()[lacking]])
        parts = []
        for edges in _pieces(self._edges(wanted)):
            sources = self._places_of(edges, c.HASH, FROM)
            kept = np.flatnonzero((sources != NOWHERE) & (sources < len(is_wanted)))  # targets have got places since
            kept = kept[is_wanted[sources[kept]]]
            rows = _at(edges, kept)
            targets = self.loop.targets_of(rows)
            parts.append((sources[kept], self._take_up_all(targets), rows.select([*self.loop.terms])))
        self._known_edges.add(lacking, parts)

    def _places_of(self, rows: pa.RecordBatch, hashed: str, vertex: str) -> Ints:
        window = (rows.column(name) for name in (c.WINDOW_START, c.WINDOW_END))
        return self._placed.places_of(rows.column(hashed), rows.column(vertex), *window)

    def _take_up(self, vertices: pa.RecordBatch) -> Ints:
        """The places of ``vertices``, or of messages, each of another one; those that had none get one, with their
        stored value.
        """
        places = self._places_of(vertices, c.HASH, VERTEX)
        lacking = np.flatnonzero(places == NOWHERE)
        if len(lacking):
            places[lacking] = self._add(vertices.select(self.loop.vertex_schema.names).take(pa.array(lacking)))
        return places

    def _take_up_all(self, vertices: pa.RecordBatch) -> Ints:
        """The places of ``vertices``, of which some may be the same."""
        places = self._places_of(vertices, c.HASH, VERTEX)
        lacking = np.flatnonzero(places == NOWHERE)
        if len(lacking):
            rows = _at(vertices, lacking)
            groups = self.loop.by_vertex(rows)
            places[lacking] = self._add(rows.take(pa.array(groups.first_rows)))[groups.of_each]
        return places

    def _add(self, vertices: pa.RecordBatch) -> Ints:
        """New places of ``vertices`` that have none, each once, with their stored values: of several the last one."""
        added = self._placed.add(vertices)
        values, rows, before = [self.loop.no_messages.column(VALUE)], np.full(len(added), NOWHERE, np.int64), 0
        for stored in self._stored(distinct([vertices.column(c.HASH).to_numpy()])):
            places = self._places_of(stored, c.HASH, VERTEX)
            is_new = places >= added[0]
            rows[places[is_new] - added[0]] = before + np.flatnonzero(is_new)
            values.append(stored.column(VALUE))
            before += stored.num_rows
        self._values.append(pa.concat_arrays(values).take(pa.array(rows, mask=rows == NOWHERE)))
        self._is_changed = np.append(self._is_changed, np.zeros(len(added), np.bool_))
        return added


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All rows, in few pieces: what is looked up for a piece is looked up in all layers."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        for begin in range(0, batch.num_rows, PIECE_ROWS):
            piece = batch.slice(begin, PIECE_ROWS)
            if held and sum(rows.num_rows for rows in held) + piece.num_rows > PIECE_ROWS:
                yield pa.concat_batches(held)
                held = []
            held.append(piece)
    if held:
        yield pa.concat_batches(held)


def _at(rows: pa.RecordBatch, which: Ints) -> pa.RecordBatch:
    """The rows at these places, which ascend."""
    return rows if len(which) == rows.num_rows else rows.take(pa.array(which))


def _there(places: Ints, values: pa.Array) -> Messages:
    """Messages out of ``values``; NULL is none."""
    if not values.null_count:
        return Messages(places, values)
    is_there = values.is_valid()
    return Messages(places[truths(is_there)], values.filter(is_there))
