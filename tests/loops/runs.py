"""Runs of a pipeline with a loop that are cut short, and killed at a write, with nothing left but snapshots."""

from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pytest

import headrace as hr
from headrace.distribute.process import TASKS_VARIABLE
from headrace.runs.options import RunOptions
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store
from tests.loops.stopping import stopped_after
from tests.process.executors import ExecutorUnderTest

NOW = datetime(2030, 1, 1, tzinfo=UTC)


class Runs:
    """Runs of a pipeline under ``root``."""

    def __init__(self, pipeline: hr.Pipeline, root: Path, executor: ExecutorUnderTest) -> None:
        self.pipeline, self.root, self.executor = pipeline, root, executor
        self._numbers = count()

    @property
    def catalog(self) -> Catalog:
        return Catalog(open_store(self.root.as_uri()), self.pipeline.name)

    @property
    def epochs(self) -> int:
        main = self.catalog.head().refs.get("main")
        return 0 if main is None else self.catalog.manifest(main).epoch + 1

    @property
    def is_in_flight(self) -> bool:
        """Whether the newest snapshot has something on the back-edge."""
        main = self.catalog.head().refs.get("main")
        return main is not None and bool(self.catalog.manifest(main).tables.get("inflight"))

    def run(self, epochs: int | None = None, tasks: int = 2) -> None:
        """A run of so many epochs at most, with so many tasks."""
        options = RunOptions(f"run-{next(self._numbers)}", files_per_epoch=1, max_epochs=epochs, create=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(TASKS_VARIABLE, str(tasks))
            self.executor.process(self.pipeline, self.root.as_uri(), options, now=lambda: NOW)

    def crash(self, writes: int, epochs: int | None = None, tasks: int = 2) -> None:
        """A run whose store takes so many ``writes`` and no more, if it needs more."""
        with stopped_after(writes):
            self.run(epochs, tasks)
