"""Rows that leave as they are: what readers see of them, run by run."""

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace import col
from headrace.audit.limits import check_limits
from headrace.audit.range import unpublished_ranges
from headrace.audit.store import AuditFailedError, LimitExceededError
from headrace.errors import PipelineError
from headrace.pipeline.identity import fingerprint
from headrace.read.diff.target_comparison import ComparedColumnsError
from headrace.read.open_windows import StateDefinitionError
from headrace.read.upstream import UpstreamPanesError
from headrace.runs.restore import ChangedPipelineError
from headrace_snapshots.names import MAIN
from tests.rows.orders import CHANGES, COLUMNS, ORDERS, Orders, minute, order, rows, signed_rows


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return Orders(tmp_path)


def test_each_record_is_a_row(orders: Orders) -> None:
    orders.run(rows(), order("a", 3), order("b", 4, 5), order("a", 3))
    expected = {("a", "ONE", 6, minute(0)): 2, ("b", "ONE", 8, minute(5)): 1}
    assert orders.current(rows()) == Counter(expected)


def test_what_the_filter_removes_leaves_no_row_and_moves_the_watermark(orders: Orders) -> None:
    orders.run(rows(filter=col("price") > 3), order("a", 1, 300), order("b", 4))
    assert orders.current(rows()) == Counter({("b", "ONE", 8, minute(0)): 1})
    assert orders.handle(rows()).snapshots().to_json()[-1]["watermark"] == "2026-05-01T04:00:00Z"


def test_a_row_behind_the_watermark_leaves_and_is_late(orders: Orders) -> None:
    orders.run(rows(), order("a", minute=300))
    orders.run(rows(), order("late", minute=10), order("on time", minute=250))
    panes = orders.handle(rows()).panes(where="epoch = 1", columns=["id", "timing"]).to_json()
    assert panes == [{"id": "late", "timing": "LATE"}, {"id": "on time", "timing": "ON_TIME"}]
    assert orders.handle(rows()).late().count() == 0


def test_a_record_that_cannot_give_a_column_is_a_dead_letter(orders: Orders) -> None:
    orders.run(rows(), order("a", 2**62), order("b", 1), order("c", None))
    assert orders.current(rows()) == Counter({("b", "ONE", 2, minute(0)): 1, ("c", "ONE", None, minute(0)): 1})
    (letter,) = orders.handle(rows()).rejected().to_json()
    assert letter["reason"] == "column double: (price * 2) leaves 64 bits"


def test_a_filtered_record_is_no_dead_letter_for_a_column(orders: Orders) -> None:
    orders.run(rows(filter=col("price") < 10), order("a", 2**62), order("b", 1))
    assert orders.handle(rows()).rejected().count() == 0


def test_duplicates_are_told_first(orders: Orders) -> None:
    distinct_pipeline = rows(deduplicate=hr.Deduplicate("id", "1h"))
    orders.run(distinct_pipeline, order("a"), order("a", 2), order("b", minute=400))
    orders.run(distinct_pipeline, order("b", minute=401), order("old", minute=1))
    assert orders.current(distinct_pipeline) == Counter(
        {("a", "ONE", 2, minute(0)): 1, ("b", "ONE", 2, minute(400)): 1}
    )
    (late,) = orders.handle(distinct_pipeline).late().to_json()
    assert (late["reason"], late["window_start"], late["event_time"]) == (
        "id beyond its horizon",
        None,
        "2026-05-01T00:01:00Z",
    )


def test_rows_stand_as_often_as_they_came_more_often_than_they_went(orders: Orders) -> None:
    orders.run(signed_rows(), order("a", sign=1), order("a", sign=1), order("b", sign=1), order("owed", sign=-1))
    orders.run(signed_rows(), order("a", sign=-1), order("b", sign=-1), order("owed", sign=1))
    assert orders.current(signed_rows()) == Counter({("a", "ONE", 2, minute(0)): 1})
    assert orders.handle(signed_rows()).current().count() == 1
    assert orders.handle(signed_rows()).panes().count() == 7


@pytest.mark.parametrize("pipeline", [rows(), signed_rows()], ids=["appended", "signed"])
def test_many_epochs_are_folded_and_stand_the_same(orders: Orders, pipeline: hr.Pipeline) -> None:
    expected: Counter[tuple[Any, ...]] = Counter()
    for number in range(40):
        sign = -1 if pipeline.withdraws_records and number % 3 == 2 else 1
        records = [order(f"{number % 7}", 1, one, sign=sign) for one in range(3)]
        for record, time in zip(records, range(3), strict=True):
            expected[record["id"], "ONE", 2, minute(time)] += sign
        orders.run(pipeline, *records)
    assert orders.current(pipeline) == +expected
    head = orders.handle(pipeline).catalog.head().refs["main"]
    assert len(orders.handle(pipeline).catalog.manifest(head).tables["current"]) < 20
    assert orders.handle(pipeline).panes().count() == 120


def test_files_without_rows_of_a_time_are_not_read(orders: Orders) -> None:
    for number in range(4):
        orders.run(rows(), order(str(number), minute=60 * number))
    view = orders.handle(rows()).current(where="event_time >= '2026-05-01T02:30:00Z'")
    assert [row["id"] for row in view.to_json()] == ["3"]
    for file in orders.handle(rows()).panes().files()[:3]:
        Path(file).write_bytes(b"damaged")
    assert [row["id"] for row in view.to_json()] == ["3"]


def test_an_epoch_without_rows_stores_no_file(orders: Orders) -> None:
    orders.run(rows(), order("a", minute=10))
    orders.run(rows(filter=None), order("b", minute=2, at=None))
    main = orders.handle(rows()).catalog
    manifest = main.manifest(main.head().refs["main"])
    assert (manifest.counts["rejected"], manifest.counts["panes"], manifest.counts["state_rows"]) == (1, 0, 0)
    assert {*manifest.tables} == {"current"}


def test_a_list_is_a_column(orders: Orders) -> None:
    tags = hr.ListType(hr.DataType.STRING)
    source = hr.json("landing/orders", {"id": str, "tags": tags, "at": datetime}).event_time("at", bound="1h")
    pipeline = hr.Pipeline("tagged", source, rows=["id", "tags"], executor="local")
    orders.run(pipeline, order("a", tags=["x", None]), order("b", tags=None))
    assert [row["tags"] for row in orders.handle(pipeline).current().to_json()] == [["x", None], None]


def test_rows_beside_aggregations_below_them_and_above(orders: Orders) -> None:
    hourly = hr.Output(key="shop", what={"n": hr.count()}, where=hr.FixedWindows("1h"), when=hr.on_update())
    counted_output = hr.Output(
        of="paid", key="shop", what={"n": hr.count()}, where=hr.FixedWindows("1h"), when=hr.on_update()
    )
    outputs: dict[str, Any] = {
        "paid": hr.Rows(["id", "shop", "price"], filter=col("price") > 1),
        "hourly": hourly,
        "counted": counted_output,
        "dear": hr.Rows(["id", "event_time"], of="paid", filter=col("price") > 2),
        "changes": hr.Rows({"shop": col("shop"), "n": col("n"), "at": col("window_start")}, of="hourly"),
    }
    pipeline = hr.Pipeline("orders", ORDERS, outputs=outputs, executor="local")
    orders.run(pipeline, order("a", 1), order("b", 2, 5), order("c", 3, 70))
    assert orders.current(pipeline, "paid") == Counter({("b", "one", 2, minute(5)): 1, ("c", "one", 3, minute(70)): 1})
    assert orders.current(pipeline, "dear") == Counter({("c", minute(70)): 1})
    reader = orders.handle(pipeline)
    counts = [(row["window_start"], row["n"]) for row in reader["counted"].current().to_json()]
    assert counts == [("2026-05-01T00:00:00Z", 1), ("2026-05-01T01:00:00Z", 1)]
    orders.run(pipeline, order("d", 9, 6))
    last = minute(60).replace(minute=59, hour=0, second=59, microsecond=999_999)
    changes = orders.current(pipeline, "changes")
    assert changes[("one", 2, minute(0), last)] == 0
    assert changes[("one", 3, minute(0), last)] == 1


def test_another_pipeline_reads_rows_and_goes_back_with_them(orders: Orders) -> None:
    pipeline_above = signed_rows()
    read = hr.published("orders", {"id": str, "double": int})
    pipeline_below = hr.Pipeline(
        "below",
        read,
        key="id",
        what={"total": col("double").sum(), "n": hr.count()},
        where=hr.FixedWindows("1h"),
        when=hr.on_update(),
        how=hr.retracting("2d"),
        executor="local",
    )

    def totals() -> dict[str, tuple[int, int]]:
        handle = orders.handle(pipeline_below)
        handle.run()
        return {row["id"]: (row["total"], row["n"]) for row in handle.current().to_json()}

    orders.run(pipeline_above, order("a", 5, sign=1), order("a", 5, sign=1), order("b", 7, sign=1))
    assert totals() == {"a": (20, 2), "b": (14, 1)}
    first = orders.handle(pipeline_above).catalog.head().refs["published"]
    orders.run(pipeline_above, order("a", 5, sign=-1), order("c", 1, sign=1))
    assert totals() == {"a": (10, 1), "b": (14, 1), "c": (2, 1)}
    orders.handle(pipeline_above).rollback(to=first)
    assert totals() == {"a": (20, 2), "b": (14, 1)}


def reader(*columns: str, **schema: Any) -> hr.Pipeline:
    """A pipeline that gives the rows that it reads, in ``columns``."""
    return hr.Pipeline("below", hr.published("orders", schema), rows=[*columns], executor="local")


def test_a_reader_that_begins_while_a_withdrawal_is_owed_owes_it_too(orders: Orders) -> None:
    reader_below = reader("id", "double", id=str, double=int)
    orders.run(signed_rows(), order("a", sign=1), order("owed", sign=-1), order("owed", sign=-1))
    orders.run(reader_below)
    assert orders.current(reader_below) == Counter({("a", 2, minute(0)): 1})
    orders.run(signed_rows(), order("owed", sign=1), order("owed", sign=1), order("owed", sign=1))
    orders.run(reader_below)
    assert orders.current(reader_below) == Counter({("a", 2, minute(0)): 1, ("owed", 2, minute(0)): 1})


def test_what_is_owed_is_owed_by_the_promoted_rows_alone(orders: Orders) -> None:
    reader_below = reader("id", "double", id=str, double=int)
    orders.run(signed_rows(), order("a", sign=1), order("owed", sign=-1))
    orders.run(reader_below)
    changed_pipeline = signed_rows(rows={**COLUMNS, "double": col("price") * 3})
    orders.handle(changed_pipeline).backfill(promote=True)
    orders.run(reader_below)
    assert orders.current(reader_below) == Counter({("a", 3, minute(0)): 1})
    orders.run(changed_pipeline, order("owed", sign=1))
    orders.run(reader_below)
    assert orders.current(reader_below) == Counter({("a", 3, minute(0)): 1})
    owed = orders.handle(reader_below).panes(where="id = 'owed'", columns=["double", "is_retraction"]).to_json()
    assert Counter((row["double"], row["is_retraction"]) for row in owed) == Counter(
        {(2, True): 1, (2, False): 1, (3, True): 1, (3, False): 1}
    )


def test_a_column_of_a_row_is_read_before_its_event_time_is_by_that_name(orders: Orders) -> None:
    hourly = hr.Output(key="shop", what={"n": hr.count()}, where=hr.FixedWindows("1h"), when=hr.on_update(),
                       how=hr.retracting())  # fmt: skip
    outputs = {"hourly": hourly, "r": hr.Rows(["n", "window_start"], of="hourly")}
    pipeline_above = hr.Pipeline("orders", ORDERS, outputs=outputs, executor="local")
    read = hr.published("orders.r", {"n": int, "window_start": datetime})
    pipeline_below = hr.Pipeline("below", read, rows=["n", "window_start", "window_end"], executor="local")
    for records in ([order("a", 1, 10), order("b", 1, 70)], [order("a", 1, 11), order("c", 1, 130)]):
        orders.run(pipeline_above, *records)
        orders.run(pipeline_below)
        last = [minute(60 * hour) - timedelta(microseconds=1) for hour in (1, 2, 3)]
        expected = {
            (n, start, event_time, event_time)
            for (n, start, event_time) in orders.current(pipeline_above, "r")
            if event_time in last
        }
        assert {*orders.current(pipeline_below)} == expected


@pytest.mark.parametrize("column", ["event_time", "pane_time", "window_start", "window_end"])
def test_the_event_time_of_a_row_has_many_names_for_its_reader(orders: Orders, column: str) -> None:
    pipeline_below = hr.Pipeline("below", hr.published("orders", {"id": str, column: datetime}),
                        rows={"id": col("id"), "then": col(column)}, executor="local")  # fmt: skip
    changed_pipeline = rows(rows={**COLUMNS, "id": col("id").upper()})
    for pipeline_above, records in (
        (rows(), [order("a", 1, 10)]),
        (rows(), [order("b", 1, 3000)]),
        (changed_pipeline, []),
    ):
        if records:
            orders.run(pipeline_above, *records)
        else:
            orders.handle(pipeline_above).backfill(promote=True)
        orders.run(pipeline_below)
        expected = Counter(
            {(row[0], row[-1], row[-1]): number for row, number in orders.current(pipeline_above).items()}
        )
        assert orders.current(pipeline_below) == expected


def test_a_pipeline_is_the_schema_of_its_rows(orders: Orders) -> None:
    columns = {"id": col("id"), "then": col("event_time")}
    pipeline_below = hr.Pipeline("below", hr.published("orders", rows()), rows=columns, executor="local")
    for number in range(2):
        orders.run(rows(), order("a", 1, number))
        orders.run(pipeline_below)
    assert orders.current(pipeline_below) == Counter({("a", minute(0), minute(0)): 1, ("a", minute(1), minute(1)): 1})


def test_where_rows_came_can_be_read_if_they_stay(orders: Orders) -> None:
    columns = {"id": col("id"), "when": col("timing"), "place": col("epoch") * 10 + col("sequence")}
    reader_below = replace(reader("id", id=str, timing=str, epoch=int, sequence=int), rows=columns)
    for records in ([order("a", 1, 300)], [order("b"), order("c", 1, 300)]):
        orders.run(rows(), *records)
        orders.run(reader_below)
    assert {row[:3] for row in orders.current(reader_below)} == {
        ("a", "ON_TIME", 0),
        ("b", "LATE", 10),
        ("c", "ON_TIME", 11),
    }


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"pane_time": col("at")}, "readers know the event time of rows by that name: name it otherwise there"),
        ({"window_end": col("id")}, "has a column window_end of its own as string, and for readers it is a timestamp"),
    ],
)
def test_a_column_whose_name_means_something_else_is_not_read(
    orders: Orders, columns: dict[str, Any], message: str
) -> None:
    orders.run(rows(rows={"id": col("id"), **columns}), order("a"))
    with pytest.raises(UpstreamPanesError, match=message):
        orders.run(reader("id", id=str))


@pytest.mark.parametrize(("column", "kind"), [("timing", str), ("epoch", int), ("sequence", int)])
def test_how_rows_came_that_can_be_withdrawn_is_not_read(orders: Orders, column: str, kind: type) -> None:
    orders.run(signed_rows(), order("a", sign=1))
    with pytest.raises(UpstreamPanesError, match=f"by {column} what it withdraws would still count. Leave it out"):
        orders.run(reader("id", id=str, **{column: kind}))


def test_a_replay_a_batch_and_other_cuts_stand_the_same(orders: Orders) -> None:
    for number in range(3):
        orders.run(rows(), order("a", number, number), order("b", 1))
    first_rows = orders.current(rows())
    orders.handle(rows()).run(mode="replay", branch="again")
    assert orders.current(rows(), at="again") == first_rows
    orders.handle(rows()).run(mode="batch", branch="whole")
    assert orders.current(rows(), at="whole") == first_rows
    assert orders.handle(rows()).diff("main", "whole").output.rows.differing == 0


def test_a_backfill_of_changed_rows_is_promoted(orders: Orders) -> None:
    orders.run(rows(), order("a", 1), order("b", 2))
    changed_pipeline = rows(rows={**COLUMNS, "double": col("price") * 3})
    assert "headrace run refuses" in str(orders.handle(changed_pipeline).plan())
    orders.handle(changed_pipeline).backfill(promote=True)
    assert orders.current(changed_pipeline) == Counter({("a", "ONE", 3, minute(0)): 1, ("b", "ONE", 6, minute(0)): 1})


def test_a_range_of_event_time_is_computed_again(orders: Orders) -> None:
    orders.run(rows(), order("a", 1), order("b", 2, 3000))
    orders.land("0000", order("a", 5))
    orders.handle(rows()).backfill(start="2026-05-01", end="2026-05-02", branch="fix")
    assert orders.current(rows(), at="fix")[("a", "ONE", 10, minute(0))] == 1


def test_columns_come_and_go(orders: Orders) -> None:
    orders.run(rows(), order("a", 1))
    fewer = rows(rows={"id": col("id"), "price": col("price")})
    handle = orders.handle(fewer)
    orders.land("0001", order("b", 2))
    handle.run(allow_new_aggregates=True)
    assert orders.current(fewer) == Counter({("a", None, minute(0)): 1, ("b", 2, minute(0)): 1})
    renamed_pipeline = rows(rows={"order": col("id"), "price": col("price")}, renamed={"id": "order"})
    orders.run(renamed_pipeline, order("c", 3))
    assert {row[0] for row in orders.current(renamed_pipeline)} == {"a", "b", "c"}


def test_a_new_column_of_rows_that_can_be_withdrawn_is_a_replay(orders: Orders) -> None:
    orders.run(signed_rows(), order("a", 1, sign=1))
    more = signed_rows(rows={**COLUMNS, "price": col("price")})
    assert "rows that stand without it may be withdrawn" in str(orders.handle(more).plan())


def test_a_plan_of_rows_says_rows(orders: Orders) -> None:
    assert "\nrows: begin\n" in str(orders.handle(rows()).plan())
    orders.run(rows(), order("a", 1))
    assert "\nrows: keep\n" in str(orders.handle(rows()).plan())
    more = str(orders.handle(rows(rows={**COLUMNS, "price": col("price")})).plan())
    assert "\n  rows: column 'price' is new\nrows: migrate (column 'price' is new)\n" in more
    assert "for column 'price' of rows: (a) `headrace run orders --allow-new-aggregates`: rows that stand have" in more
    with pytest.raises(ChangedPipelineError, match=r"filter is new \(rows\)") as error:
        orders.run(rows(filter=col("price") > 1))
    assert "aggregation" not in f"{more} {error.value}"


def test_ids_that_rows_share_hold_a_run_back(orders: Orders) -> None:
    pipeline_with_id = rows(id="id")
    orders.run(pipeline_with_id, order("a", 1), order("b", 1))
    with pytest.raises(LimitExceededError, match="1 id has more than one row; the limit is one row for each id"):
        orders.run(pipeline_with_id, order("a", 2))
    assert orders.current(pipeline_with_id) == Counter({("a", "ONE", 2, minute(0)): 1, ("b", "ONE", 2, minute(0)): 1})


RENAMED_ROWS = rows(rows={"order": col("id"), "double": col("price") * 2}, renamed={"id": "order"}, id="order")


@pytest.mark.parametrize("more", [[], [order("b")]], ids=["nothing new", "another epoch"])
def test_an_id_that_is_renamed_holds_back_what_was_held_back(orders: Orders, more: list[dict[str, Any]]) -> None:
    pipeline_with_id = rows(id="id")
    orders.run(pipeline_with_id, order("a", 1))
    with pytest.raises(LimitExceededError, match="1 id has more than one row"):
        orders.run(pipeline_with_id, order("a", 2))
    with pytest.raises(LimitExceededError, match="1 id has more than one row; the limit is one row for each order"):
        orders.run(RENAMED_ROWS, *more)
    assert orders.handle(RENAMED_ROWS).current().count() == 1


def test_a_renamed_id_is_found_where_it_stands(orders: Orders) -> None:
    orders.run(rows(id="id"), order("a", 1))
    orders.run(RENAMED_ROWS, order("b", 1))
    with pytest.raises(LimitExceededError, match="1 id has more than one row"):
        orders.run(RENAMED_ROWS, order("a", 2))


def test_of_a_new_id_rows_that_stand_have_none(orders: Orders) -> None:
    orders.run(rows(rows={"double": col("price") * 2}), order("a", 1), publish=False)
    pipeline_with_id = rows(id="id")
    orders.run(pipeline_with_id, order("b", 1), allow_new_aggregates=True)
    assert {row[0] for row in orders.current(pipeline_with_id)} == {None, "b"}
    with pytest.raises(LimitExceededError, match="1 id has more than one row"):
        orders.run(pipeline_with_id, order(None, 1))


def test_a_definition_that_cannot_go_on_changes_nothing_of_what_is_held_back(orders: Orders) -> None:
    pipeline_with_id = rows(id="id")
    orders.run(pipeline_with_id, order("a", 1))
    with pytest.raises(LimitExceededError):
        orders.run(pipeline_with_id, order("a", 2))
    catalog, changed_pipeline = (
        orders.handle(pipeline_with_id).catalog,
        rows(id="shop", rows={**COLUMNS, "shop": col("shop")}),
    )
    for pipeline in (
        pipeline_with_id,
        changed_pipeline,
    ):  # the second as Airflow looks at it, where a file was changed meanwhile
        findings = check_limits(pipeline, catalog, MAIN, unpublished_ranges(catalog, MAIN, [""]), datetime.now)
        assert [finding.verdict_line() for finding in findings[""]] == [
            "FAILED: ids of rows: 1 id has more than one row; the limit is one row for each id"
        ]


def release_shared(orders: Orders, pipeline: hr.Pipeline) -> int:
    """Readers see two rows with the id "a", the second since a person released it: by the log entry that is given."""
    orders.run(pipeline, order("a", 1, sign=1))
    with pytest.raises(LimitExceededError):
        orders.run(pipeline, order("a", 2, sign=1))
    orders.handle(pipeline).release("main", message="ada: it was sold again")
    return orders.handle(pipeline).catalog.head().entry


@pytest.mark.parametrize("known_ids", [rows(id="id"), signed_rows(id="id")], ids=["appended", "signed"])
def test_ids_that_were_released_are_shared_again_by_the_same_rows(orders: Orders, known_ids: hr.Pipeline) -> None:
    entry = release_shared(orders, known_ids)
    orders.run(known_ids, order("b", 1, sign=1))
    result = orders.handle(known_ids).backfill(branch="again")
    orders.handle(known_ids).promote("again")
    shared_ids = f"ids of rows: 0 ids have more than one row (without the ids that log entry {entry} released)"
    assert shared_ids in result.warnings
    assert orders.current(known_ids).total() == 3


def test_ids_that_were_released_are_shared_again_after_a_recovery(orders: Orders) -> None:
    outputs: dict[str, Any] = {"all": hr.Rows(COLUMNS, id="id"), "dear": hr.Rows(["id"], filter=col("price") > 2)}
    pipeline_with_id = hr.Pipeline("orders", ORDERS, outputs=outputs, executor="local")
    orders.run(pipeline_with_id, order("a", 1))
    good = orders.handle(pipeline_with_id).catalog.head().refs["main"]
    with pytest.raises(LimitExceededError):
        orders.run(pipeline_with_id, order("a", 3))
    orders.handle(pipeline_with_id).release("main", message="ada: it was sold again", output="all")
    orders.handle(pipeline_with_id).recover(good)
    assert orders.current(pipeline_with_id, "all") == Counter(
        {("a", "ONE", 2, minute(0)): 1, ("a", "ONE", 6, minute(0)): 1}
    )


@pytest.mark.parametrize("new", [order("a", 3), order("a", 2), order("c")], ids=["other", "a copy", "another id"])
def test_a_release_of_ids_is_of_its_rows_alone(orders: Orders, new: dict[str, Any]) -> None:
    pipeline_with_id = rows(id="id")
    release_shared(orders, pipeline_with_id)
    orders.run(pipeline_with_id, order("c", 1))
    with pytest.raises(LimitExceededError, match="1 id has more than one row"):
        orders.run(pipeline_with_id, new)
    with pytest.raises(LimitExceededError, match="1 id has more than one row"):
        orders.handle(pipeline_with_id).backfill(promote=True)
    assert orders.current(pipeline_with_id).total() == 3


def test_ids_that_nobody_was_asked_about_are_not_released_with_others(orders: Orders) -> None:
    orders.run(rows(), order("old", 1), order("old", 2))
    pipeline_with_id = rows(id="id")
    release_shared(orders, pipeline_with_id)
    with pytest.raises(LimitExceededError, match=r"1 id has more than one row \(without the ids that log entry"):
        orders.handle(pipeline_with_id).backfill(promote=True)


def test_a_release_of_rows_is_none_of_another_id(orders: Orders) -> None:
    release_shared(orders, rows(id="id"))
    with pytest.raises(LimitExceededError, match="the limit is one row for each shop"):
        orders.handle(rows(id="shop")).backfill(promote=True)


def test_a_release_of_ids_whose_rows_are_lost_asks_again(orders: Orders) -> None:
    pipeline_with_id = rows(id="id")
    release_shared(orders, pipeline_with_id)
    catalog = orders.handle(pipeline_with_id).catalog
    first, *_ = catalog.file_records(catalog.manifest(catalog.head().refs["published"]).logs["panes"])
    for file in first.files:
        (orders.folder / file.path).unlink()
    with pytest.raises(LimitExceededError, match="1 id has more than one row"):
        orders.handle(pipeline_with_id).backfill(promote=True)


def test_an_id_that_is_withdrawn_and_comes_again_is_of_one_row(orders: Orders) -> None:
    pipeline_with_id = signed_rows(id="id")
    orders.run(pipeline_with_id, order("a", 1, sign=1))
    orders.run(pipeline_with_id, order("a", 1, sign=-1), order("a", 2, sign=1))
    assert orders.current(pipeline_with_id) == Counter({("a", "ONE", 4, minute(0)): 1})


@pytest.mark.parametrize("ids", ["event_time", ["id", "event_time"]])
def test_the_event_time_may_be_an_id(orders: Orders, ids: Any) -> None:
    source = hr.json("landing/orders", {"id": str, "event_time": datetime}).event_time("event_time", bound="1h")
    pipeline_with_id = hr.Pipeline("orders", source, rows=["id", "event_time"], id=ids, executor="local")
    first, second = (order("a", event_time=f"2026-05-01T00:0{minute}:00Z") for minute in range(2))
    orders.run(pipeline_with_id, first, second)
    with pytest.raises(LimitExceededError, match="1 id has more than one row"):
        orders.run(pipeline_with_id, second)
    assert orders.handle(pipeline_with_id).current().count() == 2


def test_a_tolerance_needs_an_id(orders: Orders, tmp_path: Path) -> None:
    floats = {"id": col("id"), "third": col("price").cast(float) / 3.0}
    file = tmp_path / "theirs.parquet"
    orders.run(rows(rows=floats), order("a", 1), order("b", None))
    theirs = orders.handle(rows(rows=floats)).current(columns=["id", "third", "event_time"]).to_arrow()
    nearly = pc.multiply(theirs.column("third"), 1 + 1e-12)
    pq.write_table(theirs.set_column(1, "third", nearly), file)
    target = f"parquet:{file}"
    with pytest.raises(ComparedColumnsError, match=r"rows without id= are compared as they are"):
        orders.handle(rows(rows=floats)).compare_with(target, tolerance=1e-9)
    assert orders.handle(rows(rows=floats)).compare_with(target).only_theirs == 1
    assert orders.handle(rows(rows=floats)).compare_with(target, without=["third"]).is_equal
    pipeline_with_id = rows(rows=floats, id="id")
    orders.run(pipeline_with_id, order("c", None, at=None))
    assert orders.handle(pipeline_with_id).compare_with(target, tolerance=1e-9).is_equal


def test_names_and_expressions_stand_side_by_side() -> None:
    doubled_price = col("price") * 2
    definition = rows(rows=["id", {"double": doubled_price, "at": col("at")}, col("shop")])
    assert [*definition.rows] == ["id", "double", "at", "shop"]
    written_pipeline = rows(rows={"id": col("id"), "double": doubled_price, "at": col("at"), "shop": col("shop")})
    assert fingerprint(definition) == fingerprint(written_pipeline)
    of_groups = hr.Rows(["id", {"double": doubled_price}], key=["shop", {"hour": col("at").hour()}], take=hr.newest())
    assert [*of_groups.key] == ["shop", "hour"]
    assert [*of_groups.first.rows] == ["shop", "hour", "id", "double"]


def test_expectations_are_of_rows(orders: Orders) -> None:
    expected = hr.expect("expect_column_values_to_be_between", column="double", min_value=0)
    held_pipeline = rows(expectations=[expected])
    orders.run(held_pipeline, order("a", 1))
    with pytest.raises(AuditFailedError, match="double"):
        orders.run(held_pipeline, order("b", -1))
    assert orders.current(held_pipeline) == Counter({("a", "ONE", 2, minute(0)): 1})


def test_rows_have_no_windows_to_explain(orders: Orders) -> None:
    orders.run(rows(), order("a"))
    with pytest.raises(StateDefinitionError, match="gives rows as they are"):
        orders.handle(rows()).explain()
    with pytest.raises(StateDefinitionError, match="nothing is kept"):
        orders.handle(rows()).state()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rows": {}}, "write"),
        ({"rows": ["id", {}]}, r"rows={}.*write \{"),
        ({"rows": ["id", 3]}, r"write \[\"id\", \"shop\"\], \{.*\}, or \[\"id\", \{.*\}\]$"),
        ({"rows": ["id", {"id": col("price")}]}, "it names id twice"),
        ({"rows": ["id", col("price") * 2]}, r'an expression needs a name; write \{"price": \(col\("price"\) \* 2\)\}'),
        ({"rows": {"shop": "shop"}}, r"rows\['shop'\]='shop'.*write \[\"id\", \"shop\"\], \{"),
        ({"rows": ["id"], "key": "id"}, "rows= gives each record as a row"),
        ({"rows": ["id"], "what": {"n": hr.count()}}, "rows= gives each record as a row"),
        ({"rows": ["id"], "where": hr.FixedWindows("1h")}, "rows= gives each record as a row"),
        ({"rows": ["id"], "when": hr.on_update()}, "a row without a key leaves with its epoch"),
        ({"rows": ["nothing"]}, "there is no column 'nothing'"),
        ({"rows": {"_id": col("id")}}, "names that start with _"),
        ({"rows": {"epoch": col("id")}}, "is a column of every row"),
        ({"rows": {"id": col("id"), "ID": col("id")}}, "differ only in case"),
        ({"rows": {"event_time": col("id")}}, "every row has its event time under this name"),
        ({"rows": {"no": hr.lit(None)}}, "is always NULL"),
        ({"rows": ["id"], "id": "shop"}, "there is no column 'shop'; rows have id"),
        ({"rows": ["id"], "id": {"id": col("shop")}}, "it names columns of rows"),
        ({"rows": ["id"], "id": col("price") * 2}, "it names columns of rows"),
        ({"rows": ["id"], "id": ["id", {"shop": col("shop")}]}, "it names columns of rows"),
        ({"rows": ["id"], "id": col("shop")}, "there is no column 'shop'; rows have id"),
        ({"rows": ["id"], "sinks": [hr.final_rows("mail:send")]}, "one that comes again is known by its id"),
        (
            {"key": "id", "what": {"n": hr.count()}, "where": hr.FixedWindows("1h"), "id": "id"},
            "it names columns of rows",
        ),
    ],
)
def test_mistakes_say_what_to_write(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        hr.Pipeline("orders", ORDERS, **arguments)


def test_rows_that_can_be_withdrawn_are_never_final() -> None:
    with pytest.raises(PipelineError, match="these can be withdrawn at any time"):
        signed_rows(id="id", sinks=[hr.final_rows("mail:send")])


def test_a_withdrawal_by_time_of_arrival_is_refused() -> None:
    with pytest.raises(PipelineError, match="would have another event time"):
        hr.Pipeline("orders", CHANGES.source.arrival_time(), rows=["id"])


def test_the_event_time_may_be_named_as_a_column() -> None:
    source = hr.json("landing/orders", {"id": str, "event_time": datetime}).event_time("event_time", bound="1h")
    assert [*hr.Pipeline("orders", source, rows=["id", "event_time"]).value_types] == ["id"]


def test_a_list_that_is_computed_is_a_column(orders: Orders) -> None:
    pipeline = rows(rows={"parts": col("id").split("-"), "words": col("shop").split("n").slice(1)})
    orders.run(pipeline, order("a-b-c"), order("d"))
    found_rows = [(row["parts"], row["words"]) for row in orders.handle(pipeline).current().to_json()]
    assert found_rows == [(["a", "b", "c"], ["e"]), (["d"], ["e"])]


def test_own_columns_may_be_called_as_ends_of_windows(orders: Orders) -> None:
    named_pipeline = rows(rows={"id": col("id"), "window_start": col("shop"), "window_end": col("price")})
    orders.run(named_pipeline, order("a", 1, 60))
    found_rows = orders.handle(named_pipeline).current(
        where="event_time >= '2026-05-01T00:00:00Z'", columns=["id", "window_start"]
    )
    assert found_rows.to_json() == [{"id": "a", "window_start": "one"}]


LAST_TWO = hr.Output(
    of="rows",
    what={"n": hr.count()},
    where=hr.GlobalWindows(),
    when=hr.on_update(),
    how=hr.accumulating(keep_last=2),
)
HOURLY = hr.Output(key="shop", what={"n": hr.count()}, where=hr.FixedWindows("1h"), how=hr.discarding())


@pytest.mark.parametrize(
    "parts",
    [
        {"outputs": {"rows": hr.Rows(["id"]), "last": LAST_TWO}, "deduplicate": hr.Deduplicate("id", "1h")},
        {"outputs": {"hourly": HOURLY, "rows": hr.Rows(["n"], of="hourly"), "last": LAST_TWO}},
        {"outputs": {"rows": hr.Rows(key="id", take=hr.newest(), how=hr.discarding()), "last": LAST_TWO}},
    ],
    ids=["duplicates", "panes", "groups"],
)
def test_nothing_goes_by_an_order_that_rows_do_not_have(parts: dict[str, Any]) -> None:
    with pytest.raises(PipelineError, match="gives rows in no order"):
        hr.Pipeline("orders", ORDERS, **parts)


def test_rows_keep_the_order_of_records(orders: Orders) -> None:
    last = hr.Pipeline("orders", ORDERS, outputs={"rows": hr.Rows(["id"]), "last": LAST_TWO}, executor="local")
    orders.run(last, order("a"), order("b"), order("c"))
    assert orders.handle(last)["last"].current(columns=["n"]).to_json() == [{"n": 2}]


def test_columns_that_a_change_has_once_are_no_columns_of_rows() -> None:
    schema = {"id": str, "lsn": int, "at": datetime}
    changes = hr.json("landing/orders", schema, changelog=hr.debezium_envelope(shared=["lsn"]))
    given_input = changes.event_time("at", bound="1h")
    with pytest.raises(PipelineError, match="column lsn reads 'lsn', which the envelope of a change has for both rows"):
        hr.Pipeline("orders", given_input, rows=["id", "lsn"])
    with pytest.raises(PipelineError, match="what rows are taken by reads 'lsn'"):
        hr.Pipeline("orders", given_input, rows=["id"], key="id", take=hr.newest("lsn"))
    assert hr.Pipeline("orders", given_input, rows=["id"]).rows


def test_what_a_source_says_of_each_record_is_no_column_of_rows_that_can_be_withdrawn() -> None:
    schema = {"id": int, "sign": int, "at": datetime, "kafka_offset": int}
    for changelog in (None, col("sign")):
        topic = hr.kafka("orders", schema, connection="events", changelog=changelog).event_time("at", bound="1h")
        if changelog is None:
            assert hr.Pipeline("orders", topic, rows=["id", "kafka_offset"]).rows
            continue
        with pytest.raises(PipelineError, match="reads 'kafka_offset', which the source says of each record"):
            hr.Pipeline("orders", topic, rows=["id", "kafka_offset"])


def test_rows_of_panes_that_accumulate_are_refused() -> None:
    outputs = {
        "hourly": replace(HOURLY, when=hr.on_update(), how=hr.accumulating()),
        "rows": hr.Rows(["n"], of="hourly"),
    }
    with pytest.raises(PipelineError, match="rows of a pane and of its refinements would all stand"):
        hr.Pipeline("orders", ORDERS, outputs=outputs)


def test_an_output_beside_one_that_joins_gets_other_names_without_a_replay(orders: Orders) -> None:
    rates = hr.json("landing/rates", {"shop": str, "rate": int, "at": datetime}).event_time("at", bound="1h")
    joined_output = hr.Rows(["id", "rate"], join=[hr.as_of(rates.named("rates"), "shop", columns=["rate"], outer=True)])

    def orders_named(name: str, **parts: Any) -> hr.Pipeline:
        newest = hr.Rows({name: col("price")}, key="id", take=hr.newest(), **parts)
        return hr.Pipeline("orders", ORDERS, outputs={"newest": newest, "rated": joined_output}, executor="local")

    (orders.folder / "landing/rates").mkdir(parents=True)
    orders.run(orders_named("price"), order("a"))
    renamed_pipeline = orders_named("amount", renamed={"price": "amount"})
    orders.run(renamed_pipeline, order("b"))
    assert orders.current(renamed_pipeline, "newest") == Counter({("a", 1, minute(0)): 1, ("b", 1, minute(0)): 1})
