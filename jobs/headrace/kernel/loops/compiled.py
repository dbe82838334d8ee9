"""A loop compiled for the kernel: edges, messages and values as tables."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import OPERANDS, ValueOverflowError
from headrace.kernel.aggregates.ordering import extreme
from headrace.kernel.elements import Columns
from headrace.kernel.expressions.evaluation import column
from headrace.kernel.expressions.overflowing import Overflow, column_apart
from headrace.kernel.grouping import Groups, Ints, of_sorted
from headrace.kernel.keys import grouped, hashes, in_order_of_hashes
from headrace.kernel.loops.places import in_order_of
from headrace.kernel.stage import CompiledStage
from headrace.kernel.state import no_rows
from headrace.kernel.types import arrow_type
from headrace.model.expressions.data_types import Schema
from headrace.model.expressions.expr import render
from headrace.model.time import Instant
from headrace.pipeline.aggregation import Stage
from headrace.pipeline.loop import VERTEX, Loop
from headrace.pipeline.loop_step import VALUE
from headrace.program import columns as c

FROM, TO = "from", "to"
HASH_OF_TO = "_h_to"
"""The hash of the other end of an edge, of which it has the hash in ``_h``."""

_WINDOW = [(c.WINDOW_START, pa.int64()), (c.WINDOW_END, pa.int64())]


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
    def of(cls, loop: Loop, edges: Stage, stage: CompiledStage) -> "CompiledLoop":
        """``loop`` of a pipeline whose first aggregation is ``stage``."""
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
        ends = [(c.HASH, pa.uint64()), (HASH_OF_TO, pa.uint64()), (FROM, vertex), (TO, vertex)]
        return pa.schema([*ends, *terms, *_WINDOW])

    @cached_property
    def message_schema(self) -> pa.Schema:
        """A message."""
        schema = self.stage.stage.schema
        ends = [(c.HASH, pa.uint64()), (VERTEX, arrow_type(schema[VERTEX])), (VALUE, arrow_type(schema[VALUE]))]
        return pa.schema([*ends, *_WINDOW])

    @cached_property
    def vertex_schema(self) -> pa.Schema:
        """A vertex in a window: a message without its value."""
        return pa.schema([field for field in self.message_schema if field.name != VALUE])

    def edges_of(self, delta: pa.RecordBatch) -> NewEdges:
        """The edges of a ``delta`` of records grouped as edges."""
        first, second = self.ends
        hashed = {name: hashes([delta.column(name)]) for name in self.ends}
        ways = [(first, second), *([(second, first)] if self.loop.both_ways else ())]
        rest = {name: delta.column(name) for name in (*self.terms, c.WINDOW_START, c.WINDOW_END)}
        edges = pa.concat_batches(
            pa.RecordBatch.from_pydict(
                {c.HASH: hashed[a], HASH_OF_TO: hashed[b], FROM: delta.column(a), TO: delta.column(b), **rest},
                schema=self.edge_schema,
            )
            for a, b in ways
        )
        order = in_order_of_hashes(edges.column(c.HASH).to_numpy())
        return NewEdges(edges.take(pa.array(order)), _opposites(order) if self.loop.both_ways else None)

    def sources_of(self, edges: pa.RecordBatch) -> pa.RecordBatch:
        """The vertices at the first ends of ``edges``: messages without a value."""
        return self._vertices(edges, c.HASH, FROM)

    def targets_of(self, edges: pa.RecordBatch) -> pa.RecordBatch:
        """The vertices at the other ends of ``edges``."""
        return self._vertices(edges, HASH_OF_TO, TO)

    def _vertices(self, edges: pa.RecordBatch, hashed: str, vertex: str) -> pa.RecordBatch:
        columns = [edges.column(name) for name in (hashed, vertex, c.WINDOW_START, c.WINDOW_END)]
        return pa.RecordBatch.from_arrays(columns, schema=self.vertex_schema)

    def starts(self, vertices: pa.Array) -> pa.Array:
        """The values that ``vertices`` have by themselves; NULL is none."""
        kind = self.stage.stage.schema[VERTEX]
        return column(self.loop.start, {VERTEX: vertices}, {VERTEX: kind}, len(vertices))

    def arriving(self, values: pa.Array, terms: pa.RecordBatch) -> pa.Array:
        """What the ``values`` at the first ends of edges are at the other ends; what is NULL does not arrive."""
        rows: Columns = {VALUE: values, **{name: terms.column(name) for name in self.terms}}
        kinds = {VALUE: self.stage.stage.schema[VALUE], **self.terms}
        arriving, overflows = column_apart(self.loop.compiled_step.expr, rows, kinds, len(values))
        if overflows:
            raise self._overflow(overflows[0], values)
        if values.null_count and arriving.null_count < values.null_count:  # least(...) leaves NULL out
            arriving = pc.if_else(values.is_valid(), arriving, pa.scalar(None, arriving.type))
        return arriving

    def _overflow(self, overflow: Overflow, values: pa.Array) -> ValueOverflowError:
        """The error of a step, which names the columns of edges as users do."""
        value = values[int(np.flatnonzero(overflow.rows)[0])].as_py()
        how = overflow.why.rpartition(" leaves ")[2]
        step = render(self.loop.step)
        return overflow.error(f"the step of the loop, {step}, from the value {value!r}: it leaves {how}{OPERANDS}")

    def messages(
        self, hashed: pa.Array, vertices: pa.Array, values: pa.Array, start: pa.Array, end: pa.Array
    ) -> pa.RecordBatch:
        """Messages out of columns; NULL is none."""
        rows = pa.RecordBatch.from_arrays([hashed, vertices, values, start, end], schema=self.message_schema)
        return rows.filter(values.is_valid()) if values.null_count else rows

    def best_of(self, places: Ints, values: pa.Array) -> tuple[Ints, pa.Array]:
        """The best of the ``values`` for each of the ``places``, which ascend then."""
        if not len(places):
            return places, values
        order = in_order_of(places)
        ordered = places[order]
        groups = of_sorted(np.append(True, ordered[1:] != ordered[:-1]))
        best = extreme(values.take(pa.array(order)), groups, is_largest=not self.loop.keeps_least)
        return ordered[groups.offsets[:-1]], best

    @staticmethod
    def by_vertex(rows: pa.RecordBatch) -> Groups:
        """Vertices, or messages, of one vertex in a window together."""
        window = (rows.column(name).to_numpy() for name in (c.WINDOW_START, c.WINDOW_END))
        return grouped(rows.column(c.HASH).to_numpy(), [rows.column(VERTEX)], *window)

    @cached_property
    def no_edges(self) -> pa.RecordBatch:
        """A table without edges."""
        return no_rows(self.edge_schema)

    @cached_property
    def no_messages(self) -> pa.RecordBatch:
        """A table without messages."""
        return no_rows(self.message_schema)

    def better(self, values: pa.Array, others: pa.Array) -> pa.Array:
        """Which of ``values`` are better than the ``others`` beside them; NULL is no value."""
        is_better = (pc.less if self.loop.keeps_least else pc.greater)(values, others)
        return is_better.fill_null(True)

    def elements(self, messages: pa.RecordBatch) -> dict[str, pa.Array]:
        """``messages`` as elements of the stage, each at the end of its window."""
        at = pc.subtract(messages.column(c.WINDOW_END), 1)
        return {VERTEX: messages.column(VERTEX), VALUE: messages.column(VALUE), c.EVENT_TIME: at}

    def distinct_edges(self, edges: pa.RecordBatch, watermark: Instant) -> pa.RecordBatch:
        """Stored ``edges`` of windows that have not expired at ``watermark``, each once, in the order of hashes."""
        is_over = self.stage.expired(edges.column(c.WINDOW_END).to_numpy(), watermark)
        rows = edges.filter(pa.array(~is_over)) if is_over.any() else edges
        if not rows.num_rows:
            return rows
        columns = [rows.column(name) for name in (FROM, TO, *self.terms)]
        window = (rows.column(name).to_numpy() for name, _ in _WINDOW)
        return rows.take(pa.array(grouped(rows.column(c.HASH).to_numpy(), columns, *window).first_rows))


def _opposites(order: Ints) -> Ints:
    """Where the other half of what was put in ``order`` is: of its first half the second, and the other way round."""
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    opposites: Ints = np.roll(places, len(order) // 2)[order]
    return opposites
