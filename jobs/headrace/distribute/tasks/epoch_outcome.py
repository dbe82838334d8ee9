"""What the tasks of an epoch found, put together: the clocks after it, the layers of its tables, its files."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from headrace.distribute.clocks import StageClocks, WatermarkUpdate, moved
from headrace.distribute.epoch import StageOutcome
from headrace.distribute.tasks.plan import EpochPlan
from headrace.distribute.tasks.stages import entering, output_of
from headrace.distribute.tasks.tables import gone_from
from headrace.distribute.tasks.task_environment import TaskEnvironment
from headrace.distribute.tasks.task_results import (
    Files,
    IdsFound,
    PanesFound,
    ShareFound,
    StageFound,
    Stored,
    TaskResult,
    summed,
)
from headrace.distribute.watermark_inputs import InputObservations, together
from headrace.kernel.delta import Accounting
from headrace.kernel.step import Counts
from headrace.model.time import NEVER, Instant
from headrace.sources.progress import WatermarkHold
from headrace.state.tables import IDS, state_tables
from headrace_snapshots.format.files import Layer


@dataclass(frozen=True)
class EpochOutcome:
    """An epoch whose tasks, level by level, passed on what is in ``levels``."""

    plan: EpochPlan
    work: TaskEnvironment
    levels: Sequence[tuple[TaskResult, ...]]

    @cached_property
    def shares(self) -> list[ShareFound]:
        """Results of the map tasks."""
        return [each.found for each in self.levels[0] if isinstance(each.found, ShareFound)]

    @cached_property
    def ids(self) -> list[IdsFound]:
        """The parts of the ids, none where duplicates are not told."""
        return [each.found for each in self.levels[1] if isinstance(each.found, IdsFound)]

    @cached_property
    def stages(self) -> list[list[StageFound]]:
        """The parts of each stage."""
        found = [[each.found for each in level if isinstance(each.found, StageFound)] for level in self.levels]
        return [level for level in found if level]

    @property
    def _stage_levels(self) -> list[tuple[TaskResult, ...]]:
        return [level for level in self.levels if isinstance(level[0].found, StageFound)]

    @cached_property
    def made(self) -> dict[int, list[PanesFound]]:
        """What users' own code made of panes, by the stage that they came to."""
        found, stage = {}, 0
        for level in self.levels:
            panes = [each.found for each in level if isinstance(each.found, PanesFound)]
            if panes:
                found[stage] = panes
            stage += isinstance(level[0].found, StageFound)
        return found

    @cached_property
    def said(self) -> InputObservations:
        """What all records say."""
        return together(share.said for share in self.shares)

    @cached_property
    def moved(self) -> WatermarkUpdate:
        """The clocks of the inputs after the epoch."""
        return self._moved(self.plan.hold)

    def _moved(self, hold: WatermarkHold | None) -> WatermarkUpdate:
        plan, wanted = self.plan, self.work.stages[0].trigger.percentiles
        return moved(plan.clocks, self.said, plan.processing_time, wanted, is_last=plan.is_last, hold=hold)

    @cached_property
    def clocks(self) -> tuple[StageClocks, ...]:
        """Clocks of each stage after the epoch."""
        hold = self.plan.hold
        found = []
        for number, after in enumerate(self._entered):
            output = self._outputs[number]
            if hold is not None:
                output = Instant(max(after.output_watermark, min(output, hold.output(number))))
            found.append(after.with_output(output))
        return tuple(found)

    @cached_property
    def _entered(self) -> list[StageClocks]:
        """The clocks of the stages after the epoch, but for their outputs."""
        above = [self.levels[0], *self._stage_levels]
        return [entering(self.plan, self.work, number, above[number])[1] for number in range(len(self.work.stages))]

    @cached_property
    def _outputs(self) -> list[Instant]:
        """The output watermarks of the stages as windows let them go."""
        parts = zip(self.work.stages, self._entered, self.stages, strict=True)
        return [output_of(stage, after.watermark, [part.hold for part in found]) for stage, after, found in parts]

    @cached_property
    def held_to(self) -> WatermarkHold | None:
        """What the epoch was held to, where its watermarks would have gone further; None where nothing was held."""
        hold, held = self.plan.hold, self.moved
        if hold is None or self.plan.is_last:
            return None
        free = self._moved(None)
        is_held = (free.inputs, free.watermark) != (held.inputs, held.watermark) or any(
            output > clocks.output_watermark for output, clocks in zip(self._outputs, self.clocks, strict=True)
        )
        return hold if is_held else None

    @property
    def due(self) -> tuple[Instant, Instant]:
        """Lower bounds of the watermark and the processing time at which some window wants to be looked at."""
        parts = [part for stage in self.stages for part in stage]
        return min(part.due_event for part in parts), min(part.due_time for part in parts)

    @property
    def due_by_time(self) -> Instant:
        """A lower bound of the processing time at which, without any record, the watermark passes what some window
        waits for; NEVER if it does not, or is held: what is held goes on with an epoch that is held to something else.
        """
        if self.held_to is not None:
            return NEVER
        together = self.moved.together
        waited = [part.due_event for stage in self.stages for part in stage]
        # a later stage may wait for less, which its own input watermark has not passed: time does not help it on
        due = min((at for at in waited if at >= together.watermark), default=NEVER)
        return Instant(due + 1) if due < together.by_time else NEVER

    @property
    def acknowledged(self) -> frozenset[int]:
        """The levels all of whose tasks passed something on, and so have stored their part of the epoch."""
        return frozenset(at for at, level in enumerate(self.levels) if len(level) >= self._tasks_of(at))

    def _tasks_of(self, level: int) -> int:
        """How many there are at least: a user's own code may make more."""
        if level == 0:
            return len(self.plan.shares)
        return 1 if isinstance(self.levels[level][0].found, PanesFound) else self.plan.parts

    def outcomes(self) -> tuple[StageOutcome, ...]:
        """What became of each stage."""
        read = [found.accounting for found in self.shares] + [found.accounting for found in self.ids]
        accounted = [Accounting.of_all(read)]
        for number, stage in enumerate(self.stages[:-1], 1):
            made = [panes.accounting for panes in self.made.get(number, ())]
            accounted.append(Accounting.of_all([*(part.below for part in stage), *made]))
        return tuple(
            StageOutcome(accounting, _sum(part.counts for part in stage), sum(part.changed for part in stage))
            for accounting, stage in zip(accounted, self.stages, strict=True)
        )

    def tables(self) -> dict[str, tuple[Layer, ...]]:
        """The layers of the tables after the epoch."""
        found = {}
        for table, clocks, stage in zip(state_tables(self.work.pipeline), self.clocks, self.stages, strict=True):
            found[table] = self._layers(table, clocks.watermark, [part.state for part in stage])
        if self.work.pipeline.deduplicate is not None:
            found[IDS] = self._layers(IDS, self.clocks[0].watermark, [part.ids for part in self.ids])
        return found

    def _layers(self, table: str, watermark: Instant, tops: Sequence[Stored]) -> tuple[Layer, ...]:
        old = self.plan.tables[table]
        stored = [top for top in tops if top.files]
        files = tuple(file for top in stored for file in top.files)
        ends = [top.expires for top in stored]
        left = old[gone_from(old, watermark) :]
        if not files:
            return tuple(left)
        expires = None if NEVER in ends else int(max(ends))
        return (*left, Layer.of(files, self.plan.epoch, self.plan.epoch, expires))

    @property
    def panes(self) -> Files:
        """Pane files of the last stage."""
        return tuple(file for part in self.stages[-1] for file in part.panes)

    @property
    def late(self) -> Files:
        """Late records."""
        late = [found.late for found in self.shares] + [found.late for found in self.ids]
        return tuple(file for files in late for file in files)

    @property
    def rejected(self) -> Files:
        """Dead letters: records, then panes."""
        panes = [part.rejected for stage in self.stages for part in stage]
        panes += [each.rejected for made in self.made.values() for each in made]
        return tuple(file for files in [*(found.rejected for found in self.shares), *panes] for file in files)

    def requests(self) -> dict[str, int]:
        """Storage requests of all tasks, by kind."""
        return summed(each.requests for level in self.levels for each in level)


def _sum(counts: Iterable[Counts | None]) -> Counts | None:
    found = [each for each in counts if each is not None]
    return Counts(**summed(vars(each) for each in found)) if found else None
