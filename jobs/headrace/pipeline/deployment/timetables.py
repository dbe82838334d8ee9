"""Schedules that are more than a cron expression in UTC. Checked without Airflow."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from headrace.model.arguments import Arguments
from headrace.model.suggestions import keywords
from headrace.pipeline.schedules import check_cron, check_schedule

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


Times = str | CronSchedule | timedelta
"""A cron expression in UTC or a preset, a cron expression in a zone, an interval."""

Schedule = Times | AssetSchedule
"""Times, or events of assets."""


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
    pipeline see is the asset ``headrace://NAME/published``. Raises PipelineError.

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
    at = None if or_at is None else at_times(given, or_at, name="or_at")
    if at in {"@once", "@continuous"}:
        raise given.wrong("or_at", or_at, _TIMES)
    return AssetSchedule(texts, at)


def at_times(given: Arguments, schedule: object, *, name: str = "schedule") -> Times:
    """The argument ``name`` of ``given``, which is a schedule by times alone. Raises PipelineError."""
    times = scheduled(given, schedule, name=name)
    if times is None or isinstance(times, AssetSchedule):
        raise given.wrong(name, schedule, _TIMES)
    return times


def scheduled(given: Arguments, schedule: object, *, name: str = "schedule") -> Schedule | None:
    """The argument ``name`` of ``given``, checked. Raises PipelineError."""
    if isinstance(schedule, CronSchedule | AssetSchedule):
        return schedule
    if isinstance(schedule, timedelta):
        if schedule < _LEAST:
            raise given.wrong(name, schedule, "give an interval of a second or more")
        return schedule
    try:
        return check_schedule(schedule)
    except ValueError as error:
        raise given.wrong(name, schedule, str(error)) from None
