"""Vertices in memory, numbered by places, and their values and edges by these numbers."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.kernel.aggregates.ordering import Coded, coded
from headrace.kernel.grouping import Ints, truths, valid
from headrace.kernel.keys import in_order_of_hashes
from headrace.kernel.state import Hashes
from headrace.kernel.types import DECIMAL
from headrace.pipeline.loop import VERTEX
from headrace.program import columns as c

NOWHERE = -1
"""The place of a vertex that is not in memory."""

_SPREAD = np.uint64(0x9E3779B97F4A7C15)


def in_order_of(numbers: Ints) -> Ints:
    """The rows of ``numbers``, none of which is negative, in ascending order, equal ones in their own.

    A row is packed after its number where both fit, for numpy sorts numbers several times faster than rows.
    """
    bits = len(numbers).bit_length()
    if not len(numbers) or int(numbers.max()).bit_length() + bits > 63:
        return np.argsort(numbers, kind="stable")
    packed = (numbers << bits) | np.arange(len(numbers), dtype=np.int64)
    packed.sort()
    order: Ints = packed & ((1 << bits) - 1)
    return order


class PlacedVertices:
    """Vertices in windows, numbered as they come: rows with ``_h``, the column ``vertex``, ``_ws``, ``_we``."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self.rows = rows
        self._codes, self._places = np.zeros(0, np.uint64), np.zeros(0, np.int64)
        self._origin = 0

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def places_of(self, hashed: pa.Array, vertices: pa.Array, start: pa.Array, end: pa.Array) -> Ints:
        """The place of each, ``NOWHERE`` for those that have none. Vertices of one hash are told apart."""
        places = np.full(len(hashed), NOWHERE, np.int64)
        if not len(self):
            return places
        codes = self._codes_of(hashed, start)
        low = np.empty(len(codes), np.int64)
        order = _ascending(codes)  # a search in order takes a tenth of the time
        low[order] = np.searchsorted(self._codes, codes[order], "left")
        rows = np.arange(len(codes))
        while len(rows):  # mostly once: several candidates have one code where vertices have one hash
            rows = rows[low[rows] < len(self._codes)]
            rows = rows[self._codes[low[rows]] == codes[rows]]
            candidates = self._places[low[rows]]
            same = self._are(candidates, rows, vertices, start, end)
            places[rows[same]] = candidates[same]
            rows = rows[~same]
            low[rows] += 1
        return places

    def _are(self, places: Ints, rows: Ints, vertices: pa.Array, start: pa.Array, end: pa.Array) -> NDArray[np.bool_]:
        given = vertices if len(rows) == len(vertices) else vertices.take(pa.array(rows))
        same = truths(pc.equal(self.rows.column(VERTEX).take(pa.array(places)), given))
        for name, side in ((c.WINDOW_START, start), (c.WINDOW_END, end)):
            same = same & (self.rows.column(name).to_numpy()[places] == side.to_numpy()[rows])
        return same

    def add(self, rows: pa.RecordBatch) -> Ints:
        """``rows`` that have no place, each once, and the places that they get."""
        added = np.arange(len(self), len(self) + rows.num_rows, dtype=np.int64)
        if not len(self) and rows.num_rows:
            self._origin = rows.column(c.WINDOW_START)[0].as_py()
        self.rows = pa.concat_batches([self.rows, rows])
        codes = self._codes_of(rows.column(c.HASH), rows.column(c.WINDOW_START))
        order = _ascending(codes)
        at = np.searchsorted(self._codes, codes[order], "right")
        self._codes = np.insert(self._codes, at, codes[order])
        self._places = np.insert(self._places, at, added[order])
        return added

    def _codes_of(self, hashed: pa.Array, start: pa.Array) -> Hashes:
        """A number for a vertex in a window by which it is looked up, which others may have: in the first window the
        hash itself.
        """
        distance = start.to_numpy() - self._origin
        codes: Hashes = hashed.to_numpy()
        return codes ^ (distance.view(np.uint64) * _SPREAD) if distance.any() else codes


def _ascending(codes: Hashes) -> slice | Ints:
    """The rows of ``codes`` in ascending order: mostly they stand in it, as what is stored does."""
    return slice(None) if (codes[1:] >= codes[:-1]).all() else in_order_of_hashes(codes)


class ValuesByPlace(ABC):
    """The value at each place, NULL where there is none."""

    @staticmethod
    def of(none: pa.Array) -> "ValuesByPlace":
        """No values yet, of the type of ``none``."""
        kind = none.type
        has_alphabet = pa.types.is_string(kind) or pa.types.is_binary(kind) or kind == DECIMAL
        return _Arrays(none) if has_alphabet else _Numbers(kind)

    @abstractmethod
    def at(self, places: Ints) -> pa.Array:
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

    def at(self, places: Ints) -> pa.Array:
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

    def at(self, places: Ints) -> pa.Array:
        return Coded(self._codes[places], self._kind).values(self._codes[places], ~self._is_there[places])

    def put(self, places: Ints, values: pa.Array) -> None:
        self._codes[places] = coded(values).codes
        self._is_there[places] = True

    def append(self, values: pa.Array) -> None:
        is_there = valid(values)
        codes = np.zeros(len(values), np.int64)
        codes[is_there] = coded(values.drop_null()).codes
        self._codes = np.concatenate([self._codes, codes])
        self._is_there = np.concatenate([self._is_there, is_there])


Part = tuple[Ints, Ints, pa.RecordBatch]
"""Edges: the places of their first ends, those of their other ends, what the step reads of them."""


class EdgesByPlace:
    """The edges out of some vertices, those of one together."""

    def __init__(self, no_terms: pa.RecordBatch) -> None:
        self._begin, self._end = np.full(0, NOWHERE, np.int64), np.full(0, NOWHERE, np.int64)
        self._to = np.zeros(0, np.int64)
        self._terms = no_terms

    def lacking(self, places: Ints, number: int) -> Ints:
        """The ``places``, of which there are ``number`` in all, whose edges are not known."""
        unknown = np.full(number - len(self._begin), NOWHERE, np.int64)
        self._begin, self._end = (np.concatenate([known, unknown]) for known in (self._begin, self._end))
        lacking: Ints = places[self._begin[places] == NOWHERE]
        return lacking

    def add(self, places: Ints, parts: Sequence[Part]) -> None:
        """All edges out of vertices at ``places``."""
        sources = np.concatenate([np.zeros(0, np.int64), *(part[0] for part in parts)])
        targets = np.concatenate([np.zeros(0, np.int64), *(part[1] for part in parts)])
        order = in_order_of(sources)
        ordered, before = sources[order], len(self._to)
        self._begin[places] = before + np.searchsorted(ordered, places, "left")
        self._end[places] = before + np.searchsorted(ordered, places, "right")
        self._to = np.concatenate([self._to, targets[order]])
        if self._terms.num_columns:
            terms = pa.concat_batches([self._terms.slice(0, 0), *(part[2] for part in parts)])
            self._terms = pa.concat_batches([self._terms, terms.take(pa.array(order))])

    def out_of(self, places: Ints) -> tuple[Ints, Ints]:
        """The numbers of all edges out of vertices at ``places``, and the place of the first end of each."""
        sizes = self._end[places] - self._begin[places]
        before = np.cumsum(sizes) - sizes
        numbers: Ints = np.arange(int(sizes.sum())) - np.repeat(before - self._begin[places], sizes)
        return numbers, np.repeat(places, sizes)

    def at(self, numbers: Ints) -> tuple[Ints, pa.RecordBatch]:
        """The places of the other ends of edges, and what the step reads of them."""
        terms = self._terms.take(pa.array(numbers)) if self._terms.num_columns else self._terms
        return self._to[numbers], terms
