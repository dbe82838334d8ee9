"""A Spark application as the tasks of epochs see it: types, its jobs by name, and what tasks must be brought.

Sessions are classic ones and those of Spark Connect alike. A job has a name in Spark's own pages, and tells which of
its stages run now (``EpochJob``).

Tasks are brought all they need once for all epochs. Users' own modules travel to tasks by value, so those need not be
able to import them (``ship_module``). A ``TaskPayload`` is what the tasks of a pipeline are sent, and what they make of
it in their processes.
"""

import atexit
import marshal
import os
import pickle
import shutil
import sys
import tempfile
import uuid
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from importlib.machinery import SourceFileLoader
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path
from typing import Any, Final, ParamSpec, Self, TypeVar
from zipfile import ZIP_DEFLATED, ZipFile

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

import headrace
import headrace_snapshots
from headrace.distribute.process import Stop, give_back, share_one_heap, stated_tasks
from headrace.distribute.spark.jvm import is_local
from headrace.distribute.tasks.plan import TaskEnvironment
from headrace.errors import FixConfigError
from headrace.kernel.aggregates.group_rows import GroupFunctionError
from headrace.model.expressions import data_types
from headrace.pipeline.loading.code_digests import load_function, modules_of
from headrace.pipeline.loading.modules import package_of
from headrace.sources.flat_maps import BatchFunctionError
from headrace.sources.landing import Landing
from headrace_snapshots.store import open_store, scheme_of

__all__ = ["SPARK_TYPES", "DataFrame", "SparkColumn", "SparkSession", "spark_type"]

SPARK_TYPES: dict[data_types.DataType, t.DataType] = {
    data_types.DataType.STRING: t.StringType(),
    data_types.DataType.INT: t.LongType(),
    data_types.DataType.FLOAT: t.DoubleType(),
    data_types.DataType.BOOL: t.BooleanType(),
    data_types.DataType.TIMESTAMP: t.TimestampType(),
    data_types.DataType.DATE: t.DateType(),
    data_types.DataType.BYTES: t.BinaryType(),
    data_types.DataType.DECIMAL: t.DecimalType(data_types.PRECISION, data_types.SCALE),
}


def spark_type(kind: data_types.ColumnType) -> t.DataType:
    """The type of a column of a source."""
    match kind:
        case data_types.ListType(item):
            return t.ArrayType(spark_type(item))
        case data_types.StructType(fields):
            return t.StructType([t.StructField(name, spark_type(own)) for name, own in fields])
        case data_types.MapType(value):
            return t.MapType(t.StringType(), spark_type(value))
    return SPARK_TYPES[kind]


P = ParamSpec("P")
R = TypeVar("R")

BACKGROUND_POOL = "background"
"""The FAIR pool of jobs that run beside the epoch being computed."""

_FEWEST = 2


def tasks_of(spark: SparkSession) -> int:
    """How many tasks run beside each other: the application's cores unless stated. Raises TasksSettingError."""
    if (number_stated := stated_tasks()) is not None:
        return number_stated
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

    def run_pooled(*args: P.args, **kwargs: P.kwargs) -> R:
        context = spark.sparkContext
        context.setLocalProperty("spark.scheduler.pool", BACKGROUND_POOL)
        try:
            return run(*args, **kwargs)
        finally:
            # the typing of pyspark forgets that None clears a property
            context.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]

    return run_pooled


@contextmanager
def interrupt_on_stop(spark: SparkSession, stop: Stop) -> Iterator[None]:
    """When ``stop`` is set, end this thread's jobs, all begun in the block. Raises CancelledError if it is already."""
    name = f"headrace-{uuid.uuid4().hex}"
    if is_connected(spark):
        spark.addTag(name)
        end: Callable[[], object] = partial(spark.interruptTag, name)
    else:  # where tags do not reach the threads in which the JVM collects what Arrow is made of
        context = spark.sparkContext
        context.setJobGroup(name, "beside the epochs", interruptOnCancel=True)
        end = partial(context.cancelJobGroup, name)
    with stop.call_on_stop(end):
        yield


_sent_archives: Final[set[str]] = set()
"""The applications, or sessions of Spark Connect, that have been given the packages."""


def write_packages(archive: Path) -> None:
    """Write this process's Headrace as a zip, with bytecode, which a process that imports from a zip cannot keep."""
    with ZipFile(archive, "w", ZIP_DEFLATED, compresslevel=1) as archive_file:
        for package in (headrace, headrace_snapshots):
            home = Path(package.__path__[0])
            for file in sorted(home.rglob("*.py")):
                place = Path(home.name) / file.relative_to(home)
                archive_file.write(file, place)
                archive_file.writestr(str(place.with_suffix(".pyc")), _compile_module(file))


def _compile_module(file: Path) -> bytes:
    """The module in ``file`` as Python reads it without a look at the source, whose time a zip keeps without a zone."""
    loader = SourceFileLoader(file.stem, str(file))
    unchecked_flag = (1).to_bytes(4, "little")
    code = marshal.dumps(loader.get_code(file.stem))
    return MAGIC_NUMBER + unchecked_flag + source_hash(loader.get_data(str(file))) + code


def bring_packages(spark: SparkSession) -> None:
    """Give tasks on other machines this Headrace; pyarrow, numpy, and minio for s3:// must be there."""
    if runs_here(spark):
        return
    client: Any = spark
    application = client.session_id if is_connected(spark) else spark.sparkContext.applicationId
    if application in _sent_archives:  # Spark refuses a second archive of that name
        return
    folder = Path(tempfile.mkdtemp(prefix="headrace-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # executors that come later fetch it from here
    archive = folder / "headrace_packages.zip"
    write_packages(archive)
    if is_connected(spark):
        client.addArtifacts(str(archive), pyfile=True)
    else:
        spark.sparkContext.addPyFile(str(archive))
    _sent_archives.add(application)


_GROUP: Final = "spark.jobGroup.id"
_DESCRIPTION: Final = "spark.job.description"


@dataclass(frozen=True)
class StageTasks:
    """How many of the ``tasks`` of a stage of Spark's are ``done``."""

    done: int
    tasks: int


@dataclass(frozen=True)
class EpochJob:
    """A thread's job for an epoch, in Spark's ``group``; None on Spark Connect, whose client cannot ask for it."""

    spark: SparkSession
    group: str | None

    @classmethod
    @contextmanager
    def label_jobs(cls, spark: SparkSession, description: str) -> Iterator[Self]:
        """While inside, jobs of this thread have that ``description``. A group that a caller has set stays: by it the
        caller may cancel what it has started.
        """
        if is_connected(spark):
            yield cls(spark, None)
            return
        context = spark.sparkContext
        names = (_GROUP, _DESCRIPTION)
        old_properties = {name: context.getLocalProperty(name) for name in names}
        group = old_properties[_GROUP] or f"headrace-{uuid.uuid4().hex}"
        context.setLocalProperty(_GROUP, group)
        context.setLocalProperty(_DESCRIPTION, description)
        try:
            yield cls(spark, group)
        finally:
            for name in names:
                # the typing of pyspark forgets that None clears a property
                context.setLocalProperty(name, old_properties[name])  # type: ignore[arg-type]

    def running_stages(self) -> list[StageTasks]:
        """The stages of the newest job that runs, in their order; none before it has begun."""
        if self.group is None:
            return []
        tracker = self.spark.sparkContext.statusTracker()
        jobs = {number: tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(self.group)}
        running = [number for number, job in jobs.items() if job is not None and job.status == "RUNNING"]
        newest = jobs[max(running)] if running else None
        stages = [] if newest is None else [tracker.getStageInfo(stage) for stage in sorted(newest.stageIds)]
        return [StageTasks(stage.numCompletedTasks, stage.numTasks) for stage in stages if stage is not None]


def ship_module(module: str) -> None:
    """Let what ``module`` defines travel; if it lies beside a pipeline's file, also what the others there define."""
    cloudpickle.register_pickle_by_value(sys.modules[package_of(module) or module])  # type: ignore[no-untyped-call]


_PIPELINES = 8


@dataclass(frozen=True)
class TaskPayload:
    """A pipeline and its batch functions, with what its file and the modules beside it define; the root of the store
    that its tasks read and write; variables that processes on other machines lack, such as the keys of that store.
    """

    pipeline: bytes
    root: str
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def from_environment(cls, spark: SparkSession, work: TaskEnvironment) -> "TaskPayload":
        """For tasks in ``spark``. Keys go with the tasks, never into Spark's configuration."""
        for module in modules_of(work.pipeline):
            ship_module(module)
        calls = {
            key: _pickle_function(f"batch function {key[0]}", call, BatchFunctionError)
            for key, call in work.landing.batch_calls.items()
        }
        # they travel with the pipeline: this names one that cannot, before a task fails for it
        for function in work.pipeline.group_functions:
            _pickle_function(function.in_words, load_function(function, GroupFunctionError), GroupFunctionError)
        pickled_pipeline: bytes = cloudpickle.dumps((work.pipeline, calls))  # type: ignore[no-untyped-call]
        uris = () if runs_here(spark) else (work.store.uri, *work.landing.uris)
        settings = [scheme_of(uri).settings(os.environ) for uri in uris]
        return cls(pickled_pipeline, work.store.uri, dict(ChainMap(*settings)))

    def task_environment(self) -> TaskEnvironment:
        """The work of the pipeline: the same object for all tasks of a process."""
        os.environ.update(self.environment)
        return _load_environment(self.pipeline, self.root)

    def task_function(self, run: Callable[..., Iterator[pa.RecordBatch]], *arguments: Any) -> Callable[..., Any]:
        """``run`` of the work, of the ``arguments``, and of the rows of a task."""
        return partial(_run_task, self, run, *arguments)


def _run_task(
    payload: TaskPayload, run: Callable[..., Iterator[pa.RecordBatch]], *arguments: Any
) -> Iterator[pa.RecordBatch]:
    yield from run(payload.task_environment(), *arguments)
    give_back()


@lru_cache(_PIPELINES)
def _load_environment(pickled_pipeline: bytes, root: str) -> TaskEnvironment:
    share_one_heap()
    pipeline, pickled_calls = pickle.loads(pickled_pipeline)  # noqa: S301 (the driver's own, of this application)
    calls = {key: pickle.loads(call) for key, call in pickled_calls.items()}  # noqa: S301 (as above)
    store = open_store(root)
    return TaskEnvironment.from_pipeline(pipeline, store, Landing(pipeline, store, calls))


def _pickle_function(what: str, call: Callable[..., Any], error: type[FixConfigError]) -> bytes:
    """A function of a user's own as it travels. Raises an ``error``."""
    try:
        pickled_call: bytes = cloudpickle.dumps(call)  # type: ignore[no-untyped-call]
    except (TypeError, pickle.PicklingError) as problem:
        raise error(
            f"{what} cannot travel to Spark's workers ({problem}). What its module holds goes with it, so make there "
            "what cannot be copied, such as a connection, when it is first called"
        ) from problem
    return pickled_call
