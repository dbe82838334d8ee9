"""Functions over the rows of a group, for tests."""

import os
import random
import threading
from datetime import UTC, datetime
from itertools import count, pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import RetryError

calls: list[pa.Table] = []


def rank_rows(rows: pa.Table) -> pa.Table:
    """Each row with its place."""
    return rows.append_column("place", pa.array(range(rows.num_rows), pa.int64()))


def sum_rows(rows: pa.Table) -> pa.Table:
    """One row of all."""
    return pa.table({"total": pa.array([pc.sum(rows.column("price")).as_py()], pa.int64())})


def summed_unless_told(rows: pa.Table) -> pa.Table:
    """The same, or no row where ``SUM_NOTHING`` is set: as the code of a user that was changed."""
    return nothing(rows) if os.environ.get("SUM_NOTHING") else sum_rows(rows)


def running(rows: pa.Table) -> pa.Table:
    """Each row with the sum up to it."""
    total = pc.cumulative_sum(rows.column("price"))
    return rows.select(["shop", "id", "event_time"]).append_column("total", total)


def double_rows(rows: pa.Table) -> pa.Table:
    """Each price twice; of prices below zero none."""
    prices = rows.column("price").filter(pc.greater_equal(rows.column("price"), 0))
    return pa.table({"price": pa.chunked_array([*prices.chunks, *prices.chunks], pa.int64())})


def gaps(rows: pa.Table) -> pa.Table:
    """How far each row is behind the one before it, and which shop it is of."""
    times = rows.column("event_time").cast(pa.int64()).to_pylist()
    gap = [None, *(time_after - time_before for time_before, time_after in pairwise(times))]
    columns = {"shop": rows.column("shop"), "gap": pa.array(gap, pa.int64()), "event_time": rows.column("event_time")}
    return pa.table(columns)


def note_rows(rows: pa.Table) -> pa.Table:
    """The same; and notes what it was asked for."""
    calls.append(rows)
    return sum_rows(rows)


def nothing(rows: pa.Table) -> pa.Table:
    """No row."""
    return sum_rows(rows).slice(0, 0)


def counting(rows: pa.Table) -> pa.Table:
    """How often it was called."""
    calls.append(rows)
    return pa.table({"total": pa.array([len(calls)], pa.int64())})


def roll_dice(rows: pa.Table) -> pa.Table:
    """Something else each time."""
    return pa.table({"total": pa.array([random.getrandbits(60)], pa.int64())})


def fails(rows: pa.Table) -> Any:
    """Nothing."""
    raise ValueError(f"{rows.num_rows} rows are too many")


def waits(rows: pa.Table) -> Any:
    """Nothing yet."""
    raise RetryError(f"the service for {rows.num_rows} rows is busy")


def text(rows: pa.Table) -> Any:
    """No table."""
    return str(rows.num_rows)


def small(rows: pa.Table) -> pa.Table:
    """Integers of another type than they are said to be."""
    return pa.table({"total": pa.array([rows.num_rows], pa.int32())})


def double(rows: pa.Table) -> pa.Table:
    """A column twice."""
    total = pa.array([rows.num_rows], pa.int64())
    return pa.Table.from_arrays([total, total], names=["total", "total"])


def move_shop(rows: pa.Table) -> pa.Table:
    """Rows of another shop."""
    return sum_rows(rows).append_column("shop", pa.array(["elsewhere"]))


def timeless(rows: pa.Table) -> pa.Table:
    """A row without an event time."""
    return sum_rows(rows).append_column("event_time", pa.array([None], pa.timestamp("us", tz="UTC")))


def ancient(rows: pa.Table) -> pa.Table:
    """A row of the year 1500."""
    moment = datetime(1500, 1, 1, tzinfo=UTC)
    return sum_rows(rows).append_column("event_time", pa.array([moment], pa.timestamp("us", tz="UTC")))


def endless(rows: pa.Table) -> pa.Table:
    """A day that no calendar has."""
    return pa.table({"day": pa.array([2**31 - 1] * rows.num_rows, pa.int32()).cast(pa.date32())})


not_callable = 3


def times(rows: pa.Table) -> pa.Table:
    """The event time of each row, and how far it is behind the first."""
    event_times = rows.column("event_time")
    given_times = event_times.drop_null().cast(pa.int64())
    microseconds_behind = pc.subtract(given_times, given_times[0]) if len(given_times) else given_times
    return pa.table({"event_time": event_times.drop_null(), "behind": microseconds_behind})


def count_rows(rows: pa.Table) -> pa.Table:
    """How many rows there are, and their key."""
    return pa.table({"number": pa.array([rows.num_rows], pa.int64())})


lock = threading.Lock()


def hold_lock(rows: pa.Table) -> pa.Table:
    """What holds something that cannot be copied."""
    with lock:
        return sum_rows(rows)


def nested_summary(rows: pa.Table) -> pa.Table:
    """One row of all that a group has in structs and maps, with keys that descend and zeros with a sign."""
    tags = [tag for one in rows.column("tags").to_pylist() for tag in one or ()]
    cities = sorted({one["city"] for one in rows.column("address").to_pylist() if one and one["city"]})
    last = dict(sorted(tags, key=str, reverse=True))
    kind = pa.map_(pa.string(), pa.struct([("n", pa.int64()), ("zero", pa.float64())]))
    entries = [(key, {"n": value, "zero": -0.0}) for key, value in last.items()]
    columns = {
        "cities": pa.array([cities], pa.list_(pa.string())),
        "tags": pa.array([entries], kind),
        "all": pa.array([[entries, None, []]], pa.list_(kind)),
        "first": rows.column("address").combine_chunks().slice(0, 1),
        "event_time": rows.column("event_time").combine_chunks().slice(0, 1),
    }
    return pa.table(columns)


_turns = count()


def turn_maps(rows: pa.Table) -> pa.Table:
    """A map whose keys stand in another order at each call, as those of a set may."""
    entries = [("a", 1), ("b", 2)][:: 1 if next(_turns) % 2 else -1]
    tags = pa.array([entries] * rows.num_rows, pa.map_(pa.string(), pa.int64()))
    return pa.table({"tags": tags, "event_time": rows.column("event_time")})


def keyed_twice(rows: pa.Table) -> pa.Table:
    """A map in which a key stands twice."""
    tags = pa.array([[("a", 1), ("a", 2)]] * rows.num_rows, pa.map_(pa.string(), pa.int64()))
    return pa.table({"tags": tags, "event_time": rows.column("event_time")})


def far_ahead(rows: pa.Table) -> pa.Table:
    """A struct with a time that no calendar has."""
    times = pa.array([{"at": 2**61}] * rows.num_rows, pa.struct([("at", pa.int64())]))
    time_structs = times.cast(pa.struct([("at", pa.timestamp("us", "UTC"))]))
    return pa.table({"tags": time_structs, "event_time": rows.column("event_time")})
