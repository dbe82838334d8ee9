"""The panes of a key as a picture shows them: which there are, where each begins and ends, and how much is read."""

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import Pipeline, col
from headrace.observe.pane_history import KeyPanes, PaneHistory
from headrace.read.views.arrow_types import ExplainError
from headrace.testing.deployment import TemporaryDeployment
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.names import MAIN
from headrace_snapshots.store import open_store

pytestmark = pytest.mark.slow  # whole runs

NOON = "2026-03-01T12:00:00Z"
Click = tuple[str, str, int]
EPOCHS = (
    [("ann", "10:05", 5), ("bob", "10:10", 1)],
    [("ann", "11:15", 3)],
    [("ann", "10:20", 2)],
    [("bob", "13:00", 9)],
)
"""Late data of ann in the third: the watermark has passed 11:00 by then."""


def clicks(where: Any = None, **more: Any) -> Pipeline:
    """Amounts per user and hour, with every update."""
    source = hr.json("landing/clicks", {"user": str, "at": hr.DataType.TIMESTAMP, "amount": int})
    parts: dict[str, Any] = {
        "key": "user",
        "when": hr.on_update(),
        "how": hr.retracting(allowed_lateness="1d"),
        **more,
    }
    return Pipeline(
        "clicks",
        source.event_time("at", bound="10m"),
        what={"amount": col("amount").sum()},
        where=where or hr.FixedWindows("1h"),
        **parts,
    )


def history(folder: Path, pipeline: Pipeline, *epochs: list[Click], limit: int = 50) -> PaneHistory:
    """What pages have of a pipeline that ran an epoch of each of ``epochs``."""
    deployment = TemporaryDeployment(folder)
    for elements in epochs:
        rows = ({"user": user, "at": f"2026-03-01T{time}:00Z", "amount": amount} for user, time, amount in elements)
        deployment.land(pipeline, *rows)
        deployment.run(pipeline, at=NOON)
    catalog = Catalog(open_store(deployment.root), "clicks")
    return PaneHistory(catalog, catalog.manifest(catalog.head().refs[MAIN]), limit)


def drawn_panes(panes: KeyPanes) -> list[tuple[str, int, int, str, int]]:
    """Of each pane: the start of its window, from which epoch to which, timing, amount (negative: retracted)."""
    return [
        (
            (pane.to_json()["window_start"] or "ever")[11:16],
            pane.after,
            pane.epoch,
            "RETRACTED" if pane.is_retraction else pane.timing,
            -pane.values["amount"] if pane.is_retraction else pane.values["amount"],
        )
        for pane in panes.panes
    ]


def test_panes_stand_between_the_epochs_that_took_in_and_emitted(tmp_path: Path) -> None:
    key = history(tmp_path, clicks(), *EPOCHS).of_key("ann", 100)
    assert drawn_panes(key) == [
        ("10:00", -1, 0, "EARLY", 5),
        ("10:00", 0, 1, "RETRACTED", -5),
        ("10:00", 0, 1, "ON_TIME", 5),
        ("11:00", 0, 1, "EARLY", 3),
        ("10:00", 1, 2, "RETRACTED", -5),
        ("10:00", 1, 2, "LATE", 7),
        ("11:00", 1, 3, "RETRACTED", -3),
        ("11:00", 1, 3, "ON_TIME", 3),
    ]
    watermarks = [clock["watermark"][11:16] for clock in key.to_json()["epochs"]]
    assert watermarks == ["10:00", "11:05", "11:05", "12:50"]
    assert not key.has_more


def test_keys_are_those_of_the_panes_as_text_to_ask_with(tmp_path: Path) -> None:
    panes = history(tmp_path, clicks(), *EPOCHS)
    assert panes.newest_keys(10).to_json() == {
        "columns": ["user"],
        "keys": [{"key": '{"user": "ann"}', "label": "ann"}, {"key": '{"user": "bob"}', "label": "bob"}],
        "has_more": False,
    }
    assert panes.newest_keys(1).has_more


@pytest.mark.parametrize("most", [1, 2, 5])
def test_too_many_rows_leave_out_older_windows_whole(tmp_path: Path, most: int) -> None:
    key = history(tmp_path, clicks(), *EPOCHS).of_key("ann", most)
    expected = {1: [("11:00", 0, 3, "ON_TIME", 3)]}
    newest = [("11:00", 0, 1, "EARLY", 3), ("11:00", 1, 3, "RETRACTED", -3), ("11:00", 1, 3, "ON_TIME", 3)]
    assert len(drawn_panes(key)) == min(most, 3)
    assert drawn_panes(key)[-1][4] == 3
    assert most < 5 or drawn_panes(key) == newest
    assert most > 1 or {pane[0] for pane in drawn_panes(key)} == {pane[0] for pane in expected[1]}
    assert key.has_more


def test_a_merged_session_stands_on_the_sessions_that_it_took_in(tmp_path: Path) -> None:
    epochs = [[("ann", "10:05", 5)], [("ann", "10:45", 3)], [("ann", "10:25", 2)]]
    pipeline = clicks(hr.Sessions("30m"))
    key = history(tmp_path, pipeline, *epochs).of_key({"user": "ann"}, 100)
    assert ("10:05", 1, 2, "EARLY", 10) in drawn_panes(key)


def test_without_a_key_and_in_the_global_window_there_is_one_picture(tmp_path: Path) -> None:
    panes = history(tmp_path, clicks(hr.GlobalWindows(), key=None, how=hr.accumulating()), [("ann", "10:05", 5)])
    assert panes.newest_keys(10).keys == (("null", "all elements"),)
    (pane,) = panes.of_key(None, 10).to_json()["panes"]
    assert (pane["window_start"], pane["window_end"], pane["values"]) == (None, None, {"amount": 5})


def test_the_watermark_of_a_chain_is_that_which_its_last_aggregation_goes_by(tmp_path: Path) -> None:
    total = hr.Aggregation(
        key=None, what={"amount": col("amount").sum()}, where=hr.FixedWindows("1d"), when=hr.on_update()
    )
    chain = clicks(then=[total], when=hr.on_window_close(), how=hr.retracting("1d", timestamp="earliest"))
    document = history(tmp_path, chain, [("ann", "10:05", 5)], [("ann", "10:50", 3)]).of_key(None, 10).to_json()
    # that of the input is 10:40 after the second; the first element of the window that is open holds the chain's back
    assert [clock["watermark"][11:16] for clock in document["epochs"]] == ["09:55", "10:05"]


def test_a_key_that_is_none_is_refused(tmp_path: Path) -> None:
    panes = history(tmp_path, clicks(), *EPOCHS[:1])
    with pytest.raises(ExplainError, match="in their order \\(user\\)"):
        panes.of_key(["ann", "bob"], 10)
    assert panes.of_key("nobody", 10).panes == ()


def test_only_files_of_the_newest_epochs_are_read(tmp_path: Path) -> None:
    deployment, pipeline = TemporaryDeployment(tmp_path), clicks()
    for minute in range(70):
        deployment.land(pipeline, {"user": "ann", "at": f"2026-03-01T10:{minute % 60:02}:00Z", "amount": 1})
    deployment.run(pipeline, at=NOON, files_per_epoch=1)
    catalog = Catalog(open_store(deployment.root), "clicks")
    head = catalog.manifest(catalog.head().refs[MAIN])
    assert (head.epoch, len([*(tmp_path / "clicks" / "index").iterdir()]) > 0) == (69, True)
    old = [file for file in (tmp_path / "clicks" / "data").glob("*/panes-*.parquet") if int(file.parent.name[:8]) < 65]
    for file in old:
        file.unlink()
    catalog = Catalog(open_store(deployment.root), "clicks")
    assert [pane.epoch for pane in PaneHistory(catalog, head, 5).of_key("ann", 100).panes][-1] == 69
    assert PaneHistory(catalog, head, 5).newest_keys(10).keys == (('{"user": "ann"}', "ann"),)
    with pytest.raises(BrokenObjectError):
        PaneHistory(catalog, head, 6).newest_keys(10)
