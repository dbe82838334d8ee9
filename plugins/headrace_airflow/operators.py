"""Tasks of a pipeline. Each asks the catalog what is true, does one thing, and raises the typed error that it met.

``epochs_measured`` sends what epochs did as metrics in Airflow's own channel: StatsD, Datadog or OpenTelemetry, as
``[metrics]`` says. Every metric has the tags ``pipeline`` and ``branch``, and ``root`` where that has a name. Names are
in docs/how-to/airflow.md.

``HeadraceOperator`` starts an application, of Spark or a process of the task's own. The application tells what it did
by its result object; its exit code counts only when it left none.

``skip_after_telling`` has a task of a dry run say in its log what the run would do, and that is all the run does.
"""

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from inspect import signature
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.common.compat.openlineage.utils.spark import (
    inject_parent_job_information_into_spark_properties,
    inject_transport_information_into_spark_properties,
)
from airflow.sdk import BaseHook, BaseOperator, Context, Param
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException, AirflowSkipException
from airflow.sdk.observability import stats

from headrace import application
from headrace.distribute.spark.jvm import LOCAL_MASTER, driver_java_options, is_local, log_options, new_log
from headrace.errors import FixConfigError, HeadraceError
from headrace.ext.executors import EXECUTORS
from headrace.model.time import MIN_INSTANT, UNITS
from headrace.pipeline.scheduling import ExecutorDecision
from headrace.runs.reporting.results import RunAction, RunResult, read_run_result, redact_secrets
from headrace.this_process import escape_invisible, in_one_line
from headrace_airflow.connection import reaching_sources, reaching_store
from headrace_airflow.failures import TypedTaskError, error_of_exit_code
from headrace_airflow.families.family import options_of
from headrace_airflow.processes import OwnProcess, ParentWatch, ProcessEnd
from headrace_airflow.roots import SPARK_CONNECTION, Root, RootedPipeline, driver_memory, local_memory, spark_connection
from headrace_airflow.run_ids import request_of, run_id_of, told_where
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.names import MAIN
from headrace_snapshots.store import ObjectNotFoundError, open_store

if TYPE_CHECKING:
    from jinja2 import Environment

    from headrace.runs.client.handle import PipelineHandle
    from headrace.runs.executors.choice import WorkEstimate
    from headrace.runs.plan import DryRun


_CHANNELS = ("statsd_on", "statsd_datadog_enabled", "otel_on")
_SUMMARY_COUNTS = {"records": "records", "rejected": "rejected", "late": "late_dropped"}
_log = logging.getLogger("airflow.task")


@contextmanager
def epochs_measured(rooted_pipeline: RootedPipeline, branch: str) -> Iterator[None]:
    """Send the metrics of each epoch that was committed to a branch inside, also if what is inside fails then.

    It asks the catalog and each new manifest, and only if Airflow has a channel. What goes wrong with that is in the
    task's log, and fails nothing.
    """
    if not any(conf.getboolean("metrics", channel, fallback=False) for channel in _CHANNELS):
        yield
        return
    catalog = rooted_pipeline.catalog()
    generation_before = catalog.head().generations.get(branch, 0)
    try:
        yield
    finally:
        try:
            for manifest in _epochs_since(catalog, branch, generation_before):
                _send_metrics(manifest, rooted_pipeline.root)
        except Exception:  # whatever it is, the run is what it is
            _log.exception("no metrics of these epochs were sent")


def _epochs_since(catalog: Catalog, branch: str, generation: int) -> list[Manifest]:
    """The epochs of writers that have claimed the branch since ``generation``, oldest first."""
    head = catalog.head().refs.get(branch)
    if head is None:
        return []
    newer = takewhile(lambda link: link.branch == branch and link.generation > generation, catalog.ancestry(head))
    return [manifest for manifest in newer if not manifest.is_patch][::-1]


def _send_metrics(manifest: Manifest, root: Root) -> None:
    from headrace.read.snapshots.epoch_history import EpochFigures
    from headrace.runs.reporting.summary import written_bytes

    tags = {"pipeline": manifest.pipeline, "branch": manifest.branch, **({"root": root.name} if root.name else {})}
    stats.incr("headrace.epochs", tags=tags)
    for name, count_name in _SUMMARY_COUNTS.items():
        stats.incr(f"headrace.{name}", manifest.counts.get(count_name, 0), tags=tags)
    stats.incr("headrace.written_bytes", written_bytes(manifest), tags=tags)
    stats.incr("headrace.requests", sum(manifest.requests.values()), tags=tags)
    stats.timing("headrace.epoch_duration", timedelta(seconds=sum(manifest.timings.values())), tags=tags)
    figures = EpochFigures.from_manifest(manifest)
    if figures.watermark > MIN_INSTANT:
        lag = (figures.processing_time - figures.watermark) / UNITS["seconds"]
        stats.gauge("headrace.watermark_lag_seconds", lag, tags=tags)


SUBMIT = Path(application.__file__).with_name("submit.py")
_SPARK_CONF = {"spark.ui.enabled": "false"}
_DEPLOY_MODE = "client"
_FORM_TEMPLATE = (
    "{% for name, value in params.items() if value not in (none, false, '', []) %}{{ name }}: {{ value }}\n"
    "{% else %}nothing but what the pipeline says{% endfor %}"
)
"""What the form of a run says, in lines, as people read it once the run has begun."""

Summary = dict[str, Any]
"""What a task leaves in XCom: a few figures of its RunResult."""


class SparkConnectionError(FixConfigError, code="config.spark_connection"):
    """The Airflow connection that says where Spark is does not exist (Spark's own operator would try YARN)."""


class DeployModeError(FixConfigError, code="config.deploy_mode"):
    """The connection to Spark asks for a driver on a machine of the cluster, away from the task that waits for it."""


class HeadraceOperator(BaseOperator):
    """Run one action of a pipeline: as a Spark application, or in a process of the task's own. The executor that the
    form names, else the pipeline's, decides.

    It calls spark-submit by the hook of Airflow's ``SparkSubmitOperator`` and is none itself. Airflow would need twice
    the time for each task when it parses DAGs.

    ``flags`` maps options of submit.py to names of the DAG run's params; a param that is None or False is left out, one
    that is a list gives the option once for each of its items.
    """

    template_fields = ("asked", "env_vars")
    """What the tab "Rendered Templates" shows."""

    asked: str | None = None
    """What the form of the run says, once it runs: while Airflow parses, each template costs it time."""

    shown_in = "overview"
    """The view of the pipeline's page that shows what is wrong if the task fails."""

    action: RunAction
    """What is run. Subclasses say so here: each ``__init__`` costs Airflow as much again when it parses DAGs."""

    def __init__(
        self,
        *,
        rooted: RootedPipeline,
        action: RunAction | None = None,
        flags: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.rooted, self.flags = rooted, flags or {}
        self.action = action or self.action
        self.env_vars = dict(options_of(rooted).env) or None  # Airflow stores no template that is None
        self._hook: SparkSubmitHook | None = None
        self._own: OwnProcess | None = None

    def render_template_fields(self, context: Context, jinja_env: "Environment | None" = None) -> None:
        """What Airflow calls before it runs the task; what the form says is rendered, too."""
        self.asked = _FORM_TEMPLATE
        super().render_template_fields(context, jinja_env)

    def execute(self, context: Context) -> Summary:
        """What the task leaves in XCom; raises typed errors in Airflow's terms."""
        rooted_pipeline = self.rooted
        with (
            told_where(rooted_pipeline, self.shown_in),
            reaching_store(rooted_pipeline.root),
            reaching_sources(rooted_pipeline.pipeline),
        ):
            return self.act(context)

    def act(self, context: Context) -> Summary:
        """The task: run, wait, and read what the application says it did."""
        return result_summary(self.submit(context))

    def branch(self, context: Context) -> str:
        """The branch that the application moves."""
        return str(context["params"].get("branch") or MAIN)

    def begin_snapshot(self, context: Context) -> str | None:
        """The snapshot from which the application goes on, if that is not the head of its branch."""
        return context["params"].get("snapshot")

    def submit(self, context: Context) -> RunResult:
        """The result of one application, which succeeded."""
        where = self.rooted.root.uri
        run_id = run_id_of(context)
        choice = self._choose_executor(context, where)
        self.log.info("executor %s: %s", choice.name, choice.reason)
        arguments = [self.action, *self._application_arguments(context, where, run_id)]
        arguments += [f"--executor={choice.name}", f"--reason={choice.reason}"]
        is_submitted = EXECUTORS[choice.name].is_submitted
        with epochs_measured(self.rooted, self.branch(context)):
            ending = self._on_spark(context, where, run_id, arguments) if is_submitted else self._on_its_own(arguments)
        result = self._read_result(where, run_id)
        if result is not None and result.error is not None:
            raise TypedTaskError(result.error)  # what the application said of it is in the log already
        if result is None or not ending.well:
            if is_submitted:
                self.log.info("::endgroup::")
            raise TypedTaskError(error_of_exit_code(ending.exit_code, ending.last_line))
        for warning in result.warnings:
            self.log.warning("%s", escape_invisible(warning))
        return result

    def on_kill(self) -> None:
        if self._own is not None:
            self._own.stop()
        elif self._hook is not None:
            self._hook.on_kill()

    def _choose_executor(self, context: Context, where: str) -> ExecutorDecision:
        """Which executor this attempt takes: as the form says, else the pipeline; AUTO looks at what there is to do."""
        from headrace.runs.executors.choice import choose

        return choose(
            self.rooted.pipeline, context["params"].get("executor"), lambda: self._estimate_work(context, where)
        )

    def _estimate_work(self, context: Context, where: str) -> "WorkEstimate":
        from headrace.runs.executors.choice import work_of

        return work_of(
            self.action,
            self.rooted.pipeline,
            where,
            branch=self.branch(context),
            snapshot=self.begin_snapshot(context),
            full_sweep=bool(context["params"].get("full_sweep")),
        )

    def _on_its_own(self, arguments: list[str]) -> ProcessEnd:
        """Run submit.py in a process of this task's own."""
        self._own = OwnProcess(local_memory())
        # its input ends with this task, however that is killed, and it ends with its input
        command = [sys.executable, str(SUBMIT), *arguments, "--end-with-input"]
        env = dict(options_of(self.rooted).env)
        return self._own.run(command, lambda line: self.log.info("%s", escape_invisible(redact_secrets(line))), env)

    def _on_spark(self, context: Context, where: str, run_id: str, arguments: list[str]) -> ProcessEnd:
        master = self._spark_master()
        spark_conf = self._spark_conf(context, run_id, master)
        has_work = is_local(master) and self._has_input(context, where)
        self._hook = SparkSubmitHook(
            **{
                **_arguments_among(options_of(self.rooted).default_args, SparkSubmitHook),
                "conf": spark_conf,
                "conn_id": self.conn_id,
                "env_vars": self.env_vars,
                "name": f"headrace {self.rooted.qualified} {self.action}",
                "driver_memory": driver_memory(),
                "deploy_mode": _DEPLOY_MODE,  # whatever Spark's settings on the worker say
                "application_args": [*arguments, "--start-spark"] if has_work else arguments,
            }
        )
        self.log.info("::group::Spark starts")  # submit.py ends the fold
        try:
            with ParentWatch(self.on_kill):
                self._hook.submit(str(SUBMIT))
        except AirflowException as error:
            return ProcessEnd(False, self._exit_code(), "".join(str(error).splitlines()[-1:]))
        return ProcessEnd(True, self._exit_code(), "")

    @property
    def conn_id(self) -> str:
        """The Airflow connection that says where Spark is."""
        return options_of(self.rooted).conn_id or spark_connection()

    def _has_input(self, context: Context, where: str) -> bool:
        """Whether the application will need a session, as far as can be told; what is wrong it says itself."""
        if self.action == "audit":
            return False  # it looks at few rows in its own process
        with suppress(HeadraceError):
            return self._estimate_work(context, where).input > 0
        return False

    def _spark_conf(self, context: Context, run_id: str, master: str) -> dict[str, str]:
        """Spark's settings, which depend on the worker: its class-data archive, and a file for what Spark says."""
        log = new_log(run_id)
        self.log.info("Spark's messages go to a file on this worker: %s", log)
        options = " ".join(part for part in (driver_java_options(), log_options(log)) if part)
        local = LOCAL_MASTER if is_local(master) else {}
        return _with_lineage(
            {**_SPARK_CONF, **local, "spark.driver.extraJavaOptions": options},
            context,
            options_of(self.rooted).default_args,
        )

    def _application_arguments(self, context: Context, where: str, run_id: str) -> list[str]:
        arguments = ["--pipeline", self.rooted.reference, "--root", where, "--run-id", run_id]
        # with "=" whatever people write in a form is a value, never a flag
        arguments += ["--request", request_of(context), f"--branch={self.branch(context)}"]
        for flag, param in self.flags.items():
            value = context["params"].get(param)
            if value is True:
                arguments.append(flag)
            elif isinstance(value, list):
                arguments += [f"{flag}={item}" for item in value]
            elif value not in (None, False, ""):
                arguments.append(f"{flag}={value}")
        return arguments

    def _read_result(self, where: str, run_id: str) -> RunResult | None:
        try:
            return read_run_result(open_store(where), self.rooted.name, run_id)
        except ObjectNotFoundError:
            return None

    def _exit_code(self) -> int:
        process = None if self._hook is None else self._hook._submit_sp  # the hook offers the code in a text alone
        return 0 if process is None else int(process.returncode)

    def _spark_master(self) -> str:
        """The Spark master that the connection names. Raises SparkConnectionError, DeployModeError."""
        try:
            connection = BaseHook.get_connection(self.conn_id)
        except AirflowNotFoundException as error:
            raise SparkConnectionError(
                f"there is no Airflow connection {self.conn_id}; create it (type spark, host local[2] or a "
                f"master's URL), or name another in {SPARK_CONNECTION}"
            ) from error
        if (mode := connection.extra_dejson.get("deploy-mode") or _DEPLOY_MODE) != _DEPLOY_MODE:
            raise DeployModeError(
                f"the Airflow connection {self.conn_id} has the deploy-mode {mode}, and Headrace's driver has "
                "to run beside its task. There it has the keys of the store, and ends when the task does. Set "
                f"deploy-mode to {_DEPLOY_MODE}; the driver holds no rows, executors compute them in the cluster all "
                "the same"
            )
        return connection.host or ""


def _arguments_among(arguments: Mapping[str, Any], function: Callable[..., Any]) -> dict[str, Any]:
    """What of the ``arguments`` for all tasks ``function`` takes."""
    names = signature(function).parameters
    return {name: value for name, value in arguments.items() if name in names}


def _with_lineage(spark_conf: dict[str, str], context: Context, arguments: Mapping[str, Any]) -> dict[str, str]:
    """``spark_conf``, and what OpenLineage wants Spark to know of the task, as Airflow's ``[openlineage]`` says, else
    the ``arguments`` for all tasks.
    """
    for option, inject in (
        ("inject_parent_job_info", inject_parent_job_information_into_spark_properties),
        ("inject_transport_info", inject_transport_information_into_spark_properties),
    ):
        if arguments.get(f"openlineage_{option}", conf.getboolean("openlineage", f"spark_{option}", fallback=False)):
            spark_conf = inject(spark_conf, context)
    return spark_conf


def result_summary(result: RunResult) -> Summary:
    """The small XCom of a task. Raises the result's error if it has one."""
    if result.error is not None:
        raise TypedTaskError(result.error)
    return {
        "run_id": result.run_id,
        "epochs": len(result.epochs),
        "epoch": result.epoch,
        "snapshot": result.snapshot,
        "published": result.published,
        "counts": dict(result.counts),
        "watermark": result.watermark,
        "executor": None if result.executor is None else result.executor.name,
    }


DRY_RUN: Final = "dry_run"
"""The field of a form."""

_logger = logging.getLogger(__name__)


def dry_run_field(task: str) -> Param:
    """The switch of a form, by which ``task`` says what the run would do."""
    description = f"Do nothing: the log of the task {task} says what the run would do, stage by stage."
    return Param(False, type="boolean", title="Dry run", description=description)


def is_dry_run(context: Context) -> bool:
    """Whether the form of this run says to do nothing."""
    return bool(context["params"].get(DRY_RUN))


def skip_after_telling(
    rooted_pipeline: RootedPipeline, look: "Callable[[PipelineHandle], DryRun]", *, create: bool = False
) -> NoReturn:
    """Have the log say what a run would do, and skip it, and so what comes after it. Raises what stands against it."""
    from headrace.runs.client.handle import PipelineHandle

    dry_run = look(PipelineHandle(rooted_pipeline.catalog(), rooted_pipeline.pipeline, create=create))
    for line in dry_run.lines():
        _logger.info("%s", in_one_line(line))
    for warning in dry_run.warnings:
        _logger.warning("%s", in_one_line(warning))
    raise AirflowSkipException("the form says to do nothing: the lines above say what the run would do")
