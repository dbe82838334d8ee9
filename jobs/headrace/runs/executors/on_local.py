"""A run whose epochs are computed in its own process."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from headrace.audit.arrow_frames import ArrowFrame, audit_frames
from headrace.distribute.epoch import Attempts
from headrace.distribute.local.epochs import LocalEngine
from headrace.pipeline.graph import Pipeline
from headrace.read.columns import ViewColumns
from headrace.sources.landing import Landing
from headrace.state.cache import default_cache
from headrace.state.stored import state_schemas
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.store import ObjectStore


@dataclass(frozen=True)
class OnLocal:
    """One run's side of this process."""

    pipeline: Pipeline
    store: ObjectStore
    landing: Landing

    def engine(self, attempts: Attempts) -> LocalEngine:
        """A fresh engine, whose epochs get their names from ``attempts``."""
        return LocalEngine(self.pipeline, self.store, self.landing, attempts)

    def verify(self, table: str, file: DataFile) -> None:
        """Raise BrokenObjectError unless ``file``, of a ``table`` of state, is what was written; its rows are in the
        cache then.
        """
        default_cache().check(self.store, file, self._schemas[table])

    @cached_property
    def _schemas(self) -> Mapping[str, pa.Schema]:
        return state_schemas(self.pipeline)

    def audit_frames(
        self, panes: Sequence[DataFile], current: Sequence[DataFile], since: int
    ) -> tuple[ArrowFrame, ArrowFrame]:
        """The panes of a range, and the rows of ``current`` that epochs after ``since`` wrote."""
        return audit_frames(self.store, ViewColumns.of(self.pipeline), panes, current, since)

    def errors(self) -> AbstractContextManager[None]:
        """Errors are typed where they arise."""
        return nullcontext()

    def close(self, error: BaseException | None) -> None:
        """There is nothing to stop."""
