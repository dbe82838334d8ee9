"""What ``hr.airflow`` and schedules are in Airflow's own terms."""

import os
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache, partial
from importlib import import_module
from runpy import run_path
from typing import Any, Final

from airflow.sdk import Asset, AssetAny, AssetOrTimeSchedule, CronTriggerTimetable, DeltaTriggerTimetable
from airflow.sdk.api.datamodels._generated import DagRunType  # the type that DAG asks for
from airflow.sdk.definitions.callback import SyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

from headrace.errors import FixConfigError
from headrace.model.time import Duration
from headrace.pipeline.deployment import AirflowOptions, AssetSchedule, CronSchedule, FileSchedule, Schedule, Times
from headrace_airflow.assets import landed
from headrace_airflow.roots.root import Root, RootedPipeline
from headrace_airflow.run_ids import published_asset

DEFAULTS: Final = "HEADRACE_AIRFLOW_DEFAULTS"
_NAME: Final = "airflow"
_NONE: Final = AirflowOptions()
_UTC: Final = "UTC"
_PUBLISHED: Final = re.compile(r"headrace://([^./]+\.)?([^./]+(?:/[^./]+)?)/published")
"""The asset of a pipeline or of one of its outputs, with its root or without."""


class AirflowDefaultsError(FixConfigError, code="config.airflow_defaults"):
    """The file with the defaults of all pipelines cannot be used."""


def options_of(rooted: RootedPipeline) -> AirflowOptions:
    """How the DAGs of a pipeline run: as it says, else as the defaults of its root say, else as those of all say.

    Raises AirflowDefaultsError.
    """
    root, own = rooted.root, rooted.pipeline.airflow
    defaults = _defaults(os.environ.get(DEFAULTS, ""), DEFAULTS)
    if root.defaults:
        defaults = _defaults(root.defaults, root.folders.named_by).over(defaults)
    if own is None or defaults is _NONE:
        return own or defaults
    return own.over(defaults)


@cache
def _defaults(file: str, named_by: str) -> AirflowOptions:
    if not file:
        return _NONE
    try:
        options = run_path(file).get(_NAME)
    except Exception as error:  # code of a user's own
        raise AirflowDefaultsError(f"{named_by} names {file}: {type(error).__name__}: {error}") from error
    if not isinstance(options, AirflowOptions):
        raise AirflowDefaultsError(f"{named_by} names {file}, which must hold {_NAME} = hr.airflow(...)")
    return options


def timetable(schedule: Schedule | AssetAny | None, rooted: RootedPipeline) -> Any:
    """What Airflow takes as the schedule of a DAG of a pipeline."""
    match schedule:
        case AssetSchedule(uris, or_at):
            return _events([_asset(uri, rooted.root) for uri in uris], or_at)
        case FileSchedule(poll_interval, or_at):
            return _events([landed(rooted, poll_interval)], or_at)
        case CronSchedule() | timedelta():
            return times(schedule)
    return schedule


def _asset(uri: str, root: Root) -> Asset:
    """The asset of a schedule. A pipeline's is that of the same ``root`` unless it names one: so staging and production
    can have the same files.
    """
    ours = _PUBLISHED.fullmatch(uri)
    if ours is None:
        return Asset(uri)
    named_root, name = ours.groups()
    return published_asset(f"{named_root}{name}" if named_root else root.qualified(name))


def _events(assets: list[Asset], or_at: Times | None) -> Any:
    return assets if or_at is None else AssetOrTimeSchedule(assets=assets, timetable=times(or_at))


def times(schedule: Times) -> Any:
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
        "retry_delay": _length(options.retry_delay),
        "execution_timeout": _length(options.execution_timeout),
        "pool": options.pool,
        "queue": options.queue,
        "on_failure_callback": None if options.on_failure is None else partial(call, options.on_failure),
    }
    return {name: value for name, value in arguments.items() if value is not None} | dict(options.default_args)


def deadline(options: AirflowOptions) -> DeadlineAlert | None:
    """When a run should have ended, and whom that is told to."""
    if options.deadline is None or options.on_deadline is None:
        return None
    callback = SyncCallback(options.on_deadline.replace(":", "."))
    interval = _length(options.deadline)
    assert interval is not None
    return DeadlineAlert(reference=DeadlineReference.DAGRUN_QUEUED_AT, interval=interval, callback=callback)


def _length(duration: Duration | None) -> timedelta | None:
    return None if duration is None else timedelta(microseconds=duration)


def call(reference: str, context: Mapping[str, Any]) -> None:
    """Call a function of a user's own, which is imported only now: Airflow parses often, and tasks fail rarely."""
    module, _, name = reference.partition(":")
    function: Callable[[Mapping[str, Any]], None] = getattr(import_module(module), name)
    function(context)
