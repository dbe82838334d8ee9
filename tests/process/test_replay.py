"""A replay gives what was recorded, a changed pipeline what it would have given, a set clock the same every time."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace import AfterAny, AfterCount, AfterProcessingTime, AfterWatermark, Pipeline, col, retracting
from headrace.model.event_time import BoundedOutOfOrderness, EventTime
from headrace.model.time import Duration, to_instant
from headrace.model.triggers import Signal
from headrace.model.triggers.elementary import AfterSignal
from headrace.model.windows import Window
from headrace.read.snapshots.epoch_history import recorded_epochs
from headrace.read.snapshots.progress import StoredProgress
from headrace.read.snapshots.snapshot_refs import UnknownBranchError
from headrace.runs.option_kinds import RunOptionsError
from headrace.runs.options import Mode, RunOptions
from headrace.runs.process import process
from headrace.runs.replay_clock import ReplayClock, parse_clock
from headrace.runs.restore import InputGoneError
from headrace.sources.progress import PipelineProgress
from headrace_lab.catalog_checks import check_catalog
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store import open_store
from tests.building import change_pipeline
from tests.manifests import new_manifest
from tests.process.clicks import CLICKS, FILES, START, land, records
from tests.process.executors import LOCAL, ExecutorUnderTest, no_executor, on_both
from tests.reading import read
from tests.stored_progress import progress_fields, progress_to_json

MINUTE = timedelta(minutes=1)
NOW = datetime(2026, 2, 1, tzinfo=UTC)

SPECULATIVE = change_pipeline(
    CLICKS,
    event_time=EventTime(col("at"), BoundedOutOfOrderness(10 * MINUTE, idle_timeout=90 * MINUTE)),
    when=AfterWatermark(early=AfterAny(AfterProcessingTime(7 * MINUTE), AfterSignal("go")), late=AfterCount(2)),
    how=retracting(allowed_lateness=120 * MINUTE),
)
"""Panes of it depend on when epochs ran and on what they heard, and much of its input is too late."""


def no_clock() -> datetime:
    raise AssertionError("a replay read the wall clock")


def land_late(root: Path) -> None:
    """Clicks of the first two hours once more, in files between those that landed on time."""
    folder = root / "landing" / "clicks"
    for epochs_after, first in ((2, 0), (4, 1)):
        lines = "".join(json.dumps(record) + "\n" for record in records(first))
        (folder / f"part-{epochs_after:05d}-late.jsonl").write_text(lines)


def record(root: Path, executor: ExecutorUnderTest) -> None:
    """Six runs of uneven sizes and pauses: signals, timers, late data."""
    steps: list[tuple[int, int, tuple[Signal, ...], int | None]] = [
        (0, 0, (), 1),
        (3, 1, (Signal("go", ("u1",)),), None),
        (11, 1, (), None),
        (12, 3, (), 2),
        (16, 4, (Signal("go"),), None),
        (50, 5, (), None),
    ]
    files_landed = 0
    for number, (minutes, files, signals, files_per_epoch) in enumerate(steps):
        land(root, files_landed, files)
        if files_landed < files == FILES:
            land_late(root)
        files_landed = files
        options = RunOptions(f"run-{number}", files_per_epoch=files_per_epoch, signals=signals)
        clock = NOW + minutes * MINUTE
        executor.process(SPECULATIVE, root.as_uri(), options, now=lambda time=clock: time)


def manifests(root: Path, branch: str) -> list[Manifest]:
    catalog = Catalog(open_store(root.as_uri()), CLICKS.name)
    return [*catalog.ancestry(catalog.head().refs[branch])][::-1]


def manifest_facts(manifest: Manifest) -> tuple[Mapping[str, Any], Mapping[str, int], dict[str, int]]:
    """What a manifest says that must not depend on where and when it was made."""
    progress = {name: value for name, value in manifest.progress.items() if name != "executor"}
    return progress, manifest.counts, {name: log.rows for name, log in manifest.logs.items()}


def replay(
    pipeline: Pipeline, root: Path, executor: ExecutorUnderTest, branch: str = "again", **more: Any
) -> tuple[int, ...]:
    options = RunOptions(f"replay-{branch}", mode=Mode.REPLAY, branch=branch, **more)
    return executor.process(pipeline, root.as_uri(), options, now=no_clock).epochs


@on_both
def test_a_replay_gives_what_was_recorded_and_a_changed_pipeline_what_it_would_have(
    executor: ExecutorUnderTest, tmp_path: Path
) -> None:
    root = tmp_path.as_uri()
    record(tmp_path, LOCAL)
    was = manifests(tmp_path, "main")
    assert sum(m.counts["panes_early"] for m in was) > 0
    assert sum(m.counts["panes_late"] for m in was) > 0
    assert sum(m.counts["late_dropped"] for m in was) > 0
    assert any(m.counts["input_files"] == 0 for m in was), "no timer epoch"
    assert [m.epoch for m in was if m.progress["signals"]] == [0, 3]

    assert replay(SPECULATIVE, tmp_path, executor) == tuple(m.epoch for m in was)
    assert [manifest_facts(m) for m in manifests(tmp_path, "again")] == [manifest_facts(m) for m in was]
    for view in ("panes", "late", "current"):
        found_rows, expected = (read(SPECULATIVE, root, view, branch).to_pylist() for branch in ("again", "main"))
        assert found_rows == expected
        assert found_rows

    patient = replace(SPECULATIVE, how=retracting(allowed_lateness=timedelta(days=1)))
    assert replay(patient, tmp_path, executor, "patient", from_branch="again") == tuple(m.epoch for m in was)
    now = manifests(tmp_path, "patient")
    assert [m.progress["processing_time"] for m in now] == [m.progress["processing_time"] for m in was]
    assert [m.progress["watermark"] for m in now] == [m.progress["watermark"] for m in was]
    assert sum(m.counts["late_dropped"] for m in now) == 0
    refs = Catalog(open_store(root), CLICKS.name).head().refs
    assert refs["main"] == was[-1].snapshot_id
    assert "published" not in refs
    check_catalog(open_store(root), CLICKS.name)


def test_a_replay_of_a_batch_run_ends_the_input_too(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(tmp_path, 0, 2)
    executor.process(CLICKS, tmp_path.as_uri(), RunOptions("batch", mode=Mode.BATCH))
    assert replay(CLICKS, tmp_path, executor) == (0,)
    (second_manifest,), (was,) = manifests(tmp_path, "again"), manifests(tmp_path, "main")
    assert second_manifest.progress["watermark"] == "+inf"
    assert manifest_facts(second_manifest) == manifest_facts(was)


def test_a_clock_of_its_own_ticks_for_every_epoch_and_goes_on_until_nothing_is_pending(
    executor: ExecutorUnderTest, tmp_path: Path
) -> None:
    land(tmp_path, 0, 3)
    clock = parse_clock("2026-11-20T00:00:00Z", "5m")
    epochs = replay(SPECULATIVE, tmp_path, executor, "first", clock=clock, files_per_epoch=1)
    first = manifests(tmp_path, "first")
    # Input at 0, 5 and 10; early panes are due 7 minutes after their first element, the split is idle after 90.
    times = [str(m.progress["processing_time"])[11:16] for m in first]
    assert [*times[:3], *times[-2:]] == ["00:00", "00:05", "00:10", "00:20", "01:40"]
    assert [m.counts["input_files"] for m in first] == [1, 1, 1, *[0] * (len(first) - 3)]
    assert first[-2].counts["panes_early"] > 0
    assert first[-1].progress["next_processing_time_deadline"] is None
    assert epochs == tuple(m.epoch for m in first)
    assert replay(SPECULATIVE, tmp_path, executor, "second", clock=clock, files_per_epoch=1, max_epochs=4) == epochs[:4]
    assert [manifest_facts(m) for m in manifests(tmp_path, "second")] == [manifest_facts(m) for m in first[:4]]
    # What a clock recorded can be replayed like any other epochs.
    assert replay(SPECULATIVE, tmp_path, executor, "third", from_branch="first") == epochs
    assert [manifest_facts(m) for m in manifests(tmp_path, "third")] == [manifest_facts(m) for m in first]


def test_a_replay_that_was_stopped_goes_on_with_itself_alone(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(tmp_path, 0, 3)
    executor.process(CLICKS, tmp_path.as_uri(), RunOptions("main", files_per_epoch=1))
    was = manifests(tmp_path, "main")
    assert replay(CLICKS, tmp_path, executor, max_epochs=1) == (0,)
    assert replay(CLICKS, tmp_path, executor) == (1, 2)
    assert [manifest_facts(m) for m in manifests(tmp_path, "again")] == [manifest_facts(m) for m in was]
    assert replay(CLICKS, tmp_path, executor) == ()

    clock = parse_clock("2026-11-20T00:00:00Z", "5m")
    assert replay(CLICKS, tmp_path, executor, "clock", clock=clock, files_per_epoch=1, max_epochs=2) == (0, 1)
    with pytest.raises(RunOptionsError, match=r"Branch clock of clicks is at snapshot .* epoch 1 differs"):
        slower = parse_clock("2026-11-20T00:00:00Z", "7m")
        replay(CLICKS, tmp_path, executor, "clock", clock=slower, files_per_epoch=1)
    assert replay(CLICKS, tmp_path, executor, "clock", clock=clock, files_per_epoch=1)[0] == 2
    times = [str(m.progress["processing_time"])[11:16] for m in manifests(tmp_path, "clock")]
    assert times[:3] == ["00:00", "00:05", "00:10"]


# --- what is refused, before an executor starts


@pytest.fixture
def recorded_root(tmp_path: Path) -> Iterator[Path]:
    """A root where main has recorded two epochs; no executor starts."""
    land(tmp_path, 0, 2)
    commit_by_hand(tmp_path)
    with no_executor("local"):
        yield tmp_path


def commit_by_hand(root: Path) -> None:
    """Two epochs of main that read a file each, as a run would record them."""
    from headrace.pipeline.identity import fingerprint
    from headrace_snapshots.format.files import FileLog, FileRecord, InputFile

    store = open_store(root.as_uri())
    catalog = Catalog(store, CLICKS.name)
    claim, parent, inputs = catalog.claim("main", "test"), None, FileLog.empty()
    for epoch in range(2):
        info = store.stat(f"landing/clicks/part-{epoch:05d}.jsonl")
        file = InputFile(info.path, info.size, info.etag, "source")
        inputs = catalog.append_record(inputs, FileRecord(epoch, (file,)))
        manifest = new_manifest(
            snapshot_id=catalog.new_snapshot_id(),
            pipeline=CLICKS.name,
            fingerprint=fingerprint(CLICKS),
            branch="main",
            epoch=epoch,
            parent=parent,
            generation=claim.generation,
            created_at="2026-01-01T00:00:00Z",
            progress=progress_fields(PipelineProgress(processing_time=to_instant(NOW + epoch * MINUTE))),
            tables={"state": (), "current": ()},
            logs={"inputs": inputs, "panes": FileLog.empty()},
        )
        catalog.commit(claim, manifest)
        parent = manifest.snapshot_id


def attempt(root: Path, pipeline: Pipeline = CLICKS, **options: Any) -> None:
    options = {"run_id": "replay", "mode": Mode.REPLAY, "branch": "again", "executor": "local", **options}
    process(pipeline, root.as_uri(), RunOptions(**options), now=no_clock)


def entries(root: Path) -> int:
    return Catalog(open_store(root.as_uri()), CLICKS.name).head().entry


def test_the_record_names_files_and_clocks(recorded_root: Path) -> None:
    catalog = Catalog(open_store(recorded_root.as_uri()), CLICKS.name)
    epochs = recorded_epochs(catalog, catalog.head().refs["main"])
    assert [[file.path for file in epoch.files["source"]] for epoch in epochs] == [
        ["landing/clicks/part-00000.jsonl"],
        ["landing/clicks/part-00001.jsonl"],
    ]
    assert [epoch.processing_time for epoch in epochs] == [to_instant(NOW), to_instant(NOW + MINUTE)]


def test_files_that_are_gone_or_changed_are_named(recorded_root: Path) -> None:
    folder, entries_before = recorded_root / "landing" / "clicks", entries(recorded_root)
    (folder / "part-00000.jsonl").unlink()
    (folder / "part-00001.jsonl").write_text("{}\n")
    with pytest.raises(InputGoneError, match=r"2 of them .*part-00000.jsonl is gone; .*part-00001.jsonl has changed"):
        attempt(recorded_root)
    assert entries(recorded_root) == entries_before, "it claimed a branch before it looked"


def test_a_branch_of_something_else_is_refused_and_its_writer_not_fenced(recorded_root: Path) -> None:
    catalog, entries_before = Catalog(open_store(recorded_root.as_uri()), CLICKS.name), entries(recorded_root)
    catalog.fork("next", catalog.head().refs["main"])
    with pytest.raises(RunOptionsError, match=r"Branch next of clicks is at snapshot .* epoch 0 differs"):
        attempt(recorded_root, branch="next", clock=ReplayClock(to_instant(NOW + MINUTE), Duration(1)))
    with pytest.raises(RunOptionsError, match=r"Branch next of clicks is at snapshot .* the pipeline differs"):
        attempt(recorded_root, SPECULATIVE, branch="next")
    assert entries(recorded_root) == entries_before + 1


def test_an_unknown_branch_is_refused_with_what_there_is(recorded_root: Path) -> None:
    with pytest.raises(UnknownBranchError, match=r"no branch or tag 'mian' .*there are main"):
        attempt(recorded_root, from_branch="mian")


def test_nothing_recorded_says_what_a_clock_would_do(tmp_path: Path) -> None:
    with pytest.raises(UnknownBranchError, match=r"there are none\. A clock of its own"):
        attempt(tmp_path)


def test_a_clock_over_nothing_does_nothing(tmp_path: Path) -> None:
    attempt(tmp_path, clock=ReplayClock(to_instant(NOW), Duration(1)))
    assert entries(tmp_path) == -1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"publish": True}, "publishes nothing"),
        ({"branch": "main"}, "not main"),
        ({"signals": (Signal("go"),)}, "no others"),
        ({"from_branch": "main", "clock": ReplayClock(to_instant(NOW), Duration(1))}, "not both"),
        ({"files_per_epoch": 2}, "as it was recorded"),
        ({"mode": Mode.BATCH, "from_branch": "main"}, "for mode replay"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RunOptionsError, match=message):
        attempt(tmp_path, **options)


def test_clocks_are_read() -> None:
    clock = parse_clock("2026-01-01T01:00:00+01:00", "90s")
    assert clock == ReplayClock(to_instant(START), Duration(90_000_000))
    assert [clock.first_tick_from(clock.time_at(3) + shift) for shift in (-1, 0, 1)] == [3, 3, 4]
    assert parse_clock(None, None) is None


@pytest.mark.parametrize(
    ("start", "step"),
    [("2026-01-01T00:00:00", "5m"), ("soon", "5m"), ("2026-01-01", None), (None, "5m")]
    + [("2026-01-01T00:00:00Z", step) for step in ("0s", "5", "-5m", "5 parsecs", "w", "")],
)
def test_what_is_no_clock_is_refused(start: str | None, step: str | None) -> None:
    with pytest.raises(RunOptionsError, match=r"clock"):
        parse_clock(start, step)


def test_signals_come_back_from_a_manifest(recorded_root: Path) -> None:
    manifest = manifests(recorded_root, "main")[0]
    signals = (Signal("go"), Signal("stop", ("u1", 2, None)), Signal("go", (), Window(0, 10)))  # type: ignore[arg-type]
    progress = progress_to_json(PipelineProgress(), signals=signals, signals_of="r", executor="local")
    stored_progress = StoredProgress.from_manifest(manifest.replace(progress=json.loads(json.dumps(progress))))
    assert (stored_progress.signals, stored_progress.signals_of) == (signals, "r")
