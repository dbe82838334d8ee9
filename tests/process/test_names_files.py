"""Names of many files that were read: where they are stored, what a run asks of them, and what goes on without them."""

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import headrace as hr
from headrace.errors import FixDataError
from headrace.read.pending_work import WorkFinder, watched_inputs
from headrace.runs.client.handle import PipelineHandle
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from headrace_snapshots.format.files import FileLog
from headrace_snapshots.format.manifest import INPUTS
from headrace_snapshots.store import LocalStore
from tests.read.test_pending_work import now

SHOPS = 30


def pipeline(names: str = "any", look_back: int = 1000) -> hr.Pipeline:
    """Receipts of shops, a folder each."""
    source = hr.json("landing", {"shop": str, "at": datetime}, max_files=1_200, names=names, look_back=look_back)
    return hr.Pipeline(
        "receipts",
        source.event_time("at", bound="1h"),
        key="shop",
        what={"n": hr.count()},
        where=hr.FixedWindows("1d"),
        when=hr.on_update(),
        how=hr.retracting("90d"),
        executor="local",
    )


def handle(root: Path) -> PipelineHandle:
    return hr.open(root.as_uri(), create=True)[pipeline()]


def land(root: Path, *days: int) -> int:
    """A file a day and shop, in the folder of the shop; how many."""
    for day in days:
        for shop in range(SHOPS):
            file = root / "landing" / f"shop={shop:02}" / f"{day:04}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps({"shop": f"s{shop}", "at": "2024-01-01T12:00:00Z"}))
    return len(days) * SHOPS


def count_receipts(root: Path) -> int:
    """How many receipts count."""
    return sum(row["n"] for row in handle(root).read("current", at="main").to_arrow().to_pylist())


def log_of(root: Path) -> FileLog:
    catalog = handle(root)._catalog
    return catalog.manifest(catalog.head().refs["main"]).logs[INPUTS]


@pytest.fixture(scope="module")
def read_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with 1,500 files that were read in two epochs, and are named by one names file."""
    root = tmp_path_factory.mktemp("read")
    land(root, *range(50))
    handle(root).run()
    return root


@pytest.fixture
def root(read_once: Path, tmp_path: Path) -> Path:
    """A copy of that root."""
    return Path(shutil.copytree(read_once, tmp_path / "root"))


def names_files(root: Path) -> list[Path]:
    log = log_of(root)
    return [] if log.names is None else [root / one.file.path for one in log.names.files]


def test_names_of_many_files_are_in_few(root: Path) -> None:
    assert log_of(root).names is not None
    for day in range(100, 180, 20):
        assert land(root, *range(day, day + 20)) == handle(root).run().counts["input_files"]
    log = log_of(root)
    assert log.names is not None
    assert log.files == count_receipts(root) == 130 * SHOPS
    assert log.files - log.names.of < 512
    assert 1 <= len(log.names.files) <= 2
    assert sum(one.file.rows for one in log.names.files) == log.names.of


def test_a_run_asks_for_no_more_than_it_needs(root: Path) -> None:
    def requests() -> dict[str, int]:
        catalog = handle(root)._catalog
        return dict(catalog.manifest(catalog.head().refs["main"]).requests)

    requests_before = requests()
    land(root, 60)
    handle(root).run()
    small = requests()
    assert small["put"] <= requests_before["put"], "no names file is written for an epoch of few files"
    store = LocalStore(root)
    finder = WorkFinder(store, "receipts", watched_inputs(pipeline()))
    assert finder.find_work(now()) is None
    counted_before = store.requests.snapshot()
    assert finder.find_work(now()) is None
    assert store.requests.since(counted_before)["get"] <= 2, "of names nothing: the log's last entry, and its hint"


@pytest.mark.parametrize("damage", ["lost", "cut", "changed"])
def test_without_names_files_the_log_says_the_same(root: Path, damage: str) -> None:
    (file,) = names_files(root)
    match damage:
        case "lost":
            file.unlink()
        case "cut":
            file.write_bytes(file.read_bytes()[:-100])
        case _:
            file.write_bytes(file.read_bytes()[:-1] + b"?")
    (problem,) = handle(root).fsck(deep=True).damage
    assert "the next run reads the log of inputs in its place" in problem.remedy
    land(root, 60)
    assert handle(root).run().counts["input_files"] == SHOPS
    assert count_receipts(root) == 51 * SHOPS
    assert file not in names_files(root)
    (root / "landing" / "shop=00" / "0000.json").write_text("{}")
    with pytest.raises(FixDataError, match=r"shop=00/0000\.json has changed"):
        handle(root).run()


def test_old_roots_have_none_and_lose_nothing(root: Path) -> None:
    catalog = handle(root)._catalog
    head = catalog.manifest(catalog.head().refs["main"])
    log = head.logs[INPUTS]
    claim = catalog.claim("main", owner="an older version")
    older = head.replace(
        snapshot_id=catalog.new_snapshot_id(),
        parent=head.snapshot_id,
        epoch=head.epoch + 1,
        generation=claim.generation,
        logs={**head.logs, INPUTS: FileLog(log.tail, log.levels)},
        skips=(),
    )
    catalog.commit(claim, older)
    assert log_of(root).names is None
    land(root, 7, 55)
    (root / "landing" / "shop=00" / "0007.json").unlink()  # one that was read may go
    assert handle(root).run().counts["input_files"] == SHOPS
    assert count_receipts(root) == 51 * SHOPS
    assert log_of(root).names is not None


def test_what_no_snapshot_names_any_more_expires_and_what_one_names_stays(root: Path) -> None:
    (first,) = names_files(root)
    for day in range(100, 140, 10):
        land(root, *range(day, day + 10))
        handle(root).run()
    assert names_files(root) != [first]
    for _ in range(3):
        handle(root).expire(keep_last=1)
    assert not first.exists()
    assert all(file.exists() for file in names_files(root))
    assert not handle(root).fsck(deep=True).damage


def test_files_that_were_copied_are_looked_at_once(root: Path) -> None:
    for file in (root / "landing").rglob("*.json"):
        content = file.read_bytes()
        file.unlink()
        file.write_bytes(content)
    catalog_of = handle(root)
    land(root, 60)
    assert catalog_of.run().counts["input_files"] == SHOPS
    store = LocalStore(root)
    finder = WorkFinder(store, "receipts", watched_inputs(pipeline()))
    assert finder.find_work(now()) is None
    assert store.requests.snapshot()["get"] < 100, "the names files have what the copies are now"


def test_names_that_are_said_to_ascend_are_listed_from_the_newest_and_a_straggler_is_told(root: Path) -> None:
    ordered_handle = hr.open(root.as_uri())[pipeline("ordered", look_back=10)]
    land(root, 60)  # of 30 shops, the last of which is the newest
    result = ordered_handle.run()
    assert result.counts.get("input_files", 0) == 1
    assert not result.warnings
    swept = ordered_handle.run(full_sweep=True)
    assert swept.counts["input_files"] == SHOPS - 1
    assert "29 files that no run had read, such as landing/shop=00/0060.json" in swept.warnings[0]
    assert json.loads(json.dumps(swept.to_json()))["warnings"] == [*swept.warnings]
    assert count_receipts(root) == 51 * SHOPS


def test_a_name_that_is_used_again_is_refused_and_with_the_same_content_it_was_read(root: Path) -> None:
    file = root / "landing" / "shop=00" / "0000.json"
    content = file.read_bytes()
    file.unlink()
    assert not handle(root).run().epochs
    file.write_bytes(content)
    assert not handle(root).run().epochs
    file.write_bytes(content + b"\n" + content)
    with pytest.raises(FixDataError, match=r"0000\.json has changed"):
        handle(root).run()
    file.rename(file.with_name("another.json"))
    assert handle(root).run().counts["records"] == 2


def test_what_was_read_under_an_ending_of_files_under_way_is_left_out_of_a_backfill(tmp_path: Path) -> None:
    source = hr.json("landing", {"shop": str, "at": datetime}, suffixes=[".json", ".part"])
    pipeline_before = replace(pipeline(), input=source.event_time("at", bound="1h"))  # as it was before 0.2.0
    land(tmp_path, 1)
    first = tmp_path / "landing" / "shop=00" / "0001.json"
    (first.parent / "0001.json.part").write_bytes(first.read_bytes())
    hr.open(tmp_path.as_uri(), create=True)[pipeline_before].run()
    assert count_receipts(tmp_path) == SHOPS + 1
    assert not handle(tmp_path).run().epochs
    handle(tmp_path).backfill(promote=True)
    assert count_receipts(tmp_path) == SHOPS
    catalog = handle(tmp_path)._catalog
    newest = catalog.manifest(catalog.head().refs["main"])
    (tmp_path / "landing" / "shop=00" / "0002.json").write_bytes(first.read_bytes())
    hr.open(tmp_path.as_uri())[pipeline_before].run()  # which reads the .part again, too
    handle(tmp_path).recover(newest.snapshot_id, publish=False)
    assert count_receipts(tmp_path) == SHOPS + 1


def test_the_first_run_of_a_day_looks_at_all_names(root: Path) -> None:
    ordered_pipeline, today = pipeline("ordered", look_back=10), datetime.now(UTC)
    land(root, 60)
    assert process(ordered_pipeline, root.as_uri(), RunOptions("today"), now=lambda: today).counts["input_files"] == 1
    tomorrow = process(ordered_pipeline, root.as_uri(), RunOptions("tomorrow"), now=lambda: today + timedelta(days=1))
    assert tomorrow.counts["input_files"] == SHOPS - 1
    assert "29 files that no run had read" in tomorrow.warnings[0]
    assert count_receipts(root) == 51 * SHOPS
