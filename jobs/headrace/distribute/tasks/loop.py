"""The rounds of a loop (13): one task has all parts of its graph, since a micro-batch touches little of it.

The task has the role of one in the barrier protocol with two inputs: edges come on one, and what goes round on the
other, its back-edge. A bundle of edges is a record, and so is what a round sends. Its barrier comes after the last
round, when it takes its part of the snapshot; what is on the back-edge then comes ahead of the barrier that goes round,
and is logged. The next epoch delivers first what was logged.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.distribute.tasks.exchange import bundle, deltas_of
from headrace.distribute.tasks.map_side import Bundles
from headrace.distribute.tasks.parts import addressed
from headrace.distribute.tasks.tables import files_of, open_layers, put_pieces
from headrace.distribute.tasks.task_environment import EpochTask
from headrace.distribute.tasks.task_results import LoopOutput, Stored
from headrace.kernel.elements import judge
from headrace.kernel.loops.compiled import CompiledLoop, NewEdges
from headrace.kernel.loops.rounds import Messages, Rounds
from headrace.kernel.state import Hashes
from headrace.model.time import MIN_INSTANT, NEVER, Instant
from headrace.program import columns as c
from headrace.state.datafiles.sorted_file import SortedFile
from headrace_snapshots.format.files import DataFile, Layer
from headrace_snapshots.protocol.barriers import RULES, Protocol, Task
from headrace_snapshots.protocol.messages import (
    Acknowledge,
    Barrier,
    Deliver,
    Forward,
    Log,
    Record,
    SnapshotId,
    TakeState,
    TaskEvent,
)

SOURCE: Final = 0
BACK_EDGE: Final = 1
BACK_EDGES: Final = (BACK_EDGE,)
"""The inputs of the role; what comes on the second has gone round."""

_WINDOW: Final = (c.WINDOW_START, c.WINDOW_END)


def turn_rounds(task: EpochTask, rows: Sequence[pa.RecordBatch]) -> tuple[LoopOutput, Bundles]:
    """Turn the rounds of an epoch of the loop of the task's chain; ``rows`` are records grouped as edges. What the loop
    makes of them goes to the parts of the first stage.
    """
    return _Turning(task).run(rows)


class _Turning:
    """The task of a loop in one epoch, driven by its role in the protocol."""

    def __init__(self, task: EpochTask) -> None:
        self.task, self.plan, self.chain = task, task.plan, task.chain
        assert self.chain.loop is not None
        self.loop: CompiledLoop = self.chain.loop
        self.opened: list[SortedFile] = []
        self.new_edges = NewEdges(self.loop.no_edges)
        self.rounds = Rounds(self.loop, self._edges, self._values)
        self.role = Task(RULES[Protocol.ALIGNED], (SOURCE, BACK_EDGE), BACK_EDGES)
        self.snapshot = SnapshotId(0, self.plan.epoch)
        self.logged = [self.loop.no_messages]
        self.has_taken_state = self.goes_round = self.is_acknowledged = False

    def run(self, rows: Sequence[pa.RecordBatch]) -> tuple[LoopOutput, Bundles]:
        """Deliver what was in flight and what is new, turn rounds, and take part in the snapshot."""
        messages, turned = self._first_messages(rows), 0
        while len(messages) and (self.plan.is_last or turned != self.loop.loop.rounds):
            self._receive(Record(BACK_EDGE))
            changed = self.rounds.deliver(messages)
            messages, turned = self.rounds.send(changed), turned + 1
        left = self.rounds.better(messages)
        self._receive(Barrier(SOURCE, self.snapshot))
        if left.num_rows:
            self._receive(Record(BACK_EDGE), left)
        if self.goes_round:
            self._receive(Barrier(BACK_EDGE, self.snapshot))
        output = self._output(turned)
        for run in self.opened:
            run.let_go()
        return output, self._elements()

    def _first_messages(self, rows: Sequence[pa.RecordBatch]) -> Messages:
        in_flight = self._in_flight()
        deltas = deltas_of(self.loop.edges, rows, self.task.state.clocks[0].watermark, MIN_INSTANT)
        for _ in deltas:
            self._receive(Record(SOURCE))
        if deltas:
            self.new_edges = self.loop.edges_of(pa.concat_batches(deltas))
        return self.rounds.first_messages(in_flight, self.new_edges)

    def _receive(self, event: TaskEvent, messages: pa.RecordBatch | None = None) -> None:
        """Do what the role says to ``event``. What is delivered after the state was taken is the next epoch's."""
        for effect in self.role.receive(event):
            match effect:
                case TakeState():
                    self.has_taken_state = True
                case Forward():
                    self.goes_round = True
                case Log():
                    assert messages is not None
                    self.logged.append(messages)
                case Acknowledge():
                    self.is_acknowledged = True
                case Deliver():
                    pass
                case _:  # it waits for a barrier that nothing brings round
                    return

    def _output(self, turned: int) -> LoopOutput:
        """The part of the snapshot, stored. Where the role did not acknowledge it, the epoch is not committed."""
        logged = pa.concat_batches(self.logged)
        ends, windows = self.new_edges.rows.column(c.WINDOW_END), logged.column(c.WINDOW_END)
        edges = self._put(self.chain.names.edges, self.new_edges.rows)
        expires = self.loop.stage.expiry(pc.max(ends).as_py())
        return LoopOutput(
            edges=Stored(edges, expires) if edges else Stored(),
            in_flight=self._put(self.chain.names.in_flight, logged),
            hold=Instant(pc.min(windows).as_py() - 1) if len(windows) else NEVER,
            rounds=turned,
            is_acknowledged=self.has_taken_state and self.is_acknowledged,
        )

    def _elements(self) -> Bundles:
        stage, task = self.loop.stage, self.task
        judged = judge(stage, self.loop.elements(self.rounds.changed()))
        shuffled = bundle(stage, judged, None, task.state.clocks[0].watermark, MIN_INSTANT, share=0, number=task.parts)
        assert not shuffled.aggregated.accounting.late, "a window has expired while something was in flight in it"
        step = task.job.step_of(task.of_chain, 0)
        return addressed(self.plan, task.job, step, task.of_chain, shuffled.parts)

    def _layers(self, table: str) -> tuple[Layer, ...]:
        return self.task.state.tables[table]

    def _open(self, table: str, schema: pa.Schema) -> list[tuple[SortedFile, ...]]:
        """The files of each layer. On Spark another machine may have stored them: each is read here once."""
        layers = [layer.runs for layer in open_layers(self.task.work, self._layers(table), schema, 0, 1)]
        self.opened += [run for layer in layers for run in layer]
        return layers

    @cached_property
    def _all_edges(self) -> list[SortedFile]:
        """Stored edges, and those of the epoch."""
        layers = self._open(self.chain.names.edges, self.loop.edge_schema)
        return [*(run for layer in layers for run in layer), SortedFile(self.new_edges.rows)]

    @cached_property
    def _value_layers(self) -> list[tuple[SortedFile, ...]]:
        return self._open(self.chain.tables[0], self.loop.stage.state_schema)

    def _put(self, table: str, rows: pa.RecordBatch) -> tuple[DataFile, ...]:
        pieces = [rows] if rows.num_rows else []
        return files_of(put_pieces(self.task.work, self.plan.prefix, table, 0, pieces))

    def _in_flight(self) -> pa.RecordBatch:
        runs = self._open(self.chain.names.in_flight, self.loop.message_schema)
        return pa.concat_batches([self.loop.no_messages, *(run.rows for layer in runs for run in layer)])

    def _edges(self, hashed: Hashes) -> Iterator[pa.RecordBatch]:
        """Edges out of vertices with one of these hashes."""
        return (run.rows_of(hashed) for run in self._all_edges)

    def _values(self, hashed: Hashes) -> Iterator[pa.RecordBatch]:
        """Stored values of vertices of which some have one of these hashes, as messages, oldest layer first."""
        stage, loop = self.loop.stage, self.loop
        names = [c.HASH, *stage.identity, c.STATUS, loop.value_part]
        for layer in self._value_layers:
            pieces = [rows for run in layer if (rows := run.rows_of(hashed, names)).num_rows]
            if not pieces:
                continue
            rows = pa.concat_batches(pieces)
            values, is_open = rows.column(loop.value_part), rows.column(c.STATUS).to_numpy() == c.OPEN
            if not is_open.all():
                values = pc.if_else(pa.array(is_open), values, None)
            keys, window = ([rows.column(name) for name in names] for names in (stage.keys, _WINDOW))
            columns = [rows.column(c.HASH), *keys, values, *window]
            yield pa.RecordBatch.from_arrays(columns, schema=loop.message_schema)
