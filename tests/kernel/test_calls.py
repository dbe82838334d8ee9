"""No Python per row: an epoch of eight times the rows makes as many calls of functions, on built-in paths."""

import gc
import io
import json
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from headrace import (
    AfterCount,
    AfterWatermark,
    Aggregate,
    Aggregation,
    DataType,
    Deduplicate,
    FileSource,
    FixedWindows,
    How,
    Input,
    Pipeline,
    Sessions,
    SlidingWindows,
    accumulating,
    col,
    count,
    discarding,
    retracting,
)
from headrace.distribute.local import LocalEngine
from headrace.ext.sources import SourceSplit
from headrace.model.event_time import BoundedOutOfOrderness, EventTime
from headrace.model.time import Duration, Instant, parse_instant
from headrace.model.windows import WindowFn
from headrace.pipeline.endpoints import OWN
from headrace.runs.commits import attempts_of
from headrace.sources.landing import Landing
from headrace_lab.sizes import set_sizes
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store.local import MemoryStore
from tests.own_combiners import Span

START = parse_instant("2026-01-01T00:00:00Z")
SECOND = Duration(1_000_000)
ROWS = 1_000
KEYS = 0.1
"""As many keys as this share of the rows: whoever does something for each key is found as well."""

SCHEMA = {
    "id": DataType.INT,
    "user": DataType.STRING,
    "at": DataType.TIMESTAMP,
    "v": DataType.INT,
    "x": DataType.FLOAT,
    "s": DataType.STRING,
    "ok": DataType.BOOL,
}
FEW: Mapping[str, Aggregate] = {"n": count(), "total": col("v").sum()}
EVERY: Mapping[str, Aggregate] = {
    "n": count(),
    "total": col("v").sum(),
    "weight": col("x").sum(),
    "low": col("x").min(),
    "high": col("s").max(),
    "mean": col("v").mean(),
    "spread": col("v").variance(),
    "first": col("s").first(),
    "last": col("v").last(),
    "all": col("v").collect(),
    "best": col("v").top(2),
    "different": col("s").distinct(),
    "about": col("s").approx_distinct(),
    "median": col("x").quantile(0.5),
    "pairs": col("v").pairs(col("s"), "both"),
}
EARLY_AND_LATE = AfterWatermark(early=AfterCount(2), late=AfterCount(1))


def pipeline(
    where: WindowFn, how: How, what: Mapping[str, Aggregate] = FEW, kind: str = "parquet", **more: Any
) -> Pipeline:
    return Pipeline(
        name="calls",
        input=Input(FileSource("landing", kind, SCHEMA), EventTime(col("at"), BoundedOutOfOrderness(5 * SECOND))),
        key={"user": col("user")},
        where=where,
        when=EARLY_AND_LATE,
        how=how,
        what=what,
        **more,
    )


def table(rows: int, epoch: int) -> pa.Table:
    """Records of one epoch; the keys are those of the epoch before, and times go on."""
    keys, records = int(rows * KEYS), []
    for i in range(rows):
        time = START + epoch * 20 * SECOND + i * 20 * SECOND // rows
        records.append(
            {
                "id": epoch * rows + i if i % 50 else epoch * rows,
                "user": f"user {i * 7919 % keys:08}",
                "at": time,
                "v": i % 1000,
                "x": i / 7,
                "s": f"text {i % 3}",
                "ok": i % 5 > 0,
            }
        )
    columns = {name: [row[name] for row in records] for name in SCHEMA}
    columns["at"] = pa.array(columns["at"], pa.int64()).cast(pa.timestamp("us", "UTC"))
    return pa.table(columns)


def as_json(content: pa.Table) -> bytes:
    lines = [{**row, "at": row["at"].isoformat()} for row in content.to_pylist()]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def as_csv(content: pa.Table) -> bytes:
    sink = io.BytesIO()
    times = content["at"].cast(pa.string())
    pyarrow.csv.write_csv(content.set_column(content.schema.get_field_index("at"), "at", times), sink)
    return sink.getvalue()


def as_parquet(content: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(content, sink)
    return sink.getvalue()


FORMATS: dict[str, Callable[[pa.Table], bytes]] = {
    "json": as_json,
    "csv": as_csv,
    "parquet": as_parquet,
}


def calls_of(tested_pipeline: Pipeline, rows: int, epochs: int = 3) -> int:
    """Calls of functions from Python that the last of some epochs makes, reading and storing included."""
    store = MemoryStore()
    engine = LocalEngine(
        tested_pipeline, store, Landing(tested_pipeline, store), attempts_of(Catalog(store, tested_pipeline.name))
    )
    for epoch in range(epochs):
        content = FORMATS[tested_pipeline.source.format](table(rows, epoch))
        info = store.write(f"landing/{epoch}", content)
        files = {OWN: [SourceSplit(info.path, info.size, info.etag)]}
        if epoch < epochs - 1:
            engine.compute(files, START)
    call_count = 0

    def count_calls(frame: FrameType, event: str, argument: object) -> None:
        nonlocal call_count
        call_count += event in ("call", "c_call")

    profile_before = sys.getprofile()
    gc.collect()  # else finalizers of what other tests left are called, and counted, whenever it is collected
    gc.disable()
    sys.setprofile(count_calls)
    try:
        computed_epoch = engine.compute(files, Instant(START))
    finally:
        sys.setprofile(profile_before)
        gc.enable()
    assert computed_epoch.counts["accepted"] > 0.9 * rows
    counts = computed_epoch.stages[0].counts
    assert counts is not None
    assert counts.early + counts.on_time + counts.late > 0.9 * rows * KEYS
    return call_count


TWO_STAGES = Aggregation(
    key={"total": col("total") % 100},
    where=FixedWindows(60 * SECOND),
    when=EARLY_AND_LATE,
    how=retracting(60 * SECOND),
    what={"n": count()},
)
PIPELINES = {
    "json": pipeline(FixedWindows(10 * SECOND), accumulating(60 * SECOND), kind="json"),
    "csv": pipeline(FixedWindows(10 * SECOND), accumulating(60 * SECOND), kind="csv"),
    "parquet": pipeline(FixedWindows(10 * SECOND), accumulating(60 * SECOND)),
    "filtered": pipeline(FixedWindows(10 * SECOND), discarding("0s"), filter=col("v") >= 0),
    "sliding": pipeline(SlidingWindows(20 * SECOND, 10 * SECOND), retracting(60 * SECOND)),
    "sessions": pipeline(Sessions(3 * SECOND), retracting(60 * SECOND)),
    "every combiner": pipeline(FixedWindows(10 * SECOND), retracting(60 * SECOND), EVERY),
    "every combiner over sessions": pipeline(Sessions(3 * SECOND), accumulating(60 * SECOND), EVERY),
    "two stages": pipeline(FixedWindows(10 * SECOND), retracting(60 * SECOND), then=(TWO_STAGES,)),
    "every combiner, withdrawn": pipeline(
        FixedWindows(10 * SECOND),
        retracting(60 * SECOND),
        {"v": col("v").sum(), "x": col("x").sum(), "s": col("s").max()},
        then=(
            Aggregation(
                key={"group": col("v") % 100},
                where=FixedWindows(60 * SECOND),
                when=EARLY_AND_LATE,
                how=retracting(60 * SECOND),
                what=EVERY,
            ),
        ),
    ),
    "duplicates": pipeline(
        FixedWindows(10 * SECOND),
        accumulating(60 * SECOND),
        deduplicate=Deduplicate(col("id").cast(DataType.STRING), 60 * SECOND),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PIPELINES)
@set_sizes(run_bytes=10**9)  # into how many files a layer is cut goes by bytes
def test_calls_do_not_grow_with_rows(name: str) -> None:
    calls_of(PIPELINES[name], ROWS)  # what is made once
    few, many = (calls_of(PIPELINES[name], rows) for rows in (ROWS, 8 * ROWS))
    if many > few + 200:
        calls_again = calls_of(PIPELINES[name], 8 * ROWS)  # what is made once, for as many rows as that
        assert calls_again <= few + 200, (few, many, calls_again)


@pytest.mark.slow
def test_what_users_write_is_called_for_each_row() -> None:
    """As this count of calls notices."""
    own = pipeline(FixedWindows(10 * SECOND), accumulating(60 * SECOND), {"span": col("v").combine(Span())})
    assert calls_of(own, 16 * ROWS) > 4 * calls_of(own, 2 * ROWS)
