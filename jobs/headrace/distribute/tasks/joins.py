"""A part of a join in an epoch: the rows that come to its two sides, and what leaves for the stage below.

It is computed piece by piece. Joined rows are elements of the stage below, which are grouped piece by piece, or rows
that leave, which are stored so; or left rows of the next join. Right rows of joins further down pass through.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.distribute.tasks import tables, task_results
from headrace.distribute.tasks.exchange import shuffle_elements, sides_by_part, sides_of
from headrace.distribute.tasks.map_side import Bundles
from headrace.distribute.tasks.plan import EpochTask, address_bundles
from headrace.distribute.tasks.stages import input_clocks, map_side_of
from headrace.distribute.views import dead_panes, rejected_panes
from headrace.kernel.columns import valid_mask
from headrace.kernel.delta import Accounting, Disposition, judge_rows, reject_overflows
from headrace.kernel.joins.sides import CompiledJoin, CompiledJoins, has_key, in_epoch
from headrace.kernel.joins.step import JoinResult, step_join
from headrace.kernel.rows import LeavingRows, select_rows
from headrace.kernel.stage import CompiledStage
from headrace.kernel.step import Counts
from headrace.kernel.windows import fold_delta
from headrace.model.time import Instant
from headrace.program import columns as c
from headrace.this_process import Size
from headrace_snapshots.format.manifest import REJECTED

LEFT = 0

Delta = tuple[list[pa.RecordBatch], list[pa.RecordBatch]]
"""Left and right rows that come, in pieces."""

FOLD_ROWS: Final = Size(1 << 17)
"""A delta that has grown by so many rows is folded, if that is twice what it was."""


@dataclass(frozen=True)
class JoinPart:
    """One part of the join with that ``number`` of the task's chain, in an epoch."""

    task: EpochTask
    number: int

    @property
    def joins(self) -> CompiledJoins:
        assert self.task.chain.joins is not None
        return self.task.chain.joins

    @property
    def join(self) -> CompiledJoin:
        return self.joins.joins[self.number]

    @property
    def step(self) -> int:
        return self.task.job.step_of(self.task.of_chain, self.number - len(self.joins))

    def run(
        self, upstream: task_results.UpstreamResults, bundles: list[pa.RecordBatch]
    ) -> tuple[task_results.JoinOutput, Bundles]:
        """Compute and store its epoch; the level above passed on ``upstream`` and sent ``bundles``. They are taken out
        of their list: once they are in order they take no more memory.
        """
        plan, old_watermark = self.task.plan, self.task.watermark_before
        watermark = plan.watermarks.get(self.task.of_chain)
        if watermark is None:  # records come to it
            watermark = input_clocks(plan, map_side_of(upstream.results)).watermark
        new_watermark = Instant(max(old_watermark, watermark))
        old_watermark, new_watermark = (
            self.joins.watermark_of(self.number + 1, watermark) for watermark in (old_watermark, new_watermark)
        )
        sides = _StoredSides(self)
        target = _ToNextJoin(self, bundles) if self.number + 1 < len(self.joins) else _ToStage(self)
        for result in self._join_results(self._take_delta(bundles), old_watermark, new_watermark):
            sides.add(result)
            if result.elements is not None:
                target.add(result.elements)
            del result  # so that it takes no memory while the next one is computed
        return target.finish(sides.finish())

    def _take_delta(self, bundles: list[pa.RecordBatch]) -> Delta:
        """The left and right rows out of ``bundles``, which are empty then."""
        left, right = sides_of(bundles, LEFT), sides_of(bundles, self.number + 1)
        bundles.clear()
        if self.join.join.by_arrival:
            right = [in_epoch(rows, self.task.plan.epoch) for rows in right]
        return left, right

    def _join_results(self, delta: Delta, old_watermark: Instant, new_watermark: Instant) -> Iterator[JoinResult]:
        if not any(rows.num_rows for side in delta for rows in side):
            return
        schemas = (self.join.left_schema, self.join.right_schema)
        files = [
            [
                run
                for layer in tables.open_own(self.task, self.task.state.tables[name], schema, self.task.parts)
                for run in layer.runs
            ]
            for name, schema in zip(self.task.chain.sides[self.number], schemas, strict=True)
        ]
        results = step_join(self.join, (files[0], files[1]), delta, old_watermark, new_watermark)
        del delta  # which the step lets go
        for result in results:
            yield result
            for run in (run for of_side in files for run in of_side):
                run.let_go()


class _StoredSides:
    """What is added to the tables of the two sides of a join, stored as it comes."""

    def __init__(self, part: JoinPart) -> None:
        task, self._join = part.task, part.join
        names = task.chain.sides[part.number]
        self._writers = [tables.run_writer(task.work, task.plan.prefix, name, task.number) for name in names]
        self._latest: list[list[int]] = [[] for _ in names]

    def add(self, result: JoinResult) -> None:
        for writer, latest, rows in zip(self._writers, self._latest, (result.left, result.right), strict=True):
            if rows is not None and rows.num_rows:
                writer.add(rows)
                latest.append(pc.max(rows.column(c.EVENT_TIME)).as_py())

    def finish(self) -> task_results.JoinOutput:
        completions = (self._join.left_completion, self._join.right_completion)
        stored_layers = [
            task_results.StoredLayer(
                tables.files_of(writer.finish()), self._join.expiry_watermark(complete(np.array(latest)))
            )
            if latest
            else task_results.StoredLayer()
            for writer, latest, complete in zip(self._writers, self._latest, completions, strict=True)
        ]
        return task_results.JoinOutput(stored_layers[0], stored_layers[1])


class _ToNextJoin:
    """Joined rows as left rows of the next join, and right rows that pass through."""

    def __init__(self, part: JoinPart, bundles: Sequence[pa.RecordBatch]) -> None:
        self._part = part
        self._following = part.joins.joins[part.number + 1]
        self._passing = {side: sides_of(bundles, side) for side in range(part.number + 2, len(part.joins) + 1)}
        self._rows: list[pa.RecordBatch] = []
        self._dead = part.task.pane_writer(f"{REJECTED}-join{part.number}", in_key_order=False)
        self._dead_rows = 0

    def add(self, joined_rows: pa.RecordBatch) -> None:
        following, length = self._following, joined_rows.num_rows
        columns, overflows = following.with_computed(joined_rows, length)
        reasons = reject_overflows(pa.nulls(length, pa.string()), following.condition, overflows)
        is_taken = ~valid_mask(reasons)
        if not is_taken.all():
            self._add_dead(joined_rows, reasons)
        if not following.join.outer:
            is_taken &= has_key([columns[name] for name in following.join.on], length)
        taken_columns = {name: column.filter(pa.array(is_taken)) for name, column in columns.items()}
        times, signs = (joined_rows.column(name).filter(pa.array(is_taken)) for name in (c.EVENT_TIME, c.SIGN))
        self._rows.append(following.left_rows(times, taken_columns, signs))

    def _add_dead(self, joined_rows: pa.RecordBatch, reasons: pa.Array) -> None:
        """Adds those that the next join cannot take, for ``reasons``."""
        part, task = self._part, self._part.task
        dead = rejected_panes(
            "joined rows",
            reasons,
            dict(zip(joined_rows.schema.names, joined_rows.columns, strict=True)),
            self._following.left,
            epoch=task.plan.epoch,
            output=task.chain.names.output,
            withdraws=part.join.withdraws,
        )
        self._dead.add_rows(dead)
        self._dead_rows += dead.num_rows

    def finish(self, output: task_results.JoinOutput) -> tuple[task_results.JoinOutput, Bundles]:
        """What goes to which part of the next join."""
        part, task = self._part, self._part.task
        rows = {LEFT: self._rows, **self._passing}
        nonempty_sides = {
            side: pa.concat_batches(own) for side, own in rows.items() if any(piece.num_rows for piece in own)
        }
        parts_of_sides = sides_by_part(nonempty_sides, task.parts)
        if self._dead_rows:
            accounting = Accounting({Disposition.REJECTED: self._dead_rows})
            output = replace(output, rejected=self._dead.finish(), accounting=accounting)
        return output, address_bundles(task.plan, task.job, part.step + 1, task.of_chain, parts_of_sides)


class _ToStage:
    """Joined rows as elements of the first stage, or as rows that leave, which are stored as they come."""

    def __init__(self, part: JoinPart) -> None:
        task = self._task = part.task
        self._step, self._stage = part.step, task.chain.stages[0]
        self._dead = task.pane_writer(f"{REJECTED}-join", in_key_order=False)
        self._leaving = task.pane_writer(task.chain.names.panes, in_key_order=False)
        self._accounting: list[Accounting] = []
        self._counts: Counts | None = None
        self._left = 0
        self._deltas: dict[int, _GrowingDelta] = {}

    def add(self, joined_rows: pa.RecordBatch) -> None:
        task, stage, plan = self._task, self._stage, self._task.plan
        elements = {name: joined_rows.column(name) for name in joined_rows.schema.names}
        judged_rows = judge_rows(stage, elements)
        dead = dead_panes(stage, "joined rows", elements, judged_rows, plan.epoch, output=task.chain.names.output)
        if dead is not None:
            self._dead.add_rows(dead)
        watermark = task.state.clocks[0].watermark
        if task.chain.is_stateless:
            self._leave(
                select_rows(stage, judged_rows, watermark, epoch=plan.epoch, task=task.number, first=self._left)
            )
            return
        shuffle_input = shuffle_elements(task, 0, judged_rows)
        accounting: Accounting = shuffle_input.aggregated.accounting
        assert not accounting.late, "a joined row is behind the watermark of its stage"
        self._accounting.append(accounting)
        for part, rows in shuffle_input.parts.items():
            self._deltas.setdefault(part, _GrowingDelta(stage)).add(rows)

    def _leave(self, leaving: LeavingRows) -> None:
        self._accounting.append(leaving.accounting)
        self._counts = Counts.of_all([self._counts, leaving.counts])
        if leaving.rows is not None:
            self._leaving.add_rows(leaving.rows)
            self._left += leaving.rows.num_rows

    def finish(self, output: task_results.JoinOutput) -> tuple[task_results.JoinOutput, Bundles]:
        """What became of all rows, and what goes to which part of the stage."""
        task = self._task
        output = replace(
            output,
            accounting=Accounting.of_all(self._accounting),
            rejected=self._dead.finish(),
            rows=self._leaving.finish(),
            counts=self._counts,
        )
        deltas = {part: delta.finish() for part, delta in self._deltas.items()}
        return output, address_bundles(task.plan, task.job, self._step + 1, task.of_chain, deltas)


@dataclass
class _GrowingDelta:
    """The delta of a part of a ``stage`` in pieces: folded whenever there is twice as much of it."""

    stage: CompiledStage
    pieces: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    folded_rows: int = 0

    def add(self, rows: pa.RecordBatch) -> None:
        self.pieces.append(rows)
        self.rows += rows.num_rows
        if self.rows > self.folded_rows + max(self.folded_rows, FOLD_ROWS.value):
            self.pieces = [self.finish()]
            self.rows = self.folded_rows = self.pieces[0].num_rows

    def finish(self) -> pa.RecordBatch:
        """All of it, in the order of hashes."""
        return self.pieces[0] if len(self.pieces) == 1 else fold_delta(self.stage, pa.concat_batches(self.pieces))
