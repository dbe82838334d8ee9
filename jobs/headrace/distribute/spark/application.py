"""A Spark application as the tasks of epochs see it: how many it runs beside each other, what they must be brought.

Classic sessions and those of Spark Connect alike.
"""

import atexit
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar
from zipfile import ZIP_DEFLATED, ZipFile

import headrace
import headrace_snapshots
from headrace.distribute.process_limits import stated_tasks
from headrace.distribute.spark.jvm import is_local
from headrace.distribute.spark.types import SparkSession
from headrace.distribute.tasks.background_work import Stop

P = ParamSpec("P")
R = TypeVar("R")

BACKGROUND_POOL = "background"
"""The FAIR pool of jobs that run beside the epoch being computed."""

_FEWEST = 2


def tasks_of(spark: SparkSession) -> int:
    """How many tasks of an epoch run beside each other: the application's cores, if nobody has said otherwise. Raises
    TasksSettingError.
    """
    if (stated := stated_tasks()) is not None:
        return stated
    if is_connected(spark):  # a client cannot ask for the cores
        return int(spark.conf.get("spark.default.parallelism", str(_FEWEST)) or _FEWEST)
    return spark.sparkContext.defaultParallelism


def is_connected(spark: SparkSession) -> bool:
    """Whether the session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def runs_here(spark: SparkSession) -> bool:
    """Whether tasks run on this machine, in this environment: the master is ``local``."""
    return not is_connected(spark) and is_local(spark.conf.get("spark.master", "") or "")


def in_background_pool(spark: SparkSession, run: Callable[P, R]) -> Callable[P, R]:
    """``run`` for a thread of its own, whose Spark jobs share the cores fairly with the epoch being computed."""
    if is_connected(spark):
        return run

    def pooled(*args: P.args, **kwargs: P.kwargs) -> R:
        context = spark.sparkContext
        context.setLocalProperty("spark.scheduler.pool", BACKGROUND_POOL)
        try:
            return run(*args, **kwargs)
        finally:
            # the typing of pyspark forgets that None clears a property
            context.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]

    return pooled


@contextmanager
def interrupted(spark: SparkSession, stop: Stop) -> Iterator[None]:
    """End the jobs that this thread, which has no others, starts in the block when ``stop`` is set. Raises
    CancelledError if it is already.
    """
    name = f"headrace-{uuid.uuid4().hex}"
    if is_connected(spark):
        spark.addTag(name)
        end: Callable[[], object] = partial(spark.interruptTag, name)
    else:  # where tags do not reach the threads in which the JVM collects what Arrow is made of
        context = spark.sparkContext
        context.setJobGroup(name, "beside the epochs", interruptOnCancel=True)
        end = partial(context.cancelJobGroup, name)
    with stop.calling(end):
        yield


_brought: Final[set[str]] = set()
"""The applications, or sessions of Spark Connect, that have been given the packages."""


def bring_packages(spark: SparkSession) -> None:
    """Give tasks on other machines the Headrace that this process runs. What it stands on (pyarrow, numpy, minio for
    s3://) must be there.
    """
    if runs_here(spark):
        return
    client: Any = spark
    application = client.session_id if is_connected(spark) else spark.sparkContext.applicationId
    if application in _brought:  # Spark refuses a second archive of that name
        return
    folder = Path(tempfile.mkdtemp(prefix="headrace-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # executors that come later fetch it from here
    archive = folder / "headrace_packages.zip"
    with ZipFile(archive, "w", ZIP_DEFLATED) as zipped:
        for package in (headrace, headrace_snapshots):
            home = Path(package.__path__[0])
            for file in sorted(home.rglob("*.py")):
                zipped.write(file, Path(home.name) / file.relative_to(home))
    if is_connected(spark):
        client.addArtifacts(str(archive), pyfile=True)
    else:
        spark.sparkContext.addPyFile(str(archive))
    _brought.add(application)
