"""The Spark session, the same everywhere: UTC, ANSI, small plans. Secrets never enter Spark's configuration."""

import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from headrace.distribute.spark.errors import starting
from headrace.distribute.spark.jvm import LOCAL_MASTER, driver_java_options

_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # set when spark-submit started this process, and with it master and memory

EXCHANGE = {"spark.sql.execution.arrow.maxBytesPerBatch": str(4 * 1024 * 1024)}
"""Of blobs of 1 MB a few fill a batch."""

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
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    **EXCHANGE,
}


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
    settings = dict(_CONF)
    # tasks run the Python that the driver runs, unless a cluster has its own
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if not is_submitted():
        settings |= _launch_conf(cores)
    settings |= conf or {}
    builder = SparkSession.builder.appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    _silence_python()
    with starting(log):
        if log is not None:
            _launch(settings, log)
        session = builder.getOrCreate()
    if not is_submitted():
        threading.Thread(target=_warm_up, args=(session,), name="warm-up", daemon=True).start()
    return session


def _warm_up(session: SparkSession) -> None:
    """Let Spark start its first Python workers, which takes seconds, beside whatever comes before the first epoch."""
    try:
        session.range(0, 1, 1, 1).mapInArrow(_nothing, "id long").toArrow()
    except Exception as error:  # such as a session that stops: what is wrong the first epoch says
        logging.getLogger(__name__).debug("the first Python worker did not start: %s", error)


def _nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def is_submitted() -> bool:
    """Whether spark-submit started this process, and the JVM before it."""
    return _SUBMITTED in os.environ


def _launch(settings: Mapping[str, str], log: Path) -> None:
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


def _silence_python() -> None:
    """PySpark prints every failed query to stderr as JSON with its Java stack, and py4j a traceback for every
    connection that a dead JVM leaves; the typed error says it in a line.
    """
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    logging.getLogger("py4j").propagate = False
    logging.getLogger("py4j").addHandler(logging.NullHandler())
