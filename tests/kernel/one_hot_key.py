"""Epochs in which one key has half of all rows, in a process of its own: ``python one_hot_key.py CASE ROOT``.

Prints the most memory that the process had before and after, and what the panes of that key hold.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from headrace.distribute.local.epochs import LocalEngine
from headrace.distribute.local.values import emitted
from headrace.model.time import Instant, parse
from headrace.pipeline import (
    AfterPattern,
    AfterWatermark,
    Aggregate,
    BoundedOutOfOrderness,
    DataType,
    Default,
    EventTime,
    FileFormat,
    FileSource,
    FixedWindows,
    How,
    Pipeline,
    Repeatedly,
    Trigger,
    accumulating,
    col,
    collect_of,
    count,
    discarding,
    pairs_of,
    sum_of,
)
from headrace.pipeline.inputs import OWN
from headrace.runs.commits import attempts_of
from headrace.sources.landing import Landing
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store

START = parse("2026-01-01T00:00:00Z")
HOUR = 3_600_000_000
PATTERN = AfterPattern("ab*c", {"a": col("v") % 97 == 0, "b": col("v") % 2 == 0, "c": col("v") % 3 == 0})
SCHEMA = {"user": DataType.STRING, "at": DataType.TIMESTAMP, "v": DataType.INT, "w": DataType.INT}

CASES: dict[str, tuple[Trigger, How, dict[str, Aggregate]]] = {
    "bag": (Default(), accumulating(0), {"n": count(), "all": collect_of(col("v"))}),
    "pattern": (AfterWatermark(early=Repeatedly(PATTERN)), discarding(0), {"n": count(), "total": sum_of(col("v"))}),
    "join": (Default(), accumulating(0), {"pairs": pairs_of(col("v"), col("w"), "both")}),
}


def main(case: str, root: str) -> Iterator[tuple[str, int]]:
    when, how, what = CASES[case]
    pipeline = Pipeline(
        name="hot",
        source=FileSource("landing", FileFormat.PARQUET, SCHEMA),
        event_time=EventTime(col("at"), BoundedOutOfOrderness(HOUR)),
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
    results = []
    for file in files:
        computed = engine.compute({OWN: [file]}, Instant(START), is_last=file is files[-1])
        engine.write(computed, {})
        results.append(computed.stepped[0].result)
    yield "after", peak()
    panes = [pane for result in results for pane in emitted(result) if pane.key == ("hot",)]
    if case == "pattern":
        yield "elements", sum(pane.values[0] for pane in panes)
        yield "sum", sum(pane.values[1] for pane in panes)
    else:
        values = [value for pane in panes for value in pane.values[-1]]
        yield "elements", len(values)
        yield "sum", sum(value[0] if case == "join" else value for value in values)


def peak() -> int:
    """The most bytes of memory that this program had (``ru_maxrss`` begins with that of whoever started it)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


if __name__ == "__main__":
    print(json.dumps(dict(main(sys.argv[1], sys.argv[2]))))
