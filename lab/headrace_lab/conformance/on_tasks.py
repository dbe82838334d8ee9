"""Cases through the levels of tasks of an epoch, and what crosses between them.

A few tasks share the elements of each step, as shares of an input, and others the keys of each stage. Panes are read
from the files that the tasks stored.

Elements are in files of the case's own, since no source gives what cases give: elements that withdraw others, sizes,
watermarks. Elements of rows are records of a source, which runs read.
"""

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from headrace.distribute.epoch import Attempt, Attempts
from headrace.distribute.tasks.engine import TasksEngine
from headrace.distribute.tasks.exchange import build_shuffle_input
from headrace.distribute.tasks.levels import RowBatches, map_level, numbers_in, parts_below, run_task
from headrace.distribute.tasks.map_side import Bundles
from headrace.distribute.tasks.plan import EpochPlan, EpochTask, TaskEnvironment, address_bundles, parts_at
from headrace.distribute.tasks.task_results import BundleOutput, ShareOutput
from headrace.ext.sources import SourceSplit
from headrace.kernel.delta import Disposition, judge_rows
from headrace.model.time import MIN_INSTANT, Instant
from headrace.pipeline.endpoints import OWN
from headrace.pipeline.pipeline import Pipeline
from headrace.read.views.columns import View, ViewColumns
from headrace.read.views.row_files import read_tables
from headrace_lab.conformance.epoch_replay import StageElement, StagesOutcome
from headrace_lab.conformance.rows import as_json, by_input, last_output, stored_rows
from headrace_lab.conformance.values import element_rows, stored_panes
from headrace_snapshots.format.manifest import OutputTables

MakeEngine = Callable[[Pipeline, Attempts], TasksEngine]


def map_elements(work: TaskEnvironment, plan: EpochPlan, numbers: RowBatches) -> Iterator[pa.RecordBatch]:
    """What shares of the elements of a step say: the map side but for files that a source would read."""
    if last_output(work.pipeline).rows:
        yield from map_level(work, plan, numbers)
        return
    for number in numbers_in(numbers):
        message = run_task(work, number, partial(_map_share, EpochTask(plan, work, number)))
        yield from message.to_blobs(parts_below(work, plan, -1))


def _map_share(task: EpochTask) -> tuple[ShareOutput, Bundles]:
    plan = task.plan
    files = [piece.file.path for piece in plan.shares[task.number]]
    elements = [element for path in files for element in pickle.loads(task.work.store.read(path))]  # noqa: S301 (ours)
    if not elements:
        return ShareOutput(), {}
    rows = [(element.record, element.timestamp, element.sign) for element in elements]
    chains: dict[int, BundleOutput] = {}
    bundles: dict[int, pa.RecordBatch] = {}
    for own in task.for_each_reader():
        first = own.chain.of_records
        judgements = judge_rows(first, element_rows(first.stage.schema, rows, [element.size for element in elements]))
        watermark = own.state.clocks[0].watermark
        parts = parts_at(plan, own.job, 0, own.of_chain)
        shuffle_input = build_shuffle_input(
            first, judgements, None, watermark, own.output_watermark(), share=own.number, number=parts
        )
        chains[own.of_chain] = BundleOutput(shuffle_input.aggregated.accounting)
        bundles |= address_bundles(plan, own.job, 0, own.of_chain, shuffle_input.parts)
    return ShareOutput(chains=chains), bundles


class OnTasks:
    """The ``pipeline`` of a case on an engine whose runner has ``map_elements`` as its map side, and so many ``tasks``.
    Its panes are those of its last output.
    """

    def __init__(self, engine: MakeEngine, pipeline: Pipeline, tasks: int) -> None:
        self._pipeline = pipeline
        self._outputs = [*pipeline.by_output]
        self._names, self._last = OutputTables(self._outputs[-1]), last_output(pipeline)
        self._columns = ViewColumns.from_pipeline(self._last)
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
        computed_epoch = engine.compute(self._land_elements(epoch, elements), processing_time, is_last=is_batch)
        stages = [stage for chain in computed_epoch.chains.values() for stage in chain]
        drop_counts = {
            "late": sum(
                stage.accounting.late + stage.accounting.rows.get(Disposition.FORGOTTEN, 0) for stage in stages
            ),
            "closed": sum(stage.dropped_elements for stage in stages),
            "retraction": sum(stage.dropped_retractions for stage in stages),
        }
        panes = read_tables(
            engine.store, computed_epoch.written.logs[self._names.panes], self._columns.arrow_schema(View.PANES)
        )
        rows = stored_rows(panes, self._last) if self._last.rows else stored_panes(panes, self._columns)
        return StagesOutcome(rows, drop_counts)

    def output_watermarks(self) -> tuple[Instant, ...]:
        """The output watermark of each stage, or of each output; rows have that of the last output alone."""
        chains = {chain.names.output: number for number, chain in enumerate(self._engine.work.chains)}
        outputs = self._outputs[-1:] if self._last.rows else self._outputs
        clocks = [self._engine.states[chains[output]].clocks for output in outputs]
        stages = clocks[0] if len(clocks) == 1 else [own[-1] for own in clocks]
        return tuple(stage.output_watermark for stage in stages)

    def _pass(self, watermark: Instant, percentiles: Mapping[float, Instant]) -> None:
        self._engine.pass_watermark({given_input.name: watermark for given_input in self._pipeline.inputs})
        progress = self._engine.inputs[OWN]
        percentile_watermarks = {
            q: max(percentile_watermark, progress.percentiles.get(q, MIN_INSTANT))
            for q, percentile_watermark in percentiles.items()
        }
        self._engine.inputs[OWN] = replace(progress, percentiles={**progress.percentiles, **percentile_watermarks})

    def _land_elements(self, epoch: int, elements: Sequence[StageElement]) -> dict[str, list[SourceSplit]]:
        """``elements`` of each input in a file for each task."""
        files: dict[str, list[SourceSplit]] = {}
        for number in range(self._tasks):
            own = elements[len(elements) * number // self._tasks : len(elements) * (number + 1) // self._tasks]
            if self._last.rows:
                sides = by_input((element.record for element in own), self._pipeline)
                contents = {name: as_json(records) for name, records in sides.items()}
            else:
                contents = {OWN: pickle.dumps(own)} if own else {}
            for name, content in contents.items():
                path = f"elements/{name}/{epoch:06}-{number}"
                self._engine.store.write(path, content)
                files.setdefault(name, []).append(SourceSplit(path, size=len(content), etag=""))
        return files
