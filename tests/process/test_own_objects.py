"""Combiners and triggers that users write in whole runs: over files, and with state that one run hands to the next."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from headrace import AfterAny, AfterCount, AfterWatermark, Repeatedly, Sessions, col, count
from headrace.model.time import Instant, to_datetime, to_instant
from headrace.runs.options import RunOptions
from headrace_lab.reference import Epoch, fold_current, run_pipeline
from tests.own_combiners import Bins, Longest, Span
from tests.own_triggers import Jump
from tests.process.clicks import clicks, land, records
from tests.process.executors import ExecutorUnderTest, on_both
from tests.reading import read

PIPELINE = replace(
    clicks(Sessions(timedelta(minutes=30)), name="own"),
    when=AfterWatermark(early=Repeatedly(AfterAny(Jump(1, "price"), AfterCount(6))), late=AfterCount(1)),
    what={
        "clicks": count(),
        "span": col("price").combine(Span()),
        "bins": col("price").combine(Bins(3)),
        "names": col("user").combine(Longest()),
    },
)


def expected(files: int) -> dict[Any, Any]:
    epochs = []
    for file in range(files):
        rows = [row | {"at": to_instant(datetime.fromisoformat(str(row["at"])))} for row in records(file)]
        epochs.append(Epoch(Instant(0), rows))
    panes = fold_current(pane for result in run_pipeline(PIPELINE, epochs) for pane in result.panes)
    return {(*key, to_datetime(window.start)): pane.values for (key, window), pane in panes.items()}


@on_both
def test_a_run_goes_on_from_the_state_that_another_left(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    for files_landed, files in ((0, 2), (2, 3)):
        land(tmp_path, files_landed, files)
        executor.process(PIPELINE, tmp_path.as_uri(), RunOptions(f"run-{files}"))
        rows = read(PIPELINE, tmp_path.as_uri(), "current", "main").to_pylist()
        found_rows = {
            (row["user"], row["window_start"]): (row["clicks"], row["span"], tuple(row["bins"]), tuple(row["names"]))
            for row in rows
        }
        assert found_rows == expected(files)
        assert any(clicks > 1 for clicks, *_ in found_rows.values())
