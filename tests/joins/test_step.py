"""The kernel's join over random histories against the reference, which keeps every row and forgets nothing.

Late rows, withdrawals, tombstones, ties, NULL keys, keys of one hash; any interval, any choice, any window; epochs cut
anywhere. After each epoch what left is the same multiset.
"""

import os
import random
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from types import GenericAlias
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.kernel.columns import as_numpy
from headrace.kernel.joins import step
from headrace.kernel.joins.merge import merge_side, newest_kept
from headrace.kernel.joins.sides import CompiledJoin, in_epoch
from headrace.kernel.joins.step import step_join
from headrace.model.changelog import SignedBy
from headrace.model.expressions.data_types import DataType, ListType, MapType, Schema, StructType
from headrace.model.expressions.expr import Column
from headrace.model.time import MIN_INSTANT, Instant
from headrace.pipeline.joins import Join
from headrace.program import columns as c
from headrace_lab.reference.contents import identity_key
from headrace_lab.reference.joins import JoinRun, Row
from headrace_lab.sizes import set_sizes

EXAMPLES = int(os.environ.get("HEADRACE_EXAMPLES", "125"))
BOTH_WITHDRAW_IN_A_WINDOW = 181
"""A seed whose join is ``same_window`` with withdrawals on either side: the first 125 have every other pair of those,
each kind of join with each of its options.
"""
LEFT: Schema = {"k": DataType.INT, "a": DataType.STRING}
RIGHT = {"k2": int, "v": str, "seq": int, "gone": bool, "at": datetime, "sign": int}


@dataclass(frozen=True)
class SideColumns:
    """What rows of both sides bring along: of the types ``left`` and ``right``, the least values first."""

    left: Any
    right: Any
    left_values: tuple[Any, ...]
    right_values: tuple[Any, ...]


TEXT = SideColumns(DataType.STRING, str, ("x", "y"), (None, "p", "q"))
LISTS = SideColumns(ListType(DataType.INT), list[str], (None, [1], [1, None]), (None, [], ["p"], ["p", "q"]))
MAPS = SideColumns(
    StructType((("n", ListType(DataType.INT)), ("m", MapType(DataType.INT)))),
    GenericAlias(dict, (str, {"v": float, "s": str})),
    (None, {"n": None, "m": None}, {"n": [1], "m": [("p", 1), ("q", None)]}, {"n": [1], "m": [("p", 2)]}),
    (None, [], [("p", None)], [("p", {"v": None, "s": None})], [("p", {"v": 0.0, "s": "a"}), ("q", None)]),
)
STRUCTS = SideColumns(
    MapType(ListType(DataType.STRING)),
    {"v": str, "n": {"x": int}},
    (None, [], [("a", None)], [("a", ["b"])]),
    (None, {"v": None, "n": None}, {"v": None, "n": {"x": None}}, {"v": "a", "n": {"x": 1}}),
)


def right_input(*, is_signed: bool, kind: Any = str) -> hr.Input:
    changelog = {"changelog": SignedBy(Column("sign"))} if is_signed else {}
    return hr.json("landing/right", {**RIGHT, "v": kind}, **changelog).event_time("at", bound="0s").named("right")


def any_join(rng: random.Random, right: hr.Input, *, looks_up: bool) -> Join:
    late = None if rng.random() < 0.1 else f"{rng.choice([0, 0, 2, 7])}s"
    outer = rng.random() < 0.5
    options: dict[str, Any] = {"columns": ["v"], "outer": outer, "lateness": late, "spread": rng.choice([1, 1, 3])}
    if looks_up:
        arriving = right.source.arrival_time().named("right")
        return hr.lookup(arriving, {"k": "k2"}, order="seq", deleted=hr.col("gone"), **options)
    match rng.randrange(5):
        case 0:
            begin = rng.randrange(-6, 5)
            return hr.within(right, {"k": "k2"}, between=(f"{begin}s", f"{begin + rng.randrange(6)}s"), **options)
        case 1:
            return hr.same_window(right, {"k": "k2"}, window=hr.FixedWindows(f"{rng.randrange(1, 8)}s"), **options)
        case 2:
            return hr.next_event(right, {"k": "k2"}, within=f"{rng.randrange(8)}s", order="seq", **options)
    age = None if rng.random() < 0.5 else f"{rng.randrange(10)}s"
    history = f"{rng.choice([0, 2, 6])}s" if age is None and right.source.changelog and rng.random() < 0.7 else None
    return hr.as_of(right, {"k": "k2"}, max_age=age, order="seq", deleted=hr.col("gone"), history=history, **options)


@dataclass
class File:
    rows: pa.RecordBatch

    @property
    def hashes(self) -> Any:
        return as_numpy(self.rows.column(c.HASH))


SECOND = 1_000_000


def left_batch(join: CompiledJoin, rows: list[Row]) -> pa.RecordBatch:
    taken_rows = [row for row in rows if join.join.outer or row.record["k"] is not None]
    return batch_of(join.left_schema, join.left_rows, taken_rows, dict(zip(LEFT, LEFT, strict=True)))


def right_batch(join: CompiledJoin, rows: list[Row]) -> pa.RecordBatch:
    taken_rows = [row for row in rows if row.record["k2"] is not None]
    names = {"_k0": "k2", "_c0": "v", "_order": "seq", "_deleted": "gone"}
    return batch_of(join.right_schema, join.right_rows, taken_rows, {name: names[name] for name in join.right_columns})


def batch_of(schema: pa.Schema, make_batch: Any, rows: list[Row], names: dict[str, str]) -> pa.RecordBatch:
    columns = {n: pa.array([row.record[kind] for row in rows], schema.field(n).type) for n, kind in names.items()}
    times = pa.array([int(row.timestamp) for row in rows], pa.int64())
    signs = pa.array([-1 if row.is_retraction else 1 for row in rows], pa.int64())
    return make_batch(times, columns, signs)


def draw_rows(
    rng: random.Random,
    number: int,
    middle_seconds: int,
    side: tuple[list[Row], list[Row]],
    make_record: Any,
    *,
    is_signed: bool,
) -> list[Row]:
    """Rows and withdrawals of a side, of which so many are there, and others have been withdrawn before they came."""
    (live, early_rows), rows = side, list[Row]()
    for _ in range(number):
        if is_signed and live and rng.random() < 0.3:
            withdrawn_row = live.pop(rng.randrange(len(live)))
            rows.append(Row(withdrawn_row.timestamp, withdrawn_row.record, True))
            continue
        if early_rows and rng.random() < 0.3:  # the row of a withdrawal that came before it
            rows.append(early_rows.pop())
            continue
        instant = Instant(max(0, middle_seconds + rng.randrange(-8, 5)) * SECOND)
        row = Row(instant, make_record())
        if is_signed and rng.random() < 0.1:
            rows.append(Row(instant, row.record, True))
            early_rows.append(row)
            continue
        rows.append(row)
        live.append(row)
        if rng.random() < 0.1:
            rows.append(row)
            live.append(row)
    rng.shuffle(rows)
    return rows


def play(seed: int, side_columns: SideColumns = TEXT) -> int:
    rng = random.Random(seed)
    looks_up = rng.random() < 0.2
    signed_left, signed_right = (not looks_up and rng.random() < 0.4 for _ in range(2))
    join = any_join(rng, right_input(is_signed=signed_right, kind=side_columns.right), looks_up=looks_up)
    left_kinds = {**LEFT, "a": side_columns.left}
    compiled_join = CompiledJoin(0, join, left_kinds, join.lateness, signed_left)
    reference = JoinRun(join, left_kinds, join.lateness)
    files: tuple[list[File], list[File]] = ([], [])
    sides = tuple((list[Row](), list[Row]()) for _ in range(2))
    watermark, now, left_all = MIN_INSTANT, 3, 0
    key = lambda: rng.choice([1, 1, 2, 3, None])  # noqa: E731
    # one in ten has few epochs, but more rows of one epoch than what a sort keeps in order by being few
    is_crowded = rng.random() < 0.1
    draw_number = lambda: rng.randrange(20, 60) if is_crowded else rng.randrange(7)  # noqa: E731
    for number in range(2 if is_crowded else rng.randrange(2, 9)):
        lefts = draw_rows(
            rng,
            draw_number(),
            now,
            sides[0],
            lambda: {"k": key(), "a": rng.choice(side_columns.left_values)},
            is_signed=signed_left,
        )
        rights = draw_rows(
            rng,
            draw_number(),
            now,
            sides[1],
            lambda: {
                "k2": key(),
                "v": rng.choice(side_columns.right_values),
                "seq": rng.choice([None, 1, 2]),
                "gone": rng.choice([None, False, False, True]),
            },
            is_signed=signed_right,
        )
        now += rng.randrange(5)
        watermark_after = (
            Instant(max(int(watermark), (now - rng.randrange(6)) * SECOND)) if rng.random() < 0.8 else watermark
        )
        expected, late_left, late_right = reference.step(lefts, rights, watermark_after)
        deltas = []
        for rows, late, make, is_left in (
            (lefts, late_left, left_batch, True),
            (rights, late_right, right_batch, False),
        ):
            batch = make(compiled_join, rows)
            times = as_numpy(batch.column(c.EVENT_TIME))
            counts = as_numpy(batch.column(c.COUNT))
            is_late = (
                compiled_join.late_mask(compiled_join.left_completion(times), watermark)
                if is_left
                else compiled_join.late_right(times, counts, watermark)
            )
            if is_left or None not in {row.record["k2"] for row in rows}:
                assert int(is_late.sum()) == len(late) * (1 if is_left else join.spread), seed
            delta = batch.filter(pa.array(~is_late))
            delta = in_epoch(delta, number) if looks_up and not is_left else delta
            cut = rng.randrange(delta.num_rows + 1)
            deltas.append([delta.slice(0, cut), delta.slice(cut)])
        results = [*step_join(compiled_join, files, (deltas[0], deltas[1]), watermark, watermark_after)]
        left = [result.elements for result in results if result.elements is not None]
        assert sum(map(multiset, left), Counter()) == reference_multiset(expected), (seed, number, join)
        assert all(rows.num_rows <= step.PIECE_ROWS.value for rows in left)
        left_all += len(expected)
        for of_side, added_rows in zip(files, zip(*((r.left, r.right) for r in results), strict=True), strict=False):
            if kept_rows := [rows for rows in added_rows if rows is not None]:
                of_side.append(File(pa.concat_batches(kept_rows)))
        if rng.random() < 0.4:
            merge(rng, compiled_join, files, watermark_after)
        watermark = watermark_after
    return left_all


def merge(rng: random.Random, join: CompiledJoin, files: tuple[list[File], list[File]], watermark: Instant) -> None:
    for of_side in files:
        if of_side:
            rows = pa.concat_batches([file.rows for file in of_side])
            whole = newest_kept(join, rows, watermark)
            pieces = [*merge_side(join, ranges(rng, rows), watermark)]
            assert pa.Table.from_batches(pieces, whole.schema).equals(pa.Table.from_batches([whole]))
            of_side[:] = [File(whole)]


def ranges(rng: random.Random, rows: pa.RecordBatch) -> list[pa.RecordBatch]:
    """``rows`` in pieces of the order of (hash, event time), of which none cuts rows of one hash and moment."""
    places = [*zip(*(rows.column(name).to_pylist() for name in (c.HASH, c.EVENT_TIME)), strict=True)]
    moments = sorted({*places})
    bounds = sorted(rng.sample(moments, min(len(moments), rng.randrange(5))))
    piece = np.array([bisect_left(bounds, place) for place in places])
    return [rows.filter(pa.array(piece == number)) for number in range(len(bounds) + 1) if (piece == number).any()]


def multiset(elements: pa.RecordBatch) -> Counter[Any]:
    names = ["k", "a", "v"]
    rows = zip(*(elements.column(name).to_pylist() for name in names), strict=True)
    times, signs = (as_numpy(elements.column(name)).tolist() for name in (c.EVENT_TIME, c.SIGN))
    return Counter(
        (instant, *map(identity_key, row), sign) for instant, row, sign in zip(times, rows, signs, strict=True)
    )


def reference_multiset(rows: list[Row]) -> Counter[Any]:
    return Counter(
        (
            int(r.timestamp),
            r.record["k"],
            identity_key(r.record["a"]),
            identity_key(r.record["v"]),
            -1 if r.is_retraction else 1,
        )
        for r in rows
    )


@pytest.mark.hypothesis  # make fuzz plays as many as it plays of others
def test_what_leaves_is_what_the_reference_says() -> None:
    assert sum(play(seed) for seed in (*range(EXAMPLES), BOTH_WITHDRAW_IN_A_WINDOW)) > EXAMPLES


@pytest.mark.hypothesis
@pytest.mark.parametrize("side_columns", [LISTS, MAPS, STRUCTS], ids=["lists", "maps", "structs"])
def test_what_is_nested_leaves_and_goes_as_the_reference_says(side_columns: SideColumns) -> None:
    assert sum(play(seed, side_columns) for seed in range(EXAMPLES // 3)) > EXAMPLES // 3


@pytest.mark.hypothesis
@set_sizes(hash_bits=1)
def test_keys_of_one_hash_are_told_apart() -> None:
    assert sum(play(seed) for seed in range(EXAMPLES // 3)) > EXAMPLES // 3


@set_sizes(join_long_part=1, join_shared_by=1)
def test_each_part_searched_by_itself_it_is_the_same() -> None:
    assert sum(play(seed) for seed in range(EXAMPLES // 3)) > EXAMPLES // 3


@set_sizes(join_left_rows=2, join_right_rows=2, join_piece_rows=2, join_samples=2)
def test_cut_into_small_lots_it_is_the_same() -> None:
    assert sum(play(seed) for seed in range(EXAMPLES // 10)) > EXAMPLES // 10


def test_a_withdrawal_that_came_before_its_row_hides_no_older_version() -> None:
    join = hr.as_of(right_input(is_signed=True), {"k": "k2"}, columns=["v"], lateness="0s", history="0s")
    compiled_join = CompiledJoin(0, join, LEFT, join.lateness, has_signed_left=False)
    values = [{"k2": 1, "v": value, "seq": 1, "gone": None} for value in "pq"]
    withdrawal = Row(Instant(2 * SECOND), values[1], True)
    rows = right_batch(compiled_join, [Row(Instant(SECOND), values[0]), withdrawal])
    (merged_rows,) = merge_side(compiled_join, [rows], Instant(9 * SECOND))
    left = left_batch(compiled_join, [Row(Instant(9 * SECOND), {"k": 1, "a": "x"})])
    delta = [left], list[pa.RecordBatch]()
    results = [*step_join(compiled_join, ((), (File(merged_rows),)), delta, Instant(9 * SECOND), Instant(9 * SECOND))]
    assert [row for result in results if result.elements for row in result.elements.column("v").to_pylist()] == ["p"]
