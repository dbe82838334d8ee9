"""Patches of rows: those of a branch stand in place of those of main, as often as they do there."""

import importlib
import shutil
import sys
from collections import Counter
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.errors import (
    AuditFailedError,
    BranchAheadError,
    BranchBehindError,
    HeadraceError,
    LimitExceededError,
    OpenWindowsError,
    PatchedSinceError,
    UnpatchableError,
)
from headrace_lab.catalog_checks import check_catalog
from tests.joins.trades import Trades, as_of, rate, rated_pipeline, trade
from tests.rows.orders import COLUMNS, ORDERS, SCHEMA, Orders, minute, order, rows, signed_rows

Row = tuple[Any, ...]
HOUR: dict[str, Any] = {"where": hr.FixedWindows("1h"), "when": hr.on_update(), "how": hr.retracting("1h")}


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return Orders(tmp_path)


def row(id: str, price: int = 1, minutes: int = 0) -> Row:  # noqa: A002 (as orders have it)
    """What an order gives."""
    return id, "ONE", price * 2, minute(minutes)


def top(**parts: Any) -> hr.Pipeline:
    """The two dearest orders of each shop and hour."""
    common = {"key": "shop", "take": hr.top(2, by="price"), **HOUR, "executor": "local"}
    return hr.Pipeline("orders", ORDERS, rows=["id", "price"], **{**common, **parts})


def patch(orders: Orders, pipeline: hr.Pipeline, branch: str = "fix", output: str | None = None) -> hr.types.RunResult:
    result: hr.types.RunResult = orders.handle(pipeline).promote(branch, patch=True, output=output)
    return result


def left(orders: Orders, pipeline: hr.Pipeline, branch: str = "fix") -> dict[str, int]:
    rehearsal = orders.handle(pipeline).promote(branch, patch=True, dry_run=True)
    return {reason.value: number for reason, number in rehearsal.left.items()}


def check_refusal(
    orders: Orders, pipeline: hr.Pipeline, kind: type[HeadraceError], message: str, output: str | None = None
) -> None:
    """A patch is, and in a dry run it says so; nothing moves."""
    handle = orders.handle(pipeline)
    head_before = handle.catalog.head()
    assert kind in map(type, handle.promote("fix", patch=True, output=output, dry_run=True).refusals)
    with pytest.raises(kind, match=message):
        handle.promote("fix", patch=True, output=output)
    assert handle.catalog.head() == head_before


def check(orders: Orders, pipeline: hr.Pipeline, output: str = "") -> None:
    """All that must hold of any root, and: the panes added up are what readers of ``current`` see."""
    handle = orders.handle(pipeline)
    reader = handle[output] if output else handle
    names = [*pipeline.by_output[output].value_types, "event_time", "is_retraction", "epoch", "sequence"]
    sums: Counter[Row] = Counter()
    places = set()
    for *content, is_retraction, epoch, sequence in map(dict.values, reader.panes(columns=names).to_json()):
        sums[tuple(content)] += -1 if is_retraction else 1
        assert (epoch, sequence) not in places
        places.add((epoch, sequence))
    assert Counter(tuple(row.values()) for row in reader.current(columns=names[:-3]).to_json()) == +sums
    assert reader.current().count() == (+sums).total()
    check_catalog(handle.catalog.store, pipeline.name)
    assert handle.fsck(deep=True).damage == ()


@pytest.mark.parametrize("pipeline", [rows(), signed_rows()], ids=["appended", "signed"])
def test_rows_of_records_are_replaced_and_main_goes_on(orders: Orders, pipeline: hr.Pipeline) -> None:
    orders.run(pipeline, order("a", sign=1), order("a", sign=1), order("b", 2, 5, sign=1))
    orders.run(pipeline, order("c", 3, 70, sign=1))
    orders.backfill_corrected(pipeline, {"0000": [order(*one, sign=1) for one in (("a",), ("b", 7, 5), ("d", 9, 6))]})
    expected_counts = Counter({row("a"): 1, row("b", 7, 5): 1, row("d", 9, 6): 1, row("c", 3, 70): 1})
    head_before = orders.handle(pipeline).catalog.head()
    rehearsal = orders.handle(pipeline).promote("fix", patch=True, dry_run=True)
    assert orders.handle(pipeline).catalog.head() == head_before
    assert (rehearsal.refusals, rehearsal.left) == ((), {})
    counted_rows = rehearsal.output.rows
    assert (
        counted_rows.before,
        counted_rows.after,
        counted_rows.added,
        counted_rows.removed,
        counted_rows.changed,
    ) == (4, 4, 2, 2, 0)
    shown_changes = [(str(change.kind), change.key["id"]) for change in rehearsal.output.first]
    assert sorted(shown_changes) == [("added", "b"), ("added", "d"), ("removed", "a"), ("removed", "b")]
    result = patch(orders, pipeline)
    assert (result.action, result.counts["panes"], result.counts["retractions"]) == ("patch", 2, 2)
    panes = (
        orders.handle(pipeline).panes(where=f"epoch = {result.epoch}", columns=["timing", "is_retraction"]).to_json()
    )
    assert panes == [{"timing": "LATE", "is_retraction": is_gone} for is_gone in (True, True, False, False)]
    assert orders.current(pipeline) == expected_counts
    check(orders, pipeline)
    assert patch(orders, pipeline).epochs == (), "done again it changes nothing"
    orders.run(pipeline, order("e", at="2026-05-01T00:01:00Z", sign=1))
    assert orders.current(pipeline) == expected_counts + Counter({row("e", 1, 1): 1})
    check(orders, pipeline)


@pytest.mark.parametrize("pipeline", [rows(), signed_rows()], ids=["appended", "signed"])
def test_a_patch_is_rolled_back_and_expires_as_any_epoch(orders: Orders, pipeline: hr.Pipeline) -> None:
    orders.run(pipeline, order("a", sign=1), order("b", sign=1))
    orders.backfill_corrected(pipeline, {"0000": [order("b", sign=1)]})
    unpatched_rows = orders.current(pipeline)
    snapshot_before = orders.handle(pipeline).catalog.head().refs["main"]
    patch(orders, pipeline)
    assert orders.current(pipeline) == Counter({row("b"): 1})
    assert orders.current(pipeline, at=snapshot_before) == unpatched_rows
    (reported_line,) = orders.handle(pipeline).rollback(to=snapshot_before, dry_run=True).told
    assert "`headrace promote orders fix --patch` makes it again" in reported_line
    orders.handle(pipeline).rollback(to=snapshot_before)
    assert orders.current(pipeline) == unpatched_rows
    check(orders, pipeline)
    patch(orders, pipeline)
    orders.handle(pipeline).catalog.drop("fix")
    for number in range(3):
        orders.run(pipeline, order(f"{number}", sign=1))
        orders.handle(pipeline).expire(keep_last=1)
    orders.handle(pipeline).expire(keep_last=1)
    assert orders.current(pipeline) == Counter({row("b"): 1, **{row(f"{number}"): 1 for number in range(3)}})
    assert orders.handle(pipeline).fsck(deep=True).damage == ()


@pytest.mark.parametrize("pipeline", [rows(), signed_rows()], ids=["appended", "signed"])
def test_what_was_folded_before_and_after_stands_as_it_was_patched(orders: Orders, pipeline: hr.Pipeline) -> None:
    for number in range(20):
        orders.run(pipeline, order(f"{number}", sign=1), order(f"{number}", sign=1))
    orders.backfill_corrected(pipeline, {f"{number:04}": [order(f"{number}", sign=1)] for number in (3, 17)})
    patch(orders, pipeline)
    expected_counts = Counter({row(f"{number}"): 1 if number in (3, 17) else 2 for number in range(20)})
    assert orders.current(pipeline) == expected_counts
    for number in range(20, 40):
        orders.run(pipeline, order(f"{number}", sign=1))
    handle = orders.handle(pipeline)
    assert len(handle.catalog.manifest(handle.catalog.head().refs["main"]).tables["current"]) < 20
    assert orders.current(pipeline) == expected_counts + Counter({row(f"{number}"): 1 for number in range(20, 40)})
    check(orders, pipeline)


@pytest.mark.parametrize("pipeline", [rows(), signed_rows()], ids=["appended", "signed"])
def test_what_a_patch_has_made_stays_where_a_branch_began_before_it(orders: Orders, pipeline: hr.Pipeline) -> None:
    orders.run(pipeline, order("a", sign=1), order("b", sign=1))
    orders.run(pipeline, order("c", 1, 200, sign=1))
    orders.run(pipeline, order("d", 1, 300, sign=1))
    orders.backfill_corrected(pipeline, {"0000": [order("a", 5, sign=1), order("b", sign=1)]}, branch="whole")
    span = {"start": "2026-05-01T03:00:00Z"}
    orders.backfill_corrected(pipeline, {"0001": [order("c", 2, 200, sign=1)]}, branch="range", **span)
    patch(orders, pipeline, "whole")
    assert left(orders, pipeline, "range") == {"patched since the branch was forked": 2}
    patch(orders, pipeline, "range")
    assert orders.current(pipeline) == Counter({row("a", 5): 1, row("b"): 1, row("c", 2, 200): 1, row("d", 1, 300): 1})
    orders.backfill_corrected(pipeline, {"0001": [order("c", 3, 200, sign=1)]}, branch="again", **span)
    patch(orders, pipeline, "again")
    assert orders.current(pipeline)[row("c", 3, 200)] == 1, "what was all read after the fork may be patched again"
    check(orders, pipeline)
    with pytest.raises(PatchedSinceError, match="--patch`, which keeps what was patched"):
        orders.handle(pipeline).promote("range")


def test_two_patches_leave_one_version_of_a_record(orders: Orders) -> None:
    pipeline = rows()
    orders.run(pipeline, order("z", minute=200))
    orders.run(pipeline, order("a", 1, 50), order("b", minute=260))
    orders.run(pipeline, order("end", minute=500))
    for price in (2, 3):
        files = {"0001": [order("a", price, 50), order("b", minute=260)]}
        orders.backfill_corrected(pipeline, files, branch=f"fix{price}", start="2026-05-01T04:10:00Z")
    patch(orders, pipeline, "fix2")
    patch(orders, pipeline, "fix3")
    assert [stands for stands in orders.current(pipeline) if stands[0] == "a"] == [row("a", 2, 50)]
    check(orders, pipeline)


def test_a_row_that_was_owed_is_owed_as_the_branch_has_it(orders: Orders) -> None:
    orders.run(signed_rows(), order("a", sign=1), order("owed", sign=-1))
    orders.backfill_corrected(
        signed_rows(), {"0000": [order("a", 2, sign=1), order("owed", sign=-1), order("owed", sign=-1)]}
    )
    patch(orders, signed_rows())
    assert orders.current(signed_rows()) == Counter({row("a", 2): 1})
    orders.run(signed_rows(), *[order("owed", sign=1)] * 3)
    assert orders.current(signed_rows()) == Counter({row("a", 2): 1, row("owed"): 1})
    check(orders, signed_rows())


def test_what_the_branch_has_read_and_main_has_not_is_left_to_main(orders: Orders) -> None:
    orders.run(rows(), order("a"))
    orders.land("0001", order("new"))
    orders.backfill_corrected(rows(), {"0000": [order("a", 2)]})
    assert orders.current(rows(), at="fix") == Counter({row("a", 2): 1, row("new"): 1})
    patch(orders, rows())
    assert orders.current(rows()) == Counter({row("a", 2): 1})
    orders.run(rows())
    assert orders.current(rows()) == Counter({row("a", 2): 1, row("new"): 1})
    check(orders, rows())


def test_a_branch_that_is_behind_or_ahead_of_main_is_refused(orders: Orders) -> None:
    orders.run(rows(), order("a"))
    orders.land("0005", order("later"))
    orders.backfill_corrected(rows(), {"0000": [order("a", 2)]})
    orders.land("0001", order("first"))
    (orders.folder / "landing/orders/0005.json").rename(orders.folder / "kept.json")
    orders.run(rows())
    check_refusal(orders, rows(), BranchBehindError, "has not read 1 files that main has")
    (orders.folder / "kept.json").rename(orders.folder / "landing/orders/0005.json")
    orders.backfill_corrected(rows(), {"0000": [order("a", 2)]})
    check_refusal(orders, rows(), BranchAheadError, "0001.json.*`headrace run orders` reads it")
    orders.run(rows())
    patch(orders, rows())
    assert orders.current(rows()) == Counter({row("a", 2): 1, row("first"): 1, row("later"): 1})
    check(orders, rows())


def test_where_duplicates_are_told_rows_are_over_once_their_ids_are_forgotten(orders: Orders) -> None:
    distinct_pipeline = rows(deduplicate=hr.Deduplicate("id", "1h"))
    orders.run(distinct_pipeline, order("a"), order("b", 1, 100))
    orders.run(distinct_pipeline, order("c", 1, 230))  # W is 170: what is older than 110 is over
    orders.land("0002", order("old"), order("new", 1, 240))
    orders.backfill_corrected(distinct_pipeline, {"0000": [order("x"), order("b", 2, 100), order("y", 1, 110)]})
    assert left(orders, distinct_pipeline) == {"open on main": 2}
    patch(orders, distinct_pipeline)
    expected_counts = Counter({row("x"): 1, row("b", 2, 100): 1, row("c", 1, 230): 1})
    assert orders.current(distinct_pipeline) == expected_counts
    orders.run(distinct_pipeline)
    assert orders.current(distinct_pipeline) == expected_counts + Counter({row("new", 1, 240): 1})
    assert orders.handle(distinct_pipeline).late().count() == 1
    check(orders, distinct_pipeline)


def test_dead_letters_that_could_come_to_be_rows_twice_are_in_the_way(orders: Orders) -> None:
    orders.run(rows(), order("a", 2**62), order("b"))
    fewer = rows(rows={name: expr for name, expr in COLUMNS.items() if name != "double"})
    orders.run(fewer, order("c"))
    assert orders.handle(fewer).rejected().count() == 1
    orders.handle(fewer).backfill(branch="fix")
    check_refusal(orders, fewer, UnpatchableError, r"refused 1 records, such as .*0000\.json.*would be rows twice")
    orders.run(fewer, order("d", 1, 1500))
    orders.backfill_corrected(fewer, {"0002": [order("e", 1, 1500)]}, branch="range", start="2026-05-02")
    patch(orders, fewer, "range")
    assert [id_ for id_, *_ in orders.current(fewer)] == ["b", "c", "e"], (
        "what was refused before the fork is as it was"
    )


def test_a_record_that_both_refuse_is_in_nobodys_way(orders: Orders) -> None:
    orders.run(rows(), order("a", 2**62), order("b"))
    orders.backfill_corrected(rows(), {"0000": [order("a", 4), order("b")]})
    patch(orders, rows())
    assert orders.current(rows()) == Counter({row("a", 4): 1, row("b"): 1})
    orders.handle(rows()).replay_rejected(to="landing/orders")
    orders.run(rows())
    assert orders.current(rows()) == Counter({row("a", 4): 1, row("b"): 1}), "it is refused again"


def standing_rows(orders: Orders, pipeline: hr.Pipeline, **options: Any) -> list[tuple[str, int]]:
    """The id and price of each row that stands, by id."""
    table = orders.handle(pipeline).current(columns=["id", "price"], **options).to_json()
    return sorted((row["id"], row["price"]) for row in table)


ON_CLOSE = top(when=hr.on_window_close(), how=None)


@pytest.mark.parametrize(
    "pipeline", [top(), ON_CLOSE, top(how=hr.discarding("1h"))], ids=["retracting", "once", "discarding"]
)
def test_rows_of_groups_are_replaced_where_their_windows_are_over(orders: Orders, pipeline: hr.Pipeline) -> None:
    orders.run(pipeline, order("a", 1), order("b", 2, 5), order("open", 5, 600))
    orders.run(pipeline, order("late", 9, 7))
    assert standing_rows(orders, pipeline, where="event_time < '2026-05-01T01:00:00Z'") == [("a", 1), ("b", 2)]
    orders.backfill_corrected(pipeline, {"0000": [order("a", 1), order("b", 2, 5), order("open", 6, 600)]})
    if pipeline is not ON_CLOSE:
        assert left(orders, pipeline) == {"open on main": 2}
    patch(orders, pipeline)
    assert standing_rows(orders, pipeline, where="event_time < '2026-05-01T01:00:00Z'") == [("b", 2), ("late", 9)]
    assert ("open", 6) not in standing_rows(orders, pipeline)
    check(orders, pipeline)
    orders.run(pipeline, order("open", 7, 610), order("later", 9, 7))
    orders.run(pipeline, order("end", 1, 1000))
    rows_of_ten = standing_rows(
        orders, pipeline, where="event_time between '2026-05-01T10:00:00Z' and '2026-05-01T11:00:00Z'"
    )
    assert {("open", 7), ("open", 5)} <= {*rows_of_ten}
    assert standing_rows(orders, pipeline, where="event_time < '2026-05-01T01:00:00Z'") == [("b", 2), ("late", 9)]
    check(orders, pipeline)


def test_sessions_of_rows_that_are_open_are_in_the_way(orders: Orders) -> None:
    pipeline = top(where=hr.Sessions("1h"))
    orders.run(pipeline, order("a", 1), order("x", 5, 300))
    orders.run(pipeline, order("late", 9, 59), *(order(f"{number}", 1, 59 * number) for number in (2, 3, 4, 5)))
    orders.handle(pipeline).backfill(branch="fix")
    check_refusal(orders, pipeline, OpenWindowsError, "overlap windows of their keys that are still open")
    orders.run(pipeline, order("end", 1, 2000))
    orders.handle(pipeline).backfill(branch="fix")
    patch(orders, pipeline)
    assert standing_rows(orders, pipeline) == standing_rows(orders, pipeline, at="fix")
    check(orders, pipeline)


NEWEST = hr.Rows(["price"], key="id", take=hr.newest())


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (NEWEST, "rows of groups for all time"),
        (hr.Rows(["n"], of="hourly"), "rows of panes"),
        (hr.Rows(["id", "event_time"], of="newest"), "rows of panes"),
        (hr.Rows(["id", "price"], key="shop", take=hr.distinct(), **{**HOUR, "how": hr.retracting(None)}), "no limit"),
    ],
    ids=["all time", "panes", "rows of groups", "without a limit"],
)
def test_rows_that_are_never_over_are_not_patched(orders: Orders, output: hr.Rows, message: str) -> None:
    hourly = hr.Output(key="shop", what={"n": hr.count()}, **HOUR)
    outputs: dict[str, Any] = {"hourly": hourly, "newest": NEWEST, "out": output}
    pipeline = hr.Pipeline("orders", ORDERS, outputs=outputs, executor="local")
    orders.run(pipeline, order("a"))
    orders.handle(pipeline).backfill(branch="fix")
    check_refusal(orders, pipeline, UnpatchableError, message, "out")
    with pytest.raises(UnpatchableError, match=message):
        orders.handle(pipeline).backfill(output="out", patch=True)


def test_one_of_several_outputs_is_patched_under_the_name_that_it_has_now(orders: Orders) -> None:
    hourly = hr.Output(key="shop", what={"n": hr.count()}, **HOUR)
    dear = hr.Rows(["id", "price"], filter=col("price") > 1)
    outputs: dict[str, Any] = {"hourly": hourly, "dear": dear}
    pipeline = hr.Pipeline("orders", ORDERS, outputs=outputs, executor="local")
    orders.run(pipeline, order("a", 2), order("b", 3))
    named_output = hr.Rows(["id", "price", "shop"], filter=col("price") > 1, formerly="dear")
    renamed_pipeline = hr.Pipeline(
        "orders", ORDERS, outputs={"hourly": hourly, "costly": named_output}, executor="local"
    )
    orders.handle(renamed_pipeline).run(allow_new_aggregates=True)
    orders.run(renamed_pipeline, order("c", 4), allow_new_aggregates=True)
    orders.backfill_corrected(renamed_pipeline, {"0000": [order("a", 2), order("b", 5)]})
    patch(orders, renamed_pipeline, output="costly")
    expected_counts = Counter(
        {("a", 2, "one", minute(0)): 1, ("b", 5, "one", minute(0)): 1, ("c", 4, "one", minute(0)): 1}
    )
    assert orders.current(renamed_pipeline, "costly") == expected_counts, "and has the new column"
    check(orders, renamed_pipeline, "costly")
    orders.run(renamed_pipeline, order("d", 1))
    (counted_row,) = orders.handle(renamed_pipeline)["hourly"].current(columns=["n"]).to_json()
    assert counted_row["n"] == 4
    check(orders, renamed_pipeline, "costly")


def test_one_command_computes_a_range_and_patches_it(orders: Orders) -> None:
    outputs: dict[str, Any] = {
        "rows": hr.Rows(COLUMNS),
        "hourly": hr.Output(key="shop", what={"n": hr.count()}, **HOUR),
    }
    pipeline = hr.Pipeline("orders", ORDERS, outputs=outputs, executor="local")
    orders.run(pipeline, order("a"))
    orders.run(pipeline, order("b", 1, 1500))
    options = {"output": "rows", "patch": True, "start": "2026-05-02", "end": "2026-05-03"}
    orders.backfill_corrected(pipeline, {"0001": [order("b", 2, 1500)]}, **options)
    assert orders.current(pipeline, "rows") == Counter({row("a"): 1, row("b", 2, 1500): 1})
    check(orders, pipeline, "rows")


def test_ids_that_a_patch_would_share_are_never_on_main(orders: Orders) -> None:
    unique = rows(id="id")
    orders.run(unique, order("a"), order("b"))
    orders.run(unique, order("c"))
    orders.backfill_corrected(unique, {"0001": [order("c", 2)]})
    result = patch(orders, unique)
    assert (result.audit is not None, orders.current(unique)[row("c", 2)]) == (True, 1)
    orders.land("0000", order("a"), order("b"), order("b", 2))
    with pytest.raises(LimitExceededError, match="1 id has more than one row"):
        orders.handle(unique).backfill(branch="twice", patch=True)


def test_ids_that_rows_of_a_patch_share_with_rows_that_stay_are_never_on_main(orders: Orders) -> None:
    unique = top(id="id")
    orders.run(unique, order("a"), order("x", 1, 600))
    orders.backfill_corrected(unique, {"0000": [order("x"), order("y", 1, 600)]})
    snapshot_before = orders.handle(unique).catalog.head().refs["main"]
    with pytest.raises(LimitExceededError, match="nothing was patched: ids of rows: 1 id has more than one row"):
        patch(orders, unique)
    assert orders.handle(unique).catalog.head().refs["main"] == snapshot_before


def test_a_patch_that_fails_its_own_audit_is_never_on_main(orders: Orders) -> None:
    least = hr.expect("table_row_count_to_be_between", min_value=2)
    audited_pipeline = rows(expectations=(least,))
    orders.run(audited_pipeline, order("a"), order("b"))
    orders.backfill_corrected(audited_pipeline, {"0000": [order("a", 2), order("b")]})
    snapshot_before = orders.handle(audited_pipeline).catalog.head().refs["main"]
    with pytest.raises(AuditFailedError, match="nothing was patched"):
        patch(orders, audited_pipeline)
    assert orders.handle(audited_pipeline).catalog.head().refs["main"] == snapshot_before
    orders.run(audited_pipeline, order("c"), order("d"))
    check(orders, audited_pipeline)


def test_rows_of_all_types_are_given_and_withdrawn_as_they_are(orders: Orders) -> None:
    tags = hr.ListType(hr.DataType.STRING)
    schema: dict[str, Any] = {"id": str, "tags": tags, "price": int, "ratio": float, "at": datetime}
    source = hr.json("landing/orders", schema).event_time("at", bound="1h")
    price, time_column = col("price"), col("at")
    columns: dict[str, Any] = {
        "id": col("id"),
        "tags": col("tags"),
        "ratio": col("ratio"),
        "day": time_column.date(),
        "at": time_column,
    }
    columns |= {"exact": price.cast(Decimal) / 3, "hash": col("id").sha256(), "dear": price > 2}
    pipeline = hr.Pipeline("orders", source, rows=columns, executor="local")
    kept_record = order("kept", 3, tags=["x", None, ""], ratio=0.5)
    nothing = dict.fromkeys(("tags", "ratio", "price"))
    gone_records = [order("gone", 1, tags=[], ratio=-0.0), {**order("gone"), **nothing}]
    orders.run(pipeline, kept_record, *gone_records, *gone_records)
    orders.run(pipeline, order("end", 1, 100, tags=None, ratio=1e300))
    comes = [order("comes", 7, tags=["y"], ratio=0.0), {**order("comes", 1, 3), **nothing}]
    orders.backfill_corrected(pipeline, {"0000": [kept_record, gone_records[0], gone_records[1], *comes]})
    patch(orders, pipeline)
    table, expected_table = (
        orders.handle(pipeline).current(columns=[*columns], at=ref).to_arrow() for ref in ("main", "fix")
    )
    assert table.schema == expected_table.schema
    assert sorted(map(str, table.to_pylist())) == sorted(map(str, expected_table.to_pylist()))
    assert table.num_rows == 6


def test_what_a_mended_function_gives_stands_in_place_of_what_it_gave(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    def doubling(wrong: int) -> None:
        code = f"import pyarrow.compute as pc\n\ndef twice(batch):\n    prices = pc.multiply(batch['price'], {wrong})\n"
        code += "    return batch.set_column(batch.schema.get_field_index('price'), 'price', prices)\n"
        (orders.folder / "mended.py").write_text(code)
        shutil.rmtree(orders.folder / "__pycache__", ignore_errors=True)  # of a file with this length and second
        sys.modules.pop("mended", None)
        importlib.invalidate_caches()

    monkeypatch.syspath_prepend(orders.folder)
    doubling(30)

    def build_orders() -> hr.Pipeline:
        function = hr.BatchFunction("mended:twice", SCHEMA, deterministic=True)
        source = hr.json("landing/orders", SCHEMA, transform=function).event_time("at", bound="1h")
        return hr.Pipeline("orders", source, rows=["id", "price"], executor="local")

    orders.run(build_orders(), order("a"), order("b", 2, 5))
    orders.run(build_orders(), order("c", 3, 1500))
    doubling(2)
    orders.handle(build_orders()).backfill(start="2026-05-02", branch="fix")
    patch(orders, build_orders())
    assert standing_rows(orders, build_orders()) == [("a", 30), ("b", 60), ("c", 6)]
    orders.handle(build_orders()).backfill(patch=True)
    assert standing_rows(orders, build_orders()) == [("a", 2), ("b", 4), ("c", 6)]
    orders.run(build_orders(), order("d", 4, 10))
    assert standing_rows(orders, build_orders()) == [("a", 2), ("b", 4), ("c", 6), ("d", 8)]
    check(orders, build_orders())


def test_rows_of_another_pipelines_rows_are_replaced_once_both_have_read_as_far(orders: Orders) -> None:
    pipeline_above = signed_rows()
    read = hr.published("orders", {"id": str, "double": int})
    pipeline_below = hr.Pipeline("below", read, rows=["id", "double"], executor="local")
    orders.run(pipeline_above, order("a", sign=1), order("b", sign=1))
    orders.run(pipeline_below)
    orders.run(pipeline_above, order("a", sign=-1), order("c", sign=1))
    orders.handle(pipeline_below).backfill(branch="fix")
    check_refusal(orders, pipeline_below, BranchAheadError, "beside, input source")
    orders.run(pipeline_below)
    assert patch(orders, pipeline_below).epochs == (), "both are the same"
    orders.run(pipeline_above, order("b", sign=-1))
    orders.run(pipeline_below)
    assert orders.current(pipeline_below) == Counter({("c", 2, minute(0)): 1})


def late_for_main(folder: Path, pipeline: hr.Pipeline) -> Any:
    """A rate came too late for main; a backfill in one epoch, branch ``fix``, has it."""
    trades = Trades(folder)
    trades.run(pipeline, trades=[trade("a", 5), trade("b", 20)], rates=[rate(0, 1)])
    trades.run(pipeline, trades=[trade("end", 300)], rates=[rate(300, 7)])
    trades.run(pipeline, rates=[rate(10, 2)])
    handle = trades.handle(pipeline)
    handle.backfill(branch="fix")
    return handle


def test_rows_of_groups_behind_a_join_are_patched(tmp_path: Path) -> None:
    groups = rated_pipeline(as_of(), rows=["id", "rate"], key="ccy", take=hr.top(1, by="rate"), **HOUR)
    handle = late_for_main(tmp_path, groups)
    assert handle.promote("fix", patch=True, dry_run=True).left == {}
    handle.promote("fix", patch=True)
    standing = handle.current(columns=["id", "rate"]).to_json()
    assert sorted((record["id"], record["rate"]) for record in standing) == [("b", 2), ("end", 7)]


def test_rows_of_a_pipeline_that_is_behind_what_it_was_are_replaced_too(orders: Orders) -> None:
    """Once it has gone back, a branch never hears how far it had come; both have consumed the same of it."""
    pipeline_above = signed_rows()
    read = hr.published("orders", {"id": str, "double": int})
    pipeline_below = hr.Pipeline("below", read, rows=["id", "double"], executor="local")
    orders.run(pipeline_above, order("a", sign=1))
    orders.handle(pipeline_above).tag("first")
    orders.run(pipeline_above, order("b", minute=600, sign=1))
    orders.run(pipeline_below)
    orders.handle(pipeline_above).rollback(to="first", message="a wrong file")
    orders.run(pipeline_below)
    orders.handle(pipeline_below).backfill(branch="fix")
    assert patch(orders, pipeline_below).epochs == (), "both are the same"
    check(orders, pipeline_below)
