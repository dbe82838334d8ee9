"""What the DAGs of a pipeline are to Airflow: owner, tags, retries, limits of time, pools, notifications."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, date, datetime
from typing import Any

from headrace.model.arguments import Arguments, Length
from headrace.model.suggestions import keywords
from headrace.model.time import Duration

_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
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

    def over(self, defaults: "AirflowOptions") -> "AirflowOptions":
        """These options, and where they say nothing ``defaults``; tags, arguments and environment are put together."""
        given = {part.name: getattr(self, part.name) for part in fields(self)}
        stated = {name: value for name, value in given.items() if value not in (None, (), {})}
        both = {
            "tags": tuple(dict.fromkeys((*defaults.tags, *self.tags))),
            "default_args": {**defaults.default_args, **self.default_args},
            "env": {**defaults.env, **self.env},
        }
        return replace(defaults, **{**stated, **both})


@keywords
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

    ``on_failure`` is called when a task has failed for good, ``on_deadline`` when a run of the process DAG has not
    ended ``deadline`` after it was queued, ``on_warning`` when the data exceeds a limit that warns. They are names of
    functions, ``module:function``, that Airflow imports.
    ``pool`` is for tasks that write no state (those have a pool of their own). ``conn_id`` is the connection that says
    where Spark is. ``env`` are environment variables of the process that computes. ``default_args`` go to every task.
    With ``announce_windows`` the asset ``headrace://NAME/windows`` gets an event for each window that is complete, and
    again for one that is corrected, whose partition is when the window begins.
    Raises PipelineError.

    >>> hr.airflow(owner="sales", retries=3, execution_timeout="2h").owner
    'sales'
    """
    given = Arguments("airflow")

    def length(name: str, value: Length | None) -> Duration | None:
        return None if value is None else given.duration(name, value, least=1)

    def text(name: str, value: str | None, example: str) -> str | None:
        return None if value is None else given.text(name, value, example)

    if (deadline is None) != (on_deadline is None):
        raise given.wrong("deadline", deadline, f"give deadline= and on_deadline= together, such as {_CALLBACK!r}")
    return AirflowOptions(
        owner=text("owner", owner, "sales"),
        tags=tuple(given.several("tags", tags, str, '"sales"')),
        start_date=None if start_date is None else _start(given, start_date),
        retries=None if retries is None else given.whole("retries", retries, least=0),
        retry_delay=length("retry_delay", retry_delay),
        execution_timeout=length("execution_timeout", execution_timeout),
        default_args=_mapping(given, "default_args", default_args, object, '{"priority_weight": 2}'),
        on_failure=_function(given, "on_failure", on_failure),
        on_warning=_function(given, "on_warning", on_warning),
        deadline=length("deadline", deadline),
        on_deadline=_function(given, "on_deadline", on_deadline),
        pool=text("pool", pool, "audits"),
        queue=text("queue", queue, "large"),
        conn_id=text("conn_id", conn_id, "spark_default"),
        env=_mapping(given, "env", env, str, '{"TZ": "UTC"}'),
        announce_windows=None if announce_windows is None else given.flag("announce_windows", announce_windows),
    )


def _start(given: Arguments, start: object) -> datetime:
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise given.wrong("start_date", start, "give its time zone, such as tzinfo=UTC")
        return start
    day: date = given.instance("start_date", start, date, "date(2026, 1, 1)")
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _function(given: Arguments, name: str, value: object) -> str | None:
    if value is None:
        return None
    reference = given.text(name, value, _CALLBACK)
    if not _REFERENCE.fullmatch(reference):
        raise given.wrong(name, value, f"write module:function, such as {_CALLBACK!r}")
    return reference


def _mapping(given: Arguments, name: str, value: object, of: type[Any], example: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    mapping: Mapping[str, Any] = given.instance(name, value, Mapping, example)  # type: ignore[type-abstract]
    if not all(isinstance(key, str) and isinstance(item, of) for key, item in mapping.items()):
        raise given.wrong(name, value, f"give {'text' if of is str else 'values'} by name, such as {example}")
    return dict(mapping)
