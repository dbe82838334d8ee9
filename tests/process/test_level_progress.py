"""A run says at which level of tasks its epoch is, on both executors; and in the notes of where it is, as seldom as
before.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headrace import Aggregation, Deduplicate, FixedWindows, col, count
from headrace.distribute.local import LocalEngine
from headrace.errors import HeadraceError, RetryError
from headrace.model.time import Instant
from headrace.pipeline.scheduling import FindLevel, LevelProgress
from headrace.runs.commits import attempts_of
from headrace.runs.options import RunOptions
from headrace.runs.reporting.listener import ProgressNotes, Silent
from headrace.runs.reporting.summary import UnderWay, read_summary, renew_summary
from headrace.sources.landing import Landing
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import ObjectStore, open_store
from headrace_snapshots.testing import FaultyStore
from tests.process.clicks import CLICKS, land
from tests.process.executors import ExecutorUnderTest, on_both, on_spark
from tests.process.test_outputs_below import GRAPH

_SECONDS = 60

DEEP = replace(
    CLICKS,
    deduplicate=Deduplicate("user", "1d"),
    then=(Aggregation(what={"users": count(), "spent": col("spent").sum()}, where=FixedWindows("1h")),),
)
"""With a level of tasks by id, and two by key."""

LEVELS = ["reading input", "telling duplicates", "stage 1 of 2", "stage 2 of 2"]


@dataclass
class Following(Silent):
    """Asks all the time, while epochs are computed."""

    seen: list[LevelProgress] = field(default_factory=list)

    @contextmanager
    def following(self, find_level: FindLevel) -> Iterator[None]:
        is_over = threading.Event()

        def ask() -> None:
            while not is_over.wait(0.001):
                if (level := find_level()) is not None:
                    self.seen.append(level)

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
            assert find_level() is None, "no epoch is computed any more"

    def levels(self, epoch: int) -> list[tuple[int, str]]:
        """The levels of an epoch in the order in which they were seen, with what they do."""
        return [*dict.fromkeys((each.level, each.does) for each in self.seen if each.epoch == epoch)]


def test_each_level_of_an_epoch_is_seen_by_the_requests_of_its_tasks(tmp_path: Path) -> None:
    """On ``local`` whatever a task does is done at its level."""
    land(tmp_path, 0, 1)
    seen_levels: list[LevelProgress | None] = []
    ask: list[Callable[[], None]] = []
    store = FaultyStore(open_store(tmp_path.as_uri()), lambda operation: ask[0]() if ask else None)
    engine = LocalEngine(DEEP, store, Landing(DEEP, store), attempts_of(Catalog(store, DEEP.name)))
    files = engine.landing.new_files({})
    ask.append(lambda: seen_levels.append(engine.find_level()))
    engine.compute(files, Instant(0))
    levels = [each for each in seen_levels if each is not None]
    assert [*dict.fromkeys((each.level, each.levels, each.does) for each in levels)] == [
        (number, 4, name) for number, name in enumerate(LEVELS, 1)
    ]
    assert all(each.epoch == 0 and each.done <= each.tasks for each in levels)
    assert all(each.tasks for each in levels)
    assert engine.find_level() is None


@on_both
def test_a_run_says_at_which_level_its_epoch_is(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(tmp_path, 0, 4)
    following = Following()
    executor.process(DEEP, tmp_path.as_uri(), RunOptions("run"), listener=following)
    names = list(enumerate(LEVELS, 1))
    levels_by_epoch = [following.levels(epoch) for epoch in range(4)]
    for levels in levels_by_epoch:
        assert levels == [level for level in names if level in levels], "one after the other"
    if executor.executor == "spark":  # where each takes longer than it mostly takes to ask
        assert names in levels_by_epoch
    assert {each.levels for each in following.seen} == {4}
    assert all(each.done <= each.tasks for each in following.seen)


@on_spark
def test_levels_are_counted_through_all_jobs_of_an_epoch(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(tmp_path, 0, 1)
    following = Following()
    executor.process(GRAPH, tmp_path.as_uri(), RunOptions("run"), listener=following)
    assert following.levels(0) == [
        (1, "reading input"),
        (2, "stages of outputs hourly, visits, daily"),
        (3, "stage 2 of 2 of output daily"),
        (4, "reading panes"),
        (5, "stage 1 of 1 of output days"),
        (6, "reading panes"),
        (7, "stage 1 of 1 of output both"),
    ]
    assert {each.levels for each in following.seen} == {7}


@on_spark
def test_sparks_own_pages_name_the_levels(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(tmp_path, 0, 1)
    context: Any = executor.spark.sparkContext
    tracker = context.statusTracker()
    jobs_before = {*tracker.getJobIdsForGroup(None)}
    context.setJobGroup("of a caller", "who may cancel it")
    try:
        executor.process(DEEP, tmp_path.as_uri(), RunOptions("run"))
        assert context.getLocalProperty("spark.job.description") == "who may cancel it"
    finally:
        for name in ("spark.jobGroup.id", "spark.job.description"):
            context.setLocalProperty(name, None)
    (job,) = tracker.getJobIdsForGroup("of a caller")
    assert {*tracker.getJobIdsForGroup(None)} <= jobs_before  # Spark forgets old ones meanwhile
    description = context._jsc.sc().statusStore().job(job).description().get()
    assert description == f"clicks, epoch 0: {', then '.join(LEVELS)}"
    info = tracker.getJobInfo(job)
    assert info is not None
    stages = [tracker.getStageInfo(stage) for stage in sorted(info.stageIds)]
    assert [stage.name for stage in stages if stage is not None] == LEVELS


_START = "2026-11-28T10:00:00Z"
_UNDER_WAY = UnderWay("ours", "process", "main", _START, _START)
_LEVEL = LevelProgress(12, 3, 4, "stage 1 of 2 of output by_shop", 5, 8)


@dataclass
class ProgressWatch:
    """What a run's notes say of its level; ``puts`` of them there were."""

    store: ObjectStore
    level: LevelProgress | HeadraceError | None = None

    def find_level(self) -> LevelProgress | None:
        if isinstance(self.level, HeadraceError):
            raise self.level
        return self.level

    def read_level(self) -> LevelProgress | None:
        summary = read_summary(self.store, "clicks")
        return None if summary is None or summary.under_way is None else summary.under_way.level

    def until_noted(self, level: LevelProgress) -> None:
        """Wait until the notes say that."""
        self.level, pause = level, threading.Event()
        for _ in range(_SECONDS * 100):
            if self.read_level() == level:
                return
            pause.wait(0.01)
        raise AssertionError(f"notes say {self.read_level()}")

    @property
    def puts(self) -> int:
        return self.store.requests.snapshot().get("put", 0)


def test_a_note_is_written_while_an_epoch_is_computed_and_only_if_it_is_elsewhere(tmp_path: Path) -> None:
    listener = ProgressWatch(open_store((tmp_path / "root").as_uri()))
    notes = ProgressNotes(Silent(), listener.store, "clicks", _UNDER_WAY, every=0.01)
    with notes.following(listener.find_level):
        listener.until_noted(_LEVEL)
        listener.until_noted(replace(_LEVEL, done=8))
        puts = listener.puts
        threading.Event().wait(0.2)  # twenty times as long as it waits
        assert listener.puts == puts, "nothing has changed"
        listener.level = RetryError("Spark has gone")
        notes.planned(3)  # a run goes on, whatever is said of its level
    listener.level = _LEVEL
    threading.Event().wait(0.1)
    assert listener.read_level() is None, "who ends looks no more"


def test_notes_are_no_more_often_than_they_were(tmp_path: Path) -> None:
    listener = ProgressWatch(open_store((tmp_path / "root").as_uri()), _LEVEL)
    notes = ProgressNotes(Silent(), listener.store, "clicks", _UNDER_WAY, every=3600.0)
    notes.planned(1)
    puts = listener.puts
    with notes.following(listener.find_level):
        notes.planned(2)
    assert listener.puts == puts


@on_both
def test_the_notes_of_a_run_say_where_its_epoch_is_until_it_has_ended(
    executor: ExecutorUnderTest, tmp_path: Path
) -> None:
    land(tmp_path, 0, 3)
    store = open_store(tmp_path.as_uri())
    seen_levels: set[LevelProgress] = set()

    class Looking(Silent):
        def committed(self, manifest: object) -> None:
            summary = read_summary(store, "clicks")
            if summary is not None and summary.under_way is not None and summary.under_way.level is not None:
                seen_levels.add(summary.under_way.level)

    looking = Looking()
    notes = ProgressNotes(looking, store, "clicks", _UNDER_WAY, every=0.0)
    result = executor.process(DEEP, tmp_path.as_uri(), RunOptions("ours"), listener=notes)
    assert {each.epoch for each in seen_levels} <= {0, 1, 2}
    assert {each.does for each in seen_levels} <= {*LEVELS}
    if executor.executor == "spark":
        assert seen_levels
    renew_summary(Catalog(store, "clicks"), result)
    summary = read_summary(store, "clicks")
    assert summary is not None
    assert summary.under_way is None
