"""Cases through the levels of tasks of an epoch, and what crosses between them: a few tasks share the elements of each
step, as shares of an input, and others the keys of each stage. Panes are read from the files that the tasks stored.

Elements are in files of the case's own, since no source gives what cases give: elements that withdraw others, sizes,
watermarks.
"""

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import pyarrow as pa

from headrace.distribute.epoch import Attempt, Attempts
from headrace.distribute.tasks.engine import TasksEngine
from headrace.distribute.tasks.levels import mapped_by, parts_below
from headrace.distribute.tasks.map_side import Bundles
from headrace.distribute.tasks.plan import EpochPlan
from headrace.distribute.tasks.shuffle.level_functions import Rows, numbers_in
from headrace.distribute.tasks.shuffle.shuffle_input import bundle
from headrace.distribute.tasks.task_environment import EpochTask, TaskEnvironment
from headrace.distribute.tasks.task_results import BundleOutput, ShareOutput
from headrace.kernel.elements import judge
from headrace.model.combiners import count
from headrace.model.time import MIN_INSTANT, Instant
from headrace.model.windows import FixedWindows
from headrace.pipeline.aggregation import Stage
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.sources import OWN, json
from headrace.read.views.columns import View, ViewColumns
from headrace.read.views.row_files import tables
from headrace.sources.file_planning import LandedFile
from headrace_lab.conformance.epoch_replay import StageElement, StagesOutcome
from headrace_lab.conformance.values import element_rows, stored_panes
from headrace_snapshots.format.table_names import UNNAMED

MakeEngine = Callable[[Pipeline, Attempts], TasksEngine]


class CasePipeline(Pipeline):
    """The stages of a case, as they are, with an input that stands for its elements."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        elements = json("elements", {"at": datetime}).event_time("at", bound="0s")
        super().__init__("conformance", elements, what={"elements": count()}, where=FixedWindows("1h"))
        object.__setattr__(self, "stages", tuple(stages))


def map_elements(work: TaskEnvironment, plan: EpochPlan, numbers: Rows) -> Iterator[pa.RecordBatch]:
    """What shares of the elements of a step say: the map side but for files that a source would read."""
    for number in numbers_in(numbers):
        yield from mapped_by(_map_share, work, plan, number).blobs(parts_below(work, plan, -1))


def _map_share(task: EpochTask) -> tuple[ShareOutput, Bundles]:
    plan, first = task.plan, task.chain.stages[0]
    files = [piece.file.path for piece in plan.shares[task.number]]
    elements = [element for path in files for element in pickle.loads(task.work.store.read(path))]  # noqa: S301 (ours)
    if not elements:
        return ShareOutput(), {}
    rows = [(element.record, element.timestamp, element.sign) for element in elements]
    judged = judge(first, element_rows(first.stage.schema, rows, [element.size for element in elements]))
    watermark = task.state.clocks[0].watermark
    made = bundle(first, judged, None, watermark, task.output_watermark(), share=task.number, number=task.parts)
    return ShareOutput(chains=(BundleOutput(made.aggregated.accounting),)), made.parts


class OnTasks:
    """The stages of a case on an engine whose runner has ``map_elements`` as its map side, and so many ``tasks``."""

    def __init__(self, engine: MakeEngine, stages: Sequence[Stage], tasks: int) -> None:
        pipeline = CasePipeline(stages)
        self._columns = ViewColumns.of(pipeline)
        self._engine = engine(pipeline, lambda epoch: Attempt(f"epoch-{epoch}", f"data/{epoch:06}"))
        self._tasks = tasks

    def run(
        self,
        epoch: int,
        elements: Sequence[StageElement],
        *,
        processing_time: Instant,
        watermark: Instant,
        percentiles: Mapping[float, Instant],
        is_batch: bool,
    ) -> StagesOutcome:
        """One epoch (semantics 12.1); clocks that lie behind change nothing. ``is_batch``: it is all there is."""
        engine = self._engine
        if is_batch:  # nothing has come in before it: it is the first epoch
            engine.restore(-1, engine.progress, {})
        else:
            self._pass(watermark, percentiles)
        computed = engine.compute(self._landed(epoch, elements), processing_time, is_last=is_batch)
        dropped = {
            "late": sum(stage.accounting.late for stage in computed.stages),
            "closed": sum(stage.closed for stage in computed.stages),
            "retraction": sum(stage.dropped_retractions for stage in computed.stages),
        }
        panes = tables(engine.store, computed.written.logs[UNNAMED.panes], self._columns.schema(View.PANES))
        return StagesOutcome(stored_panes(panes, self._columns), dropped)

    def output_watermarks(self) -> tuple[Instant, ...]:
        """The output watermark of each stage."""
        return tuple(clocks.output_watermark for clocks in self._engine.states[0].clocks)

    def _pass(self, watermark: Instant, percentiles: Mapping[float, Instant]) -> None:
        self._engine.pass_watermark({OWN: watermark})
        progress = self._engine.inputs[OWN]
        passed = {q: max(at, progress.percentiles.get(q, MIN_INSTANT)) for q, at in percentiles.items()}
        self._engine.inputs[OWN] = replace(progress, percentiles={**progress.percentiles, **passed})

    def _landed(self, epoch: int, elements: Sequence[StageElement]) -> dict[str, list[LandedFile]]:
        """``elements`` in a file for each task."""
        files = []
        for number in range(self._tasks):
            own = elements[len(elements) * number // self._tasks : len(elements) * (number + 1) // self._tasks]
            if own:
                path = f"elements/{epoch:06}-{number}"
                self._engine.store.write(path, pickle.dumps(own))
                files.append(LandedFile(path, size=1, etag=""))
        return {OWN: files} if files else {}
