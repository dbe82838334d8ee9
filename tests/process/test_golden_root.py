"""Deployments that older versions wrote (tests/golden) are read, and runs continue from them."""

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

import headrace as hr
from headrace.ext.sinks import ChangeSource
from headrace.pipeline.identity import fingerprint
from headrace.read.pipeline_reader import PipelineReader
from headrace.runs.client.handle import Deployment, PipelineHandle
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from headrace.runs.reporting.results import read_notes
from headrace.runs.restore import InputGoneError
from headrace_snapshots.errors import RefusedError
from headrace_snapshots.holds import read_holds
from headrace_snapshots.store import open_store
from tests.process import golden_bills
from tests.process.golden_bills import BILLS
from tests.process.golden_clicks import CLICKS, DAYS
from tests.process.golden_roads import ROADS
from tests.process.golden_roots import GOLDEN, copy_root, values
from tests.process.golden_sales import SALES
from tests.process.golden_shop import SHOP
from tests.process.golden_stalls import STALLS, order
from tests.process.golden_stalls import land as land_orders
from tests.process.golden_visits import VISITS

FIRST, LAST = datetime(2026, 1, 1, 0, tzinfo=UTC), datetime(2026, 1, 3, 9, tzinfo=UTC)
OLD = [("ann", FIRST, 2, 6), ("bob", FIRST, 1, 7)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return copy_root("format-1", tmp_path)


@pytest.fixture
def with_outputs(tmp_path: Path) -> Path:
    return copy_root("format-3", tmp_path)


def land(root: Path, path: str, *records: tuple[str, str, int]) -> None:
    """A landing file with a user, a time of January and an amount in each line."""
    lines = [{"user": user, "at": f"2026-01-{moment}:00Z", "amount": amount} for user, moment, amount in records]
    (root / "landing" / path).write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def from_nothing(root: Path, folder: Path, *pipelines: hr.Pipeline) -> Deployment:
    """Another root, with the same landing files, of which each was an epoch."""
    shutil.copytree(root / "landing", folder / "landing")
    deployment = hr.open(folder.as_uri(), create=True)
    for pipeline in pipelines:
        deployment[pipeline].run(files_per_epoch=1)
    return deployment


def rows(reader: PipelineReader) -> list[tuple[object, ...]]:
    found_rows = reader.current(columns=["user", "window_start", "clicks", "amount"]).to_arrow().to_pylist()
    return [tuple(row.values()) for row in found_rows]


def test_its_views_are_read(root: Path) -> None:
    reader = hr.open(root.as_uri())["clicks"]
    assert rows(reader) == [*OLD, ("ann", LAST, 1, 4), ("bob", LAST, 1, 2)]
    assert reader.panes().count() == 10
    assert reader.late().to_arrow()["user"].to_pylist() == ["eve"]
    assert reader.rejected().to_arrow()["raw"].to_pylist() == ["not a record"]
    assert reader.snapshots().to_arrow()["epoch"].to_pylist() == [0, 1, 2]


def test_a_run_goes_on_from_its_state(root: Path) -> None:
    stored_manifest = hr.open(root.as_uri())["clicks"].current().manifest
    assert stored_manifest is not None
    assert fingerprint(CLICKS) == stored_manifest.fingerprint
    (root / "landing" / "clicks" / "d.jsonl").write_text(
        '{"user": "ann", "at": "2026-01-03T09:40:00Z", "amount": 10}\n'
    )
    result = process(CLICKS, root.as_uri(), RunOptions("after", publish=True))
    assert result.epochs == (3,)
    assert result.counts["input_files"] == 1
    reader = hr.open(root.as_uri())["clicks"]
    assert rows(reader) == [*OLD, ("ann", LAST, 2, 14), ("bob", LAST, 1, 2)]


def amounts(root: Path, output: str) -> list[tuple[object, ...]]:
    reader = hr.open(root.as_uri())["shop"][output]
    columns = reader.current(columns=["user", "window_start", "amount"]).to_arrow().to_pylist()
    return [tuple(row.values()) for row in columns]


def test_outputs_are_read(with_outputs: Path) -> None:
    day = [FIRST, LAST.replace(hour=0)]
    assert amounts(with_outputs, "hourly") == [
        ("ann", FIRST, 5),
        ("bob", FIRST, 2),
        ("ann", LAST, 8),
        ("bob", LAST, 32),
    ]
    assert amounts(with_outputs, "daily") == [
        ("ann", day[0], 5),
        ("bob", day[0], 2),
        ("ann", day[1], 8),
        ("bob", day[1], 32),
    ]
    shop = hr.open(with_outputs.as_uri())["shop"]
    assert shop["hourly"].late().to_arrow()["user"].to_pylist() == ["eve"]
    assert shop["hourly"].rejected().to_arrow()["raw"].to_pylist() == ["no record"]


def test_a_run_goes_on_from_the_state_of_outputs(with_outputs: Path) -> None:
    (with_outputs / "landing" / "orders" / "d.jsonl").write_text(
        '{"user": "ann", "at": "2026-01-03T09:40:00Z", "amount": 10}\n'
    )
    result = process(SHOP, with_outputs.as_uri(), RunOptions("after", publish=True))
    assert (result.epochs, result.warnings) == ((3,), ())
    assert amounts(with_outputs, "hourly")[2:] == [("ann", LAST, 18), ("bob", LAST, 32)]
    assert amounts(with_outputs, "daily")[2:] == [("ann", LAST.replace(hour=0), 18), ("bob", LAST.replace(hour=0), 32)]
    assert hr.open(with_outputs.as_uri())["shop"].fsck().damage == ()


def lengths(root: Path) -> dict[str, int]:
    """The way from the harbour to each place."""
    rows = hr.open(root.as_uri())["roads"].current(columns=["vertex", "value"]).to_arrow().to_pylist()
    return {row["vertex"]: row["value"] for row in rows}


def test_rounds_go_on_with_what_was_in_flight(tmp_path: Path) -> None:
    root = copy_root("format-1-loop", tmp_path)
    assert lengths(root) == {"harbour": 0, "mill": 5, "ford": 8, "abbey": 20, "ridge": 22}
    result = process(ROADS, root.as_uri(), RunOptions("after", publish=True))
    assert (result.counts["input_files"], result.warnings) == (0, ())
    assert lengths(root) == {"harbour": 0, "mill": 5, "ford": 8, "abbey": 12, "ridge": 14, "pass": 15}
    shorter = {"a": "harbour", "b": "pass", "km": 1, "at": "2026-01-01T00:20:00Z"}
    (root / "landing" / "roads" / "d.jsonl").write_text(json.dumps(shorter) + "\n")
    process(ROADS, root.as_uri(), RunOptions("shorter", publish=True))
    assert lengths(root) == {"harbour": 0, "pass": 1, "ridge": 2, "abbey": 4, "mill": 5, "ford": 8}
    assert hr.open(root.as_uri())["roads"].fsck().damage == ()


def test_what_was_landed_is_read_again_without_its_broker(tmp_path: Path) -> None:
    root = copy_root("format-1-landed", tmp_path)
    handle = hr.open(root.as_uri())["sales"]

    def sold(ref: str) -> list[tuple[object, ...]]:
        columns = ["user", "window_start", "orders", "amount", "last"]
        return [tuple(row.values()) for row in handle.current(columns=columns, at=ref).to_arrow().to_pylist()]

    nine = FIRST.replace(hour=9)
    expected = [("ann", FIRST, 2, 5, 0), ("bob", FIRST, 1, 1, 1), ("ann", nine, 2, 9, 3), ("bob", nine, 1, 2, 2)]
    assert sold("published") == expected
    assert handle.rejected().to_arrow()["raw"].to_pylist() == ["no record"]
    handle.run(SALES, mode="replay", from_branch="main", branch="again")
    assert sold("again") == expected
    assert handle.fsck().damage == ()


def test_what_was_sealed_is_held_against_it(tmp_path: Path) -> None:
    """Files that are not those that were landed, valid as they are, are refused; put back, all is as it was."""
    landed_path = copy_root("format-3-sealed", tmp_path) / "sales" / "landed" / "source"
    handle = hr.open((tmp_path / "root").as_uri())[SALES]
    nine = FIRST.replace(hour=9)
    amounts = [(row["user"], row["window_start"], row["amount"]) for row in values(handle, SALES)]
    assert amounts == [("ann", FIRST, 5), ("ann", nine, 9), ("bob", FIRST, 1), ("bob", nine, 2)]
    assert handle.fsck(deep=True).damage == ()
    mine = landed_path / f"{1:020}-00000-00001-sales-0-2-3.parquet"
    next_one = landed_path / f"{2:020}-00000-00001-sales-0-3-4.parquet"
    older = GOLDEN / "format-3-landed" / "root" / mine.relative_to(tmp_path / "root")
    was = mine.read_bytes()
    for number, other in enumerate((next_one.read_bytes(), older.read_bytes(), was[:-1])):
        mine.write_bytes(other)
        with pytest.raises(InputGoneError, match=f"{mine.name} has changed"):
            handle.run(mode="replay", from_branch="main", branch=f"again{number}")
        (problem,) = [problem for problem in handle.fsck(deep=True).damage if mine.name in str(problem)]
        assert "range 1" in problem.remedy
    mine.write_bytes(was)
    handle.run(mode="replay", from_branch="main", branch="again")
    assert values(handle, SALES, "again") == values(handle, SALES)
    assert handle.fsck(deep=True).damage == ()


def test_a_root_of_which_some_has_expired_goes_on_and_expires(tmp_path: Path) -> None:
    root = copy_root("format-2", tmp_path)
    clicks = hr.open(root.as_uri())[CLICKS]
    assert rows(clicks) == [("ann", FIRST, 2, 5), ("bob", FIRST, 1, 1), ("ann", LAST, 1, 4), ("bob", LAST, 2, 7)]
    assert clicks.late().to_arrow()["user"].to_pylist() == ["eve"]
    assert clicks.rejected().to_arrow()["raw"].to_pylist() == ["not a record"]
    assert (clicks.panes().count(), clicks.snapshots().to_arrow()["epoch"].to_pylist()) == (12, [3])
    assert clicks.fsck().damage == ()
    land(root, "clicks/e.jsonl", ("ann", "03T09:45", 10))
    assert clicks.run().counts["input_files"] == 1
    assert clicks.expire(keep_last=1).swept.snapshots == 1, "what the old version has marked"
    clicks.run()
    assert clicks.expire(keep_last=1).swept.snapshots == 1, "what is marked since"
    assert clicks.fsck(deep=True).damage == ()
    assert values(clicks, CLICKS) == values(from_nothing(root, tmp_path / "nothing", CLICKS)["clicks"], CLICKS)


def test_rows_that_were_handed_over_come_with_their_ids_and_stay_delivered(tmp_path: Path) -> None:
    root = copy_root("format-4", tmp_path)
    golden_bills.SENT_ROWS.clear()
    bills = hr.open(root.as_uri())[BILLS]
    assert [(row["user"], row["window_start"].hour, row["amount"]) for row in values(bills, BILLS)] == [
        ("ann", 0, 2),
        ("ann", 1, 4),
        ("ann", 2, 7),
        ("bob", 0, 1),
        ("bob", 1, 5),
        ("bob", 2, 1),
        ("eve", 1, 3),
    ]
    assert bills.panes().count() == 17
    sent_before = [tuple(row) for row in json.loads((GOLDEN / "format-4" / "sent.json").read_text())]
    with pytest.raises(RefusedError, match="sink send, which cannot take them back"):
        bills.rollback(to="beginning", message="all of it")
    (delivery,) = bills.deliver(sinks=["send"])
    assert golden_bills.SENT_ROWS[:2] == sent_before[2:], "those of the delivery that broke off come again"
    assert (delivery.written, golden_bills.SENT_ROWS[2][1:]) == (3, ("eve", "2026-01-01T01:00:00", 3))
    land(root, "orders/c.jsonl", ("bob", "01T02:50", 8), ("ann", "01T03:15", 9))
    bills.run()
    bills.deliver(sinks=["send"])
    for _ in range(2):
        bills.expire(keep_last=1)
    assert bills.fsck(deep=True).damage == ()
    sent_rows = {*sent_before, *golden_bills.SENT_ROWS}
    golden_bills.SENT_ROWS.clear()
    handle = from_nothing(root, tmp_path / "nothing", BILLS)["bills"]
    assert values(bills, BILLS) == values(handle, BILLS)
    handle.deliver(BILLS, sinks=["send"])
    assert sent_rows == {*golden_bills.SENT_ROWS}


def test_a_table_that_was_delivered_to_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = copy_root("format-4", tmp_path)
    monkeypatch.setenv("HEADRACE_CONN_LAKE", lake_of(root, tmp_path / "lake"))
    bills = hr.open(root.as_uri())[BILLS]
    notes_before = read_notes(open_store(root.as_uri()), "bills")
    assert [(note.sink, note.epoch, note.error_code) for note in notes_before] == [
        ("reports.bills", 0, None),
        ("send", 0, "config.sink_failed"),
    ]
    (delivery,) = bills.deliver(sinks=["reports.bills"])
    assert (delivery.before, delivery.source) == (notes_before[0].snapshot, ChangeSource.PANES)
    table, failed_rows = read_notes(open_store(root.as_uri()), "bills")
    assert (table.snapshot, table.epoch, failed_rows) == (delivery.after, 1, notes_before[1])
    assert bills.compare_with("delta:reports/bills", connection="lake").is_equal


def lake_of(root: Path, folder: Path) -> str:
    """The URI of a lake whose table says that ``root`` has delivered to it."""
    shutil.copytree(GOLDEN / "format-4" / "lake", folder)
    for log in folder.glob("reports/bills/_delta_log/*.json"):
        log.write_text(log.read_text().replace("file:///tmp/headrace-golden/format-4/root", root.as_uri()))
    return folder.as_uri()


def test_a_pipeline_and_its_reader_go_on(tmp_path: Path) -> None:
    root = copy_root("format-3-published", tmp_path)
    deployment, store = hr.open(root.as_uri()), open_store(root.as_uri())
    clicks, days = deployment[CLICKS], deployment[DAYS]
    assert values(days, DAYS) == [
        {"user": "ann", "window_start": FIRST, "clicks": 2, "amount": 32, "most": 32},
        {"user": "bob", "window_start": FIRST, "clicks": 2, "amount": 6, "most": 5},
    ]
    assert (clicks.panes().count(), days.panes().count()) == (10, 10)
    (hold,) = read_holds(store, "clicks")
    assert (root / hold.path("clicks")).is_file()
    clicks.expire(keep_last=1)
    clicks.run()
    expiry = clicks.expire(keep_last=1)
    assert expiry.readers == ("days.source",)
    assert days.run().counts["input_files"] == 1
    land(root, "clicks/e.jsonl", ("bob", "01T01:50", 7), ("ann", "02T00:10", 8))
    clicks.run()
    days.run()
    handles = from_nothing(root, tmp_path / "nothing", CLICKS, DAYS)
    assert values(clicks, CLICKS) == values(handles["clicks"], CLICKS)
    assert values(days, DAYS) == values(handles["days"], DAYS)
    for handle in (clicks, days):
        for _ in range(2):
            handle.expire(keep_last=1)
        assert handle.fsck(deep=True).damage == ()


def test_what_jobs_have_written_is_read_again_without_spark(tmp_path: Path) -> None:
    visits = hr.open(copy_root("format-3-written", tmp_path).as_uri())[VISITS]
    assert values(visits, VISITS) == [
        {"user": "ann", "window_start": FIRST, "visits": 2, "amount": 5},
        {"user": "ann", "window_start": FIRST.replace(hour=9), "visits": 1, "amount": 4},
        {"user": "bob", "window_start": FIRST, "visits": 1, "amount": 1},
    ]
    assert visits.panes().count() == 9
    visits.run(mode="replay", from_branch="main", branch="again")
    assert values(visits, VISITS, "again") == values(visits, VISITS)
    assert visits.fsck(deep=True).damage == ()


def standing(handle: PipelineHandle, ref: str = "published") -> dict[str, list[str]]:
    """What stands of each output of rows."""
    columns = {output: [*own_pipeline.value_types, "event_time"] for output, own_pipeline in STALLS.by_output.items()}
    rows = {name: handle[name].current(columns=own, at=ref).to_json() for name, own in columns.items()}
    return {name: sorted(json.dumps([*row.values()]) for row in own) for name, own in rows.items()}


def test_rows_are_read_and_go_on(tmp_path: Path) -> None:
    root = copy_root("format-6-rows", tmp_path)
    stalls = hr.open(root.as_uri())[STALLS]
    assert {name: stalls[name].panes().count() for name in stalls.outputs} == {
        "lines": 17,
        "newest": 17,
        "dearest": 15,
        "prices": 15,
    }
    newest = [tuple(row.values()) for row in stalls["newest"].current(columns=["id", "stall", "price"]).to_json()]
    assert sorted(newest) == [(5, "bread", 2), (6, "fruit", 3), (7, "fish", 9), (8, "fruit", 4), (9, "fish", 2**62)]
    (letter,) = stalls["lines"].rejected().to_json()
    assert letter["reason"] == "column double: (price * 2) leaves 64 bits"
    assert stalls.fsck(deep=True).damage == ()
    stalls.run(mode="replay", from_branch="main", branch="again")
    assert standing(stalls, "again") == standing(stalls)
    land_orders(root, "d.jsonl", order(3, "fish", 6, "11:40", is_gone=True), order(7, "fish", 9, "11:00", sign=-1))
    land_orders(root, "e.jsonl", order(10, "fish", 8, "09:55"), order(9, "fish", 2**62, "11:30", sign=-1))
    assert stalls.run(files_per_epoch=1).epochs == (3, 4)
    assert standing(stalls) == standing(from_nothing(root, tmp_path / "nothing", STALLS)["stalls"])
    for _ in range(2):
        stalls.expire(keep_last=1)
    assert stalls.fsck(deep=True).damage == ()
