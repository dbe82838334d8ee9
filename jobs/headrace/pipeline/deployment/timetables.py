"""Schedules that are more than a cron expression in UTC. Checked without Airflow."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from headrace.model.arguments import Arguments, Length
from headrace.model.suggestions import keywords
from headrace.model.time import Duration, duration, render_duration
from headrace.pipeline.schedules import check_cron, check_schedule

POLL_INTERVAL: Final = "30s"
"""How long a watcher waits from one look at the inputs of a pipeline to the next, unless the pipeline says so."""

_LEAST = timedelta(seconds=1)
_TIMES = "give times, such as '0 * * * *'"


@dataclass(frozen=True)
class CronSchedule:
    """Runs whenever a cron expression of five fields matches the clock of a time zone, such as Europe/Berlin."""

    expression: str
    zone: str

    def __str__(self) -> str:
        return f"{self.expression} in {self.zone}"


@dataclass(frozen=True)
class AssetSchedule:
    """Runs when all of some assets have had an event; and if there is a time, also then, so that timers fire where
    nothing arrives.
    """

    uris: tuple[str, ...]
    or_at: "Times | None"

    def __str__(self) -> str:
        return f"{' and '.join(self.uris)}{'' if self.or_at is None else f', or {self.or_at}'}"


@dataclass(frozen=True)
class FileSchedule:
    """Runs when files have landed that no run has read, or when a timer of the pipeline is due; and if there is a time,
    also then. A watcher looks every ``poll_interval``.
    """

    poll_interval: Duration
    or_at: "Times | None"

    def __str__(self) -> str:
        looks = f"when files land (a look every {render_duration(self.poll_interval)})"
        return f"{looks}{'' if self.or_at is None else f', or {self.or_at}'}"


Times = str | CronSchedule | timedelta
"""A cron expression in UTC or a preset, a cron expression in a zone, an interval."""

Schedule = Times | AssetSchedule | FileSchedule
"""Times, events of assets, files that land."""


@keywords
def cron(expression: str, *, zone: str) -> CronSchedule:
    """A schedule by the clock of a time zone, which follows its summer time. Raises PipelineError.

    >>> str(hr.cron("0 6 * * *", zone="Europe/Berlin"))
    '0 6 * * * in Europe/Berlin'
    """
    given = Arguments("cron")
    text = given.text("expression", expression, "0 6 * * *")
    try:
        check_cron(text)
    except ValueError as error:
        raise given.wrong("expression", expression, str(error)) from None
    return CronSchedule(text, given.zone("zone", zone))


@keywords
def on_assets(uris: Sequence[str], *, or_at: Times | None = None) -> AssetSchedule:
    """A schedule by events of Airflow's assets, all of ``uris``; also at ``or_at``, if that is given. What readers of a
    pipeline see is the asset ``headrace://NAME/published``, of one of its outputs ``headrace://NAME/OUTPUT/published``.
    Raises PipelineError.

    >>> str(hr.on_assets(["headrace://orders/published"], or_at="@hourly"))
    'headrace://orders/published, or @hourly'
    """
    given = Arguments("on_assets")
    if isinstance(uris, str) or not isinstance(uris, Sequence) or not uris:
        raise given.wrong("uris", uris, 'write a list, such as ["headrace://orders/published"]')
    texts = tuple(given.text("uris", uri, "headrace://orders/published") for uri in uris)
    for text in texts:
        if "://" not in text:
            raise given.wrong("uris", text, "write a URI, such as headrace://orders/published")
    return AssetSchedule(texts, _or_at(given, or_at))


@keywords
def on_files(poll_interval: Length = POLL_INTERVAL, *, or_at: Times | None = None) -> FileSchedule:
    """A schedule by files that land, and by records that come to topics of Kafka: a watcher in Airflow's triggerer
    looks every ``poll_interval`` for what no run has read, and for timers that are due, and starts a run; also at
    ``or_at``, if that is given. Where to look from is what the newest snapshot of main has read, so nothing is missed
    or announced to a run that goes on. Raises PipelineError.

    >>> str(hr.on_files("1m", or_at="@daily"))
    'when files land (a look every 1m), or @daily'
    """
    given = Arguments("on_files")
    interval = given.duration("poll_interval", poll_interval)
    if interval < duration(_LEAST):
        raise given.wrong("poll_interval", poll_interval, "give an interval of a second or more")
    return FileSchedule(interval, _or_at(given, or_at))


def _or_at(given: Arguments, or_at: object) -> Times | None:
    """The argument ``or_at``, which is a schedule by times that come again. Raises PipelineError."""
    at = None if or_at is None else at_times(given, or_at, name="or_at")
    if at in {"@once", "@continuous"}:
        raise given.wrong("or_at", or_at, _TIMES)
    return at


def at_times(given: Arguments, schedule: object, *, name: str = "schedule") -> Times:
    """The argument ``name`` of ``given``, which is a schedule by times alone. Raises PipelineError."""
    times = scheduled(given, schedule, name=name)
    if times is None or isinstance(times, AssetSchedule | FileSchedule):
        raise given.wrong(name, schedule, _TIMES)
    return times


def scheduled(given: Arguments, schedule: object, *, name: str = "schedule") -> Schedule | None:
    """The argument ``name`` of ``given``, checked. Raises PipelineError."""
    if isinstance(schedule, CronSchedule | AssetSchedule | FileSchedule):
        return schedule
    if isinstance(schedule, timedelta):
        if schedule < _LEAST:
            raise given.wrong(name, schedule, "give an interval of a second or more")
        return schedule
    try:
        return check_schedule(schedule)
    except ValueError as error:
        raise given.wrong(name, schedule, str(error)) from None
