"""A run whose epochs are computed in its own process."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from headrace.audit.range import AuditedFiles, Frame, ReleasedPanes
from headrace.distribute.epoch import Attempts
from headrace.distribute.local import LocalEngine
from headrace.distribute.process import import_pandas_late, share_one_heap
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.quality import ExpectationView
from headrace.read.views.columns import ViewColumns
from headrace.sources.landing import Landing
from headrace.state.file_cache import default_cache
from headrace.state.layers import state_schemas
from headrace.state.sorted_file import LOCAL_BYTES, RESIDENT
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.store import ObjectInfo, ObjectStore


@dataclass(frozen=True)
class LocalExecution:
    """One run's side of this process."""

    pipeline: Pipeline
    store: ObjectStore
    landing: Landing

    def begin(self) -> None:
        """There is nothing to start; the tasks are threads of this process."""
        share_one_heap()
        import_pandas_late()
        RESIDENT.limit = LOCAL_BYTES

    def engine(self, attempts: Attempts) -> LocalEngine:
        """A fresh engine, whose epochs get their names from ``attempts``."""
        return LocalEngine(self.pipeline, self.store, self.landing, attempts)

    def verify(self, table: str, file: DataFile, info: ObjectInfo | None = None) -> None:
        """Raise BrokenObjectError unless ``file`` of a ``table`` of state is what was written; caches its rows."""
        default_cache().check(self.store, file, self._schemas[table], info)

    @cached_property
    def _schemas(self) -> Mapping[str, pa.Schema]:
        return state_schemas(self.pipeline)

    def audit_frame(
        self, view: ExpectationView, audited: AuditedFiles, columns: ViewColumns, released: Sequence[ReleasedPanes] = ()
    ) -> Frame:
        """The rows of ``view``, with ``columns``, but for ``released`` ones. Raises BrokenObjectError."""
        from headrace.audit.arrow_frames import arrow_frame  # with DuckDB: only where something is expected

        return arrow_frame(self.store, columns, view, audited, released)

    def errors(self) -> AbstractContextManager[None]:
        """Errors are typed where they arise."""
        return nullcontext()

    def close(self, error: BaseException | None) -> None:
        """There is nothing to stop."""
