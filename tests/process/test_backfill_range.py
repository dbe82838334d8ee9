"""Backfills of a range of event time: where they fork, what they read again, what they refuse. On files, no Spark."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import (
    AfterSignal,
    Aggregation,
    CalendarWindows,
    FixedWindows,
    Pipeline,
    Repeatedly,
    Sessions,
    Signal,
    SlidingWindows,
    col,
    retracting,
)
from headrace.model.event_time import arrival_time
from headrace.model.time import Instant, to_instant
from headrace.model.windows import Window, WindowFn
from headrace.pipeline.identity import fingerprint
from headrace.read.snapshots.progress import StoredProgress
from headrace.runs.backfill.branches import fork_point
from headrace.runs.client.handle import open as open_history
from headrace.runs.option_kinds import RunOptionsError
from headrace.runs.option_values import parse_span
from headrace.runs.options import Mode, RunOptions
from headrace.runs.process import process
from headrace.runs.publishing.promotion import BranchBehindError, ForkGivenUpError
from headrace.runs.publishing.publish import AuditMissingError
from headrace.runs.reporting.listener import Silent
from headrace.runs.reporting.results import RunResult
from headrace.runs.restore import InputGoneError
from headrace.sources.progress import PipelineProgress
from headrace_lab.actions import backfill
from headrace_lab.catalog_checks import check_catalog
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.expiry import expire
from headrace_snapshots.gc_roots import Keep
from headrace_snapshots.store import open_store
from tests.building import change_pipeline
from tests.manifests import new_manifest
from tests.own_windows import Validity
from tests.process.clicks import CLICKS, START, USERS, clicks, land, records
from tests.reading import read
from tests.stored_progress import progress_fields

pytestmark = pytest.mark.slow  # whole runs

DAY = 86_400_000_000
FILES = 8  # the clicks of file n are in [n h, n h + 89 min]
FROM_3_H = "America/Argentina/Buenos_Aires"  # where days begin at 03:00 UTC
LOWER_STAGE = Aggregation(
    key="user", what={"clicks": col("clicks").sum(), "spent": col("spent").sum()}, where=FixedWindows("3h")
)


class NotingListener(Silent):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def noted(self, what: str) -> None:
        self.notes.append(what)


class Live:
    """A pipeline that has read its files one by one, an epoch each, and published them."""

    def __init__(self, folder: Path, pipeline: Pipeline = CLICKS, files: int = FILES) -> None:
        self.folder, self.pipeline, self.root = folder, pipeline, folder.as_uri()
        self.catalog = Catalog(open_store(self.root), pipeline.name)
        self.listener = NotingListener()
        self._runs = 0
        land(folder, 0, files)
        self.process()

    def process(self, *, publish: bool = True, time: datetime | None = None, **more: Any) -> RunResult:
        now = None if time is None else lambda: time
        return process(self.pipeline, self.root, replace(self._options(), publish=publish, **more), now=now)

    def backfill(self, first: float | None, last: float | None, branch: str = "fix", **more: Any) -> RunResult:
        """Of the windows between two hours behind START."""
        options = replace(self._options(), branch=branch, span=None if first is None else span(first, last), **more)
        return backfill(self.pipeline, self.root, options, listener=self.listener)

    def cut_over(self, branch: str = "fix") -> RunResult:
        return hr.open(self.root)[self.pipeline.name].promote(branch)

    @property
    def refs(self) -> dict[str, str]:
        return dict(self.catalog.head().refs)

    def epoch(self, number: int) -> str:
        """The snapshot of an epoch of main."""
        return next(m.snapshot_id for m in self.catalog.ancestry(self.refs["main"]) if m.epoch == number)

    def watermark(self, branch: str) -> Instant:
        """Where the watermark of a branch is."""
        return StoredProgress.from_manifest(self.catalog.manifest(self.refs[branch])).watermark

    def correct(self, file: int) -> None:
        """Land other content under the name of a file."""
        lines = [json.dumps({**record, "price": 1000}) for record in records(file)]
        (self.folder / "landing" / "clicks" / f"part-{file:05d}.jsonl").write_text("\n".join(lines) + "\n")

    def current(self, branch: str = "published") -> list[tuple[Any, ...]]:
        return results(self.pipeline, self.root, branch)

    def _options(self) -> RunOptions:
        self._runs += 1
        return RunOptions(f"run-{self._runs}", executor="local")


def span(first: float, last: float | None) -> Window:
    window_span = parse_span(*(None if h is None else (START + timedelta(hours=h)).isoformat() for h in (first, last)))
    assert window_span is not None
    return window_span


def results(pipeline: Pipeline, root: str, branch: str) -> list[tuple[Any, ...]]:
    """What readers of ``current`` get, without what tells how it came about."""
    rows: Sequence[dict[str, Any]] = read(pipeline, root, "current", branch).to_pylist()
    return sorted((r["user"], r["window_start"], r["window_end"], r["clicks"], r["spent"]) for r in rows)


def run_from_nothing(live: Live, folder: Path) -> list[tuple[Any, ...]]:
    """The results of all that has landed in one run from nothing."""
    (folder / "landing").mkdir(parents=True)
    (folder / "landing" / "clicks").symlink_to(live.folder / "landing" / "clicks")
    options = RunOptions("anew", executor="local", files_per_epoch=3)
    process(live.pipeline, folder.as_uri(), options)
    return results(live.pipeline, folder.as_uri(), "main")


@pytest.mark.parametrize(
    ("where", "next_stages", "fork"),
    [
        (FixedWindows("1h"), (), 2),  # [4 h, 5 h): file 3 reaches to 4 h 29
        (FixedWindows("1h", offset="30m"), (), 2),  # from 3 h 30 on
        (SlidingWindows("2h", "1h"), (), 1),  # from 3 h on: file 2 reaches to 3 h 29
        (Sessions("30m"), (), 2),  # from 3 h 30 on
        (Sessions("31m"), (), 1),
        (CalendarWindows("day", FROM_3_H), (), 1),  # from 3 h on
        (FixedWindows("1h"), (LOWER_STAGE,), 1),  # from 3 h on
        (CalendarWindows("day"), (), None),
    ],
    ids=str,
)
def test_a_range_is_computed_anew_from_the_newest_snapshot_without_it(
    tmp_path: Path, where: WindowFn, next_stages: tuple[Aggregation, ...], fork: int | None
) -> None:
    live = Live(tmp_path / "live", change_pipeline(clicks(where), then=next_stages))
    live.correct(5)
    begin = None if fork is None else live.epoch(fork)
    result = live.backfill(4, 5)
    assert result.forked_from == begin
    assert result.counts["input_files"] == FILES - (0 if fork is None else fork + 1)
    assert len(result.epochs) == 1, "large epochs"
    assert any("the backfill begins with" in note for note in live.listener.notes)
    refs_before = live.refs
    became = live.cut_over()
    assert became.counts["input_files"] == result.counts["input_files"], (
        "what readers had before is not announced again"
    )
    assert live.refs == dict.fromkeys(("main", "published"), refs_before["fix"])
    assert live.current() == run_from_nothing(live, tmp_path / "anew")
    land(live.folder, FILES, FILES + 1)
    assert live.process().counts["input_files"] == 1
    assert live.current() == run_from_nothing(live, tmp_path / "later")
    check_catalog(live.catalog.store, live.pipeline.name)


def test_the_live_lane_goes_on_meanwhile_and_nothing_of_it_is_lost(tmp_path: Path) -> None:
    live = Live(tmp_path / "live")
    live.backfill(4, 5)
    land(live.folder, FILES, FILES + 2)
    assert len(live.process().epochs) == 2
    refs_before = live.refs
    with pytest.raises(BranchBehindError, match=r"2 files .*part-00008"):
        live.cut_over()
    assert live.refs == refs_before
    assert live.backfill(4, 5).counts["input_files"] == 2, "it goes on where it stopped"
    live.cut_over()
    assert live.current() == run_from_nothing(live, tmp_path / "anew")
    assert live.process().epochs == ()


def test_the_watermark_of_the_branch_waits_where_main_is(tmp_path: Path) -> None:
    """Main may still read files that are older than what the branch has read and main has not."""
    live = Live(tmp_path / "live", change_pipeline(CLICKS, how=retracting(allowed_lateness="0s")), files=4)
    land(live.folder, 5, 8)
    live.backfill(None, None)
    assert live.watermark("fix") == live.watermark("main")
    explanation = str(open_history(live.root)["clicks"].explain("u1", at="fix", pipeline=live.pipeline))
    assert "held back by main, whose watermark a backfill does not pass" in explanation
    land(live.folder, 4, 5)
    assert live.process().counts["late_dropped"] == 0
    assert live.backfill(None, None, files_per_epoch=1).counts["late_dropped"] == 0
    land(live.folder, 8, 9)
    assert len(live.backfill(None, None).epochs) == 1
    live.cut_over()
    watermark_before = live.watermark("main")
    assert len(live.process().epochs) == 1, "nothing is new, but the watermark goes on"
    assert live.watermark("main") > watermark_before
    assert live.process().epochs == ()
    assert live.current() == run_from_nothing(live, tmp_path / "anew")


def test_a_replay_of_a_branch_is_held_as_the_branch_was(tmp_path: Path) -> None:
    live = Live(tmp_path, files=2)
    land(live.folder, 2, 4)
    live.backfill(None, None, files_per_epoch=1)
    live.process(publish=False, mode=Mode.REPLAY, from_branch="fix", branch="again")
    assert live.watermark("again") == live.watermark("fix") == live.watermark("main")
    second_panes, first_panes = (
        read(live.pipeline, live.root, "panes", branch).to_pylist() for branch in ("again", "fix")
    )
    assert len(first_panes) > 0
    assert second_panes == first_panes


def test_a_cut_over_of_a_range_that_was_done_is_told_again(tmp_path: Path) -> None:
    live = Live(tmp_path, files=4)
    live.backfill(3, None)
    result = live.cut_over()
    assert (result.epochs, result.counts["input_files"]) == ((2,), 2)  # those of the range and later
    second_result = live.cut_over()
    assert (
        replace(second_result, run_id=result.run_id, started_at=result.started_at, finished_at=result.finished_at)
        == result
    )


def test_input_that_is_gone_is_named_before_anything_moves(tmp_path: Path) -> None:
    live = Live(tmp_path)
    folder = live.folder / "landing" / "clicks"
    for file in (0, 5):
        (folder / f"part-{file:05d}.jsonl").rename(tmp_path / f"{file}")
    head_before = live.catalog.head()
    with pytest.raises(InputGoneError, match=r"from snapshot .* \(epoch 2\) on .* 1 files are gone: .*part-00005"):
        live.backfill(4, 5)
    with pytest.raises(InputGoneError, match=r"from the beginning on .* 2 files are gone"):
        live.backfill(None, None)
    assert live.catalog.head() == head_before
    (tmp_path / "5").rename(folder / "part-00005.jsonl")
    live.backfill(4, 5)
    (folder / "part-00007.jsonl").unlink()  # that the branch has read by now
    live.backfill(4, 5)
    live.cut_over()


def test_input_that_is_gone_is_named_though_as_much_has_landed_since(tmp_path: Path) -> None:
    """As where files are cleared away once they were read: what is there now is not what main has read."""
    live = Live(tmp_path, files=2)
    folder = live.folder / "landing" / "clicks"
    clicks = hr.open(live.folder.as_uri())[live.pipeline]
    sums = clicks.current(at="main").to_json()
    for file in folder.iterdir():
        (folder / f"later-{file.name}").write_text(file.read_text())
        file.unlink()
    with pytest.raises(InputGoneError, match=r"from the beginning on .* 2 files are gone: .*part-00000"):
        clicks.backfill(promote=True)
    clicks.run(branch="beside")
    with pytest.raises(BranchBehindError, match="has not read 2 files that main has"):
        clicks.promote("beside")
    assert clicks.current(at="main").to_json() == sums


def test_files_that_were_written_anew_are_read_from_a_folder_of_their_own(tmp_path: Path) -> None:
    """As where they have another format: nothing tells them from others that came once the old ones were cleared."""
    live = Live(tmp_path, files=2)
    folder = live.folder / "landing" / "clicks"
    sums = results(live.pipeline, live.root, "main")
    for file in folder.iterdir():
        (folder / f"anew-{file.name}").write_text(file.read_text())
        file.unlink()
    with pytest.raises(InputGoneError, match=r"2 files are gone.*move those to a folder of their own"):
        hr.open(live.root)[live.pipeline].backfill(promote=True)
    folder.rename(folder.with_name("clicks-anew"))
    assert isinstance(live.pipeline.source, hr.FileSource)
    source = replace(live.pipeline.source, path="landing/clicks-anew")
    changed_pipeline = change_pipeline(live.pipeline, source=source)
    hr.open(live.root)[changed_pipeline].backfill(promote=True)
    assert results(changed_pipeline, live.root, "main") == sums


def test_input_that_is_gone_is_named_under_a_new_name_of_it_too(tmp_path: Path) -> None:
    def make_pipeline(name: str) -> Pipeline:
        return hr.Pipeline(
            "sales",
            hr.json("landing/sales", schema).event_time("at", bound="1m"),
            join=[
                hr.as_of(
                    hr.json("landing/prices", schema).event_time("at", bound="1m").named(name),
                    on={"shop": "shop"},
                    columns={"price": "number"},
                )
            ],
            key="shop",
            what={"spent": hr.col("price").sum()},
            where=FixedWindows("1h"),
            when=hr.on_update(),
            how=hr.retracting(None),
            executor="local",
        )

    def land_record(path: str, number: int) -> Path:
        file = tmp_path / "landing" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"shop": "oslo", "at": START.isoformat(), "number": number}) + "\n")
        return file

    schema: dict[str, type] = {"shop": str, "at": datetime, "number": int}
    land_record("sales/1.json", 1)
    price = land_record("prices/1.json", 2)
    root = hr.open(tmp_path.as_uri(), create=True)
    root[make_pipeline("prices")].run()
    price.unlink()
    sales = root[make_pipeline("rates")]
    with pytest.raises(InputGoneError, match=r"1 files are gone: landing/prices/1\.json"):
        sales.backfill(promote=True)
    sales.run(branch="beside")
    with pytest.raises(BranchBehindError, match=r"has not read 1 files that main has, such as landing/prices/1\.json"):
        sales.promote("beside")
    land_record("prices/1.json", 2)
    sales.backfill(promote=True)


def test_a_changed_pipeline_begins_with_nothing_and_says_so(tmp_path: Path) -> None:
    live = Live(tmp_path, files=4)
    live.pipeline = change_pipeline(live.pipeline, where=FixedWindows("2h"))
    assert live.backfill(3, 4).forked_from is None
    assert "the backfill begins with nothing: the pipeline has changed since snapshot" in " ".join(live.listener.notes)
    assert live.cut_over().counts["input_files"] == 4


def test_dead_letters_are_read_again_with_the_range_that_they_may_be_of(tmp_path: Path) -> None:
    live = Live(tmp_path / "live", files=1)
    land(live.folder, 6, 7)
    live.process()
    (live.folder / "landing" / "clicks" / "part-00007.jsonl").write_text("this is no record\n")
    assert live.process().counts["rejected"] == 1
    lines = "".join(json.dumps(record) + "\n" for record in records(3))
    (live.folder / "landing" / "clicks" / "part-00007.jsonl").write_text(lines)
    assert live.backfill(3, 4).forked_from == live.epoch(0)
    live.cut_over()
    assert live.current() == run_from_nothing(live, tmp_path / "anew")
    assert live.backfill(10, None, branch="later").forked_from == live.refs["published"]


def test_a_range_begins_before_records_that_the_filter_had_dropped(tmp_path: Path) -> None:
    live = Live(tmp_path / "live", change_pipeline(CLICKS, filter=col("price") < 1000), files=3)
    live.correct(3)
    assert live.process().counts["filtered"] == 4 * USERS
    land(live.folder, 3, 4)  # what was wrong, under the same name
    assert live.backfill(4, 5).forked_from == live.epoch(2)
    live.cut_over()
    assert live.current() == run_from_nothing(live, tmp_path / "anew")


def test_manifests_of_before_do_not_say_what_was_dropped_unseen(tmp_path: Path) -> None:
    filtering = change_pipeline(CLICKS, filter=col("price") < 1000)
    for pipeline, expected_epochs in ((CLICKS, 5), (filtering, 2)):
        catalog = Catalog(open_store((tmp_path / str(expected_epochs)).as_uri()), CLICKS.name)
        days = [to_instant(START + timedelta(days=day)) for day in range(9)]
        read = [
            progress_fields(PipelineProgress(newest=moment, processing_time=Instant(moment + 2 * DAY)))
            for moment in days
        ]
        for progress in read:
            del progress["newest_event_time_read"]
        ids = publish_epochs(catalog, pipeline, read)
        assert fork_point(catalog, pipeline, span(6 * 24, None)).snapshot == ids[expected_epochs]


def publish_epochs(catalog: Catalog, pipeline: Pipeline, progress: Sequence[dict[str, Any]]) -> list[str]:
    """Commit an epoch for each ``progress`` and publish them; their ids."""
    claim, ids = catalog.claim("main", "test"), list[str]()
    for epoch, each in enumerate(progress):
        manifest = new_manifest(
            snapshot_id=catalog.new_snapshot_id(),
            pipeline=pipeline.name,
            fingerprint=fingerprint(pipeline),
            branch="main",
            epoch=epoch,
            parent=ids[-1] if ids else None,
            generation=claim.generation,
            created_at="2026-01-01T00:00:00Z",
            progress=each,
        )
        catalog.commit(claim, manifest)
        ids.append(manifest.snapshot_id)
    catalog.publish(ids[-1], None)
    return ids


def test_a_range_begins_at_what_is_kept_between_mark_and_sweep(tmp_path: Path) -> None:
    live = Live(tmp_path / "live")
    expire(live.catalog, Keep(3), datetime.max.replace(tzinfo=UTC))  # marked, not swept
    result = live.backfill(7, 8)
    assert result.forked_from == live.epoch(5)
    assert live.backfill(4, 5, branch="earlier").forked_from is None
    assert "no kept snapshot is old enough for this range" in live.listener.notes[-1]


def test_a_range_begins_at_what_only_a_tag_keeps(tmp_path: Path) -> None:
    live = Live(tmp_path / "live")
    live.correct(5)
    tagged_snapshot = live.epoch(1)
    live.catalog.tag("january", tagged_snapshot)
    for _ in range(2):
        expire(live.catalog, Keep(2, tags=True), datetime.max.replace(tzinfo=UTC))
        assert live.backfill(4, 5, branch=f"fix-{live._runs}").forked_from == tagged_snapshot


def test_an_expiry_may_mark_what_was_chosen(tmp_path: Path) -> None:
    """The expiry comes after the choice: it is made again."""
    live = Live(tmp_path / "live")

    class Expiring(NotingListener):
        def noted(self, what: str) -> None:
            super().noted(what)
            if len(self.notes) == 1:
                expire(live.catalog, Keep(2), datetime.max.replace(tzinfo=UTC))

    live.listener = Expiring()
    assert live.backfill(4, 5).forked_from is None
    begins = [note for note in live.listener.notes if "begins with" in note]
    assert "(epoch 2)" in begins[0]
    assert "begins with nothing" in begins[1]


def test_windows_of_a_users_own_are_computed_from_nothing(tmp_path: Path) -> None:
    live = Live(tmp_path, clicks(Validity(1_000_000)), files=2)
    assert live.backfill(1, 2).forked_from is None
    assert any("does not say how far its windows reach" in note for note in live.listener.notes)


@pytest.mark.parametrize("first", [None, 1.0])
def test_times_of_arrival_stay_those_of_then(tmp_path: Path, first: float | None) -> None:
    live = Live(tmp_path, change_pipeline(CLICKS, event_time=arrival_time()), files=0)
    for hour in range(3):
        land(tmp_path, hour, hour + 1)
        live.process(time=START + timedelta(hours=hour))
    rows_before = live.current()
    assert len(rows_before) == 3 * USERS
    assert (live.backfill(first, None).forked_from is None) == (first is None)
    live.cut_over()
    assert live.current() == rows_before


@pytest.mark.parametrize("first", [None, 2.0])
def test_what_main_accepted_is_not_late_whatever_files_are_called(tmp_path: Path, first: float | None) -> None:
    live = Live(tmp_path, change_pipeline(CLICKS, how=retracting(allowed_lateness="0s")), files=0)
    folder = tmp_path / "landing" / "clicks"
    for hour in range(6):
        land(tmp_path / "made", hour, hour + 1)
        (tmp_path / "made" / "landing" / "clicks" / f"part-{hour:05d}.jsonl").rename(folder / f"{9 - hour}.jsonl")
        live.process()
    rows_before, epochs = live.current(), 6
    assert run_from_nothing(live, tmp_path / "anew") != rows_before, "in the order of names most are late"
    result = live.backfill(first, None, files_per_epoch=1)
    assert len(result.epochs) == epochs - (0 if first is None else 1)
    live.cut_over()
    assert live.current() == rows_before


def test_a_clock_that_was_wrong_stays_so(tmp_path: Path) -> None:
    """A record of a day that was far ahead when it was read, and moved no watermark; now that day is long over."""
    live = Live(tmp_path, change_pipeline(CLICKS, how=retracting(allowed_lateness="0s")), files=0)
    wrong = {**records(0)[0], "at": (START + timedelta(days=30)).isoformat()}
    (tmp_path / "landing" / "clicks" / "a.jsonl").write_text(json.dumps(wrong) + "\n")
    live.process(time=START)
    land(tmp_path, 0, 2)
    live.process(time=START + timedelta(hours=2))
    rows_before = live.current()
    assert len(rows_before) > USERS
    live.backfill(None, None, files_per_epoch=1)
    live.cut_over()
    assert live.current() == rows_before


def test_what_was_never_audited_is_no_place_to_fork(tmp_path: Path) -> None:
    live = Live(tmp_path, files=3)
    published_snapshot = live.refs["published"]
    land(live.folder, 3, 6)
    live.process(publish=False)
    result = live.backfill(20, None)
    assert result.forked_from == published_snapshot, "though nothing on main has anything of the range"
    assert result.audit is not None
    assert (result.audit.from_snapshot, result.counts["input_files"]) == (published_snapshot, 3)
    live.catalog.release(live.epoch(1), "looked at")
    live.catalog.rollback("main", live.epoch(1), "readers go back too")
    with pytest.raises(AuditMissingError):
        live.cut_over()
    live.backfill(None, None)  # which audits what readers do not see any more, too
    with pytest.raises(ForkGivenUpError, match=published_snapshot):
        live.cut_over()


def test_the_audit_of_a_branch_goes_back_to_what_readers_have_seen(tmp_path: Path) -> None:
    live = Live(tmp_path, files=3)
    land(live.folder, 3, 4)
    live.process(publish=False)
    for info in [*live.catalog.store.list("clicks/audits/")]:
        live.catalog.store.delete(info.path)
    live.catalog.fork("trial", live.refs["main"])
    with pytest.raises(AuditMissingError):
        live.cut_over("trial")
    assert live.backfill(None, None, branch="trial").audit is not None
    assert live.cut_over("trial").epochs == (3,)


def test_a_branch_does_not_bring_back_what_main_has_given_up(tmp_path: Path) -> None:
    live = Live(tmp_path, files=5)
    live.backfill(3, 4, branch="one")
    live.backfill(4, 5, branch="two")
    live.cut_over("one")  # of which "two" knows nothing
    refs_before = live.refs
    with pytest.raises(AuditMissingError, match="two"):
        live.cut_over("two")
    live.backfill(None, None, branch="two")
    with pytest.raises(ForkGivenUpError, match="branch two"):
        live.cut_over("two")
    assert live.refs == refs_before


def test_a_branch_that_has_begun_later_is_not_taken_for_an_earlier_range(tmp_path: Path) -> None:
    live = Live(tmp_path, files=5)
    live.backfill(4, 5)
    with pytest.raises(RunOptionsError, match=r"branch fix .* has some of the range already"):
        live.backfill(2, 3)
    assert live.backfill(4.5, 5).epochs == ()


def test_where_there_is_nothing_to_compute_nothing_changes(tmp_path: Path) -> None:
    live = Live(tmp_path, files=2)
    refs_before = live.refs
    result = live.backfill(100, 200)
    assert (result.forked_from, result.epochs) == (refs_before["published"], ())
    assert live.cut_over().epochs == ()
    assert live.refs == refs_before


@pytest.mark.parametrize(
    ("first", "last", "message"),
    [
        ("2026-01-02", "2026-01-02", "is empty"),
        ("2026-01-02", "2026-01-01T23:00:00Z", "is empty"),
        ("2026-01-02T00:00:00", None, "with its zone"),
        ("yesterday", None, "write a day"),
        (None, "2026-13-01", "write a day"),
    ],
)
def test_a_range_that_is_none_is_refused(first: str | None, last: str | None, message: str) -> None:
    with pytest.raises(RunOptionsError, match=message):
        parse_span(first, last)


def test_a_range_is_days_in_utc_or_times_with_their_zone() -> None:
    window_span = parse_span("2026-01-02", "2026-01-03T01:00:00+01:00")
    days = (datetime.fromisoformat(f"2026-01-0{day}T00:00:00Z") for day in (2, 3))
    assert window_span == Window(*map(to_instant, days))
    assert parse_span(None, None) is None


def test_the_place_to_fork_is_found_by_few_requests_among_many_epochs(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    catalog = Catalog(store, CLICKS.name)
    newest = [to_instant(START + timedelta(hours=hour // 3)) for hour in range(150)]  # three epochs an hour
    ids = publish_epochs(
        catalog,
        CLICKS,
        [progress_fields(PipelineProgress(newest=snapshot, newest_read=snapshot)) for snapshot in newest],
    )
    for hour in (0, 1, 2, 25, 48, 49, 50, 200):
        requests_before = store.requests.snapshot()
        fork = fork_point(Catalog(store, CLICKS.name), CLICKS, span(hour, None))
        last = sum(snapshot < to_instant(START + timedelta(hours=hour)) for snapshot in newest)
        assert fork.snapshot == (ids[last - 1] if last else None)
        assert sum(store.requests.since(requests_before).values()) < 40


def test_signals_are_given_again_after_what_they_were_given_after(tmp_path: Path) -> None:
    live = Live(tmp_path, change_pipeline(CLICKS, when=Repeatedly(AfterSignal("go"))), files=1)
    live.process(signals=(Signal("go"),))
    land(tmp_path, 1, 2)
    live.process()
    rows_before = live.current()
    assert rows_before, "what the first file has, and not the second"
    assert len(live.backfill(None, None).epochs) == 2
    live.cut_over()
    assert live.current() == rows_before
