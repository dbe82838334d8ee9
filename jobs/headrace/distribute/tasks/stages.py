"""A part of a stage: its share of the delta meets its layers, its panes go to the stage below."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.distribute.clocks import StageClocks, moved
from headrace.distribute.intake import together
from headrace.distribute.side_outputs import dead_panes
from headrace.distribute.tasks.bundles import Bundle, bundle, delta_of
from headrace.distribute.tasks.found import Above, Files, IdsFound, Passed, ShareFound, StageFound, Stored
from headrace.distribute.tasks.map_side import Bundles
from headrace.distribute.tasks.panes import leaving
from headrace.distribute.tasks.plan import EpochPlan
from headrace.distribute.tasks.tables import gone_from, open_table, put_table
from headrace.distribute.tasks.work import Task, Work
from headrace.kernel.elements import judge
from headrace.kernel.stage import CompiledStage
from headrace.kernel.state import distinct
from headrace.kernel.step import StageResult, elements_in_order, step
from headrace.model.time import MIN_INSTANT, Instant
from headrace.program import columns as c
from headrace.program.firing import Clocks
from headrace.state.layers import Layers
from headrace.state.tables import state_tables

NO_FILES: Files = ()


def output_of(stage: CompiledStage, watermark: Instant, holds: "list[Instant]") -> Instant:
    """O = min(W, every hold) (semantics 7.1) of a stage at ``watermark`` whose parts have these earliest ``holds``.

    Where each window fires when W passes its end and holds are at the ends, nothing can hold it back.
    """
    if stage.stamps_elements or not stage.trigger.ready_past_end:
        return Instant(min([watermark, *holds]))
    return watermark


def entering(plan: EpochPlan, work: Work, number: int, above: tuple[Passed, ...]) -> tuple[Clocks, StageClocks]:
    """The step of stage ``number`` in this epoch, and its clocks after it, by what the level ``above`` found."""
    stage, before = work.stages[number], plan.stages[number]
    if number and number == plan.first_stage:
        above = plan.above
    if number == 0:
        shares = [each.found for each in _shares(above)]
        said = together(found.said for found in shares if isinstance(found, ShareFound))
        clocks = moved(plan.clocks, said, plan.processing_time, stage.trigger.percentiles, is_last=plan.is_last)
        return before.advanced(stage, plan.processing_time, clocks.watermark, clocks.together.percentiles)
    found = [each.found for each in above]
    outputs = [each.hold for each in found if isinstance(each, StageFound)]
    return before.advanced(stage, plan.processing_time, Instant(min(outputs)), {})


def _shares(above: tuple[Passed, ...]) -> tuple[Passed, ...]:
    """What the map side passed on: the level above, or the one above that which tells duplicates."""
    return above[0].history[0] if isinstance(above[0].found, IdsFound) else above


@dataclass(frozen=True)
class _Part:
    """One part of a stage in an epoch."""

    task: Task
    number: int

    @property
    def plan(self) -> EpochPlan:
        return self.task.plan

    @property
    def work(self) -> Work:
        return self.task.work

    @property
    def stage(self) -> CompiledStage:
        return self.work.stages[self.number]

    @property
    def table(self) -> str:
        return state_tables(self.work.pipeline)[self.number]

    @property
    def is_last(self) -> bool:
        return self.number == len(self.work.stages) - 1

    def run(self, above: Above, rows: list[pa.RecordBatch]) -> tuple[StageFound, Bundles]:
        plan, work, stage = self.plan, self.work, self.stage
        clocks, after = entering(plan, work, self.number, above.passed)
        before = plan.stages[self.number]
        delta = delta_of(stage, rows, before.watermark, self.task.behind(self.number))
        layers = open_table(self.task, self.table, stage.state_schema)
        result = self._step(Layers(stage, layers), delta, clocks)
        gone = gone_from(plan.tables[self.table], after.watermark)
        left = Layers(stage, layers[gone:])
        now = left.grown(None if result is None else result.changes, plan.epoch)
        due_event, due_time = now.next_due(after.watermark, after.processing_time)
        hold = after.watermark
        if stage.stamps_elements or not stage.trigger.ready_past_end:
            hold = now.earliest_hold(after.watermark)
        below, rejected, elements = Bundle(), NO_FILES, NO_FILES
        if result is not None and not self.is_last:
            if self.work.goes_through_spark(self.number + 1):
                elements = self.task.put(f"elements-{self.number}", leaving(result))
            else:
                below, rejected = self._below(result)
        found = StageFound(
            counts=None if result is None else result.counts,
            changed=0 if result is None else result.changes.num_rows,
            hold=hold,
            due_event=due_event,
            due_time=due_time,
            state=self._stored(left, now),
            panes=self._panes(result),
            below=below.aggregated.accounting,
            rejected=rejected,
            elements=elements,
        )
        return found, below.parts

    def _step(self, layers: Layers, delta: pa.RecordBatch | None, clocks: Clocks) -> StageResult | None:
        plan, stage = self.plan, self.stage
        touched = np.zeros(0, np.uint64) if delta is None else distinct([delta.column(c.HASH).to_numpy()])
        state = layers.lookup(touched, clocks, plan.signals)
        return step(
            stage,
            state,
            delta,
            clocks,
            plan.epoch,
            output_watermark=plan.stages[self.number].output_watermark if stage.stamps_merged else MIN_INSTANT,
            signals=plan.signals,
            is_batch=plan.is_batch,
        )

    def _stored(self, before: Layers, now: Layers) -> Stored:
        """What ``now`` has on top of ``before``, stored."""
        if len(now.layers) == len(before.layers):
            return Stored()
        top = now.layers[-1]
        return Stored(put_table(self.task, self.table, [run.rows for run in top.runs]), top.expires)

    def _panes(self, result: StageResult | None) -> Files:
        if result is None or not self.is_last:
            return ()
        return self.task.put_own("panes", result.panes())

    def _below(self, result: StageResult) -> tuple[Bundle, Files]:
        """The panes as elements of the stage below, and where those that have no key there are stored."""
        plan, work, number = self.plan, self.work, self.number + 1
        stage = work.stages[number]
        if not len(result.emission.row):
            return Bundle(), NO_FILES
        panes = elements_in_order([result])
        order = result.order() if stage.is_ordered else None
        judged = judge(stage, panes)
        if order is not None:
            by = pc.sort_indices(pa.table(order), sort_keys=[(name, "ascending") for name in order])
            order = {name: values.take(by) for name, values in order.items()}
        made = bundle(
            stage,
            judged,
            order,
            plan.stages[number].watermark,
            self.task.behind(number),
            share=self.task.number,
            number=plan.parts,
        )
        dead = dead_panes(stage, number, panes, judged, plan.epoch)
        return made, self.task.put(f"rejected-{number}", dead)


def step_part(task: Task, number: int, above: Above, rows: list[pa.RecordBatch]) -> tuple[StageFound, Bundles]:
    """One epoch of a part of stage ``number``, to which the level above said ``above`` and sent ``rows``."""
    return _Part(task, number).run(above, rows)
