"""The history of a pipeline whose outputs read each other: whatever becomes of it, each output has the same panes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import CalendarWindows, FixedWindows, Output, col, on_update, retracting
from headrace.ext.stores import open_store
from headrace_lab.catalog_checks import check_catalog
from tests.process.clicks import FILES, land
from tests.process.executors import ExecutorUnderTest
from tests.process.outputs import SHOP, catalog_of, line

EARLY: dict[str, Any] = {"when": on_update(), "how": retracting("1d")}
DAYS = Output(of="hourly", key="user", what={"spent": col("spent").sum()}, where=CalendarWindows("day"), **EARLY)
BOTH = Output(
    of=("hourly", "days"), columns={"days": {"clicks": -col("spent")}}, key="user",
    what={"clicks": col("clicks").sum(), "spent": col("spent").sum()}, where=FixedWindows("2h"), **EARLY,
)  # fmt: skip
GRAPH = replace(SHOP, outputs={"both": BOTH, "days": DAYS, **SHOP.outputs})
LOGS = [f"{output}/panes" for output in GRAPH.outputs]


@pytest.fixture(autouse=True)
def one_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_TASKS", "1")  # files are cut by tasks


@pytest.fixture(scope="module")
def undisturbed_digests(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[str]]]:
    """The digests of the pane files of each epoch, by log, of a run that nothing happened to."""
    root = tmp_path_factory.mktemp("undisturbed")
    land(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_TASKS", "1")
        hr.open(root.as_uri())[GRAPH].run()
    return digests(root)


def digests(root: Path, ref: str = "main") -> dict[str, list[list[str]]]:
    """The digests of the pane files of each epoch, by log."""
    catalog = catalog_of(root)
    manifests = line(catalog, ref)

    def of_log(log: str) -> list[list[str]]:
        records = {record.epoch: record for record in catalog.file_records(manifests[-1].logs[log])}
        files: list[Sequence[object]] = [
            records[manifest.epoch].files if manifest.epoch in records else () for manifest in manifests
        ]
        return [[file.sha256 for file in some] for some in files]

    return {log: of_log(log) for log in LOGS}


def test_a_replay_and_a_fork_give_the_same_panes(
    executor: ExecutorUnderTest, undisturbed_digests: dict[str, list[list[str]]], tmp_path: Path
) -> None:
    land(tmp_path)
    executor.run(GRAPH, tmp_path.as_uri(), publish=False)
    assert digests(tmp_path) == undisturbed_digests
    assert all(any(epoch) for epoch in zip(*undisturbed_digests.values(), strict=True)), "every epoch has panes"
    executor.run(GRAPH, tmp_path.as_uri(), mode="replay", branch="again")
    assert digests(tmp_path, "again") == undisturbed_digests
    shop = hr.open(tmp_path.as_uri())["shop"]
    shop.fork(line(catalog_of(tmp_path))[1].snapshot_id, "side")
    executor.run(GRAPH, tmp_path.as_uri(), branch="side")
    assert digests(tmp_path, "side") == undisturbed_digests
    check_catalog(open_store(tmp_path.as_uri()), SHOP.name)


def test_after_a_rollback_and_a_recovery_the_same_panes_come(
    executor: ExecutorUnderTest, undisturbed_digests: dict[str, list[list[str]]], tmp_path: Path
) -> None:
    land(tmp_path)
    executor.run(GRAPH, tmp_path.as_uri(), publish=False)
    shop = hr.open(tmp_path.as_uri())[GRAPH]
    shop.rollback(to=line(catalog_of(tmp_path))[2].snapshot_id)
    executor.run(GRAPH, tmp_path.as_uri(), publish=False)
    assert digests(tmp_path) == undisturbed_digests
    shop.recover(line(catalog_of(tmp_path))[0].snapshot_id)
    assert digests(tmp_path) == undisturbed_digests
    check_catalog(open_store(tmp_path.as_uri()), SHOP.name)


def test_a_backfill_comes_to_the_same_rows(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(tmp_path)
    executor.run(GRAPH, tmp_path.as_uri())

    def rows() -> dict[str, list[Any]]:
        shop = hr.open(tmp_path.as_uri())["shop"]
        values = {
            name: ["user", "window_start", *GRAPH.by_output[name].value_types] for name in ("hourly", "days", "both")
        }
        return {
            name: sorted(map(repr, shop[name].current(columns=columns).to_arrow().to_pylist()))
            for name, columns in values.items()
        }

    rows_before = rows()
    assert all(rows_before.values())
    result = hr.open(tmp_path.as_uri())[GRAPH].backfill(branch="again")
    hr.open(tmp_path.as_uri())[GRAPH.name].promote(result.branch)
    assert rows() == rows_before


def test_an_output_counts_the_panes_that_it_reads(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(tmp_path, 0, 1)
    executor.run(GRAPH, tmp_path.as_uri(), publish=False)
    (head,) = line(catalog_of(tmp_path))
    expected_counts = {
        name: head.counts[f"{name}/panes"] + head.counts[f"{name}/retractions"] for name in ("hourly", "days")
    }
    assert head.counts["days/records"] == expected_counts["hourly"]
    assert head.counts["both/records"] == expected_counts["hourly"] + expected_counts["days"]
    assert head.counts["records"] == head.counts["hourly/records"], "records are counted once"


def test_outputs_that_come_later_and_read_others_have_the_panes_that_they_would_have(
    executor: ExecutorUnderTest, undisturbed_digests: dict[str, list[list[str]]], tmp_path: Path
) -> None:
    land(tmp_path, 0, 3)
    executor.run(SHOP, tmp_path.as_uri(), publish=False)
    land(tmp_path, 3, FILES)
    executor.run(GRAPH, tmp_path.as_uri(), publish=False)
    assert digests(tmp_path) == undisturbed_digests
