"""Records that their source cannot give again: landed by runs, read again from there, expired with snapshots."""

import os
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.ext.sources import SplitGoneError
from headrace.runs.client.handle import PipelineHandle
from headrace.runs.epochs import RunContext
from headrace.runs.options import Mode, RunOptions
from headrace.runs.plan import LandRecords, RunStage, TakeBranch, looked_ahead, plan_run
from headrace.runs.replay_clock import parse_clock
from headrace.runs.reporting.listener import wrap_listener
from headrace.runs.restore import InputGoneError
from headrace.sources.landing import Landing, PlaceError
from headrace.testing.connectors.worlds import records
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import ObjectStore, open_store
from headrace_snapshots.testing import FaultyStore, Operation
from tests.sources.test_conformance import OutboxWorld, counting, daily, kept_outbox, outbox

__all__ = ["daily", "outbox"]

LANDED_FOLDER = "counting/landed/source/"


@pytest.fixture
def root(tmp_path: Path) -> str:
    return (tmp_path / "root").as_uri()


@pytest.fixture
def store(root: str) -> ObjectStore:
    return open_store(root)


@pytest.fixture
def handle(outbox: OutboxWorld, root: str) -> PipelineHandle:
    return hr.open(root, create=True)[counting(outbox.source, executor="local", when=hr.on_update())]


def landed_paths(store: ObjectStore) -> list[str]:
    return [info.path.removeprefix(LANDED_FOLDER) for info in store.list(LANDED_FOLDER)]


def counts(handle: PipelineHandle) -> dict[str, int]:
    return {row["text"]: row["n"] for row in handle.read("current", at="main").to_json()}


def prune(outbox: OutboxWorld) -> None:
    with closing(sqlite3.connect(outbox.database)) as database, database:
        database.execute("DELETE FROM outbox")


def test_what_was_landed_is_read_again_when_the_source_has_lost_it(outbox: OutboxWorld, handle: PipelineHandle) -> None:
    snapshots = []
    for first in (0, 8, 16):
        outbox.append(records(first, 8))
        snapshots.append(str(handle.run().snapshot))
    prune(outbox)
    counts_before = counts(handle)
    handle.run(mode="replay", from_branch="main", branch="again")
    difference = handle.diff("main", "again").output.rows.to_json()
    assert [difference[kind] for kind in ("added", "removed", "changed")] == [0, 0, 0]
    handle.recover(snapshots[0])
    assert counts(handle) == counts_before
    handle.backfill(promote=True, branch="all")
    assert counts(handle) == counts_before
    assert sum(counts_before.values()) == 24


def plan_stages(source: OutboxWorld, store: ObjectStore, **options: Any) -> tuple[RunStage, ...]:
    """The plan of a run, looked at, while nothing can be written."""

    def refuse(operation: Operation) -> None:
        assert operation.kind not in {"write", "create", "delete"}, f"a plan writes {operation.path}"

    pipeline = counting(source.source, executor="local", when=hr.on_update())
    run_options = RunOptions("planned", executor="local", **options)
    context = RunContext.from_options(
        pipeline, run_options, FaultyStore(store, refuse), wrap_listener(None), lambda: datetime.now(UTC)
    )
    return looked_ahead(context, plan_run(context))


def test_a_plan_says_what_would_land_and_lands_nothing(
    outbox: OutboxWorld, handle: PipelineHandle, store: ObjectStore
) -> None:
    outbox.append(records(0, 8))
    stage, *later_stages = plan_stages(outbox, store)
    assert isinstance(stage, LandRecords)
    assert str(stage) == "land 0-8 of source, in portions as large as epochs; what follows reads it"
    assert [str(step) for step in later_stages] == [
        "claim branch main, which is empty: nobody else writes it then",
        "begin with nothing, on executor local: asked for",
        "compute epochs: what lands of source",
        "audit what branch main has and readers have not seen",
    ]
    assert landed_paths(store) == []
    handle.run()
    outbox.append(records(8, 16))
    (stage,) = plan_stages(
        outbox, store, mode=Mode.REPLAY, branch="beside", clock=parse_clock("2026-05-01T00:00:00Z", "1h")
    )
    assert str(stage) == "land 8-24 of source; what follows reads it"
    stage, *_ = plan_stages(outbox, store)
    assert str(stage) == "land 8-24 of source, in portions as large as epochs; what follows reads it"
    handle.run()
    stage, *later_stages = plan_stages(outbox, store)
    assert [step.word for step in later_stages] == ["audit"]
    assert str(stage) == "land nothing: all that source has was landed"
    stage, *_ = plan_stages(outbox, store, mode=Mode.REPLAY, branch="again", from_branch="main")
    assert isinstance(stage, TakeBranch), "a replay of what was recorded lands nothing"


def test_what_was_landed_expires_with_the_snapshots_that_would_read_it(
    outbox: OutboxWorld, handle: PipelineHandle, store: ObjectStore
) -> None:
    snapshots = []
    for first in (0, 8, 16, 24):
        outbox.append(records(first, 8))
        snapshots.append(str(handle.run().snapshot))
    assert handle.expire(keep_last=2).swept.objects == 0
    assert len(landed_paths(store)) == 12
    assert handle.expire(keep_last=2).swept.kinds["landed"].objects == 9
    assert [name.partition("-")[0] for name in landed_paths(store)] == [
        f"{3:020d}",
        f"_ranges/{3:020d}.json",
        f"_ranges/{3:020d}.seal.json",
    ]
    assert handle.fsck().damage == ()
    counts_before = counts(handle)
    handle.recover(snapshots[2])
    assert counts(handle) == counts_before
    outbox.append(records(32, 8))
    handle.run()
    assert sum(counts(handle).values()) == 40
    with pytest.raises(InputGoneError, match="3 files are gone"):
        handle.backfill()


def test_a_branch_that_has_read_nothing_holds_what_was_landed(
    outbox: OutboxWorld, handle: PipelineHandle, store: ObjectStore
) -> None:
    for first in (0, 8):
        outbox.append(records(first, 8))
        handle.run()
    Catalog(store, "counting").fork("empty", None)  # as a backfill begins
    for _ in range(2):
        handle.expire(keep_last=1)
    assert len(landed_paths(store)) == 6


def test_landed_files_that_nobody_has_read_are_missed(
    outbox: OutboxWorld, handle: PipelineHandle, store: ObjectStore
) -> None:
    outbox.append(records(0, 8))
    handle.run()
    for first in (8, 16):
        outbox.append(records(first, 8))
        handle.run(branch="beside")
    lost_text = f"{LANDED_FOLDER}{landed_paths(store)[1]}"
    store.delete(lost_text)
    with pytest.raises(SplitGoneError, match=r"/0{19}1-00000-\.\.\., which was planned to be read, is gone"):
        handle.run()
    (problem,) = handle.fsck().damage
    assert problem.path == f"{LANDED_FOLDER}_ranges/{1:020d}.json"
    assert problem.problem == "1 of its 1 files are missing, such as that of 8-16"


def test_records_of_two_sources_are_not_mixed(outbox: OutboxWorld, handle: PipelineHandle, root: str) -> None:
    outbox.append(records(0, 8))
    handle.run()
    other = OutboxWorld(outbox.database.with_name("other.db"))
    other.append(records(100, 20))
    moved_handle = hr.open(root)[counting(other.source, executor="local", when=hr.on_update())]
    with pytest.raises(PlaceError, match=r"was landed from .*outbox.*and is .*other\.db now.*another name"):
        moved_handle.backfill(promote=True)
    assert sum(counts(handle).values()) == 8


def test_what_has_expired_is_missed_and_never_left_out_in_silence(
    outbox: OutboxWorld, handle: PipelineHandle, root: str, store: ObjectStore
) -> None:
    outbox.append(records(0, 8))
    handle.run()
    outbox.append(records(8, 8))
    Landing(counting(outbox.source, executor="local"), store).land_all({})  # by a run that was killed then
    for _ in range(2):
        handle.expire(keep_last=1)
    assert [name.partition("-")[0] for name in landed_paths(store)] == [
        f"{1:020d}",
        f"_ranges/{1:020d}.json",
        f"_ranges/{1:020d}.seal.json",
    ]
    with pytest.raises(InputGoneError, match="1 files are gone"):  # as many are there, and they are others
        handle.backfill(promote=True)
    assert sum(counts(handle).values()) == 8
    handle.rollback(to="beginning", message="what is left will do")
    (warning,) = handle.run().warnings
    assert re.search(r"input source is read from .*/0{19}1-00000-.* expired.*results lack it", warning)
    replayed_result = handle.run(mode="replay", clock="2026-05-01T00:00:00Z", clock_step="1h", branch="clock")
    assert replayed_result.warnings == (warning,)


@kept_outbox
def test_claimed_splits_that_the_source_has_lost_refuse_whoever_would_read_them_again(
    outbox: OutboxWorld, handle: PipelineHandle, store: ObjectStore
) -> None:
    outbox.append(records(0, 8))
    first = str(handle.run().snapshot)
    outbox.append(records(8, 8))
    handle.run()
    prune(outbox)
    with pytest.raises(InputGoneError, match="2 files are gone: 0-8; 8-16"):
        handle.backfill(promote=True, branch="again")
    assert "again" not in Catalog(store, "counting").head().generations
    with pytest.raises(InputGoneError, match=r"1 of these files are gone: 8-16.*Nothing has moved"):
        handle.recover(first)
    assert sum(counts(handle).values()) == 16


def test_what_was_claimed_while_a_source_was_read_where_it_is_lands_once_it_is_not(
    outbox: OutboxWorld, handle: PipelineHandle, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = counting(outbox.source, executor="local")
    with monkeypatch.context() as patch:
        patch.setattr(type(outbox.source), "is_durable", True)
        patch.setattr(type(outbox.source), "plans_alike", False)
        outbox.append(records(0, 8))
        handle.run()
        for first in (8, 16):
            outbox.append(records(first, 8))
            Landing(pipeline, store).land_all({})  # by runs that were killed then
    outbox.append(records(24, 8))
    assert handle.run().counts["input_files"] == 3
    prune(outbox)
    assert sum(counts(handle).values()) == 32
    assert [name.partition("-")[0] for name in landed_paths(store) if name[0] != "_"] == [
        f"{number:020d}" for number in range(4)
    ]
    assert handle.fsck().damage == ()


def old(root: Path, folder: str, days: int) -> None:
    """What was landed in a folder was landed so many days ago."""
    for path in (root / "counting" / "landed" / folder).rglob("*.*"):
        mtime = path.stat().st_mtime - days * 86_400
        os.utime(path, (mtime, mtime))


def test_what_was_landed_for_an_input_that_is_gone_expires_with_the_snapshots_that_have_it(
    outbox: OutboxWorld, root: str, store: ObjectStore, tmp_path: Path
) -> None:
    other = OutboxWorld(outbox.database.with_name("other.db"))
    more = other.source.event_time("at", bound="1h").named("other")
    both = counting(outbox.source, union=[more], executor="local", when=hr.on_update())
    handle = hr.open(root, create=True)[both]
    snapshots = []
    for first in (0, 8):
        outbox.append(records(first, 8))
        other.append(records(100 + first, 8))
        snapshots.append(str(handle.run().snapshot))
    handle.tag("both", snapshots[0])

    def left() -> set[str]:
        """Which ranges are there of the input that is gone."""
        prefix = "counting/landed/other/"
        names = [info.path.removeprefix(prefix).removeprefix("_ranges/") for info in store.list(prefix)]
        return {name[:20] for name in names}

    lone_handle = hr.open(root)[counting(outbox.source, executor="local", when=hr.on_update())]
    lone_handle.backfill(promote=True)
    for _ in range(3):
        lone_handle.expire(keep_last=1)
    assert left() == {f"{0:020d}", f"{1:020d}"}, "it may be landed for a definition of which no snapshot is there yet"
    old(tmp_path / "root", "other", 2)
    for _ in range(2):
        lone_handle.expire(keep_last=1)
    assert left() == {f"{1:020d}"}, "who goes on from the tag reads it"
    assert lone_handle.fsck().damage == ()
    lone_handle.drop("both")
    for _ in range(2):
        lone_handle.expire(keep_last=1)
    assert left() == set()
    outbox.append(records(16, 8))
    lone_handle.run()
    assert sum(counts(lone_handle).values()) == 24


def test_what_was_landed_for_a_new_input_stays_after_a_run_whose_clock_was_days_ahead(
    outbox: OutboxWorld, root: str, store: ObjectStore, tmp_path: Path
) -> None:
    other = OutboxWorld(outbox.database.with_name("other.db"))
    more = other.source.event_time("at", bound="1h").named("other")
    handle = hr.open(root, create=True)[counting(outbox.source, executor="local", when=hr.on_update())]
    outbox.append(records(0, 8))
    other.append(records(100, 8))
    handle.run()
    Landing(counting(outbox.source, union=[more], executor="local", when=hr.on_update()), store).land_all({})
    for path in (tmp_path / "root").rglob("*.*"):  # seen from the store, the runs were two days ahead
        mtime = path.stat().st_mtime - 2 * 86_400
        os.utime(path, (mtime, mtime))
    landed_before = [info.path for info in store.list("counting/landed/other/")]
    assert landed_before
    for _ in range(3):
        handle.expire(keep_last=1)
    assert [info.path for info in store.list("counting/landed/other/")] == landed_before


def test_what_was_landed_for_a_new_input_stays_after_a_copy_of_the_root_that_took_days(
    outbox: OutboxWorld, root: str, store: ObjectStore, tmp_path: Path
) -> None:
    other = OutboxWorld(outbox.database.with_name("other.db"))
    more = other.source.event_time("at", bound="1h").named("other")
    handle = hr.open(root, create=True)[counting(outbox.source, executor="local", when=hr.on_update())]
    outbox.append(records(0, 8))
    other.append(records(100, 8))
    handle.run()
    Landing(counting(outbox.source, union=[more], executor="local", when=hr.on_update()), store).land_all({})
    for path in (tmp_path / "root" / "counting" / "manifests").rglob("*.*"):  # they were copied last
        mtime = path.stat().st_mtime + 2 * 86_400
        os.utime(path, (mtime, mtime))
    landed_before = [info.path for info in store.list("counting/landed/other/")]
    assert landed_before
    for _ in range(3):
        handle.expire(keep_last=1)
    assert [info.path for info in store.list("counting/landed/other/")] == landed_before


def test_the_age_of_input_goes_by_when_it_was_landed(outbox: OutboxWorld, root: str, tmp_path: Path) -> None:
    limits = hr.Limits(newest_file="1d")
    handle = hr.open(root, create=True)[counting(outbox.source, limits=limits, executor="local", when=hr.on_update())]
    outbox.append(records(0, 8))
    handle.run()
    old(tmp_path / "root", "source", 2)
    (finding,) = handle.run().limits
    assert (finding.name, str(finding.severity)) == ("newest_file", "warn")
    assert finding.observed == pytest.approx(2 * 86_400, abs=3_600)
    assert finding.said.startswith("of input source, landed at ")
