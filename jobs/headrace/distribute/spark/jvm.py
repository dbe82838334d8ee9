"""What the JVM of a Spark driver is started with: how to compile, the class-data archive, a log.

Plain strings and paths from the environment and the cache, no pyspark: Airflow imports this while it parses DAGs.
``make archive`` adds the archive (scripts/spark_archive.py).
"""

import hashlib
import os
import shutil
from datetime import UTC, datetime
from importlib import metadata, resources
from pathlib import Path

from headrace.errors import FixConfigError

ARCHIVE_VARIABLE = "HEADRACE_SPARK_ARCHIVE"
OPTIONS_VARIABLE = "HEADRACE_JAVA_OPTIONS"
LOGS_VARIABLE = "HEADRACE_LOGS"
KEPT_LOGS = 200
_LOGGING = "spark_log4j2.properties"


def cache_folder() -> Path:
    """Where downloads live that any checkout may share: ``${XDG_CACHE_HOME:-~/.cache}/headrace``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "headrace"


LOCAL_MASTER = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.authenticate": "true",
    "spark.python.daemon.module": "headrace.distribute.spark.daemon",
}
"""For a local master, whose driver nobody else has to reach, and whose workers import what the driver does. Others need
an address, and a secret of their own.
"""


def is_local(master: str) -> bool:
    """Whether ``master`` is Spark in the driver's own process."""
    return master == "local" or master.startswith("local[")


_COMPILE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_HEAP = "-Xms64m"
"""Else the heap begins with a 64th of the machine's memory, and is used up before it is looked through."""


def new_log(run_id: str) -> Path:
    """An empty file for what Spark says in a run, below HEADRACE_LOGS (default: the user's state folder); only the
    newest KEPT_LOGS stay. Raises FixConfigError.
    """
    setting, base = os.environ.get(LOGS_VARIABLE), os.environ.get("XDG_STATE_HOME")
    folder = (
        Path(setting) if setting else (Path(base) if base else Path.home() / ".local" / "state") / "headrace" / "logs"
    )
    log = folder / f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{run_id}.log"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        log.touch(mode=0o600)
        for old in sorted(folder.glob("*.log"))[:-KEPT_LOGS]:
            old.unlink(missing_ok=True)
    except OSError as error:
        raise FixConfigError(
            f"{error.filename or folder} cannot be used for Spark's messages: {error.strerror}; set {LOGS_VARIABLE} "
            "to a folder that can be written"
        ) from error
    return log


def log_options(log: Path) -> str:
    """Options with which the JVM writes what Spark says to ``log`` instead of its standard error."""
    configuration = resources.files("headrace.distribute.spark").joinpath(_LOGGING)
    return f'"-Dlog4j2.configurationFile={configuration}" "-Dheadrace.log={log}"'


def driver_java_options() -> str:
    """Options for ``spark.driver.extraJavaOptions``: how to compile, with which heap to begin, the class-data archive
    if there is one, and last HEADRACE_JAVA_OPTIONS.

    The JVM schedules and shuffles, and computes nothing: C1 and a serial collector are all that it needs.
    """
    parts = (_COMPILE, _HEAP, _archive_options(), os.environ.get(OPTIONS_VARIABLE, ""))
    return " ".join(part for part in parts if part)


def _archive_options() -> str:
    """HEADRACE_SPARK_ARCHIVE names the archive, or is ``off``. Raises FixConfigError when it names a missing file."""
    setting = os.environ.get(ARCHIVE_VARIABLE)
    if setting == "off":
        return ""
    archive = Path(setting) if setting else cached_archive()
    if archive is None or not archive.is_file():
        if setting:
            raise FixConfigError(f"{ARCHIVE_VARIABLE}={setting}: no such file; run `make archive`, or set it to off")
        return ""
    # An archive that does not fit this JVM is ignored; the JVM would say so on the standard output of every program
    log = "-Xlog:disable -Xlog:all=warning:stderr -Xlog:cds*=off:stderr"
    return f"-Xshare:auto {log} -XX:SharedArchiveFile={archive}"


def cached_archive() -> Path | None:
    """Where the archive of this JDK and this installation of Spark belongs; it need not exist yet.

    None when either cannot be told. The JVM takes an archive only for the class path that it was made with.
    """
    java = java_home()
    release = java / "release" if java else None
    try:
        spark = metadata.version("pyspark")
        spark_home = metadata.distribution("pyspark").locate_file("pyspark")
    except metadata.PackageNotFoundError:
        return None
    if release is None or not release.is_file():
        return None
    jdk = hashlib.sha256(f"{java}\n{release.read_text()}\n{spark_home}".encode()).hexdigest()[:16]
    return cache_folder() / "archives" / f"spark-{spark}-jdk-{jdk}.jsa"


def java_home() -> Path | None:
    """The JDK that Spark will use: JAVA_HOME, else the home of the ``java`` on PATH, else None."""
    setting = os.environ.get("JAVA_HOME")
    if setting:
        return Path(setting)
    java = shutil.which("java")
    return Path(java).resolve().parent.parent if java else None
