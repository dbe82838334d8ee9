"""Pipelines that read pipelines, also where these go back: rows are those of one pipeline over all input."""

import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.connectors.published.source import UpstreamExpiredError
from headrace.errors import PipelineError
from headrace.model.time import MAX_INSTANT
from headrace.pipeline.validation import UpstreamCycleError
from headrace.read.lineage.cut import RootStores
from headrace.read.lineage.lineage import neighbours_of, read_lineage
from headrace.read.upstream import StepKind, UpstreamPanesError, UpstreamPosition, UpstreamStep, upstreams_of
from headrace.runs.epochs import UpstreamMovedError
from headrace.runs.relanding import LandingAgainError
from headrace.runs.upstream_holds import UnknownReaderError
from headrace_lab.fault_plans import Operation, disturb_stores
from headrace_lab.sizes import set_sizes
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.output_view import UnknownOutputError
from headrace_snapshots.holds import read_holds
from headrace_snapshots.names import MAIN
from headrace_snapshots.store import LocalStore
from tests.process.chains import CLICKS, FINE, UPSTREAM, Chain, pipelines, rows
from tests.process.executors import ExecutorUnderTest, on_spark
from tests.process.fragile import Fragile

SEEDS = int(os.environ.get("HEADRACE_CHAINS", "0"))
"""Random deployments of each kind: ``HEADRACE_CHAINS=200`` looks for what the few of every day do not find."""

LATENESS = (None, "0s", "1h", "6h")
MANY = [(kind, seed) for kind in UPSTREAM for seed in range(SEEDS)]
FEW = [("retracting", 0), ("discarding", 1), ("accumulating", 2)]


def deploy_chain(folder: Path, kind: str, seed: int, *, lateness: str | None, executor: str = "local") -> Chain:
    """A chain in one root, or in three."""
    if seed % 2:
        folders, roots = [folder / "root"] * 3, dict[str, str | None]()
    else:
        folders = [folder / f"root{number}" for number in range(3)]
        roots = {"first": folders[0].as_uri(), "second": folders[1].as_uri()}
    for one in folders:
        one.mkdir(exist_ok=True)
    return Chain(folders, pipelines(kind, lateness, executor, **roots), random.Random(f"{kind}{lateness}{seed}"))


def check_equal(chain: Chain, folder: Path, kind: str, lateness: str | None) -> None:
    chain.land()
    chain.drain()
    folder.mkdir()
    handles = {pipeline.name: handle for pipeline, handle in zip(chain.made, chain.handles, strict=True)}
    for name, expected_rows in chain.expected(folder, kind, lateness).items():
        assert rows(handles[name]) == expected_rows, (name, chain.done)


@pytest.mark.parametrize(("kind", "seed"), FEW + MANY)
def test_rows_are_those_of_one_pipeline_whatever_was_taken_back(kind: str, seed: int, tmp_path: Path) -> None:
    lateness = LATENESS[seed % len(LATENESS)] if seed >= len(FEW) else None
    chain = deploy_chain(tmp_path, kind, seed, lateness=lateness)
    chain.run_all()
    for _ in range(14 if SEEDS else 5):
        chain.step()
    check_equal(chain, tmp_path / "one", kind, lateness)


@pytest.mark.parametrize(("kind", "seed"), [("discarding", 11), *MANY])
def test_a_reader_that_cannot_take_back_goes_back_as_it_says(kind: str, seed: int, tmp_path: Path) -> None:
    lateness = LATENESS[1 + seed % 2]
    (tmp_path / "root").mkdir()
    chain = Chain([tmp_path / "root"] * 3, pipelines(kind, lateness), random.Random(f"x{kind}{seed}"))
    chain.travel()
    assert chain.moved or SEEDS
    check_equal(chain, tmp_path / "one", kind, lateness)


@on_spark
def test_both_executors_read_the_same(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    folder = tmp_path / "root"
    chain = Chain([folder] * 3, pipelines("retracting", None), random.Random(3))
    first, second, _ = chain.handles
    chain.land()
    first.run()
    executor.process(chain.made[1], folder.as_uri(), options("a"))
    chain.land()
    first.run()
    first.rollback(to=line(first)[1])
    executor.process(chain.made[1], folder.as_uri(), options("b"))
    on_spark_read = rows(second)
    second.rollback(to="beginning")
    second.run()
    assert on_spark_read == rows(second) != []


def options(run_id: str) -> Any:
    from headrace.runs.options import RunOptions

    return RunOptions(run_id, publish=True)


def line(handle: Any) -> list[str]:
    """The snapshots of main, newest first."""
    catalog = handle._catalog
    return [link.snapshot_id for link in catalog.lineage(catalog.head().refs[MAIN])]


class Pair:
    """An upstream and its reader in one root."""

    def __init__(self, folder: Path, upstream: hr.Pipeline, reader: hr.Pipeline) -> None:
        self.folder, self.reader_pipeline = folder, reader
        root = hr.open(folder.as_uri(), create=True)
        self.upstream, self.reader = root[upstream], root[reader]
        self.landed_count = 0

    def land(self, *records: tuple[str, int, str]) -> None:
        self.landed_count += 1
        folder = self.folder / "landing" / "clicks"
        folder.mkdir(parents=True, exist_ok=True)
        lines = (f'{{"k": "{k}", "v": {v}, "at": "2026-01-01T{moment}:00Z"}}\n' for k, v, moment in records)
        (folder / f"{self.landed_count:03}.jsonl").write_text("".join(lines))
        self.upstream.run()

    def read(self) -> list[tuple[Any, ...]]:
        """What the reader has after another run: sum and number by the hour."""
        self.reader.run()
        return sorted((row[-2].hour, *row[:-2]) for row in rows(self.reader))

    @property
    def position(self) -> UpstreamPosition:
        catalog = self.reader._catalog
        return upstreams_of(catalog.manifest(catalog.head().refs[MAIN]), catalog.store.uri)["source"]

    @property
    def read_as(self) -> list[StepKind]:
        """The kinds of the steps that the newest snapshot of the reader has read, in order."""
        catalog = self.reader._catalog
        log = catalog.manifest(catalog.head().refs[MAIN]).logs["inputs"]
        return [UpstreamStep.from_split(file).kind for record in catalog.file_records(log) for file in record.files]


HOURLY: dict[str, Any] = {
    "what": {"sum": col("s").sum(), "n": hr.count()},
    "where": hr.FixedWindows("1h"),
    "when": FINE,
    "executor": "local",
}


def upstream_of(kind: str = "retracting") -> hr.Pipeline:
    return pipelines(kind, None)[0]


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    reader = hr.Pipeline("reader", hr.published("first", {"s": int}), how=hr.retracting("1h"), **HOURLY)
    return Pair(tmp_path, upstream_of(), reader)


def test_a_reader_begins_with_rows_and_goes_on_with_panes(pair: Pair) -> None:
    pair.land(("a", 1, "00:01"))
    pair.land(("a", 2, "00:02"), ("b", 4, "00:12"))
    assert pair.read() == [(0, 7, 2)]
    pair.land(("a", 8, "00:03"))
    pair.land(("a", 16, "01:03"))
    assert pair.read() == [(0, 15, 2), (1, 16, 1)]
    assert pair.read_as == [StepKind.ROWS, StepKind.PANES, StepKind.PANES]
    newest = line(pair.upstream)[0]
    assert (pair.position.snapshot, pair.position.epoch, pair.position.name) == (newest, 3, "first")
    assert pair.position.watermark == pair.position.reached == hr_instant("2026-01-01T00:43:00Z")
    line_before = line(pair.reader)
    pair.read()  # nothing is new
    assert line(pair.reader) == line_before


def hr_instant(text: str) -> int:
    from headrace.model.time import parse_instant

    return parse_instant(text)


def test_what_is_rolled_back_is_taken_back_and_counts_again(pair: Pair) -> None:
    pair.land(("a", 1, "00:01"))
    pair.land(("a", 2, "00:12"))
    assert pair.read() == [(0, 3, 2)]
    reached_moment = pair.position.reached
    pair.upstream.rollback(to=line(pair.upstream)[1])
    assert pair.read() == [(0, 1, 1)]
    assert (pair.read_as[-1], pair.position.reached, pair.position.is_behind) == (
        StepKind.DIFFERENCE,
        reached_moment,
        True,
    )
    pair.upstream.run()
    assert pair.read() == [(0, 3, 2)]
    assert (pair.read_as[-1], pair.position.is_behind) == (StepKind.AGAIN, False)
    pair.land(("a", 4, "00:22"))
    pair.read()
    assert pair.read_as[-1] is StepKind.PANES
    pair.upstream.rollback(to="beginning")
    assert pair.read() == []
    assert (pair.position.snapshot, pair.position.epoch) == (None, -1)
    pair.upstream.run()
    assert pair.read() == [(0, 7, 3)]


def test_a_replay_of_a_reader_reads_what_it_has_read(pair: Pair) -> None:
    pair.land(("a", 1, "00:01"))
    pair.land(("a", 2, "00:12"))
    pair.read()
    pair.upstream.rollback(to=line(pair.upstream)[1])
    pair.read()
    pair.upstream.run()
    pair.read()
    pair.reader.run(mode="replay", branch="again", from_branch="main", publish=False)
    compared_diff = pair.reader.diff(MAIN, "again").output.rows
    assert (compared_diff.after, compared_diff.differing + compared_diff.reissued) == (1, 0)


def test_a_window_that_has_expired_stops_the_reader_which_says_how_to_go_on(pair: Pair) -> None:
    pair.land(("a", 1, "00:01"))
    pair.read()
    first = line(pair.reader)[0]
    pair.land(("a", 2, "00:12"))
    pair.land(("a", 4, "05:00"))
    assert pair.read() == [(0, 3, 2), (5, 4, 1)]
    pair.upstream.rollback(to=line(pair.upstream)[2])
    line_before = line(pair.reader)
    with pytest.raises(UpstreamMovedError, match=rf"1 element of .* `headrace recover reader {first}`; or compute"):
        pair.reader.run()
    assert line(pair.reader) == line_before
    pair.reader.recover(first)
    assert pair.read() == [(0, 1, 1)]
    pair.upstream.run()
    assert pair.read() == [(0, 3, 2), (5, 4, 1)]


@pytest.mark.parametrize("lateness", ["9h", "1h"])
def test_a_patch_upstream_counts_unless_its_windows_have_expired_here_too(lateness: str, tmp_path: Path) -> None:
    source = hr.published("first", {"s": int})
    pair = Pair(tmp_path, upstream_of(), hr.Pipeline("reader", source, how=hr.retracting(lateness), **HOURLY))
    pair.land(("a", 1, "00:01"))
    pair.land(("a", 2, "05:00"))
    pair.land(("a", 4, "00:02"))  # dropped as late
    assert pair.read() == [(0, 1, 1), (5, 2, 1)]
    pair.upstream.backfill(branch="all")
    pair.upstream.promote("all", patch=True)
    if lateness == "1h":
        with pytest.raises(UpstreamMovedError, match="No snapshot of reader is from before: compute reader again"):
            pair.reader.run()
        pair.reader.backfill(promote=True)
    assert pair.read() == [(0, 5, 1), (5, 2, 1)]
    assert pair.read_as[-1] is (StepKind.ROWS if lateness == "1h" else StepKind.AGAIN)


def test_a_backfill_of_a_reader_begins_with_what_is_published(pair: Pair) -> None:
    pair.land(("a", 1, "00:01"))
    pair.read()
    pair.land(("a", 2, "05:00"))
    pair.read()
    pair.upstream.rollback(to="beginning")
    pair.upstream.run()
    pair.reader.backfill(promote=True)
    assert pair.read() == [(0, 1, 1), (5, 2, 1)]
    assert pair.position.snapshot == line(pair.upstream)[0]


def test_the_end_of_an_upstream_is_the_end_of_its_watermark(pair: Pair) -> None:
    pair.land(("a", 1, "00:01"))
    pair.upstream.rollback(to="beginning")
    pair.upstream.run(mode="batch")
    assert pair.read() == [(0, 1, 1)]
    assert pair.position.watermark == MAX_INSTANT
    (pane,) = pair.reader.current().to_json()
    assert (pane["timing"], pane["is_last"]) == ("ON_TIME", True)


def test_panes_of_a_global_window_are_at_the_end_of_time(tmp_path: Path) -> None:
    upstream = hr.Pipeline("all", CLICKS, what={"s": col("v").sum()}, where=hr.GlobalWindows(), when=hr.on_update(),
                           how=hr.retracting(None), executor="local")  # fmt: skip
    reader = hr.Pipeline("reader", hr.published("all", upstream), what={"s": col("s").sum()}, when=hr.on_update(),
                         where=hr.GlobalWindows(), how=hr.retracting(None), executor="local")  # fmt: skip
    pair = Pair(tmp_path, upstream, reader)
    pair.land(("a", 1, "00:01"))
    pair.land(("a", 2, "00:01"))
    pair.reader.run()
    pair.land(("a", 4, "00:01"))
    pair.reader.run()
    assert [row["s"] for row in pair.reader.current().to_json()] == [7]


def test_an_expiry_upstream_keeps_what_readers_may_read_again(pair: Pair) -> None:
    for number in range(4):
        pair.land(("a", 1 << number, f"00:{number:02}"))
        if number == 1:
            pair.read()
    consumed_snapshot = pair.position.snapshot
    expiries = [pair.upstream.expire(keep_last=1) for _ in range(2)]
    assert (expiries[-1].kept, expiries[-1].readers) == (3, ("reader.source",))
    assert [(one.name, one.unread) for one in expiries[-1].behind] == [("reader.source", 2)]
    assert pair.read() == [(0, 15, 1)]
    up_to_date = pair.upstream.expire(keep_last=1, dry_run=True)
    assert (up_to_date.readers, up_to_date.behind) == (("reader.source",), ())
    pair.reader.expire(keep_last=1)  # lets go of what its older snapshot had consumed
    [pair.upstream.expire(keep_last=1) for _ in range(2)]
    assert consumed_snapshot not in line(pair.upstream)
    (hold,) = read_holds(LocalStore(pair.folder), "first")
    assert hold.snapshots == (pair.position.snapshot,)


def test_an_expiry_reads_manifests_that_came_since_the_last_one(pair: Pair) -> None:
    reads: list[list[str]] = []
    for number in range(6):
        pair.land(("a", 1, f"00:{number:02}"))
        pair.read()
        if number < 3:
            continue
        operations: list[Operation] = []
        with disturb_stores(operations.append):
            hr.open(pair.folder.as_uri())[pair.reader_pipeline].expire(keep_last=3)
        reads.append([one.path for one in operations if one.kind == "get" and "/manifests/" in one.path])
        (hold,) = read_holds(LocalStore(pair.folder), "first")
        assert len(hold.snapshots) == 3
    assert [len(paths) for paths in reads] == [4, 1, 1]


@set_sizes(kept_results=2)
def test_what_runs_of_readers_leave_is_bounded(pair: Pair) -> None:
    left: list[dict[str, int]] = []
    for number in range(9):
        pair.land(("a", 1, f"{number:02}:00"))
        pair.read()
        for handle in (pair.upstream, pair.reader):
            handle.expire(keep_last=1)
        listed_parts = [info.path.split("/") for info in LocalStore(pair.folder).list("") if info.path.count("/") > 1]
        kinds = Counter("/".join(path[:2]) for path in listed_parts if path[0] != "landing")
        left.append({kind: count for kind, count in kinds.items() if kind.split("/")[1] not in ("log", "data")})
    assert left[5] == left[6] == left[7] == left[8]
    assert {left[8]["first/runs"], left[8]["reader/runs"]} <= {2, 3}


def test_what_was_rolled_back_is_kept_until_the_reader_has_taken_it_back(pair: Pair) -> None:
    pair.land(("a", 1, "00:01"))
    pair.land(("a", 2, "00:12"))
    pair.read()
    pair.upstream.rollback(to=line(pair.upstream)[1])
    pair.upstream.expire(keep_last=1)
    pair.land(("a", 4, "00:22"))
    [pair.upstream.expire(keep_last=1) for _ in range(2)]
    assert pair.read() == [(0, 7, 3)]
    assert pair.read_as[-1] is StepKind.DIFFERENCE


def test_without_a_hold_what_was_read_may_expire_and_a_backfill_mends_that(pair: Pair) -> None:
    pair.land(("a", 1, "00:01"))
    pair.land(("a", 2, "00:12"))
    pair.read()
    assert pair.upstream.drop_reader("reader") == ["reader.source"]
    with pytest.raises(UnknownReaderError, match=r"reader holds nothing of first; nobody does"):
        pair.upstream.drop_reader("reader")
    pair.upstream.rollback(to=line(pair.upstream)[1])
    pair.upstream.expire(keep_last=1)
    pair.land(("a", 4, "00:22"))
    [pair.upstream.expire(keep_last=1) for _ in range(2)]
    with pytest.raises(UpstreamExpiredError, match=r"was read last, is gone.*headrace backfill reader --promote"):
        pair.reader.run()
    pair.reader.backfill(promote=True)
    assert pair.read() == [(0, 7, 3)]


def test_a_reader_that_is_gone_below_another_root_ends_no_hold_of_its_namesake(pair: Pair) -> None:
    pair.land(("a", 1, "00:01"))
    pair.read()
    store = LocalStore(pair.folder)
    (live,) = read_holds(store, "first")
    replace(live, root="file:///old").put(store, "first")
    with pytest.raises(UnknownReaderError, match=r"below 2 roots: file:///.*--reader --reader-root file:///"):
        pair.upstream.drop_reader("reader")
    with pytest.raises(
        UnknownReaderError, match=r"holds nothing of first from root file:///never \(it does from file:"
    ):
        pair.upstream.drop_reader("reader", root="file:///never")
    assert len(read_holds(store, "first")) == 2
    assert pair.upstream.drop_reader("reader", root="file:///old") == ["reader.source"]
    assert read_holds(store, "first") == [live]
    assert pair.upstream.drop_reader("reader") == ["reader.source"]


@pytest.mark.parametrize("mend", ["run", "expire", "drop"])
def test_a_hold_that_cannot_be_read_hides_nothing_else_and_is_put_again(pair: Pair, mend: str) -> None:
    store = LocalStore(pair.folder)
    for number in range(3):
        pair.land(("a", 1 << number, f"00:{number:02}"))
        pair.read()
    (hold,) = read_holds(store, "first")
    assert len(hold.snapshots) == 3
    (path,) = (info.path for info in store.list("first/readers/"))
    store.write(path, store.read(path).replace(b"reader", b"READER"))
    pair.land(("a", 8, "00:08"))
    with pytest.raises(BrokenObjectError, match=r"in which reader says .* of first.*`headrace expire reader` puts it"):
        pair.upstream.expire(keep_last=1)
    (problem,) = pair.upstream.fsck().damage
    assert (problem.path, problem.needed_by) == (path, "every expiry")
    (unseen,) = neighbours_of(RootStores(store), "first").unseen
    assert problem.remedy in unseen.why
    assert {head_moment.name for head_moment in read_lineage(store, ["first", "reader"]).heads} == {"first", "reader"}
    assert read_lineage(store, ["first"]).searched.unseen == (unseen,)
    if mend == "run":
        assert pair.read() == [(0, 15, 1)]
        (mended_hold,) = read_holds(store, "first")
        assert mended_hold == replace(hold, snapshots=(*hold.snapshots, pair.position.snapshot))
    elif mend == "expire":
        pair.reader.expire(keep_last=100)
        assert read_holds(store, "first") == [hold]
    else:
        assert pair.upstream.drop_reader("reader") == ["reader"]
        assert read_holds(store, "first") == []
    assert pair.upstream.fsck().damage == ()
    pair.upstream.expire(keep_last=1)


def test_a_column_that_has_come_is_null_in_rows_from_before(pair: Pair) -> None:
    own: dict[str, Any] = {"key": "k", "where": hr.FixedWindows("10m"), "when": FINE, "how": hr.retracting("1h")}
    less, more = (
        hr.Pipeline("first", CLICKS, what=what, executor="local", **own)
        for what in ({"s": col("v").sum()}, {"s": col("v").sum(), "n": hr.count()})
    )
    root = hr.open(pair.folder.as_uri())
    pair.upstream = root[less]
    pair.land(("a", 1, "00:01"))
    pair.read()
    pair.upstream = root[more]
    (pair.folder / "landing/clicks/002.jsonl").write_text('{"k": "b", "v": 2, "at": "2026-01-01T00:12:00Z"}\n')
    pair.upstream.run(allow_new_aggregates=True)
    pair.reader = root[hr.Pipeline("reader", hr.published("first", more), how=hr.retracting("1h"), **HOURLY)]
    assert pair.read() == [(0, 3, 2)]


def many(pair: Pair, count: int) -> None:
    """So many epochs of the upstream, each with a record of 1."""
    for _ in range(count):
        pair.land(("a", 1, "00:01"))


def expire_pair(pair: Pair, keep_last: int) -> None:
    """An upstream whose newest snapshots do not name old panes any more."""
    for _ in range(2):
        pair.upstream.expire(keep_last=keep_last)
    many(pair, 6)


@pytest.fixture
def short_logs() -> Iterator[None]:
    """Logs of files whose leaves are small, so that few epochs are enough for some to be left out."""
    with set_sizes(log_radix=4):
        yield


def discarding(pair: Pair) -> None:
    root = hr.open(pair.folder.as_uri())
    reader = hr.Pipeline("reader", hr.published("first", {"s": int}), how=hr.retracting(None), **HOURLY)
    pair.upstream, pair.reader = root[upstream_of("discarding")], root[reader]


def test_columns_that_get_the_names_of_others_upstream_are_read_again(pair: Pair) -> None:
    """What was read under the names that they had before is taken back, also where only panes tell what that was."""
    discarding(pair)
    reader_before = upstream_of("discarding")
    root, s = hr.open(pair.folder.as_uri()), reader_before.what["s"]
    pair.land(("a", 8, "00:01"))
    assert pair.read() == [(0, 8, 1)]
    more = replace(reader_before, what={"s": s, "n": hr.count()})
    pipeline_between = replace(reader_before, what={"x": s, "y": hr.count()}, renamed={"s": "x", "n": "y"})
    swapped_pipeline = replace(reader_before, what={"n": s, "s": hr.count()}, renamed={"x": "n", "y": "s"})
    root[more].backfill(promote=True)
    assert pair.read() == [(0, 8, 1)]
    for changed_pipeline in (pipeline_between, swapped_pipeline):
        pair.upstream = root[changed_pipeline]
        pair.land(("a", 8, "00:02"))
    assert pair.read() == [(0, 3, 3)]  # each pane is of one record


@pytest.mark.usefixtures("short_logs")
def test_panes_that_have_expired_are_missed_also_after_a_rollback(pair: Pair) -> None:
    discarding(pair)
    many(pair, 6)
    expire_pair(pair, 1)
    pair.upstream.rollback(to=line(pair.upstream)[1])
    with pytest.raises(UpstreamExpiredError, match=r"panes after epoch -1 .* have expired"):
        pair.reader.run()


@pytest.mark.usefixtures("short_logs")
def test_panes_are_taken_back_though_others_have_expired(pair: Pair) -> None:
    discarding(pair)
    many(pair, 6)
    pair.read()
    many(pair, 2)
    assert pair.read() == [(0, 8, 8)]
    pair.reader.expire(keep_last=1)
    expire_pair(pair, 1)
    assert pair.read() == [(0, 14, 14)]
    pair.upstream.rollback(to=line(pair.upstream)[2])
    many(pair, 1)
    pair.upstream.expire(keep_last=2)
    assert pair.read() == [(0, 15, 13)]  # of the last three one pane
    assert pair.read_as[-1] is StepKind.DIFFERENCE


@pytest.mark.usefixtures("short_logs")
def test_rows_are_compared_where_panes_between_have_expired(pair: Pair) -> None:
    many(pair, 2)
    pair.read()
    pair.upstream.tag("kept")
    pair.upstream.drop_reader("reader")
    many(pair, 6)
    expire_pair(pair, 1)
    expire_pair(pair, 1)
    assert pair.read() == [(0, 20, 1)]
    assert StepKind.DIFFERENCE in pair.read_as


def test_an_output_that_catches_up_drops_nothing_of_what_was_taken_back(pair: Pair) -> None:
    own: dict[str, Any] = {"where": hr.FixedWindows("1h"), "when": FINE}
    mended_path = pair.folder / "mended"
    broken_sum = col("s").combine(Fragile(str(mended_path), least=16, most=16))
    outputs = {
        "long": hr.Output(what={"sum": col("s").sum()}, how=hr.retracting(None), **own),
        "short": hr.Output(what={"sum": broken_sum}, how=hr.retracting("0s"), **own),
    }
    source = hr.published("first", {"s": int})
    pair.reader = hr.open(pair.folder.as_uri())[hr.Pipeline("reader", source, outputs=outputs, executor="local")]
    pair.land(("a", 1, "00:01"))
    pair.reader.run()
    for value, minute in ((16, "00:12"), (4, "05:00")):
        pair.land(("a", value, minute))
        pair.reader.run()
    pair.upstream.rollback(to=line(pair.upstream)[2])
    pair.reader.run()
    mended_path.touch()
    result = pair.reader.run()
    assert [row[0] for row in rows(pair.reader["long"])] == [1]
    assert [row[0] for row in rows(pair.reader["short"])] == [1]
    assert any(
        "short is parked" in warning and "has changed what was read of it" in warning for warning in result.warnings
    )


def test_a_recovery_follows_the_upstream_where_it_is_now(pair: Pair) -> None:
    pair.land(("a", 1, "00:01"))
    pair.read()
    (first,) = line(pair.reader)
    pair.land(("b", 2, "00:12"))
    pair.read()
    pair.upstream.rollback(to=line(pair.upstream)[1])
    pair.upstream.run()
    pair.read()
    pair.land(("c", 4, "00:22"))
    assert pair.read() == [(0, 7, 3)]
    pair.reader.recover(first)  # whose next step is none that was ever read; the one after it was
    assert pair.read() == [(0, 7, 3)]
    assert pair.position.snapshot == line(pair.upstream)[0]


def test_one_of_several_outputs_is_read(tmp_path: Path) -> None:
    own: dict[str, Any] = {"where": hr.FixedWindows("10m"), "when": FINE, "how": hr.retracting("1h")}
    sums, counts = {"s": col("v").sum()}, {"n": hr.count()}
    outputs = {"sums": hr.Output(key="k", what=sums, **own), "counts": hr.Output(what=counts, **own)}
    upstream = hr.Pipeline("first", CLICKS, outputs=outputs, executor="local")
    reader = hr.Pipeline("reader", hr.published("first.sums", upstream), how=hr.retracting("1h"), **HOURLY)
    pair = Pair(tmp_path, upstream, reader)
    pair.land(("a", 1, "00:01"), ("b", 2, "00:12"))
    assert pair.read() == [(0, 3, 2)]
    pair.land(("a", 4, "00:02"))
    assert pair.read() == [(0, 7, 2)]
    assert (pair.position.name, pair.position.epoch) == ("first.sums", 1)
    pair.upstream.rollback(to=line(pair.upstream)[1])
    assert pair.read() == [(0, 3, 2)]
    pair.upstream.backfill(output="sums", promote=True)
    pair.upstream.run()
    assert pair.read() == [(0, 7, 2)]
    reader_of_all = hr.Pipeline("alone", hr.published("first", {"s": int}), how=hr.retracting("1h"), **HOURLY)
    with pytest.raises(UnknownOutputError, match="has the outputs counts, sums"):
        hr.open(tmp_path.as_uri())[reader_of_all].run()


def test_several_pipelines_are_united(pair: Pair) -> None:
    root = hr.open(pair.folder.as_uri())
    less = hr.published("second", {"s": int}).named("less", columns={"s": -col("s")})
    source = hr.published("first", {"s": int})
    net = hr.Pipeline("net", source, union=[less], how=hr.retracting(None), **HOURLY)
    pair.land(("a", 1, "00:01"), ("b", 2, "00:12"))
    second = root[pipelines("retracting", None)[1]]
    second.run()
    root[net].run()
    assert [row["sum"] for row in root[net].current().to_json()] == [0]
    pair.upstream.rollback(to="beginning")
    root[net].run()
    assert [row["sum"] for row in root[net].current().to_json()] == [-3]
    second.run()
    root[net].run()
    assert root[net].current().to_json() == []


def test_what_main_was_before_a_promotion_can_still_be_gone_back_to(pair: Pair) -> None:
    for number in range(3):
        pair.land(("a", 1, f"00:{number}1"))
        pair.read()
    line_before = line(pair.reader)
    pair.reader.backfill(promote=True)
    pair.land(("a", 1, "00:41"))
    pair.read()
    assert line_before[1] not in line(pair.reader)
    for _ in range(2):
        pair.reader.expire(keep_last=20)
        pair.upstream.expire(keep_last=1)
    pair.reader.rollback(to=line_before[1])
    assert pair.read() == [(0, 4, 4)]


def test_panes_that_came_too_late_count_in_a_backfill_as_replay_late_says(tmp_path: Path) -> None:
    own: dict[str, Any] = {"key": "k", "where": hr.FixedWindows("10m"), "when": FINE, "how": hr.retracting("6h")}
    upstream = hr.Pipeline("first", CLICKS, what={"s": col("v").sum()}, executor="local", **own)
    reader = hr.Pipeline("reader", hr.published("first", upstream), how=hr.retracting("0s"), **HOURLY)
    pair = Pair(tmp_path, upstream, reader)
    for record in (("a", 1, "00:01"), ("a", 1, "02:30"), ("a", 10, "00:02")):
        pair.land(record)
        pair.read()
    assert pair.read() == [(0, 1, 1), (2, 1, 1)], "the correction is late here"
    with pytest.raises(LandingAgainError, match="`headrace backfill reader --promote`"):
        pair.reader.replay_late()
    pair.reader.backfill(promote=True)
    assert pair.read() == [(0, 11, 1), (2, 1, 1)]


@pytest.mark.parametrize("lateness", [None, "1h"])
def test_an_upstream_that_has_ended_and_begins_again_is_taken_back_or_stops_the_reader(
    lateness: str | None, tmp_path: Path
) -> None:
    reader = hr.Pipeline("reader", hr.published("first", upstream_of()), how=hr.retracting(lateness), **HOURLY)
    pair = Pair(tmp_path, upstream_of(), reader)
    folder = tmp_path / "landing" / "clicks"
    folder.mkdir(parents=True)
    (folder / "900.jsonl").write_text('{"k": "a", "v": 5, "at": "2026-01-01T00:30:00Z"}\n')
    pair.upstream.run(mode="batch", publish=True)
    assert pair.read() == [(0, 5, 1)]
    assert pair.position.watermark == MAX_INSTANT
    (folder / "901.jsonl").write_text('{"k": "a", "v": 7, "at": "2026-01-01T00:35:00Z"}\n')
    assert pair.upstream.run().counts["late_dropped"] == 1
    assert pair.read() == [(0, 5, 1)]
    pair.upstream.rollback(to="beginning")
    pair.upstream.run()
    if lateness is None:
        assert pair.read() == [(0, 12, 1)]
        return
    with pytest.raises(UpstreamMovedError, match="`headrace backfill reader --promote`"):
        pair.read()
    pair.reader.backfill(promote=True)
    assert pair.read() == [(0, 12, 1)]


def test_a_parked_output_that_cannot_take_back_holds_no_other_one(tmp_path: Path) -> None:
    mended_path = tmp_path / "mended"
    fragile = {"s": col("s").combine(Fragile(str(mended_path), "add", least=100))}
    hours: dict[str, Any] = {"where": hr.FixedWindows("1h"), "when": FINE}
    outputs = {
        "good": hr.Output(what={"s": col("s").sum()}, how=hr.retracting(None), **hours),
        "expired": hr.Output(what=fragile, how=hr.retracting("0s"), **hours),
        "open": hr.Output(what=fragile, how=hr.retracting(None), **hours),
    }
    reader = hr.Pipeline("reader", hr.published("first", upstream_of()), outputs=outputs, executor="local")
    pair = Pair(tmp_path, upstream_of(), reader)
    for record in (("a", 1, "00:01"), ("a", 150, "00:02"), ("a", 1, "02:30"), ("a", 1, "03:30")):
        pair.land(record)
        pair.reader.run()
    pair.upstream.rollback(to=line(pair.upstream)[-1])
    pair.reader.run()
    mended_path.touch()
    pair.upstream.run()
    result = pair.reader.run()

    def sums(output: str) -> list[int]:
        return sorted(row["s"] for row in pair.reader[output].current().to_json())

    assert sums("good") == sums("open") == [1, 1, 151]
    assert sums("expired") == [1], "its readers see what they saw"
    (warning,) = [one for one in result.warnings if "restore.upstream_moved" in one]
    assert "output expired is parked" in warning


def test_a_reader_that_may_not_write_there_says_what_may_happen(pair: Pair) -> None:
    pair.land(("a", 1, "00:01"))
    (pair.folder / "first" / "readers").write_text("in the way")
    result = pair.reader.run()
    assert any("first cannot be told what is still needed of it" in warning for warning in result.warnings)
    assert pair.position.snapshot == line(pair.upstream)[0]


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"x": int}, "has no column x; it has k"),
        ({"s": str}, "has column s as int, and it is declared as str"),
        ({"epoch": int}, "by epoch what it withdraws would still count. Leave it out"),
    ],
)
def test_columns_are_those_that_are_published(pair: Pair, schema: dict[str, Any], problem: str) -> None:
    pair.land(("a", 1, "00:01"))
    upstream = hr.published("first", schema)
    definition = hr.Pipeline("other", upstream, what={"n": hr.count()}, where=hr.FixedWindows("1h"), executor="local")
    with pytest.raises(UpstreamPanesError, match=problem):
        hr.open(pair.folder.as_uri())[definition].run()


@pytest.mark.parametrize("condition", [None, col("s") < 100])
def test_panes_that_would_count_twice_are_refused(condition: Any, pair: Pair) -> None:
    own: dict[str, Any] = {"where": hr.FixedWindows("10m"), "when": FINE, "how": hr.accumulating("1h")}
    refined_pipeline = hr.Pipeline(
        "first", CLICKS, key="k", what={"s": col("v").sum()}, having=condition, executor="local", **own
    )
    pair.upstream = hr.open(pair.folder.as_uri(), create=True)[refined_pipeline]
    pair.land(("a", 1, "00:01"))
    with pytest.raises(UpstreamPanesError, match=r"accumulates, and a window may have several panes"):
        pair.reader.run()


def test_a_circle_of_pipelines_is_named_when_it_runs(pair: Pair) -> None:
    pair.land(("a", 1, "00:01"))
    pair.read()
    circle = hr.Pipeline("first", hr.published("reader", {"n": int}), what={"s": col("n").sum()},
                         where=hr.FixedWindows("1h"), executor="local")  # fmt: skip
    with pytest.raises(UpstreamCycleError, match="first reads reader reads first"):
        hr.open(pair.folder.as_uri())[circle].run(branch="other", publish=False)


def test_mistakes_are_found_when_it_is_built() -> None:
    first = upstream_of()
    for name, schema, problem in (
        ("a.b.c", {"s": int}, "write the name of a pipeline"),
        ("first", {"s": int, "pane_time": str}, "'pane_time' of a pane is a timestamp"),
        ("second", first, "has first"),
        ("first.hourly", first, "has first"),
    ):
        with pytest.raises(PipelineError, match=problem):
            hr.published(name, schema)
    assert set(hr.published("first", first).source.schema) >= {"k", "s", "n", "window_start", "is_retraction"}
    parts_once = {"deduplicate": hr.Deduplicate("s", "1d"), "how": hr.retracting(None), **HOURLY}
    with pytest.raises(PipelineError, match="deduplicate: what input source reads can be taken back and come again"):
        hr.Pipeline("reader", hr.published("first", first), **parts_once)
    sessions = hr.Sessions("10m")
    with pytest.raises(PipelineError, match="windows that"):
        hr.Pipeline("reader", hr.published("first", first), what={"n": hr.count()}, where=sessions, executor="local")
