"""A run whose epochs are Spark jobs: its session, started once there is something to do."""

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from traceback import format_exception

from headrace.audit.frames import Frame
from headrace.audit.range import AuditedFiles
from headrace.distribute.epoch import Attempts
from headrace.distribute.spark.engine import SparkEngine
from headrace.distribute.spark.errors import SparkStoppedError, spark_errors
from headrace.distribute.spark.jvm import new_log
from headrace.distribute.spark.session import is_submitted, spark_session
from headrace.distribute.spark.types import SparkSession
from headrace.pipeline.expectations import View
from headrace.pipeline.graph import Pipeline
from headrace.read.columns import ViewColumns
from headrace.runs.report import Listener
from headrace.runs.results import redacted
from headrace.sources.landing import Landing
from headrace.state.cache import default_cache
from headrace.state.stored import state_schemas
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.store import ObjectStore


@dataclass
class OnSpark:
    """One run's side of Spark; ``borrowed`` is a session to use instead of one of its own."""

    pipeline: Pipeline
    store: ObjectStore
    landing: Landing
    run_id: str
    listener: Listener
    borrowed: SparkSession | None

    def __post_init__(self) -> None:
        self._own: Future[SparkSession] | None = None
        self._log: Path | None = None

    def begin(self) -> None:
        """Start the session, which takes seconds, in a thread of its own."""
        if self.borrowed is not None or self._own is not None:
            return
        self._log = None if is_submitted() else new_log(self.run_id)
        self.listener.noted("starting Spark" if self._log is None else f"starting Spark; what it says: {self._log}")
        thread = ThreadPoolExecutor(1, thread_name_prefix="spark")
        self._own = thread.submit(spark_session, f"headrace {self.pipeline.name}", log=self._log)
        thread.shutdown(wait=False)

    @property
    def spark(self) -> SparkSession:
        """The session. Raises what `spark_session` raises."""
        if self.borrowed is not None:
            return self.borrowed
        self.begin()
        assert self._own is not None
        return self._own.result()

    def engine(self, attempts: Attempts) -> SparkEngine:
        """A fresh engine, whose epochs get their names from ``attempts``."""
        return SparkEngine(self.spark, self.pipeline, self.store, self.landing, attempts)

    def verify(self, table: str, file: DataFile) -> None:
        """Raise BrokenObjectError unless ``file``, of a ``table`` of state, is what was written; its rows are in the
        cache then, which the tasks on this host share.
        """
        default_cache().check(self.store, file, state_schemas(self.pipeline)[table])

    def audit_frame(self, view: View, audited: AuditedFiles) -> Frame:
        """The rows of ``view`` that an audit looks at. Raises BrokenObjectError."""
        from headrace.audit.arrow_frames import arrow_frame  # with DuckDB: only where something is expected

        return arrow_frame(self.store, ViewColumns.of(self.pipeline), view, audited)

    def errors(self) -> AbstractContextManager[None]:
        """What Spark raises inside becomes a typed error."""
        return spark_errors()

    def close(self, error: BaseException | None) -> None:
        """Stop the session, if it is the run's own. An ``error`` that ends the run is kept with what Spark said."""
        if error is not None and self._log is not None:
            with self._log.open("a") as log:
                log.write(redacted("".join(format_exception(error))))
            error.add_note(f"details: {self._log}")
        if self._own is None or self._own.exception() is not None:  # which the run has, if it needed a session
            return
        try:
            with spark_errors():
                self._own.result().stop()
        except SparkStoppedError as stopped:
            if error is None:
                raise
            error.add_note(str(stopped))  # the JVM that died is why the run ends
