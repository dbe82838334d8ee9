"""Tasks of a pipeline. Each asks the catalog what is true, does one thing, and raises the typed error that it met.

A Spark application tells what it did by its result object; its exit code counts only when it left none.
"""

import hashlib
import re
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook, Context
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException, AirflowSkipException

from headrace.engine.jvm import driver_java_options, s3a_jars
from headrace.entrypoints.options import MAIN
from headrace.entrypoints.results import Action, RunResult, read
from headrace.errors import FixConfigError
from headrace_airflow.failures import airflow_error, error_of_exit_code, headrace_errors
from headrace_airflow.registered import Registered
from headrace_airflow.settings import SPARK_CONNECTION, driver_memory, root, spark_connection
from headrace_snapshots.store import ObjectNotFoundError, open_store

SUBMIT = Path(__file__).resolve().parents[2] / "jobs" / "submit.py"
_SPARK_CONF = {"spark.ui.enabled": "false", "spark.log.level": "WARN"}

Summary = dict[str, Any]
"""What a task leaves in XCom: a few figures of its RunResult."""


class SparkConnectionError(FixConfigError):
    """The Airflow connection that says where Spark is does not exist (Spark's own operator would try YARN)."""

    code = "config.spark_connection"


class HeadraceOperator(SparkSubmitOperator):
    """Run one action of a pipeline as a Spark application.

    ``flags`` maps options of submit.py to names of the DAG run's params; a param that is None or False is left out.
    """

    def __init__(
        self,
        *,
        registered: Registered,
        action: Action,
        flags: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            application=str(SUBMIT),
            conn_id=spark_connection(),
            name=f"headrace {registered.pipeline.name} {action}",
            driver_memory=driver_memory(),
            **kwargs,
        )
        self.registered = registered
        self.action = action
        self.flags = flags or {}

    def execute(self, context: Context) -> Summary:
        """Submit, wait, and read what the application says it did; raises its error in Airflow's terms."""
        return summary(self.submit(context))

    def submit(self, context: Context) -> RunResult:
        """The result of one application, which succeeded."""
        with headrace_errors():
            where = root()
            self._check_connection()
            self._prepare_jvm(where)
        run_id = run_id_of(context)
        self.application_args = [self.action, *self._arguments(context, where, run_id)]
        failure: AirflowException | None = None
        try:
            super().execute(context)
        except AirflowException as error:
            failure = error
        result = self._result(where, run_id)
        if result is not None and result.error is not None:
            raise airflow_error(result.error) from None  # the driver's own output is in the log already
        if result is None or failure is not None:
            raise airflow_error(error_of_exit_code(self._exit_code(), str(failure or ""))) from failure
        return result

    def _prepare_jvm(self, where: str) -> None:
        """What depends on the worker: its class-data archive, and jars of its own for s3a:// where that is read."""
        reads = (where, self.registered.pipeline.source.path)
        if any(uri.startswith("s3://") for uri in reads):
            self.jars = ",".join(str(jar) for jar in s3a_jars())
        self.conf = dict(_SPARK_CONF)
        if options := driver_java_options():
            self.conf["spark.driver.extraJavaOptions"] = options

    def _arguments(self, context: Context, where: str, run_id: str) -> list[str]:
        arguments = ["--pipeline", self.registered.reference, "--root", where, "--run-id", run_id]
        for flag, param in self.flags.items():
            value = context["params"].get(param)
            if value is True:
                arguments.append(flag)
            elif value not in (None, False, ""):
                arguments += [flag, str(value)]
        return arguments

    def _result(self, where: str, run_id: str) -> RunResult | None:
        with headrace_errors():
            try:
                return read(open_store(where), self.registered.pipeline.name, run_id)
            except ObjectNotFoundError:
                return None

    def _exit_code(self) -> int:
        process = None if self._hook is None else self._hook._submit_sp  # the hook offers the code in a text alone
        return 0 if process is None else int(process.returncode)

    def _check_connection(self) -> None:
        try:
            BaseHook.get_connection(self._conn_id)
        except AirflowNotFoundException as error:
            raise SparkConnectionError(
                f"there is no Airflow connection {self._conn_id}; create it (type spark, host local[2] or a "
                f"master's URL), or name another in {SPARK_CONNECTION}"
            ) from error


class ReplayOperator(HeadraceOperator):
    """Fork the DAG run's own branch from nothing and replay everything on it."""

    def __init__(self, *, registered: Registered, **kwargs: Any) -> None:
        super().__init__(registered=registered, action="backfill", **kwargs)

    def _prepare_jvm(self, where: str) -> None:
        """What depends on the worker: its class-data archive, and jars of its own for s3a:// where that is read."""
        reads = (where, self.registered.pipeline.source.path)
        if any(uri.startswith("s3://") for uri in reads):
            self.jars = ",".join(str(jar) for jar in s3a_jars())
        self.conf = dict(_SPARK_CONF)
        if options := driver_java_options():
            self.conf["spark.driver.extraJavaOptions"] = options

    def _arguments(self, context: Context, where: str, run_id: str) -> list[str]:
        return [*super()._arguments(context, where, run_id), "--branch", backfill_branch(context)]


class AuditOperator(HeadraceOperator):
    """See that everything in (published, main] has an audit that succeeded; audits it only when nobody has.

    ``of_backfill``: instead of main, everything on the DAG run's own branch.
    """

    def __init__(self, *, registered: Registered, of_backfill: bool = False, **kwargs: Any) -> None:
        super().__init__(registered=registered, action="audit", **kwargs)
        self.of_backfill = of_backfill

    def execute(self, context: Context) -> Summary:
        """Raises the failed expectations as AirflowFailException."""
        from headrace.entrypoints.publish import check_audit

        skip_unless_main(context)
        with headrace_errors():
            outcome = check_audit(self.registered.pipeline.name, root())
        if outcome is None:
            self.submit(context)
        return {}


def skip_unless_main(context: Context) -> None:
    """Audits and publishing are about ``main``: a run on another branch has neither."""
    if (branch := context["params"].get("branch") or MAIN) != MAIN:
        raise AirflowSkipException(f"branch {branch} is not published; promote it to {MAIN} first")


def summary(result: RunResult) -> Summary:
    """The small XCom of a task. Raises the result's error if it has one."""
    if result.error is not None:
        raise airflow_error(result.error)
    return {
        "run_id": result.run_id,
        "epochs": len(result.epochs),
        "epoch": result.epoch,
        "snapshot": result.snapshot,
        "published": result.published,
        "rows": dict(result.rows),
        "watermark": result.watermark,
    }


def run_id_of(context: Context) -> str:
    """A run id that no other attempt of any task has."""
    task = context["ti"]
    return _plain_name(f"{task.dag_id}.{task.run_id}.{task.task_id}.{task.try_number}", unique=str(task.id))


def backfill_branch(context: Context) -> str:
    """The branch of this DAG run: the same in every task and every attempt."""
    run_id = context["ti"].run_id
    return _plain_name(f"backfill-{run_id}", unique=run_id)


def _plain_name(text: str, unique: str) -> str:
    """``text`` in at most 100 plain characters, told apart from others alike by ``unique``."""
    digest = hashlib.sha256(unique.encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', text)[:90]}-{digest}"
