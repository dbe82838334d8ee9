"""Unions of outputs: what comes of the same records on different ways is never seen apart."""

import json
import os
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import Aggregation, FixedWindows, Output, Pipeline, col, count, on_update, retracting
from headrace.distribute.chain import Job
from headrace.distribute.tasks.epoch_outcome import EpochOutcome
from headrace.distribute.tasks.plan import PaneFiles
from headrace.runs.options import RunOptions
from tests.process.clicks import CLICKS
from tests.process.executors import ExecutorUnderTest, on_spark

AN_HOUR: dict[str, Any] = {"where": FixedWindows("1h"), "when": on_update(), "how": retracting("30d")}
"""Nothing is late: the ways would drop records at other ends of windows."""

NET = Output(
    of=("direct", "around"), columns={"around": {"n": -col("n")}}, key="user", what={"n": col("n").sum()}, **AN_HOUR
)
DIAMOND = Pipeline(
    "diamond",
    CLICKS.input,
    outputs={
        "net": NET,
        "around": Output(of="fine", key="user", what={"n": col("n").sum()}, **AN_HOUR),
        "direct": Output(key="user", what={"n": count()}, **AN_HOUR),
        "fine": Output(
            key="user",
            what={"n": count()},
            where=FixedWindows("5m"),
            when=on_update(),
            how=retracting("30d"),
            then=[Aggregation(key="user", what={"n": col("n").sum()}, where=FixedWindows("20m"), how=retracting())],
        ),
    },
    executor="local",
)
START = datetime(2026, 1, 1, tzinfo=UTC)


def land_at_random(root: Path, draw: random.Random) -> None:
    """Clicks of three users in four hours, out of order, in as many files as it happens."""
    folder = root / "landing" / "clicks"
    folder.mkdir(parents=True)
    number, minute = 0, 0
    while minute < 240:
        rows = []
        for _ in range(draw.randint(1, 25)):
            minute += draw.choice([0, 0, 1, 3])
            moment = START + timedelta(minutes=minute - draw.randint(0, 90))
            rows.append({"user": draw.choice("abc"), "at": moment.isoformat(), "price": draw.randint(1, 9)})
        (folder / f"part-{number:03}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        number += 1


def net_panes(
    executor: ExecutorUnderTest, root: Path, draw: random.Random, monkeypatch: pytest.MonkeyPatch
) -> list[dict[str, Any]]:
    """Every pane of the union, after runs that cut the input anywhere, with any number of tasks."""
    land_at_random(root, draw)
    landed_files = sorted((root / "landing" / "clicks").iterdir())
    later_folder = root / "later"
    later_folder.mkdir()
    for file in landed_files:
        file.rename(later_folder / file.name)
    while landed_files:
        for file in [landed_files.pop(0) for _ in range(min(len(landed_files), draw.randint(1, 5)))]:
            (later_folder / file.name).rename(file)
        monkeypatch.setenv("HEADRACE_TASKS", str(draw.randint(1, 4)))
        options = RunOptions(f"run-{len(landed_files)}", files_per_epoch=draw.randint(1, 3))
        executor.process(DIAMOND, root.as_uri(), options)
    rows: list[dict[str, Any]] = hr.open(root.as_uri())["diamond"]["net"].panes(at="main").to_arrow().to_pylist()
    assert {row["user"] for row in rows} == {*"abc"}
    return rows


@pytest.mark.hypothesis  # make fuzz turns as many as it turns of others
@pytest.mark.parametrize("seed", range(int(os.environ.get("HEADRACE_EXAMPLES", "1"))))
def test_no_pane_of_a_diamond_shows_one_way_without_the_other(
    executor: ExecutorUnderTest, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = net_panes(executor, tmp_path, random.Random(seed), monkeypatch)
    assert len({row["epoch"] for row in rows}) > 3
    assert {row["n"] for row in rows} == {0}


@on_spark  # without, it is one of those above
def test_a_diamond_is_aligned_on_spark(
    executor: ExecutorUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {row["n"] for row in net_panes(executor, tmp_path, random.Random(11), monkeypatch)} == {0}


def test_panes_that_are_handed_over_an_epoch_late_would_show(
    executor: ExecutorUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elements, held_files = EpochOutcome._element_files, list[PaneFiles]()

    def one_way_late(outcome: EpochOutcome, job: Job, tasks: Callable[[int], int]) -> Iterator[PaneFiles]:
        outputs = [chain.names.output for chain in outcome.work.chains]
        for share in elements(outcome, job, tasks):
            if outputs[share.chain] == "around":
                held_files.append(share)
            else:
                yield share
        waiting = [share for share in held_files if f"/{outcome.plan.epoch:08}-" not in share.files[0].path]
        held_files[:] = [share for share in held_files if share not in waiting]
        yield from waiting

    monkeypatch.setattr(EpochOutcome, "_element_files", one_way_late)
    assert any(row["n"] for row in net_panes(executor, tmp_path, random.Random(0), monkeypatch))
