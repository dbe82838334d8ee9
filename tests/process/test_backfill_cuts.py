"""Random histories of main, read again by backfills in epochs of any size, in several runs, while main goes on, is
patched, and lets old snapshots go: what main accepted is not late on the branch, nor later; and the results are those
of the records that are left.
"""

import json
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.model.accumulation import TimestampCombiner
from headrace.model.time import to_datetime, to_instant
from headrace.runs.option_values import parse_span
from headrace.runs.options import Mode, RunOptions
from headrace.runs.process import process
from headrace.runs.publishing.patch import OpenWindowsError, OtherDefinitionError, UnpatchableError, UnpublishedError
from headrace.runs.publishing.promotion import BranchBehindError, ForkGivenUpError, PatchedSinceError
from headrace_lab.actions import backfill, recover
from headrace_lab.reference.windows import assign
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.names import manifest_path
from headrace_snapshots.store import open_store
from tests.process.late_clicks import Live
from tests.process.late_clicks import pipeline as clicks_in_time
from tests.reading import read
from tests.reference.strategies import examples

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = {"user": str, "at": datetime, "price": int, "id": str, "split": str, "n": int}


def time_at(minutes: float) -> datetime:
    return START + timedelta(minutes=minutes)


OF_PATCHES = (
    UnpublishedError,
    OpenWindowsError,
    UnpatchableError,
    OtherDefinitionError,
    BranchBehindError,
    ForkGivenUpError,
    PatchedSinceError,
)
"""Why a patch may be refused here."""


@dataclass(frozen=True)
class Step:
    """Main: what lands (minutes behind START and ids of records, by input and name of the file), and then a run at a
    time, with so many files in an epoch; whether it is patched then by a run over all input at once, and whether all
    but its newest snapshot expire.
    """

    landed: Sequence[tuple[str, str, Sequence[tuple[int, str, str]]]]
    clock: int
    files_per_epoch: int
    signal: bool
    patches: bool
    expires: bool


@dataclass(frozen=True)
class SecondRun:
    """One run of the backfill."""

    files: int | None
    bytes: int | None
    epochs: int | None


RECORDS = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 300), st.integers(0, 300), st.sampled_from([2_000, 5_000])),
        st.sampled_from("abcdef"),
        st.sampled_from("xy"),
    ),
    min_size=1,
    max_size=5,
)
NAMES = st.integers(0, 10**6).map(lambda n: f"{n:07}")
RARELY = st.integers(0, 3).map(lambda n: n == 0)
STEPS = st.builds(
    Step,
    st.lists(st.tuples(st.sampled_from(["one", "two"]), NAMES, RECORDS), max_size=4, unique_by=lambda f: f[1]),
    st.integers(0, 400),
    st.integers(1, 4),
    st.booleans(),
    RARELY,
    RARELY,
)
SECOND_RUNS = st.builds(
    SecondRun,
    st.none() | st.integers(1, 4),
    st.none() | st.sampled_from([1, 150, 400]),
    st.none() | st.integers(1, 3),
)
EACH_ELEMENT = hr.AfterCount(1)
TRIGGERS: st.SearchStrategy[hr.Trigger] = st.sampled_from(
    [
        hr.Default(),
        hr.AfterWatermark(early=hr.AfterCount(2), late=EACH_ELEMENT),
        hr.AfterWatermark(early=hr.AfterProcessingTime("30m"), late=hr.AfterCount(2)),
        hr.Repeatedly(hr.AfterCount(3)),
        hr.Repeatedly(hr.AfterProcessingTime("1h")),
        hr.AfterWatermark(early=hr.Repeatedly(hr.AfterPercentileWatermark(50)), late=EACH_ELEMENT),
        hr.AfterWatermark(early=hr.Repeatedly(hr.AfterSignal("go")), late=EACH_ELEMENT),
    ]
)
MINUTES = st.sampled_from(["0s", "10m", "60m", "200m"])


@st.composite
def pipelines(draw: st.DrawFn) -> hr.Pipeline:
    """A pipeline over one or two inputs, whose results do not depend on how input is cut."""

    def given_input(path: str) -> hr.Input:
        source = hr.json(f"landing/{path}", SCHEMA, max_files=draw(st.sampled_from([1, 1000])))
        return source.event_time(
            "at",
            bound=draw(MINUTES),
            idle=draw(st.sampled_from([None, "20m", "100m"])),
            split=draw(st.sampled_from([None, "split"])),
            max_ahead=draw(st.sampled_from([None, "1d", "500m"])),
        )

    two = draw(st.booleans())
    parts: dict[str, Any] = {
        "key": "user",
        "what": {"number": hr.count(), "spent": col("price").sum()},
        "where": draw(st.sampled_from([hr.FixedWindows("1h"), hr.SlidingWindows("2h", "1h")])),
        "when": draw(TRIGGERS),
        "how": hr.retracting(draw(MINUTES), timestamp=draw(st.sampled_from(TimestampCombiner))),
        "executor": "local",
    }
    if draw(st.integers(0, 2)) == 0:
        parts["deduplicate"] = hr.Deduplicate("id", draw(st.sampled_from(["1m", "2h"])))
    if two:
        parts["union"] = (given_input("two").named("two"),)
    return hr.Pipeline("clicks", given_input("one"), **parts)


class Main:
    """A pipeline under a root of its own, with a clock of its own."""

    def __init__(self, folder: Path, pipeline: hr.Pipeline) -> None:
        self.folder, self.pipeline, self.root = folder, pipeline, folder.as_uri()
        self.catalog = Catalog(open_store(self.root), pipeline.name)
        self.clock, self._records, self._runs, self.is_patched = START, 0, 0, False
        for each in pipeline.inputs:
            (folder / each.source.path).mkdir(parents=True)

    def copy_to(self, folder: Path) -> "Main":
        copy = Main(folder, self.pipeline)
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        copy.clock, copy._records, copy.is_patched = self.clock, self._records, self.is_patched
        return copy

    def land(self, path: str, name: str, records: Sequence[tuple[int, str, str]]) -> None:
        if not (self.folder / "landing" / path).is_dir():
            return
        lines = []
        for minutes, letter, split in records:
            self._records += 1
            row = {
                "user": letter,
                "at": time_at(minutes).isoformat(),
                "price": 10**6 + self._records,
                "n": self._records,
            }
            lines.append(json.dumps({**row, "id": f"{letter}{minutes // 30}", "split": split}) + "\n")
        (self.folder / "landing" / path / f"{name}-{self._records}.jsonl").write_text("".join(lines))

    def step(self, step: Step) -> None:
        """Land what the step does, and run main."""
        for path, name, records in step.landed:
            self.land(path, name, records)
        self.clock = max(self.clock + timedelta(seconds=1), time_at(step.clock))
        signals = (hr.Signal("go"),) if step.signal else ()
        self.run(files_per_epoch=step.files_per_epoch, signals=signals)
        if "main" not in self.catalog.head().refs:
            return
        if step.patches:
            self.patch()
        if step.expires:
            for _ in range(2):
                self.history.expire(keep_last=1)

    def patch(self) -> None:
        """Replace rows of windows that have expired by those of all input at once."""
        branch = f"w{self._runs}"
        process(self.pipeline, self.root, self._options(branch=branch, mode=Mode.BATCH), now=lambda: self.clock)
        if self.catalog.head().refs.get(branch) is not None:
            with suppress(*OF_PATCHES):
                self.is_patched |= bool(self.history.promote(branch, patch=True).epochs)
            self.history.drop(branch)

    @property
    def history(self) -> Any:
        return hr.open(self.root)[self.pipeline.name]

    def run(self, **options: Any) -> None:
        process(self.pipeline, self.root, self._options(publish=True, **options), now=lambda: self.clock)

    def fill(self, second_run: SecondRun, minute: int | None) -> None:
        """A run of the backfill."""
        self.clock += timedelta(seconds=1)
        options = self._options(
            branch="fix",
            files_per_epoch=second_run.files,
            bytes_per_epoch=second_run.bytes,
            max_epochs=second_run.epochs,
            span=None if minute is None else parse_span(time_at(minute).isoformat(), None),
        )
        backfill(self.pipeline, self.root, options, now=lambda: self.clock)

    def close(self) -> None:
        """Let every window come to its end."""
        for number, minutes in enumerate((9_000, 9_001, 20_000)):
            self.clock = max(self.clock, time_at(minutes))
            for each in self.pipeline.inputs:
                path = each.source.path.removeprefix("landing/")
                self.land(path, f"z{number}", [(minutes, "z", split) for split in "xy"])
            self.run()

    def late(self) -> set[tuple[int, Any]]:
        """Records that were dropped as late, with their windows; None: from all of them, as ids were forgotten."""
        rows = read(self.pipeline, self.root, "late", "main").to_pylist()
        late_numbers = [(json.loads(row["raw"])["n"], row["window_start"]) for row in rows]
        assert len(late_numbers) == len(set(late_numbers))
        return set(late_numbers)

    def current(self) -> list[tuple[Any, ...]]:
        rows = read(self.pipeline, self.root, "current", "main").to_pylist()
        user_rows = ((r["user"], r["window_start"], r["number"], r["spent"]) for r in rows if r["user"] != "z")
        return sorted(user_rows)

    def truth(self) -> list[tuple[Any, ...]]:
        """What ``current`` must be, of all records but those that were late."""
        late, sums = self.late(), dict[tuple[str, datetime], tuple[int, int]]()
        for path in (self.folder / "landing").glob("*/*.jsonl"):
            for row in map(json.loads, path.read_text().splitlines()):
                for window in assign(self.pipeline.where, to_instant(datetime.fromisoformat(row["at"]))):
                    start = to_datetime(window.start)
                    if row["user"] != "z" and (row["n"], start) not in late:
                        number, spent_sum = sums.get((row["user"], start), (0, 0))
                        sums[row["user"], start] = number + 1, spent_sum + row["price"]
        return sorted((*place, *values) for place, values in sums.items())

    def _options(self, **options: Any) -> RunOptions:
        self._runs += 1
        return RunOptions(f"run-{id(self)}-{self._runs}", executor="local", create=True, **options)


LandedFiles = list[tuple[str, str, Sequence[tuple[int, str, str]]]]


@dataclass(frozen=True)
class History:
    """What main has done; what it does while the backfill runs; what lands then, before the last run of the backfill,
    which is of the windows from so many minutes on.
    """

    before: Sequence[Step]
    meanwhile: Sequence[Step | SecondRun]
    rest: LandedFiles
    last: SecondRun
    since: int | None


FILES = st.lists(st.tuples(st.sampled_from(["one", "two"]), NAMES, RECORDS), max_size=3, unique_by=lambda f: f[1])
HISTORIES = st.builds(
    History,
    st.lists(STEPS, min_size=1, max_size=5),
    st.lists(STEPS | SECOND_RUNS, max_size=4),
    FILES,
    SECOND_RUNS.map(lambda second_run: replace(second_run, epochs=None)),
    st.none() | st.integers(0, 300),
)


@pytest.mark.slow
@given(pipelines(), HISTORIES)
@settings(examples(25, fewest=4), suppress_health_check=list(HealthCheck), phases=[Phase.generate])  # each takes long
def test_what_main_accepted_is_not_late_in_epochs_of_any_size(pipeline: hr.Pipeline, history: History) -> None:
    with TemporaryDirectory() as folder:
        live = Main(Path(folder) / "live", pipeline)
        for step in history.before:
            live.step(step)
        for each in history.meanwhile:
            if isinstance(each, Step):
                live.step(each)
            else:
                live.fill(each, history.since)
        for path, name, records in history.rest:
            live.land(path, f"r{name}", records)
        lone_live = live.copy_to(Path(folder) / "alone")
        live.fill(history.last, history.since)
        if live.catalog.head().refs.get("fix") is not None:
            with suppress(PatchedSinceError):
                hr.open(live.root)[pipeline.name].promote("fix")
        live.close()
        lone_live.close()
        late, of_main = live.late(), lone_live.late()
        assert {(n, window) for n, window in late - of_main if (n, None) not in of_main} == set()
        if pipeline.deduplicate is None:
            assert live.is_patched or live.current() == live.truth()
            assert lone_live.is_patched or lone_live.current() == lone_live.truth()
        elif not history.rest and not history.meanwhile and not any(step.expires for step in history.before):
            assert (live.late(), live.current()) == (lone_live.late(), lone_live.current())


def one_epoch_of_two_files(folder: Path) -> tuple[Live, str]:
    """The second is older than the first by more than the bound; the source would have them in two epochs. Before them
    is a snapshot that readers see.
    """
    live = Live(folder, clicks_in_time())
    live.land(("ann", 0.1, 1))
    live.process()
    seen_snapshot = live.refs()["published"]
    live.land(("ann", 5.5, 1))
    live.land(("bob", 0.2, 10))
    assert live.process(publish=False, files_per_epoch=2).counts["late_dropped"] == 0
    return live, seen_snapshot


@pytest.mark.slow
def test_a_recovery_reads_as_it_was_read(tmp_path: Path) -> None:
    live, seen_snapshot = one_epoch_of_two_files(tmp_path)
    rows_before = live.current("main")
    for attempt in range(2):
        options = RunOptions(f"recover-{attempt}", executor="local", snapshot=seen_snapshot, request="r")
        assert recover(live.pipeline, live.root, options).counts.get("late_dropped", 0) == 0
        assert live.current("main") == rows_before


@pytest.mark.slow
def test_a_run_that_falls_back_reads_as_it_was_read(tmp_path: Path) -> None:
    live, _ = one_epoch_of_two_files(tmp_path)
    rows_before = live.current("main")
    manifest = live.catalog.manifest(live.refs()["main"])
    (tmp_path / manifest.tables["state"][-1].files[0].path).unlink()
    live.land(("ann", 5.6, 1))
    result = live.process()
    assert "fell back" in result.warnings[0]
    assert result.counts["late_dropped"] == 0
    assert {row[:2] for row in live.current("main")} == {row[:2] for row in rows_before}


def patched_since(live: Live, *, kept_snapshot: str | None = None) -> list[tuple[Any, ...]]:
    """Main goes on with a click that is too late for it, is patched with it, and only the patch is kept; and what a tag
    keeps. The rows that readers see then.
    """
    if kept_snapshot is not None:
        hr.open(live.root)[live.pipeline.name].tag("kept", kept_snapshot)
    live.land(("cyd", 2.5, 100))
    assert live.process().counts["late_dropped"] == 1
    live.process(branch="all", mode=Mode.BATCH, publish=False)
    live.patch("all")
    for _ in range(2):
        live.history.expire(keep_last=1)
    return live.current()


@pytest.mark.slow
def test_a_backfill_drops_nothing_that_was_read_where_patches_alone_are_kept(tmp_path: Path) -> None:
    live, _ = one_epoch_of_two_files(tmp_path)
    rows = patched_since(live)
    assert [manifest.is_patch for manifest in live.catalog.ancestry(live.refs()["main"])] == [True]
    assert live.backfill(files_per_epoch=1).counts["late_dropped"] == 0
    assert live.current("fix") == rows


@pytest.mark.slow
def test_a_recovery_drops_nothing_that_was_read_where_a_patch_alone_is_kept(tmp_path: Path) -> None:
    live, seen_snapshot = one_epoch_of_two_files(tmp_path)
    rows = patched_since(live, kept_snapshot=seen_snapshot)
    options = RunOptions("recover", executor="local", snapshot=seen_snapshot, publish=True)
    assert recover(live.pipeline, live.root, options).counts["late_dropped"] == 0
    assert live.current() == rows


@pytest.mark.slow
def test_a_manifest_that_is_lost_hides_only_its_own_epoch(tmp_path: Path) -> None:
    live, _ = one_epoch_of_two_files(tmp_path)
    live.process()
    lost_snapshot = live.refs()["main"]
    live.land(("cyd", 2.5, 100))
    live.land(("ann", 7.5, 1))
    live.land(("bob", 5.9, 1))
    assert live.process(files_per_epoch=3).counts["late_dropped"] == 1
    rows = live.current()
    (tmp_path / manifest_path(live.pipeline.name, lost_snapshot)).unlink()
    assert live.backfill(files_per_epoch=1).counts["late_dropped"] <= 1
    assert [row for row in live.current("fix") if row[0] != "cyd"] == rows
