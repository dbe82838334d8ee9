"""What a run is asked to do: one frozen value that the command line, Airflow and tests fill alike."""

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time

from headrace.errors import FixConfigError
from headrace.model.time import GLOBAL_WINDOW_END, MIN_INSTANT, Duration, Instant, instant, parse_duration
from headrace.model.triggers import Signal
from headrace.model.windows import Window
from headrace.runs.modes import Mode
from headrace_snapshots.layout import RUN_ID
from headrace_snapshots.refs import MAIN, PUBLISHED, why_not

_RUN_ID = re.compile(RUN_ID)
_LAST = instant(datetime.max.replace(tzinfo=UTC))


class RunOptionsError(FixConfigError):
    """An option of a run that makes no sense."""

    code = "config.run_options"


def parse_signal(text: str) -> Signal:
    """A signal as the command line writes it: its name, and for one key only ``=`` with the key as a JSON list.

    Raises RunOptionsError.
    """
    name, equals, written = text.partition("=")
    try:
        key = json.loads(written) if equals else None
    except ValueError:
        key = ""
    if not name or not (key is None or isinstance(key, list)):
        raise RunOptionsError(f'signal {text!r}: write a name, or a name and a key like go=["u1"]')
    return Signal(name, None if key is None else tuple(key))


@dataclass(frozen=True)
class ReplayClock:
    """A processing-time clock that ticks once an epoch: it shows ``start``, then ``step`` more each time.

    Raises RunOptionsError.
    """

    start: Instant
    step: Duration

    def __post_init__(self) -> None:
        if self.step <= 0:
            raise RunOptionsError("the step of a replay's clock must be longer than zero")

    def at(self, tick: int) -> Instant:
        """What it shows at tick number ``tick``, counted from 0. Raises RunOptionsError after the year 9999."""
        moment = Instant(self.start + tick * self.step)
        if moment > _LAST:
            raise RunOptionsError(f"the clock of the replay passes the year 9999 at tick {tick}: take a smaller step")
        return moment

    def ticks_at(self, moment: Instant) -> bool:
        """Whether it ever shows ``moment``."""
        return moment >= self.start and (moment - self.start) % self.step == 0

    def tick(self, due: Instant) -> int:
        """The first tick at or after ``due``."""
        return max(0, -((self.start - due) // self.step))


def parse_clock(start: str | None, step: str | None) -> ReplayClock | None:
    """A clock as the command line writes it: a time with its zone in ISO 8601, and a step like 30s, 5m, 1h or 1d.

    Raises RunOptionsError.
    """
    if start is None and step is None:
        return None
    if start is None or step is None:
        raise RunOptionsError("a clock of a replay needs both where it starts and its step: --clock and --clock-step")
    try:
        begin = instant(datetime.fromisoformat(start))
    except ValueError as error:
        raise RunOptionsError(f"clock {start!r}: write a time with its zone like 2026-01-01T00:00:00Z") from error
    try:
        return ReplayClock(begin, parse_duration(step))
    except ValueError as error:
        raise RunOptionsError(f"step {step!r} of a clock: {error}; write a length of time such as 5m") from None


def parse_span(start: str | None, end: str | None) -> Window | None:
    """A range of event time as people write it: from ``start`` up to, but without, ``end``, days or times with their
    zone in ISO 8601; a day begins at midnight UTC. None on either side: there is no bound; on both: no range.

    Raises RunOptionsError.
    """
    if start is None and end is None:
        return None
    first = MIN_INSTANT if start is None else _moment(start)
    last = GLOBAL_WINDOW_END if end is None else _moment(end)
    if first >= last:
        raise RunOptionsError(f"the range from {start} to {end} is empty: its end must be later than its start")
    return Window(first, last)


def _moment(text: str) -> Instant:
    with suppress(ValueError):
        return instant(datetime.combine(date.fromisoformat(text), time(), UTC))
    try:
        return instant(datetime.fromisoformat(text))
    except ValueError as error:
        raise RunOptionsError(
            f"{text!r} in a range: write a day like 2026-01-01, or a time with its zone like 2026-01-01T06:00:00Z"
        ) from error


@dataclass(frozen=True)
class RunOptions:
    """Options of one run; a limit of None is the pipeline's own.

    ``run_id`` names the result object, so it is new for every attempt; ``request`` names what every attempt of it is
    for, if there may be several. ``branch`` is what the run moves; a backfill forks to it, and there ``main`` stands
    for a branch named after the run. ``publish`` ends the run with a publish if its audit succeeded; ``defer_verdict``:
    if it does not, that is no error of the run, since who comes next reads the stored audit. ``snapshot`` is where a
    recovery moves ``main`` back to; ``message`` is what the log says of that. ``span``: the event times whose windows a
    backfill computes again, None for all. ``as_read_by``: a snapshot whose files, where they are read again, are read
    in the order and at the processing times that it recorded. ``full_sweep`` lists the whole landing prefix instead of
    only its newest part. ``executor`` is where epochs are computed, None for the pipeline's own; ``reason`` says why,
    if the caller has chosen it. ``mode`` BATCH takes all input as one epoch, after which the watermark goes to +inf:
    every window gives one pane and closes. ``signals`` are given to the run's first epoch (semantics 9.3), and not
    again by another attempt of the ``request`` whose signals were given last. ``mode`` REPLAY fills an empty branch
    with the epochs that the branch (or tag) ``from_branch`` recorded, default main; or under ``clock`` with what has
    landed. Run again, a replay that was stopped continues. It publishes nothing. ``create``: a root that does not exist
    is made even if there is no input. ``promotes``: the branch of a backfill is to be promoted, so what would stand
    against that whatever it computes is said first; ``patches``: its rows are to be a patch of main. ``strict``: the
    run refuses a snapshot that was made by other code of the user's own. ``allow_new_aggregates``: aggregates that a
    snapshot lacks start empty; otherwise the run refuses that snapshot. ``give_up_delivered``: a recovery may go below
    what sinks got that cannot take back. ``with_readers``: it takes pipelines back that have read what it gives up, but
    for ``left_readers``; they are looked for under ``reader_roots``, too. ``without``: outputs that are parked stay so,
    however long they have been.
    ``output``: the one of several that a backfill computes, with what is computed of it, or patches; None for all.
    Raises RunOptionsError.
    """

    run_id: str
    max_epochs: int | None = None
    files_per_epoch: int | None = None
    bytes_per_epoch: int | None = None
    branch: str = MAIN
    publish: bool = False
    defer_verdict: bool = False
    snapshot: str | None = None
    span: Window | None = None
    as_read_by: str | None = None
    full_sweep: bool = False
    mode: Mode = Mode.MICRO_BATCH
    signals: tuple[Signal, ...] = ()
    from_branch: str | None = None
    clock: ReplayClock | None = None
    request: str | None = None
    strict: bool = False
    allow_new_aggregates: bool = False
    without: tuple[str, ...] = ()
    output: str | None = None
    create: bool = False
    promotes: bool = False
    patches: bool = False
    give_up_delivered: bool = False
    with_readers: bool = False
    left_readers: tuple[str, ...] = ()
    reader_roots: tuple[str, ...] = ()
    executor: str | None = None
    reason: str = ""
    message: str = ""

    @property
    def parks(self) -> bool:
        """Whether an output that fails is parked, and others go on: on main alone. Other branches compute all."""
        return self.mode is Mode.MICRO_BATCH and self.branch == MAIN

    def __post_init__(self) -> None:
        if not _RUN_ID.fullmatch(self.run_id):
            raise RunOptionsError(f"run id {self.run_id!r}: use up to 200 letters, digits, _, . and -")
        if self.branch == PUBLISHED:
            raise RunOptionsError(f"branch {PUBLISHED!r} is what readers see: run on {MAIN}, or a branch of your own")
        if (problem := why_not(self.branch)) is not None:
            raise RunOptionsError(f"{self.branch!r} cannot name a branch: {problem}")
        for name in ("max_epochs", "files_per_epoch", "bytes_per_epoch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise RunOptionsError(f"{name} must be at least 1, not {value}")
        if self.with_readers and self.branch != MAIN:
            raise RunOptionsError(f"nobody reads branch {self.branch} of another pipeline: recover {MAIN} with readers")
        if self.promotes and self.patches:
            raise RunOptionsError("a patch leaves main as it is otherwise, and a promotion replaces it: choose one")
        if self.mode is Mode.REPLAY:
            self._check_replay()
            return
        if self.publish and self.branch != MAIN:
            raise RunOptionsError(
                f"a run on branch {self.branch} cannot be published: readers see {MAIN}. Leave out --publish; "
                f"`headrace promote` makes the branch {MAIN}"
            )
        if self.from_branch is not None or self.clock is not None:
            raise RunOptionsError(f"a clock, and a branch to replay, are for mode replay, not for {self.mode}")
        limits = (self.max_epochs, self.files_per_epoch, self.bytes_per_epoch)
        if self.mode is Mode.BATCH and any(limit is not None for limit in limits):
            raise RunOptionsError("mode batch takes all input as one epoch: leave out what limits epochs")

    def _check_replay(self) -> None:
        if self.publish:
            raise RunOptionsError("a replay publishes nothing: read it on its branch, which a promotion can make main")
        if self.branch == MAIN:
            raise RunOptionsError("a replay fills an empty branch of its own, not main: name one (--branch)")
        if self.signals:
            raise RunOptionsError("a replay repeats the recorded signals and no others: leave out signals")
        if self.clock is not None and self.from_branch is not None:
            raise RunOptionsError("a replay repeats what a branch recorded, or has a clock of its own, not both")
        if self.clock is None and (self.files_per_epoch is not None or self.bytes_per_epoch is not None):
            raise RunOptionsError(
                "a replay cuts input as it was recorded; other limits of an epoch need a clock of its own (--clock)"
            )
