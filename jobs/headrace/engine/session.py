"""The Spark session, the same everywhere: UTC, ANSI, no adaptive plans (they would exchange state again), S3A.

Secrets never enter Spark's configuration: S3A takes them from the environment of the process.
"""

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from headrace.engine.errors import starting
from headrace.engine.jvm import LOOPBACK, JarsMissingError, driver_java_options, s3a_jars

P = ParamSpec("P")
R = TypeVar("R")

BACKGROUND_POOL = "background"
"""The FAIR pool of jobs that write snapshots while the next epoch computes."""

_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # set when spark-submit started this process, and with it master, memory and jars
_S3A_CLASS = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_ENVIRONMENT_CREDENTIALS = "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider"

_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # PySpark would look up the Python stack for every column expression
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # inferring filters from wide projections costs more than the engine's queries, whose filters are where they belong
    "spark.sql.constraintPropagation.enabled": "false",
    # the first would turn the clocks of an epoch from columns into literals, and every epoch into new code to compile;
    # the second would give every layer of state a join and a copy of all conditions of its own
    "spark.sql.optimizer.excludedRules": ",".join(
        f"org.apache.spark.sql.catalyst.optimizer.{rule}"
        for rule in ("FoldablePropagation", "PushDownLeftSemiAntiJoin")
    ),
    # every query would be written out in all detail for a UI
    "spark.sql.ui.explainMode": "simple",
    # plans of one shape share generated code, wherever in a plan it stands, and keep it
    "spark.sql.codegen.useIdInClassName": "false",
    "spark.sql.codegen.cache.maxEntries": "2000",
    # an epoch has more groups than the 65,536 of the generated hash map, which the others would look through in vain
    "spark.sql.codegen.aggregate.fastHashMap.capacityBit": "18",
    "spark.sql.caseSensitive": "true",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    # groups are many: it would sort them anyway, and make a buffer for each
    "spark.sql.execution.useObjectHashAggregateExec": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    # of a repeated name in JSON the last counts, as it does for from_json
    "spark.sql.variant.allowDuplicateKeys": "true",
    # nanoseconds are read as long and cut to microseconds by the source; Spark has no such timestamp
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    # no side files (.name.crc) beside data, and names with a colon work
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}


def spark_session(
    app_name: str,
    *,
    root_uri: str,
    source_uris: Sequence[str] = (),
    cores: int | None = None,
    conf: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> SparkSession:
    """The session of a Headrace application over storage at ``root_uri`` (``source_uris``: of sources elsewhere).

    Under spark-submit the master is the one submitted to, else ``local[cores]``. ``cores`` (default: what the master
    offers, or the machine's) is also the number of shuffle partitions. ``conf`` overrides anything. What a JVM that is
    started here says goes to ``log``, or to this process's own output.
    Raises JarsMissingError when s3:// is needed and its jars are not there, JvmRefusedError, SparkStartError.
    """
    needs_s3 = any(uri.startswith(("s3://", "s3a://")) for uri in (root_uri, *source_uris))
    settings = {**_CONF, **(_s3a_conf(os.environ) if needs_s3 else {})}
    # tasks that write files run the Python that the driver runs, unless a cluster has its own
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if not is_submitted():
        settings |= _launch_conf(cores, needs_s3)
    settings |= conf or {}
    builder = SparkSession.builder.appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    _silence_python()
    with starting(log):
        if log is not None:
            _launch(settings, log)
        spark = builder.getOrCreate()
        _remember_helpers(spark)
    if needs_s3:
        _check_s3a(spark)
    if "spark.sql.shuffle.partitions" not in settings:
        spark.conf.set("spark.sql.shuffle.partitions", str(cores or spark.sparkContext.defaultParallelism))
    return spark


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
"""Variable of the driver's memory (2g if it is not set), where Headrace starts the JVM itself."""

_INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}


def interpreting(spark: SparkSession) -> SparkSession:
    """A session of the same application for many queries over a few rows: interpreted, since compiling them would cost
    more than running them, and in one partition.
    """
    session = spark.newSession()
    for name, value in _INTERPRETED.items():
        session.conf.set(name, value)
    return session


def in_background_pool(spark: SparkSession, run: Callable[P, R]) -> Callable[P, R]:
    """``run`` for a thread of its own, whose Spark jobs share the cores fairly with the epoch being computed."""

    def pooled(*args: P.args, **kwargs: P.kwargs) -> R:
        context = spark.sparkContext
        context.setLocalProperty("spark.scheduler.pool", BACKGROUND_POOL)
        try:
            return run(*args, **kwargs)
        finally:
            # the typing of pyspark forgets that None clears a property
            context.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]

    return pooled


def _launch_conf(cores: int | None, needs_s3: bool) -> dict[str, str]:
    """What only counts before the JVM starts."""
    settings = {
        "spark.master": f"local[{cores or '*'}]",
        "spark.driver.memory": os.environ.get(DRIVER_MEMORY, "2g"),
        **LOOPBACK,
    }
    if needs_s3:
        settings["spark.jars"] = ",".join(str(jar) for jar in s3a_jars())
    options = driver_java_options()
    if options:
        settings["spark.driver.extraJavaOptions"] = options
    return settings


def _s3a_conf(environment: Mapping[str, str]) -> dict[str, str]:
    """S3A as the standard AWS variables say it; endpoint and region only, keys stay in the environment."""
    # buffers in memory: the disk buffer does not work with the raw local file system above
    settings: dict[str, str] = {"spark.hadoop.fs.s3a.fast.upload.buffer": "bytebuffer"}
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    if endpoint:
        settings["spark.hadoop.fs.s3a.endpoint"] = endpoint
        settings["spark.hadoop.fs.s3a.path.style.access"] = "true"
        settings["spark.hadoop.fs.s3a.connection.ssl.enabled"] = str(endpoint.startswith("https://")).lower()
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    if region or endpoint:
        settings["spark.hadoop.fs.s3a.endpoint.region"] = region or "us-east-1"
    if "AWS_ACCESS_KEY_ID" in environment:
        settings["spark.hadoop.fs.s3a.aws.credentials.provider"] = _ENVIRONMENT_CREDENTIALS
    return settings


def _check_s3a(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm
    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        jvm.java.lang.Class.forName(_S3A_CLASS, False, loader)
    except Py4JError as error:
        raise JarsMissingError(
            f"this Spark has no {_S3A_CLASS}: run `make setup`, and give spark-submit its jars (--jars)"
        ) from error


class _Members:
    """A class in the JVM whose members are looked up there once."""

    def __init__(self, found: Any) -> None:
        self._class = found

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._class, name)
        setattr(self, name, member)
        return member


def _remember_helpers(spark: SparkSession) -> None:
    """PySpark looks these classes and their members up anew for almost every column; and short names are looked for in
    all jars, one package after another.
    """
    jvm = spark.sparkContext._jvm
    for name in ("functions", "org.apache.spark.sql.functions", "PythonUtils"):
        if name not in vars(jvm):  # the JVM outlives a session
            setattr(jvm, name, _Members(getattr(jvm, name)))


def _silence_python() -> None:
    """PySpark prints every failed query to stderr as JSON with its Java stack, and py4j a traceback for every
    connection that a dead JVM leaves; the typed error says it in a line.
    """
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    logging.getLogger("py4j").propagate = False
    logging.getLogger("py4j").addHandler(logging.NullHandler())
