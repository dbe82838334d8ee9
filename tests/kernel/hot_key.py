"""Epochs in which one key has half of all rows: what is made of them, and their memory in a process of its own
(``python -m tests.kernel.hot_key CASE ROOT``), which prints the most that it had before and after as JSON.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

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
from headrace.distribute.local import LocalEngine
from headrace.distribute.tasks.engine import TasksEngine
from headrace.model.event_time import BoundedOutOfOrderness, EventTime
from headrace.model.time import Duration, Instant, parse_instant
from headrace.pipeline.endpoints import OWN
from headrace.runs.commits import attempts_of
from headrace.sources.landing import Landing
from headrace.state.files import read_rows
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import UNNAMED
from headrace_snapshots.store import open_store

START = parse_instant("2026-01-01T00:00:00Z")
HOUR = Duration(3_600_000_000)
EPOCHS = 2
PATTERN = AfterPattern("ab*c", {"a": col("v") % 97 == 0, "b": col("v") % 2 == 0, "c": col("v") % 3 == 0})
SCHEMA = {"user": DataType.STRING, "at": DataType.TIMESTAMP, "v": DataType.INT, "w": DataType.INT}

CASES: dict[str, tuple[Trigger, How, dict[str, Aggregate]]] = {
    "bag": (Default(), accumulating("0s"), {"n": count(), "all": col("v").collect()}),
    "pattern": (AfterWatermark(early=Repeatedly(PATTERN)), discarding("0s"), {"n": count(), "total": col("v").sum()}),
    "join": (Default(), accumulating("0s"), {"pairs": col("v").pairs(col("w"), "both")}),
}


def pipeline(case: str) -> Pipeline:
    when, how, what = CASES[case]
    return Pipeline(
        name=case,
        input=Input(FileSource("landing", "parquet", SCHEMA), EventTime(col("at"), BoundedOutOfOrderness(HOUR))),
        key={"user": col("user")},
        where=FixedWindows(HOUR),
        when=when,
        how=how,
        what=what,
    )


def table(rows: int, epoch: int) -> pa.Table:
    """Every second row is of the user ``hot``, of whom only the first row has a right side."""
    number = np.arange(rows, dtype=np.int64)
    own = np.where(number % 2 == 0, 0, 1 + number % 1000)
    users = np.where(own == 0, "hot", np.char.add("user ", own.astype(str)))
    right = (number == 0) | ((own > 0) & (number % 4 == 1))
    return pa.table(
        {
            "user": users,
            "at": pa.array(START + (number * HOUR // rows)).cast(pa.timestamp("us", "UTC")),
            "v": pa.array(number + epoch * rows, mask=right & (number > 0)),
            "w": pa.array(number, mask=~right | (epoch > 0) & (own == 0)),
        }
    )


def land(root: Path, rows: int) -> tuple[int, list[int]]:
    """Write the files of all epochs. How many bytes they are as Arrow columns; how many values the hot key has in all,
    and their sum.
    """
    (root / "landing").mkdir(parents=True)
    tables = [table(rows, epoch) for epoch in range(EPOCHS)]
    for epoch, content in enumerate(tables):
        pq.write_table(content, root / "landing" / f"{epoch}.parquet", row_group_size=rows // 4)
    values = pa.concat_tables(tables).filter(pc.field("user") == "hot")["v"]
    return sum(content.nbytes for content in tables), [len(values), pc.sum(values).as_py()]


def hot_values(engine: TasksEngine) -> list[int]:
    """How many values of the hot key the panes of all epochs hold, and their sum."""
    files = engine.landing.new_files({})[OWN]
    panes: list[DataFile] = []
    for file in files:
        computed_epoch = engine.compute({OWN: [file]}, Instant(START), is_last=file is files[-1])
        panes += computed_epoch.written.logs[UNNAMED.panes]
    rows = read_rows(engine.store, panes, engine.work.chains[0].stages[0].pane_schema)
    hot = rows.filter(pc.equal(rows.column("user"), "hot"))
    if "total" in hot.schema.names:
        return [pc.sum(hot.column(name)).as_py() for name in ("n", "total")]
    values = pc.list_flatten(hot.column(list(engine.pipeline.what)[-1]))
    return [len(values), pc.sum(values if pa.types.is_integer(values.type) else values.field(0)).as_py()]


def main(case: str, root: str) -> None:
    own_pipeline, store = pipeline(case), open_store(root)
    engine = LocalEngine(
        own_pipeline, store, Landing(own_pipeline, store), attempts_of(Catalog(store, own_pipeline.name))
    )
    bytes_before = most_bytes()
    values = hot_values(engine)
    print(json.dumps({"values": values, "bytes": most_bytes() - bytes_before}))


def most_bytes(pid: int | str = "self") -> int:
    """The most bytes of memory that a program had (``ru_maxrss`` begins with that of whoever started it)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


if __name__ == "__main__":
    main(*sys.argv[1:])
