"""A run whose epochs are Spark jobs: its session, started once there is something to do."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from traceback import format_exception
from typing import Final

from headrace.audit.range import AuditedFiles, Frame, ReleasedPanes
from headrace.distribute.epoch import Attempts
from headrace.distribute.spark.application import DataFrame, SparkSession, is_connected
from headrace.distribute.spark.engine import SparkEngine
from headrace.distribute.spark.errors import SparkStoppedError
from headrace.distribute.spark.failures import spark_errors
from headrace.distribute.spark.frames import lists_as_json, rows_without, standing_since, stored_rows
from headrace.distribute.spark.jvm import new_log
from headrace.distribute.spark.session import is_running, is_submitted, spark_session
from headrace.distribute.tasks.plan import TaskEnvironment
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.quality import ExpectationView
from headrace.read.views.columns import Folding, ViewColumns
from headrace.read.views.columns import View as ReadersView
from headrace.runs.executors.choice import stored_bytes
from headrace.runs.reporting.results import redact_secrets
from headrace.sources.landing import Landing
from headrace.state.file_cache import default_cache
from headrace.state.layers import state_schemas
from headrace.this_process import size_in
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.store import ObjectInfo, ObjectStore

AUDIT_BYTES: Final = "HEADRACE_AUDIT_BYTES"
MOST_IN_PROCESS = 64 * 2**20
"""Up to how many bytes of stored rows an audit looks at in this process: ten times as much is in memory then, twice."""


@dataclass
class SparkExecution:
    """One run's side of Spark; ``given_session`` is one to use instead of one of its own."""

    pipeline: Pipeline
    store: ObjectStore
    landing: Landing
    run_id: str
    note: Callable[[str], None]
    given_session: SparkSession | None

    def __post_init__(self) -> None:
        self._own: Future[SparkSession] | None = None
        self._was_running = False
        self._log: Path | None = None

    def begin(self) -> None:
        """Start the session, which takes seconds, in a thread of its own."""
        if self.given_session is not None or self._own is not None:
            return
        self._was_running = is_running()
        self._log = None if is_submitted() else new_log(self.run_id)
        self.note("starting Spark" if self._log is None else f"starting Spark; its messages: {self._log}")
        thread = ThreadPoolExecutor(1, thread_name_prefix="spark")
        self._own = thread.submit(spark_session, f"headrace {self.pipeline.name}", log=self._log)
        thread.shutdown(wait=False)

    @property
    def spark(self) -> SparkSession:
        """The session. Raises what `spark_session` raises."""
        if self.given_session is not None:
            return self.given_session
        self.begin()
        assert self._own is not None
        return self._own.result()

    def engine(self, attempts: Attempts) -> SparkEngine:
        """A fresh engine, whose epochs get their names from ``attempts``."""
        return SparkEngine(self.spark, self.pipeline, self.store, self.landing, attempts)

    def verify(self, table: str, file: DataFile, info: ObjectInfo | None = None) -> None:
        """Raise BrokenObjectError unless ``file``, of a ``table`` of state, is what was written; its rows are in the
        cache then, which the tasks on this host share.
        """
        default_cache().check(self.store, file, state_schemas(self.pipeline)[table], info)

    def audit_frame(
        self, view: ExpectationView, audited: AuditedFiles, columns: ViewColumns, released: Sequence[ReleasedPanes] = ()
    ) -> Frame:
        """The rows of ``view``, with ``columns``, that an audit looks at, without those that are ``released``. It is a
        table in this process, or a frame of Spark's where their files have more than HEADRACE_AUDIT_BYTES. Raises
        SizeError, and BrokenObjectError, of a frame when it is counted.
        """
        byte_limit = size_in(AUDIT_BYTES)
        size = stored_bytes(audited.files[view])
        all_bytes = size + sum(stored_bytes(release.files.files[ExpectationView.PANES]) for release in released)
        if all_bytes <= (MOST_IN_PROCESS if byte_limit is None else byte_limit) or is_connected(self.spark):
            from headrace.audit.arrow_frames import arrow_frame  # with DuckDB: only where something is expected

            return arrow_frame(self.store, columns, view, audited, released)
        rows = self._stored_rows(view, audited, columns)
        if view is ExpectationView.CURRENT:
            identity = None if columns.folding is Folding.NOTHING else columns.identity
            is_summed = columns.folding is Folding.SUMMED
            rows = standing_since(self.spark, rows, identity, audited.since, size, is_summed=is_summed)
        for release in released:
            rows = rows_without(
                rows, self._stored_rows(ExpectationView.PANES, release.files, release.columns), columns.decided_columns
            )
        return lists_as_json(rows)

    def _stored_rows(self, view: ExpectationView, audited_files: AuditedFiles, columns: ViewColumns) -> DataFrame:
        work = TaskEnvironment.from_pipeline(self.pipeline, self.store, self.landing)
        names = audited_files.column_names(view, columns)
        files_with_names = [(file, names[file.path]) for file in audited_files.files[view]]
        return stored_rows(self.spark, work, files_with_names, columns.arrow_schema(ReadersView(view)))

    def errors(self) -> AbstractContextManager[None]:
        """What Spark raises inside becomes a typed error."""
        return spark_errors()

    def close(self, error: BaseException | None) -> None:
        """Stop the session, if it is the run's own and not of an application that was there before. An ``error`` that
        ends the run is kept with what Spark said.
        """
        if error is not None and self._log is not None:
            with self._log.open("a") as log:
                log.write(redact_secrets("".join(format_exception(error))))
            error.add_note(f"details: {self._log}")
        if self._own is None or self._own.exception() is not None:  # which the run has, if it needed a session
            return
        if self._was_running:
            return
        try:
            with spark_errors():
                self._own.result().stop()
        except SparkStoppedError as stop_error:
            if error is None:
                raise
            error.add_note(str(stop_error))  # the JVM that died is why the run ends
