"""What is done beside the runs of a pipeline on a schedule of its own: backfills, and letting its history expire."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from headrace.model.arguments import Arguments, Length
from headrace.model.suggestions import keywords
from headrace.model.time import Duration
from headrace.pipeline.deployment.timetables import Times, at_times

AT_ONCE: Final = "at once"
WHEN_APPROVED: Final = "when approved"
NEVER: Final = "never"
PROMOTIONS: Final = (AT_ONCE, WHEN_APPROVED, NEVER)
"""When the branch of a backfill becomes what readers see, once its audit has succeeded."""


@keywords
@dataclass(frozen=True, init=False)
class Backfill:
    """Backfills on a ``schedule``, beside the live runs. Each computes the windows of the time ``last`` before it was
    due again, from the files that have landed, and its results replace what readers see. ``Backfill("0 3 * * *",
    last="7d")``. The schedule is a cron expression in UTC, a preset, ``cron(...)`` in a time zone, or a timedelta.

    ``promote`` is "at once", "when approved" by a person who has seen what would change, or "never". With ``patch``
    only rows of windows that have expired are replaced, and main goes on as it is: where outputs have names, those of
    one ``output``. Raises PipelineError.

    >>> hr.Backfill("0 3 * * *", last="7d").schedule
    '0 3 * * *'
    """

    schedule: Times
    last: Duration
    promote: str
    patch: bool
    output: str | None

    def __init__(
        self,
        schedule: Times,
        last: Length,
        *,
        promote: str = AT_ONCE,
        patch: bool = False,
        output: str | None = None,
    ) -> None:
        given = Arguments("Backfill")
        object.__setattr__(self, "schedule", at_times(given, schedule))
        object.__setattr__(self, "last", given.duration("last", last, least=1))
        if promote not in PROMOTIONS:
            raise given.wrong("promote", promote, f"write {', '.join(map(repr, PROMOTIONS))}")
        object.__setattr__(self, "promote", promote)
        if given.flag("patch", patch) and promote == NEVER:
            raise given.wrong("promote", promote, "a patch is a way to promote: leave one of them out")
        if output is not None and not patch:
            raise given.wrong(
                "output",
                output,
                "an output that main adopts is computed again from the beginning: write patch=True, or leave it out",
            )
        object.__setattr__(self, "patch", patch)
        object.__setattr__(self, "output", output)

    def check_output(self, given: Arguments, outputs: Collection[str]) -> None:
        """Raise PipelineError unless a patch names one of the ``outputs`` of the pipeline, if they have names."""
        if self.patch and outputs and self.output is None:
            raise given.wrong("backfill", self, f"a patch is of one output: write output={next(iter(outputs))!r}")
        if self.output is not None and self.output not in outputs:
            there = f"the outputs {', '.join(outputs)}" if outputs else "one output, which has no name: leave it out"
            raise given.wrong("backfill", self, f"there is no output {self.output!r}; the pipeline has {there}")


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
