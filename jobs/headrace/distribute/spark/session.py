"""The Spark session, the same everywhere: UTC, ANSI, small plans. Secrets never enter Spark's configuration."""

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from headrace.distribute.spark.failures import translate_start_errors
from headrace.distribute.spark.jvm import LOCAL_MASTER, driver_java_options, new_log

_GATEWAY_PORT_VARIABLE = (
    "PYSPARK_GATEWAY_PORT"  # set when spark-submit started this process, and with it master and memory
)

EXCHANGE = {"spark.sql.execution.arrow.maxBytesPerBatch": str(4 * 1024 * 1024)}
"""A few blobs of 1 MB fill a batch."""

_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "true",
    # the plan of an epoch is what it is, and its exchanges have the partitions that it says
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.ui.explainMode": "simple",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # as Spark sets it for SQL: so the workers of SQL begin in the daemon that a plain job has started
    "spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK": "1",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    **EXCHANGE,
}
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_PARTITIONS_OF_A_CORE = 4


_starting_sessions: Final[list[Future[SparkSession]]] = []


def begin_session(app_name: str) -> None:
    """Start the session of an application on this machine in a thread, and its first Python workers. The next
    ``spark_session`` gives it, and raises what has kept it from starting.

    Returns once the JVM is at work on it, or it has failed: until then Python has nothing better to do.
    """
    at_work = threading.Event()
    thread = ThreadPoolExecutor(1, thread_name_prefix="spark")
    session = thread.submit(_new_session, app_name, _spark_settings(), None, at_work)
    session.add_done_callback(lambda _: at_work.set())
    _starting_sessions.append(session)
    thread.shutdown(wait=False)
    at_work.wait()


def spark_session(
    app_name: str,
    *,
    cores: int | None = None,
    conf: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> SparkSession:
    """The session of a Headrace application.

    Under spark-submit the master is the one submitted to, else ``local[cores]`` (default: all of the machine's).
    ``conf`` overrides anything. What a JVM that is started here says goes to ``log``, or to this process's own output.
    Raises JvmRefusedError, SparkStartError.
    """
    if _starting_sessions:
        return _starting_sessions.pop().result()
    return _new_session(app_name, _spark_settings(cores, conf), log, None)


def _spark_settings(cores: int | None = None, conf: Mapping[str, str] | None = None) -> dict[str, str]:
    return {**_CONF, **({} if is_submitted() else _launch_conf(cores)), **(conf or {})}


def _new_session(
    app_name: str, settings: Mapping[str, str], log: Path | None, at_work: threading.Event | None
) -> SparkSession:
    """``at_work`` is set when the JVM makes the context. Where it is given, or the JVM is ours, workers start, too."""
    _prepare_python()
    is_new = SparkContext._active_spark_context is None
    builder = SparkSession.builder.appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with translate_start_errors(log):
        if log is not None:
            _launch_jvm(settings, log)
        context = _spark_context(SparkConf().setAll([*settings.items()]).setAppName(app_name), at_work)
        if at_work is not None or not is_submitted():
            threading.Thread(target=_warm_up, args=(context,), name="warm-up", daemon=True).start()
        session = builder.getOrCreate()  # of that context
        if is_new:
            _shuffle_into_few(session)
        return session


def _shuffle_into_few(session: SparkSession) -> None:
    """Where all tasks run on one machine, and nobody has said otherwise, what audits, readers and code of users shuffle
    goes into a few partitions. Spark's 200 are for clusters: a view of ten rows took three seconds of a core.
    """
    context = session.sparkContext
    if str(context.master).startswith("local") and context.getConf().get(_SHUFFLE_PARTITIONS) is None:
        session.conf.set(_SHUFFLE_PARTITIONS, str(_PARTITIONS_OF_A_CORE * context.defaultParallelism))


def _spark_context(conf: SparkConf, at_work: threading.Event | None) -> SparkContext:
    """The context there is, or a new one; ``at_work`` is set when the JVM makes it."""

    class AnnouncingContext(SparkContext):
        def _initialize_context(self, jconf: Any) -> Any:  # PySpark has it for subclasses
            assert at_work is not None
            at_work.set()
            return super()._initialize_context(jconf)

    return SparkContext.getOrCreate(conf) if at_work is None else AnnouncingContext(conf=conf)


def _warm_up(context: SparkContext) -> None:
    """Let Spark start its first Python workers, which takes seconds, beside whatever comes before the first epoch."""
    try:
        context.parallelize([0], 1).mapPartitions(_identity_task).count()
    except Exception as error:  # such as a context that stops: what is wrong the first epoch says
        logging.getLogger(__name__).debug("the first Python worker did not start: %s", error)


def _identity_task(numbers: Iterable[int]) -> Iterable[int]:
    return numbers


def borrowed_session(purpose: str) -> tuple[SparkSession, Callable[[], object]]:
    """The session of this process, or a new one, and what is called when it is not needed any more. That ends a new
    session. A session that ``begin_session`` began, or for which spark-submit started this process, stays for the next
    ``spark_session``. On a cluster another one would have to get executors again. What a JVM that is started here says
    goes to a log.
    """
    if not _starting_sessions and is_submitted() and not is_running():
        session_future: Future[SparkSession] = Future()
        session_future.set_result(spark_session(f"headrace {purpose}"))
        _starting_sessions.append(session_future)
    if _starting_sessions:
        return _starting_sessions[-1].result(), _leave_running
    was_running = is_running()
    session = spark_session(f"headrace {purpose}", log=None if was_running else new_log(purpose))
    return session, _leave_running if was_running else session.stop


def _leave_running() -> None:
    """To whom it belongs."""


def is_running() -> bool:
    """Whether this process has a Spark application, and not one that ``begin_session`` began for the next run."""
    return SparkContext._active_spark_context is not None and not _starting_sessions


def is_submitted() -> bool:
    """Whether spark-submit started this process, and the JVM before it."""
    return _GATEWAY_PORT_VARIABLE in os.environ


def _launch_jvm(settings: Mapping[str, str], log: Path) -> None:
    """Start the JVM with all its output in ``log``, unless there is one."""
    if SparkContext._gateway is None and not is_submitted():
        conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
        with log.open("ab") as output:
            gateway = launch_gateway(conf, {"stdout": output, "stderr": output})  # type: ignore[no-untyped-call]
        SparkContext._ensure_initialized(gateway=gateway)


DRIVER_MEMORY = "HEADRACE_DRIVER_MEMORY"
"""Variable of the driver's memory (1g if it is not set), where Headrace starts the JVM itself."""


def _launch_conf(cores: int | None) -> dict[str, str]:
    """What only counts before the JVM starts."""
    settings = {
        "spark.master": f"local[{cores or '*'}]",
        "spark.driver.memory": os.environ.get(DRIVER_MEMORY, "1g"),
        **LOCAL_MASTER,
    }
    options = driver_java_options()
    if options:
        settings["spark.driver.extraJavaOptions"] = options
    return settings


def _prepare_python() -> None:
    """Tasks run the Python that the driver runs, unless a cluster has its own. PySpark prints every failed query to
    stderr as JSON with its Java stack, and py4j a traceback for every connection that a dead JVM leaves; the typed
    error says it in a line.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    logging.getLogger("py4j").propagate = False
    logging.getLogger("py4j").addHandler(logging.NullHandler())
