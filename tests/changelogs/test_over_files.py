"""Change data in files: runs that continue, replays, several outputs, what lands again (semantics 14)."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.errors import LandingAgainError
from headrace.testing.deployment import TemporaryDeployment

LSN = hr.field("source.lsn", int)
SCHEMA: dict[str, Any] = {"id": int, "shop": str, "amount": int, "at": datetime, "lsn": LSN}
AGGREGATES = {"n": hr.count(), "total": col("amount").sum(), "most": col("amount").max()}


def build(form: str = "json", **parts: Any) -> hr.Pipeline:
    source = hr.FileSource("landing/orders", form, SCHEMA, changelog=hr.debezium_envelope(shared=["lsn"]))
    parts = {"key": "shop", "what": AGGREGATES, "where": hr.FixedWindows("1h"), "when": hr.on_update(), **parts}
    parts = parts if "outputs" not in parts else {"outputs": parts["outputs"]}
    return hr.Pipeline(
        "orders",
        source.event_time("at", bound="0s"),
        deduplicate=hr.Deduplicate("lsn", "7d"),
        executor="local",
        **parts,
    )


def row(number: int, shop: str | None, amount: int, hour: int = 10) -> dict[str, Any]:
    return {"id": number, "shop": shop, "amount": amount, "at": datetime(2026, 1, 1, hour, 5, tzinfo=UTC)}


def change(lsn: int, old_row: dict[str, Any] | None, new_row: dict[str, Any] | None) -> dict[str, Any]:
    op = "u" if old_row and new_row else "c" if new_row else "d"
    return {"op": op, "before": old_row, "after": new_row, "source": {"lsn": lsn}}


FILES = [
    [change(1, None, row(1, "a", 5)), change(2, None, row(2, "a", 9)), change(3, None, row(3, "b", 1, 12))],
    [
        change(4, row(2, "a", 9), row(2, "b", 7)),
        change(4, row(2, "a", 9), row(2, "b", 7)),
        change(1, None, row(1, "a", 5)),
    ],
    [change(5, row(1, "a", 5), row(1, None, 6)), change(6, row(3, "b", 1, 12), None)],
]


@pytest.fixture
def deployment(tmp_path: Path) -> TemporaryDeployment:
    return TemporaryDeployment(tmp_path)


def current(
    deployment: TemporaryDeployment, pipeline: hr.Pipeline, ref: str | None = None
) -> dict[tuple[str, int], tuple[int, ...]]:
    rows = deployment.read(pipeline, at=ref)
    return {(r["shop"], r["window_start"].hour): (r["n"], r["total"], r["most"]) for r in rows}


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_runs_continue_from_each_other_and_a_replay_gives_the_same(deployment: TemporaryDeployment, form: str) -> None:
    pipeline = build(form, how=hr.retracting(None))
    for records in FILES:
        deployment.land(pipeline, *records)
        result = deployment.run(pipeline)
    assert current(deployment, pipeline) == {("b", 10): (1, 7, 7)}
    counts = result.counts
    assert (counts["records"], counts["accepted"], counts["rejected"]) == (3, 2, 1)
    hr.open(deployment.root)[pipeline].run(mode="replay", branch="again", executor="local")
    both = [deployment.read(pipeline, "panes", at=ref) for ref in ("main", "again")]
    assert both[0] == both[1]


def test_a_row_that_no_output_can_take_lands_again_alone(deployment: TemporaryDeployment, tmp_path: Path) -> None:
    pipeline = build(how=hr.retracting(None))
    for records in FILES:
        deployment.land(pipeline, *records)
    deployment.run(pipeline)
    landing = hr.open(deployment.root)[pipeline].replay_rejected(to="elsewhere")
    assert (landing.records, landing.late) == (1, 0)
    (file,) = (tmp_path / "elsewhere").iterdir()
    second_fields = json.loads(file.read_text())
    assert (second_fields["op"], second_fields["before"], second_fields["after"]["amount"]) == ("c", None, 6)
    with pytest.raises(LandingAgainError, match="a changelog"):
        hr.open(deployment.root)[pipeline].replay_late()


def test_outputs_take_of_an_update_what_each_can(deployment: TemporaryDeployment) -> None:
    """Ids are told by tasks apart from the files, whose text the dead letters and late rows of each output show."""
    hourly, daily = hr.FixedWindows("1h"), hr.FixedWindows("1d")
    when = {"when": hr.on_update()}
    pipeline = build(
        outputs={
            "shops": hr.Output(key="shop", what=AGGREGATES, where=hourly, how=hr.retracting("0s"), **when),
            "all": hr.Output(what={"n": hr.count()}, where=daily, how=hr.retracting("1d"), **when),
        }
    )
    for records in FILES:
        deployment.land(pipeline, *records)
        deployment.run(pipeline)
    reader = hr.open(deployment.root)["orders"]
    shops = {(r["shop"], r["window_start"].hour): r["n"] for r in reader["shops"].current().to_arrow().to_pylist()}
    assert shops == {("a", 10): 2}  # passed at 12:05, as the second file comes
    assert [r["n"] for r in reader["all"].current().to_arrow().to_pylist()] == [2]
    late = reader["shops"].late().to_arrow().to_pylist()
    shown_operations = [(r["reason"], json.loads(r["raw"])["op"], json.loads(r["raw"])["source"]["lsn"]) for r in late]
    assert shown_operations == [
        ("withdrawal: window expired", "d", 4),
        ("window expired", "c", 4),
        ("withdrawal: window expired", "d", 5),
    ]
    (letter,) = reader["shops"].rejected().to_arrow().to_pylist()
    assert (letter["output"], letter["reason"], json.loads(letter["raw"])["op"]) == ("shops", "key is null: shop", "c")


def test_explain_says_of_a_window_what_is_left(deployment: TemporaryDeployment) -> None:
    pipeline = build(how=hr.retracting(None))
    for records in FILES:
        deployment.land(pipeline, *records)
    deployment.land(pipeline, change(7, row(9, "c", 1), None))
    deployment.run(pipeline)
    reader = hr.open(deployment.root)["orders"]
    texts = {shop: str(reader.explain(shop, pipeline=pipeline)) for shop in "abc"}
    empty = "as many elements were withdrawn as came: when it fires it gives no pane"
    assert empty in texts["a"]
    assert texts["b"].count(empty) == 1  # at noon
    assert "1 more withdrawn than came: they are still to come, or the feed is not whole" in texts["c"]
