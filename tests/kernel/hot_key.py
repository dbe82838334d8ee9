"""Epochs in which one key has half of all rows, in a process of its own: ``python one_hot_key.py CASE ROOT``.

Prints the most memory that the process had before and after, and what the panes of that key hold.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.compute as pc

from headrace import (
    AfterPattern,
    AfterWatermark,
    Aggregate,
    DataType,
    Default,
    FileSource,
    FixedWindows,
    How,
    Input,
    Pipeline,
    Repeatedly,
    Trigger,
    accumulating,
    col,
    count,
    discarding,
)
from headrace.distribute.local.engine import LocalEngine
from headrace.model.time import Duration, Instant, parse
from headrace.model.watermarks import BoundedOutOfOrderness
from headrace.pipeline.inputs import OWN, EventTime
from headrace.pipeline.sources import FileFormat
from headrace.runs.commits import attempts_of
from headrace.sources.landing import Landing
from headrace.state.files import read_rows
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store

START = parse("2026-01-01T00:00:00Z")
HOUR = Duration(3_600_000_000)
PATTERN = AfterPattern("ab*c", {"a": col("v") % 97 == 0, "b": col("v") % 2 == 0, "c": col("v") % 3 == 0})
SCHEMA = {"user": DataType.STRING, "at": DataType.TIMESTAMP, "v": DataType.INT, "w": DataType.INT}

CASES: dict[str, tuple[Trigger, How, dict[str, Aggregate]]] = {
    "bag": (Default(), accumulating("0s"), {"n": count(), "all": col("v").collect()}),
    "pattern": (AfterWatermark(early=Repeatedly(PATTERN)), discarding("0s"), {"n": count(), "total": col("v").sum()}),
    "join": (Default(), accumulating("0s"), {"pairs": col("v").pairs(col("w"), "both")}),
}


def main(case: str, root: str) -> Iterator[tuple[str, int]]:
    when, how, what = CASES[case]
    pipeline = Pipeline(
        name="hot",
        input=Input(
            FileSource("landing", FileFormat.PARQUET, SCHEMA), EventTime(col("at"), BoundedOutOfOrderness(HOUR))
        ),
        key={"user": col("user")},
        where=FixedWindows(HOUR),
        when=when,
        how=how,
        what=what,
    )
    store = open_store(root)
    landing = Landing(pipeline, store)
    engine, files = (
        LocalEngine(pipeline, store, landing, attempts_of(Catalog(store, pipeline.name))),
        landing.new_files({})[OWN],
    )
    yield "before", peak()
    panes = []
    for file in files:
        computed = engine.compute({OWN: [file]}, Instant(START), is_last=file is files[-1])
        panes += engine.write(computed, {}).panes
    yield "after", peak()
    rows = read_rows(store, panes, engine.work.stages[0].pane_schema)
    hot = rows.filter(pc.equal(rows.column("user"), "hot"))
    if case == "pattern":
        yield "elements", pc.sum(hot.column("n")).as_py()
        yield "sum", pc.sum(hot.column("total")).as_py()
    else:
        values = pc.list_flatten(hot.column(list(what)[-1]))
        yield "elements", len(values)
        yield "sum", pc.sum(values.field(0) if case == "join" else values).as_py()


def peak() -> int:
    """The most bytes of memory that this program had (``ru_maxrss`` begins with that of whoever started it)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


if __name__ == "__main__":
    print(json.dumps(dict(main(sys.argv[1], sys.argv[2]))))
