"""Cases in this process: the tasks of each epoch in threads, and what crosses between them as blobs, as on Spark."""

from collections.abc import Iterator, Sequence

from headrace.distribute.epoch import Attempts
from headrace.distribute.tasks.engine import TasksEngine
from headrace.distribute.tasks.plan import TaskEnvironment
from headrace.pipeline.pipeline import Pipeline
from headrace.sources.landing import Landing
from headrace.state.file_cache import RowsInMemory
from headrace_lab.conformance.blobs import Blobs
from headrace_lab.conformance.cases import Case
from headrace_lab.conformance.epoch_replay import StageRunner, replay_case
from headrace_lab.conformance.on_tasks import OnTasks, map_elements
from headrace_lab.conformance.replay import CaseReplay
from headrace_snapshots.store.local import MemoryStore

TASKS = 3


class LocalExecutor:
    """Runs cases one after another, with so many ``tasks`` a level."""

    def __init__(self, tasks: int = TASKS) -> None:
        self._tasks = tasks

    def replay(self, cases: Sequence[Case]) -> Iterator[CaseReplay]:
        return (replay_case(self._start, case) for case in cases)

    def _start(self, pipeline: Pipeline) -> StageRunner:
        return OnTasks(self._engine, pipeline, self._tasks)

    def _engine(self, pipeline: Pipeline, attempts: Attempts) -> TasksEngine:
        store = MemoryStore()
        work = TaskEnvironment.from_pipeline(pipeline, store, Landing(pipeline, store), RowsInMemory())
        return TasksEngine(work, attempts, Blobs(work, self._tasks, map_elements))
