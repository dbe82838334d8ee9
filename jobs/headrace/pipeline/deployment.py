"""How a pipeline runs in Airflow: options of its DAGs, schedules, and what runs beside it. Checked without Airflow.

``airflow`` says what the DAGs are to Airflow: owner, tags, retries, limits of time, pools, notifications. Schedules are
more than a cron expression in UTC: by the clock of a time zone, by assets, by files. ``Backfill`` and ``Retention``
have schedules of their own.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from headrace.model.arguments import Arguments, Length, check_keywords
from headrace.model.time import Duration, render_duration, to_duration
from headrace.pipeline.scheduling import check_cron, check_schedule

_FUNCTION_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_CALLBACK = "my_package.alerts:page"


@dataclass(frozen=True)
class AirflowOptions:
    """What ``hr.airflow`` gives. None, or empty: as the defaults of the deployment say, else as Headrace does.

    Lengths of time are in granules. ``on_failure``, ``on_warning`` and ``on_deadline`` name functions as
    ``module:function``.
    """

    owner: str | None = None
    tags: tuple[str, ...] = ()
    start_date: datetime | None = None
    retries: int | None = None
    retry_delay: Duration | None = None
    execution_timeout: Duration | None = None
    default_args: Mapping[str, Any] = field(default_factory=dict)
    on_failure: str | None = None
    on_warning: str | None = None
    deadline: Duration | None = None
    on_deadline: str | None = None
    pool: str | None = None
    queue: str | None = None
    conn_id: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    announce_windows: bool | None = None

    def with_defaults(self, defaults: "AirflowOptions") -> "AirflowOptions":
        """These options, and where they say nothing ``defaults``; tags, arguments and environment are put together."""
        options = {part.name: getattr(self, part.name) for part in fields(self)}
        stated_options = {name: value for name, value in options.items() if value not in (None, (), {})}
        both = {
            "tags": tuple(dict.fromkeys((*defaults.tags, *self.tags))),
            "default_args": {**defaults.default_args, **self.default_args},
            "env": {**defaults.env, **self.env},
        }
        return replace(defaults, **{**stated_options, **both})


@check_keywords
def airflow(
    *,
    owner: str | None = None,
    tags: Sequence[str] = (),
    start_date: date | None = None,
    retries: int | None = None,
    retry_delay: Length | None = None,
    execution_timeout: Length | None = None,
    default_args: Mapping[str, Any] | None = None,
    on_failure: str | None = None,
    on_warning: str | None = None,
    deadline: Length | None = None,
    on_deadline: str | None = None,
    pool: str | None = None,
    queue: str | None = None,
    conn_id: str | None = None,
    env: Mapping[str, str] | None = None,
    announce_windows: bool | None = None,
) -> AirflowOptions:
    """How the DAGs of a pipeline run: ``Pipeline(..., airflow=hr.airflow(owner="sales", retries=3))``. Nothing of it is
    part of a fingerprint.

    ``owner``, ``tags``, ``start_date``, ``retries``, ``retry_delay``, ``execution_timeout`` and ``queue`` are Airflow's
    own arguments of DAGs and tasks. Lengths of time are text ("2h") or a timedelta.

    ``on_failure`` is called when a task has failed for good. ``on_deadline`` is called when a run of the process DAG
    has not ended ``deadline`` after it was queued. ``on_warning`` is called when the data exceeds a limit that warns.
    They are names of functions, ``module:function``, that Airflow imports. ``pool`` is for tasks that write no state
    (those have a pool of their own). ``conn_id`` is the connection that says where Spark is. ``env`` are environment
    variables of the process that computes. ``default_args`` go to every task. With ``announce_windows`` the asset
    ``headrace://NAME/windows`` gets an event for each window that is complete, and again for one that is corrected. The
    partition of the event is when the window begins. Raises PipelineError.

    >>> hr.airflow(owner="sales", retries=3, execution_timeout="2h").owner
    'sales'
    """
    arguments = Arguments("airflow")

    def optional_duration(name: str, value: Length | None) -> Duration | None:
        return None if value is None else arguments.duration(name, value, least=1)

    def optional_text(name: str, value: str | None, example: str) -> str | None:
        return None if value is None else arguments.text(name, value, example)

    if (deadline is None) != (on_deadline is None):
        raise arguments.refusal(
            "deadline", deadline, f"give deadline= and on_deadline= together, such as {_CALLBACK!r}"
        )
    return AirflowOptions(
        owner=optional_text("owner", owner, "sales"),
        tags=tuple(arguments.tuple_of("tags", tags, str, '"sales"')),
        start_date=None if start_date is None else _checked_start(arguments, start_date),
        retries=None if retries is None else arguments.whole_number("retries", retries, least=0),
        retry_delay=optional_duration("retry_delay", retry_delay),
        execution_timeout=optional_duration("execution_timeout", execution_timeout),
        default_args=_checked_mapping(arguments, "default_args", default_args, object, '{"priority_weight": 2}'),
        on_failure=_callback_reference(arguments, "on_failure", on_failure),
        on_warning=_callback_reference(arguments, "on_warning", on_warning),
        deadline=optional_duration("deadline", deadline),
        on_deadline=_callback_reference(arguments, "on_deadline", on_deadline),
        pool=optional_text("pool", pool, "audits"),
        queue=optional_text("queue", queue, "large"),
        conn_id=optional_text("conn_id", conn_id, "spark_default"),
        env=_checked_mapping(arguments, "env", env, str, '{"TZ": "UTC"}'),
        announce_windows=None if announce_windows is None else arguments.flag("announce_windows", announce_windows),
    )


def _checked_start(arguments: Arguments, start: object) -> datetime:
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise arguments.refusal("start_date", start, "give its time zone, such as tzinfo=UTC")
        return start
    day: date = arguments.instance("start_date", start, date, "date(2026, 1, 1)")
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _callback_reference(arguments: Arguments, name: str, value: object) -> str | None:
    if value is None:
        return None
    reference = arguments.text(name, value, _CALLBACK)
    if not _FUNCTION_REFERENCE.fullmatch(reference):
        raise arguments.refusal(name, value, f"write module:function, such as {_CALLBACK!r}")
    return reference


def _checked_mapping(
    arguments: Arguments, name: str, value: object, item_type: type[Any], example: str
) -> Mapping[str, Any]:
    if value is None:
        return {}
    mapping: Mapping[str, Any] = arguments.instance(name, value, Mapping, example)  # type: ignore[type-abstract]
    if not all(isinstance(key, str) and isinstance(item, item_type) for key, item in mapping.items()):
        raise arguments.refusal(
            name, value, f"give {'text' if item_type is str else 'values'} by name, such as {example}"
        )
    return dict(mapping)


POLL_INTERVAL: Final = "30s"
"""How long a watcher waits from one look at the inputs of a pipeline to the next, unless the pipeline says so."""

_LEAST_INTERVAL = timedelta(seconds=1)
_TIMES_ADVICE = "give times, such as '0 * * * *'"


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
    or_at: "ScheduleTimes | None"

    def __str__(self) -> str:
        return f"{' and '.join(self.uris)}{'' if self.or_at is None else f', or {self.or_at}'}"


@dataclass(frozen=True)
class FileSchedule:
    """Runs when files have landed that no run has read, or when a timer of the pipeline is due; and if there is a time,
    also then. A watcher looks every ``poll_interval``.
    """

    poll_interval: Duration
    or_at: "ScheduleTimes | None"

    def __str__(self) -> str:
        looks = f"when files land (a look every {render_duration(self.poll_interval)})"
        return f"{looks}{'' if self.or_at is None else f', or {self.or_at}'}"


ScheduleTimes = str | CronSchedule | timedelta
"""A cron expression in UTC or a preset, a cron expression in a zone, an interval."""

Schedule = ScheduleTimes | AssetSchedule | FileSchedule
"""Times, events of assets, files that land."""


@check_keywords
def cron(expression: str, *, zone: str) -> CronSchedule:
    """A schedule by the clock of a time ``zone`` ("Europe/Berlin"), which follows its summer time. ``expression`` is
    that of cron, of five fields. Raises PipelineError.

    >>> str(hr.cron("0 6 * * *", zone="Europe/Berlin"))
    '0 6 * * * in Europe/Berlin'
    """
    arguments = Arguments("cron")
    text = arguments.text("expression", expression, "0 6 * * *")
    try:
        check_cron(text)
    except ValueError as error:
        raise arguments.refusal("expression", expression, str(error)) from None
    return CronSchedule(text, arguments.time_zone("zone", zone))


@check_keywords
def on_assets(uris: Sequence[str], *, or_at: ScheduleTimes | None = None) -> AssetSchedule:
    """A schedule by events of Airflow's assets, all of ``uris``; also at ``or_at``, if that is given. What readers of a
    pipeline see is the asset ``headrace://NAME/published``, of one of its outputs ``headrace://NAME/OUTPUT/published``.
    Raises PipelineError.

    >>> str(hr.on_assets(["headrace://orders/published"], or_at="@hourly"))
    'headrace://orders/published, or @hourly'
    """
    arguments = Arguments("on_assets")
    if isinstance(uris, str) or not isinstance(uris, Sequence) or not uris:
        raise arguments.refusal("uris", uris, 'write a list, such as ["headrace://orders/published"]')
    texts = tuple(arguments.text("uris", uri, "headrace://orders/published") for uri in uris)
    for text in texts:
        if "://" not in text:
            raise arguments.refusal("uris", text, "write a URI, such as headrace://orders/published")
    return AssetSchedule(texts, _or_at(arguments, or_at))


@check_keywords
def on_files(poll_interval: Length = POLL_INTERVAL, *, or_at: ScheduleTimes | None = None) -> FileSchedule:
    """A schedule by files that land, and by records that come to topics of Kafka. A watcher in Airflow's triggerer
    looks every ``poll_interval`` for what no run has read, and for timers that are due. If there is any, it starts a
    run; also at ``or_at``, if that is given. It looks from what the newest snapshot of main has read. So nothing is
    missed or announced to a run that goes on. Raises PipelineError.

    >>> str(hr.on_files("1m", or_at="@daily"))
    'when files land (a look every 1m), or @daily'
    """
    arguments = Arguments("on_files")
    interval = arguments.duration("poll_interval", poll_interval)
    if interval < to_duration(_LEAST_INTERVAL):
        raise arguments.refusal("poll_interval", poll_interval, "give an interval of a second or more")
    return FileSchedule(interval, _or_at(arguments, or_at))


def _or_at(arguments: Arguments, or_at: object) -> ScheduleTimes | None:
    """The argument ``or_at``, which is a schedule by times that come again. Raises PipelineError."""
    times = None if or_at is None else at_times(arguments, or_at, name="or_at")
    if times in {"@once", "@continuous"}:
        raise arguments.refusal("or_at", or_at, _TIMES_ADVICE)
    return times


def at_times(arguments: Arguments, schedule: object, *, name: str = "schedule") -> ScheduleTimes:
    """The argument ``name`` of ``arguments``, which is a schedule by times alone. Raises PipelineError."""
    times = checked_schedule(arguments, schedule, name=name)
    if times is None or isinstance(times, AssetSchedule | FileSchedule):
        raise arguments.refusal(name, schedule, _TIMES_ADVICE)
    return times


def checked_schedule(arguments: Arguments, schedule: object, *, name: str = "schedule") -> Schedule | None:
    """The argument ``name`` of ``arguments``, checked. Raises PipelineError."""
    if isinstance(schedule, CronSchedule | AssetSchedule | FileSchedule):
        return schedule
    if isinstance(schedule, timedelta):
        if schedule < _LEAST_INTERVAL:
            raise arguments.refusal(name, schedule, "give an interval of a second or more")
        return schedule
    try:
        return check_schedule(schedule)
    except ValueError as error:
        raise arguments.refusal(name, schedule, str(error)) from None


AT_ONCE: Final = "at once"
WHEN_APPROVED: Final = "when approved"
NEVER: Final = "never"
PROMOTIONS: Final = (AT_ONCE, WHEN_APPROVED, NEVER)
"""When the branch of a backfill becomes what readers see, once its audit has succeeded."""


@check_keywords
@dataclass(frozen=True, init=False)
class Backfill:
    """Backfills on a ``schedule``, beside the live runs. Each computes the windows in the time ``last`` before it was
    due. It reads the files that have landed, and its results replace what readers see. ``Backfill("0 3 * * *",
    last="7d")``. The schedule is a cron expression in UTC, a preset, ``cron(...)`` in a time zone, or a timedelta.

    ``promote`` is "at once", "when approved" by a person who has seen what would change, or "never". With ``patch``
    only rows of windows that have expired are replaced, and main continues. Where outputs have names, these are the
    rows of one ``output``. Raises PipelineError.

    >>> hr.Backfill("0 3 * * *", last="7d").schedule
    '0 3 * * *'
    """

    schedule: ScheduleTimes
    last: Duration
    promote: str
    patch: bool
    output: str | None

    def __init__(
        self,
        schedule: ScheduleTimes,
        last: Length,
        *,
        promote: str = AT_ONCE,
        patch: bool = False,
        output: str | None = None,
    ) -> None:
        arguments = Arguments("Backfill")
        object.__setattr__(self, "schedule", at_times(arguments, schedule))
        object.__setattr__(self, "last", arguments.duration("last", last, least=1))
        if promote not in PROMOTIONS:
            raise arguments.refusal("promote", promote, f"write {', '.join(map(repr, PROMOTIONS))}")
        object.__setattr__(self, "promote", promote)
        if arguments.flag("patch", patch) and promote == NEVER:
            raise arguments.refusal("promote", promote, "a patch is a way to promote: leave one of them out")
        if output is not None and not patch:
            raise arguments.refusal(
                "output",
                output,
                "an output that main adopts is computed again from the beginning: write patch=True, or leave it out",
            )
        object.__setattr__(self, "patch", patch)
        object.__setattr__(self, "output", output)

    def check_output(self, arguments: Arguments, outputs: Collection[str]) -> None:
        """Raise PipelineError unless a patch names one of the ``outputs`` of the pipeline, if they have names."""
        if self.patch and outputs and self.output is None:
            raise arguments.refusal("backfill", self, f"a patch is of one output: write output={next(iter(outputs))!r}")
        if self.output is not None and self.output not in outputs:
            outputs_text = (
                f"the outputs {', '.join(outputs)}" if outputs else "one output, which has no name: leave it out"
            )
            raise arguments.refusal(
                "backfill", self, f"there is no output {self.output!r}; the pipeline has {outputs_text}"
            )


@check_keywords
@dataclass(frozen=True, init=False)
class Retention:
    """What is kept of a pipeline's history, and when the rest expires: ``Retention(keep_last=100, keep_for="30d")``.

    It keeps the ``keep_last`` newest published snapshots, those younger than ``keep_for``, and tagged ones unless
    ``keep_tags`` is False. A run on the ``schedule``, written as that of a backfill, deletes what the run before it has
    marked; None: only runs by hand do. Raises PipelineError.

    >>> hr.Retention(keep_last=100, keep_for="30d").schedule
    '@daily'
    """

    keep_last: int
    keep_for: Duration | None
    keep_tags: bool
    schedule: ScheduleTimes | None

    def __init__(
        self,
        *,
        keep_last: int = 100,
        keep_for: Length | None = None,
        keep_tags: bool = True,
        schedule: ScheduleTimes | None = "@daily",
    ) -> None:
        arguments, set_ = Arguments("Retention"), object.__setattr__
        set_(self, "keep_last", arguments.whole_number("keep_last", keep_last, least=1))
        set_(self, "keep_for", None if keep_for is None else arguments.duration("keep_for", keep_for))
        set_(self, "keep_tags", arguments.flag("keep_tags", keep_tags))
        set_(self, "schedule", None if schedule is None else at_times(arguments, schedule))
