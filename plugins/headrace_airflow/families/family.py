"""What Headrace asks of a family of DAGs, one for each pipeline; ``hr.airflow`` and schedules in Airflow's own terms.

``DagFamily`` may be of another distribution, as an entry point of ``headrace.dag_families``, by the name with which the
ids of its DAGs end. Airflow executes no file of it: Headrace's own files in ``dags/`` ask for all families.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from importlib import import_module
from inspect import cleandoc
from runpy import run_path
from typing import Any, Final

from airflow.sdk import (
    DAG,
    Asset,
    AssetAny,
    AssetOrTimeSchedule,
    CronTriggerTimetable,
    DeltaTriggerTimetable,
    Param,
    conf,
    get_parsing_context,
)
from airflow.sdk.api.datamodels._generated import DagRunType  # the type that DAG asks for
from airflow.sdk.definitions.callback import SyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

from headrace.describe.check import CheckReport, check_pipeline
from headrace.errors import FixConfigError
from headrace.ext.stores import shown
from headrace.model.time import Duration
from headrace.pipeline.deployment import (
    AirflowOptions,
    AssetSchedule,
    CronSchedule,
    FileSchedule,
    Schedule,
    ScheduleTimes,
)
from headrace_airflow.failures import RETRIES
from headrace_airflow.families.code_tab import show_in_code_tab
from headrace_airflow.markdown import fenced_block, value_as_code
from headrace_airflow.roots import Root, RootedPipeline
from headrace_airflow.run_ids import PublishedEvent, landed_asset, published_asset

DEFAULTS: Final = "HEADRACE_AIRFLOW_DEFAULTS"
_GROUP_NAME: Final = "airflow"
_NO_OPTIONS: Final = AirflowOptions()
_UTC: Final = "UTC"
_PUBLISHED_URI: Final = re.compile(r"headrace://([^./]+\.)?([^./]+(?:/[^./]+)?)/published")
"""The asset of a pipeline or of one of its outputs, with its root or without."""


class AirflowDefaultsError(FixConfigError, code="config.airflow_defaults"):
    """The file with the defaults of all pipelines cannot be used."""


def options_of(rooted: RootedPipeline) -> AirflowOptions:
    """How the DAGs of a pipeline run: as it says, else as the defaults of its root say, else as those of all say.

    Raises AirflowDefaultsError.
    """
    own, defaults = rooted.pipeline.airflow, defaults_of(rooted.root)
    if own is None or defaults is _NO_OPTIONS:
        return own or defaults
    return own.with_defaults(defaults)


def defaults_of(root: Root) -> AirflowOptions:
    """How the DAGs of pipelines of ``root`` run that do not say so themselves. Raises AirflowDefaultsError."""
    defaults = _load_defaults(os.environ.get(DEFAULTS, ""), DEFAULTS)
    return _load_defaults(root.defaults, root.folders.named_by).with_defaults(defaults) if root.defaults else defaults


@cache
def _load_defaults(file: str, named_by: str) -> AirflowOptions:
    if not file:
        return _NO_OPTIONS
    try:
        options = run_path(file).get(_GROUP_NAME)
    except Exception as error:  # code of a user's own
        raise AirflowDefaultsError(f"{named_by} names {file}: {type(error).__name__}: {error}") from error
    if not isinstance(options, AirflowOptions):
        raise AirflowDefaultsError(f"{named_by} names {file}, which must hold {_GROUP_NAME} = hr.airflow(...)")
    return options


def airflow_schedule(schedule: Schedule | AssetAny | None, rooted_pipeline: RootedPipeline) -> Any:
    """What Airflow takes as the schedule of a DAG of a pipeline."""
    match schedule:
        case AssetSchedule(uris, or_at):
            return _asset_schedule([_schedule_asset(uri, rooted_pipeline.root) for uri in uris], or_at)
        case FileSchedule(poll_interval, or_at):
            return _asset_schedule([landed_asset(rooted_pipeline, poll_interval)], or_at)
        case CronSchedule() | timedelta():
            return timetable_by_time(schedule)
    return schedule


def _schedule_asset(uri: str, root: Root) -> Asset:
    """The asset of a schedule: of a pipeline of this ``root``, unless it names one, so roots can share files."""
    ours = _PUBLISHED_URI.fullmatch(uri)
    if ours is None:
        return Asset(uri)
    named_root, name = ours.groups()
    return published_asset(f"{named_root}{name}" if named_root else root.qualified_name(name))


def _asset_schedule(assets: list[Asset], or_at: ScheduleTimes | None) -> Any:
    return assets if or_at is None else AssetOrTimeSchedule(assets=assets, timetable=timetable_by_time(or_at))


def timetable_by_time(schedule: ScheduleTimes) -> Any:
    """What Airflow takes as a schedule by times."""
    if isinstance(schedule, CronSchedule):
        return CronTriggerTimetable(schedule.expression, timezone=schedule.zone)
    if isinstance(schedule, timedelta):
        return DeltaTriggerTimetable(schedule)
    return CronTriggerTimetable(str(schedule), timezone=_UTC)


def run_types(schedule: Schedule | AssetAny | None) -> list[DagRunType]:
    """How the runs of a schedule begin."""
    by_event = [DagRunType.ASSET_TRIGGERED] if isinstance(schedule, AssetSchedule | FileSchedule | AssetAny) else []
    return [] if schedule is None else [DagRunType.SCHEDULED, *by_event]


def task_arguments(options: AirflowOptions) -> dict[str, Any]:
    """What every task of a pipeline's DAGs is given, unless it says otherwise itself."""
    arguments = {
        "owner": options.owner,
        "retries": options.retries,
        "retry_delay": _as_timedelta(options.retry_delay),
        "execution_timeout": _as_timedelta(options.execution_timeout),
        "pool": options.pool,
        "queue": options.queue,
        "on_failure_callback": None if options.on_failure is None else partial(call_user_function, options.on_failure),
    }
    return {name: value for name, value in arguments.items() if value is not None} | dict(options.default_args)


def deadline_alert(options: AirflowOptions) -> DeadlineAlert | None:
    """When a run should have ended, and whom that is told to."""
    if options.deadline is None or options.on_deadline is None:
        return None
    # Airflow knows functions by paths with dots alone
    callback = SyncCallback(options.on_deadline.replace(":", "."))
    interval = _as_timedelta(options.deadline)
    assert interval is not None
    return DeadlineAlert(reference=DeadlineReference.DAGRUN_QUEUED_AT, interval=interval, callback=callback)


def _as_timedelta(duration: Duration | None) -> timedelta | None:
    return None if duration is None else timedelta(microseconds=duration)


def call_user_function(reference: str, context: Mapping[str, Any]) -> None:
    """Call a function of a user's own, which is imported only now: Airflow parses often, and tasks fail rarely."""
    module, _, name = reference.partition(":")
    function: Callable[[Mapping[str, Any]], None] = getattr(import_module(module), name)
    function(context)


BY_HAND: Final = (DagRunType.MANUAL, DagRunType.OPERATOR_TRIGGERED)
"""How a DAG without a schedule is run."""

START_DATE: Final = datetime(1970, 1, 2, tzinfo=UTC)
"""Before all logical dates: a run with an earlier one gets no task from Airflow, and is a success."""


@dataclass(frozen=True)
class DagFamily:
    """DAGs of one kind. ``build`` gives that of a pipeline, made by ``new_dag``; its docstring says what the DAG does.
    None: this pipeline has none.

    It is called each time that Airflow parses ``dags/``, so it imports no engine and reads no store.
    """

    build: Callable[[RootedPipeline], DAG | None]


@contextmanager
def new_dag(
    rooted: RootedPipeline,
    family: str,
    about: str | None,
    *,
    schedule: Schedule | AssetAny | None,
    params: dict[str, Any],
    by_hand: Sequence[DagRunType] = BY_HAND,
    runs_at_once: int = 1,
) -> Iterator[DAG]:
    """Make the DAG of a family for a pipeline, as a context: all tasks belong to it that are made inside.

    :param rooted: the pipeline.
    :param family: the name with which the DAG's id ends.
    :param about: what it does; its first line is the description of a pipeline that has none.
    :param schedule: when it runs: a cron expression, assets, or None: by hand.
    :param params: the fields of its form.
    :param by_hand: how else it may be run.
    :param runs_at_once: more than one where a run may wait for a person; what writes is in the pool all the same.
    :returns: a context that gives the DAG.
    :raises FixConfigError: options of the pipeline or of the file of defaults are wrong.
    """
    pipeline, text = rooted.pipeline, cleandoc(about or "")
    options = options_of(rooted)
    dag = DAG(
        dag_id=rooted.dag_id(family),
        description=pipeline.description or text.splitlines()[0],
        doc_md=_dag_documentation(rooted, family, text),
        schedule=airflow_schedule(schedule, rooted),
        start_date=options.start_date or START_DATE,
        catchup=False,
        max_active_runs=runs_at_once,
        tags=["headrace", *rooted.root.tags, pipeline.name, family, *options.tags],
        default_args=RETRIES | task_arguments(options),
        deadline=deadline_alert(options) if family == "process" else None,
        allowed_run_types=[*run_types(schedule), *by_hand],
        auto_register=False,  # the file in dags/ names them
        **_configured_limits(),
    )
    dag.timetable = _as_stored(dag.timetable)
    show_in_code_tab(dag, rooted.file)
    with has_form(dag, params):
        yield dag


@cache
def _configured_limits() -> dict[str, Any]:
    """What Airflow would look up in its configuration for each DAG."""
    return {
        "max_active_tasks": conf.getint("core", "max_active_tasks_per_dag"),
        "max_consecutive_failed_dag_runs": conf.getint("core", "max_consecutive_failed_dag_runs_per_dag"),
        "disable_bundle_versioning": conf.getboolean("dag_processor", "disable_bundle_versioning"),
    }


def _as_stored(timetable: Any) -> Any:
    """A timetable in the form that Airflow stores it in, which it would make again, with a text for people, for each
    DAG; a cron expression's is shared by all DAGs that have it.
    """
    if get_parsing_context().dag_id is not None or type(timetable) is not CronTriggerTimetable:
        return timetable
    return _stored_cron(timetable.expression, timetable.timezone, timetable.interval, timetable.run_immediately)


@cache
def _stored_cron(expression: str, zone: Any, interval: timedelta, run_immediately: bool) -> Any:
    from airflow.timetables import trigger  # not for tasks, which need no database

    return trigger.CronTriggerTimetable(expression, timezone=zone, interval=interval, run_immediately=run_immediately)


@contextmanager
def new_dag_after_publish(
    rooted: RootedPipeline,
    family: str,
    about: str | None,
    outputs: Iterable[str],
    by_hand: Sequence[DagRunType] = BY_HAND,
) -> Iterator[DAG]:
    """Make a DAG that runs whenever readers see something else of one of the ``outputs``; see ``new_dag``."""
    any_asset = AssetAny(*(PublishedEvent(rooted.root, rooted.name, output).asset for output in outputs))
    by_hand = [DagRunType.ASSET_TRIGGERED, *by_hand]
    with new_dag(rooted, family, about, schedule=any_asset, params={}, by_hand=by_hand) as dag:
        yield dag


@contextmanager
def has_form(dag: DAG, params: Mapping[str, Param]) -> Iterator[None]:
    """Tasks made inside belong to ``dag``, which has the form ``params`` at the end.

    Tasks that are made when a DAG has a form copy it several times over, and Airflow stores it with each. That is most
    of the time that many DAGs take to parse. A run goes by the form of its DAG, whatever its tasks have.
    """
    with dag:
        yield
    dag.params.update(params)  # Airflow checks them when a run is triggered; an assignment would check all schemas now


def _dag_documentation(rooted_pipeline: RootedPipeline, family: str, description: str) -> str:
    """What the UI says of a DAG in Markdown: what it does; for that which processes, the pipeline in words, too."""
    pipeline = rooted_pipeline.pipeline
    root = (
        f" Root {value_as_code(rooted_pipeline.root.name)}: {value_as_code(shown(rooted_pipeline.root.uri))}."
        if rooted_pipeline.root.name
        else ""
    )
    parts = [description, pipeline.description, f"Defined in {value_as_code(str(rooted_pipeline.file))}.{root}"]
    if family == "process":
        words = CheckReport([check_pipeline(pipeline, root=rooted_pipeline.root.name)]).lines()
        parts.append("\n".join(fenced_block([line for text in words for line in text.splitlines()])))
    return "\n\n".join(part for part in parts if part)
