"""What is done beside the runs of a pipeline on a schedule of its own: backfills, and letting its history expire."""

from dataclasses import dataclass

from headrace.model.arguments import Arguments, Length
from headrace.model.suggestions import keywords
from headrace.model.time import Duration
from headrace.pipeline.deployment.timetables import Times, at_times


@keywords
@dataclass(frozen=True, init=False)
class Backfill:
    """Backfills on a ``schedule``, beside the live runs. Each computes the windows of the time ``last`` before it was
    due again, from the files that have landed, and its results replace what readers see. ``Backfill("0 3 * * *",
    last="7d")``. The schedule is a cron expression in UTC, a preset, ``cron(...)`` in a time zone, or a timedelta.

    Raises PipelineError.

    >>> hr.Backfill("0 3 * * *", last="7d").schedule
    '0 3 * * *'
    """

    schedule: Times
    last: Duration

    def __init__(self, schedule: Times, last: Length) -> None:
        given = Arguments("Backfill")
        object.__setattr__(self, "schedule", at_times(given, schedule))
        object.__setattr__(self, "last", given.duration("last", last, least=1))


@keywords
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
    schedule: Times | None

    def __init__(
        self,
        *,
        keep_last: int = 100,
        keep_for: Length | None = None,
        keep_tags: bool = True,
        schedule: Times | None = "@daily",
    ) -> None:
        given, set_ = Arguments("Retention"), object.__setattr__
        set_(self, "keep_last", given.whole("keep_last", keep_last, least=1))
        set_(self, "keep_for", None if keep_for is None else given.duration("keep_for", keep_for))
        set_(self, "keep_tags", given.flag("keep_tags", keep_tags))
        set_(self, "schedule", None if schedule is None else at_times(given, schedule))
