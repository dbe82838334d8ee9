"""When a watcher looks and what it announces, on a clock of the tests' own."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.read.pending_work import PendingWork
from headrace_airflow.watching.watch import Runs, Watch

WORK = PendingWork("a")
OTHER = PendingWork("b")


@dataclass
class World:
    """A store with work, runs of Airflow, and their clock; ``at`` says what happens at which second."""

    work: PendingWork | None = None
    runs: Runs = field(default_factory=lambda: Runs(0, 0))
    error: Exception | None = None
    at: dict[float, Callable[["World"], None]] = field(default_factory=dict)
    now: float = 0.0
    looked: list[float] = field(default_factory=list)
    told: list[tuple[float, str]] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        """Let time pass, and happen what happens meanwhile."""
        end = self.now + seconds
        while self.at and min(self.at) <= end:
            self.now = min(self.at)
            self.at.pop(self.now)(self)
        self.now = end

    def find(self) -> PendingWork | None:
        """A look into the store."""
        self.looked.append(self.now)
        if self.error is not None:
            raise self.error
        return self.work

    async def note_failure(self, error: Exception | None) -> None:
        """What the watcher tells of errors."""
        self.told.append((round(self.now), "well" if error is None else str(error)))

    def collect_announcements(self, seconds: float, poll: float = 30) -> list[tuple[int, PendingWork]]:
        """What is announced until then, and when."""

        async def listen() -> list[tuple[int, PendingWork]]:
            heard_work: list[tuple[int, PendingWork]] = []
            watch = Watch(self.find, lambda: self.runs, self.note_failure, poll, self.sleep, lambda: self.now)
            self.at[seconds] = lambda _: asyncio.current_task().cancel()  # type: ignore[union-attr]
            try:
                async for work in watch.announcements():
                    heard_work.append((round(self.now), work))
                    self.on_announcement(heard_work)
            except asyncio.CancelledError:
                pass
            return heard_work

        return asyncio.run(listen())

    def on_announcement(self, announcements: list[tuple[int, PendingWork]]) -> None:
        """What Airflow does at an announcement: nothing, unless a test says so."""


@dataclass
class ScheduledWorld(World):
    """A world whose Airflow makes a run ``delay`` seconds after an announcement. It takes ``length``, and does all
    that there was when it began, unless runs are ``ended_badly``.
    """

    delay: float = 3
    length: float = 20
    ended_badly: bool = False

    def on_announcement(self, announcements: list[tuple[int, PendingWork]]) -> None:
        def begin(world: World) -> None:
            work = world.work
            world.runs = Runs(world.runs.made + 1, 1)

            def end(world: World) -> None:
                world.runs = Runs(world.runs.made, 0)
                if world.work == work and not self.ended_badly:
                    world.work = None

            world.at[world.now + self.length] = end

        self.at[self.now + self.delay] = begin


def becomes(work: PendingWork | None) -> Callable[[World], None]:
    """Files land."""

    def change(world: World) -> None:
        world.work = work

    return change


def test_work_is_announced_once_and_what_lands_meanwhile_when_the_run_has_ended() -> None:
    world = ScheduledWorld(at={40: becomes(WORK), 70: becomes(OTHER)})
    assert world.collect_announcements(600) == [(60, WORK), (90, OTHER)]
    assert world.runs.made == 2


def test_files_that_land_before_airflow_has_made_the_run_are_not_announced_again() -> None:
    world = ScheduledWorld(delay=50, at={10: becomes(WORK), 31: becomes(OTHER)})
    assert world.collect_announcements(600) == [(30, WORK)]
    assert world.runs.made == 1


def test_while_a_run_goes_on_nothing_is_listed_and_right_after_it_is() -> None:
    world = World(WORK, Runs(1, 1), at={100: lambda world: setattr(world, "runs", Runs(1, 0))})
    assert world.collect_announcements(120) == [(100, WORK)]
    assert [round(moment) for moment in world.looked] == [100]


def test_the_store_is_listed_no_more_often_than_the_interval() -> None:
    world = World()
    world.collect_announcements(301)
    assert [round(moment) for moment in world.looked] == [*range(0, 301, 30)]


def test_work_that_stays_is_announced_again_less_and_less_often() -> None:
    announced_moments = [moment for moment, _ in World(WORK).collect_announcements(12_000)]
    assert announced_moments == [0, 60, 180, 420, 900, 1_860, 3_780, 7_380, 10_980]


def test_new_work_is_announced_at_once_though_runs_have_failed_before_it() -> None:
    world = ScheduledWorld(WORK, at={4_000: becomes(OTHER)})
    world.ended_badly = True
    announced_work = world.collect_announcements(4_100)
    assert [moment for moment, work in announced_work if work == WORK][-1] == 3_780
    assert (4_020, OTHER) in announced_work


def test_errors_are_told_and_tried_again_and_end_nothing() -> None:
    world = World(WORK, error=OSError("no route"), at={200: lambda world: setattr(world, "error", None)})
    assert world.collect_announcements(450) == [(420, WORK)]
    assert world.told == [(0, "no route"), (60, "no route"), (180, "no route"), (420, "well")]
