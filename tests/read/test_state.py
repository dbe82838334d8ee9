"""The view ``state``: what open windows hold and have emitted, and what their triggers wait for, in words."""

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import Pipeline, Trigger, col
from headrace.errors import BrokenObjectError, StateDefinitionError
from headrace.ext.stores import open_store
from headrace.testing.deployment import TemporaryDeployment
from headrace_lab.sizes import set_sizes
from tests.minio_bucket import BUCKET
from tests.process.clicks import CLICKS, FILES, SESSIONS, land
from tests.reading import read

pytestmark = pytest.mark.slow  # whole runs


NOON = "2026-03-01T12:00:00Z"
Element = tuple[str, str, int]


def pipeline(when: Trigger, **more: Any) -> Pipeline:
    """Amounts per user and hour."""
    source = hr.json("landing/clicks", {"user": str, "at": hr.DataType.TIMESTAMP, "amount": int})
    parts: dict[str, Any] = {
        "what": {"clicks": hr.count(), "amount": col("amount").sum()},
        "where": hr.FixedWindows("1h"),
        "how": hr.accumulating(allowed_lateness="1h"),
        "allow_finishing": True,
        **more,
    }
    return Pipeline("clicks", source.event_time("at", bound="10m"), key="user", when=when, **parts)


def ran(
    folder: Path, pipeline: Pipeline, *epochs: Sequence[Element], time: str = NOON, **options: Any
) -> hr.types.LazyView:
    """The state behind ``epochs``, each of a file of (user, time on 2026-03-01, amount)."""
    deployment = TemporaryDeployment(folder)
    for elements in epochs:
        deployment.land(
            pipeline,
            *({"user": user, "at": f"2026-03-01T{time}:00Z", "amount": amount} for user, time, amount in elements),
        )
        deployment.run(pipeline, at=time, **options)
    return hr.open(deployment.root)["clicks"].state(pipeline=pipeline)


def waiting(view: hr.types.LazyView) -> str:
    (row,) = view.to_arrow().to_pylist()
    return str(row["_waits_for"])


@pytest.mark.parametrize("part_rows", [10**6, 3], ids=["one part", "many parts"])
@pytest.mark.parametrize("definition", [CLICKS, SESSIONS], ids=lambda definition: definition.name)
def test_open_windows_hold_what_readers_see_if_every_element_fires(
    tmp_path: Path, definition: Pipeline, part_rows: int
) -> None:
    with set_sizes(open_part_rows=part_rows):
        deployment = TemporaryDeployment(tmp_path)
        for file in range(FILES):
            land(tmp_path, file, file + 1)
            deployment.run(definition, at="2026-01-01T12:00:00Z")
        view = hr.open(deployment.root)[definition.name].state(pipeline=definition)
        shared_columns = ["user", "clicks", "spent", "window_start", "window_end"]
        rows = view.to_arrow()
        assert rows.select(shared_columns) == read(definition, deployment.root, "current", "main").select(
            shared_columns
        )
        assert rows.num_rows > FILES
        assert set(rows["_new_elements"].to_pylist()) == {0}
        assert min(rows["_panes"].to_pylist()) >= 1


def test_a_row_says_what_a_window_holds_and_has_emitted(tmp_path: Path) -> None:
    when = hr.AfterWatermark(early=hr.AfterCount(2), late=hr.AfterCount(1))
    view = ran(tmp_path, pipeline(when), [("ann", "10:10", 1), ("ann", "10:20", 2)], [("ann", "10:30", 4)])
    (row,) = view.to_arrow().to_pylist()
    assert (row["user"], row["clicks"], row["amount"]) == ("ann", 3, 7)
    assert (row["_stage"], row["_new_elements"], row["_panes"], row["_panes_not_early"]) == (1, 1, 1, 0)
    assert row["_due_watermark"].isoformat() == "2026-03-01T11:00:00+00:00"
    assert row["_due_time"] is None
    assert row["_epoch"] == 1
    assert row["_waits_for"] == (
        "early: 1 more element (1 of 2 so far); "
        "or on time: the watermark to pass 2026-03-01T11:00:00Z (it stands at 2026-03-01T10:20:00Z)"
    )


def test_windows_that_closed_or_expired_are_not_there(tmp_path: Path) -> None:
    closed_view = ran(tmp_path / "closed", pipeline(hr.AfterCount(1)), [("ann", "10:10", 1)])
    assert closed_view.count() == 0
    late = ran(tmp_path / "late", pipeline(hr.Default()), [("ann", "10:10", 1)], [("bob", "12:20", 1)])
    assert [row["user"] for row in late.to_arrow().to_pylist()] == ["bob"]


ONE = [("ann", "10:10", 5)]
ELEMENTS = [("ann", "10:10", 5), ("ann", "11:20", 5)]
HOUR = "the watermark to pass 2026-03-01T11:00:00Z (it stands at 2026-03-01T10:00:00Z)"
WAITS: list[tuple[Trigger, Sequence[Element], str]] = [
    (hr.Default(), ONE, HOUR),
    (hr.AfterWatermark(), ONE, HOUR),
    (hr.Repeatedly(hr.AfterCount(3)), ONE, "2 more elements (1 of 3 so far)"),
    (hr.Repeatedly(hr.AfterBytes(100)), ONE, "elements of 81 more bytes (19 of 100 so far)"),
    (hr.Repeatedly(hr.AfterPunctuation(col("amount") > 9)), ONE, "an element for which (amount > 9)"),
    (
        hr.Repeatedly(hr.DataDriven({"total": col("amount").sum()}, col("total") > 9)),
        ONE,
        "(total > 9) (so far total = 5)",
    ),
    (
        hr.Repeatedly(hr.AfterPattern("ab", {"a": col("amount") == 5, "b": col("amount") == 6})),
        ONE,
        "elements in their order of arrival that match 'ab' (a match has begun)",
    ),
    (hr.Repeatedly(hr.AfterSignal("go")), ONE, "the signal 'go' (headrace run --signal go)"),
    (
        hr.Repeatedly(hr.AfterProcessingTime("5m")),
        ONE,
        "processing time 2026-03-01T12:05:00Z (the newest epoch ran at 2026-03-01T12:00:00Z, "
        "and the first run from then on looks again)",
    ),
    (hr.Never(), ONE, "nothing: what the window holds is emitted when it expires"),
    (
        hr.Repeatedly(hr.AfterAny(hr.AfterCount(3), hr.AfterSignal("go"))),
        ONE,
        "2 more elements (1 of 3 so far), or the signal 'go' (headrace run --signal go)",
    ),
    (
        hr.Repeatedly(hr.AfterAll(hr.AfterCount(1), hr.AfterSignal("go"))),
        ONE,
        "the signal 'go' (headrace run --signal go)",
    ),
    (
        hr.AfterEach(hr.AfterCount(1), hr.AfterCount(2), hr.AfterSignal("go")),
        ONE,
        "2 more elements (0 of 2 so far)",
    ),
    (
        hr.OrFinally(hr.Repeatedly(hr.AfterCount(2)), hr.AfterSignal("end")),
        ONE,
        "1 more element (1 of 2 so far), or the signal 'end' (headrace run --signal end)",
    ),
]


@pytest.mark.parametrize(("when", "elements", "expected"), WAITS, ids=lambda value: str(value)[:40])
def test_what_a_window_waits_for(tmp_path: Path, when: Trigger, elements: Sequence[Element], expected: str) -> None:
    assert waiting(ran(tmp_path, pipeline(when), elements)) == expected


MORE = [("ann", "10:20", 6)]
"""An element of the same window, which is 6 after a 5."""

COMES: list[tuple[Trigger, dict[str, Any]]] = [
    (hr.Default(), {"elements": [("bob", "11:10", 1)]}),
    (hr.Repeatedly(hr.AfterCount(2)), {"elements": MORE}),
    (hr.Repeatedly(hr.AfterBytes(30)), {"elements": MORE}),
    (hr.Repeatedly(hr.AfterPunctuation(col("amount") > 5)), {"elements": MORE}),
    (hr.Repeatedly(hr.DataDriven({"total": col("amount").sum()}, col("total") > 9)), {"elements": MORE}),
    (hr.Repeatedly(hr.AfterPattern("ab", {"a": col("amount") == 5, "b": col("amount") == 6})), {"elements": MORE}),
    (hr.Repeatedly(hr.AfterSignal("go")), {"signals": ["go"]}),
    (hr.Repeatedly(hr.AfterProcessingTime("5m")), {"at": "2026-03-01T12:05:00Z"}),
    (hr.Repeatedly(hr.AfterAny(hr.AfterCount(3), hr.AfterSignal("go"))), {"signals": ["go"]}),
    (hr.Repeatedly(hr.AfterAll(hr.AfterCount(1), hr.AfterSignal("go"))), {"signals": ["go"]}),
    (hr.OrFinally(hr.Repeatedly(hr.AfterCount(2)), hr.AfterSignal("end")), {"signals": ["end"]}),
]


@pytest.mark.parametrize(("when", "comes"), COMES, ids=lambda value: str(value)[:40])
def test_a_window_fires_once_what_it_waits_for_has_come(tmp_path: Path, when: Trigger, comes: dict[str, Any]) -> None:
    own_pipeline = pipeline(when)
    deployment = TemporaryDeployment(tmp_path)

    def land(elements: Sequence[Element]) -> None:
        for user, time, amount in elements:
            deployment.land(own_pipeline, {"user": user, "at": f"2026-03-01T{time}:00Z", "amount": amount})

    land(ONE)
    deployment.run(own_pipeline, at=NOON)
    clicks = hr.open(deployment.root)["clicks"]
    state_before = clicks.state(pipeline=own_pipeline)
    assert state_before.to_arrow()["_panes"].to_pylist() == [0]
    land(comes.get("elements", ()))
    deployment.run(own_pipeline, at=comes.get("at", NOON), signals=comes.get("signals", ()))
    assert clicks.panes(where=col("user") == "ann").count() == 1, waiting(state_before)


def test_a_window_that_was_on_time_waits_for_late_elements(tmp_path: Path) -> None:
    by_default = ran(tmp_path / "default", pipeline(hr.Default()), ELEMENTS)
    of_ann = by_default.to_arrow().to_pylist()[0]
    assert of_ann["_panes_not_early"] == 1
    assert (
        of_ann["_waits_for"] == "another element: the trigger is ready, and the next epoch that brings one gives a pane"
    )
    late = ran(tmp_path / "late", pipeline(hr.AfterWatermark(late=hr.AfterCount(2))), ELEMENTS)
    assert late.to_arrow().to_pylist()[0]["_waits_for"] == "late: 2 more elements (0 of 2 so far)"


def test_the_watermark_of_the_fastest_is_told_from_the_watermark(tmp_path: Path) -> None:
    when = hr.AfterPercentileWatermark(50)
    view = ran(tmp_path, pipeline(when), [("ann", "10:10", 1), ("ann", "10:12", 1)])
    assert "the watermark of the fastest 50 % of the input to pass 2026-03-01T11:00:00Z" in waiting(view)


def test_the_state_of_a_chain_is_read_one_aggregation_at_a_time(tmp_path: Path) -> None:
    second_aggregation = hr.Aggregation(key=None, what={"users": hr.count()}, where=hr.FixedWindows("2h"))
    own_pipeline = pipeline(hr.Default(), how=hr.retracting(allowed_lateness="1h"), then=[second_aggregation])
    last = ran(tmp_path, own_pipeline, [("ann", "10:10", 1), ("bob", "10:30", 1)], [("ann", "11:20", 1)])
    first = hr.open(TemporaryDeployment(tmp_path).root)["clicks"].state(pipeline=own_pipeline, stage=1)
    assert first.schema.names[:3] == ["user", "clicks", "amount"]
    assert set(first.to_arrow()["_stage"].to_pylist()) == {1}
    (row,) = last.to_arrow().to_pylist()
    assert (row["users"], row["_stage"], row["_new_elements"]) == (2, 2, 2)
    with pytest.raises(StateDefinitionError, match="counted from 1 to 2"):
        hr.open(TemporaryDeployment(tmp_path).root)["clicks"].state(pipeline=own_pipeline, stage=3)


def test_any_snapshot_and_any_condition(tmp_path: Path) -> None:
    own_pipeline = pipeline(hr.Repeatedly(hr.AfterCount(3)))
    ran(tmp_path, own_pipeline, ONE, [("bob", "10:20", 1), ("bob", "10:20", 1)])
    clicks = hr.open(TemporaryDeployment(tmp_path).root)["clicks"]
    first = clicks.snapshots().to_arrow()["snapshot"][0].as_py()
    assert clicks.state(pipeline=own_pipeline, at=first).to_arrow()["user"].to_pylist() == ["ann"]
    close = clicks.state(pipeline=own_pipeline, where=col("_new_elements") == 2, columns=["user", "_new_elements"])
    assert close.to_arrow().to_pylist() == [{"user": "bob", "_new_elements": 2}]
    assert close.to_duckdb().fetchall() == [("bob", 2)]
    assert clicks.state(pipeline=own_pipeline, where="_waits_for like '1 more%'").count() == 1
    assert "no results" in repr(close)


def test_state_is_read_with_the_definition_that_made_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_pipeline = pipeline(hr.Repeatedly(hr.AfterCount(3)))
    ran(tmp_path, own_pipeline, ONE)
    clicks = hr.open(TemporaryDeployment(tmp_path).root)["clicks"]
    changed_text = r"has changed since snapshot .*: when \(trigger\) has changed \(aggregation 1\)\. Its state"
    with pytest.raises(StateDefinitionError, match=changed_text):
        clicks.state(pipeline=pipeline(hr.Repeatedly(hr.AfterCount(4))))
    monkeypatch.setenv("HEADRACE_PIPELINES", str(tmp_path / "nowhere"))
    (tmp_path / "nowhere").mkdir()
    with pytest.raises(StateDefinitionError, match="clicks is not registered"):
        clicks.state()


@pytest.mark.s3
def test_the_state_of_an_s3_root(minio: str, tmp_path: Path) -> None:
    own_pipeline = pipeline(hr.Repeatedly(hr.AfterCount(3)))
    root = f"s3://{BUCKET}/{uuid.uuid4().hex}"
    record = {"user": "ann", "at": "2026-03-01T10:10:00Z", "amount": 1}
    open_store(root).write("landing/clicks/a.jsonl", json.dumps(record).encode())
    hr.open(root)[own_pipeline].run(executor="local", publish=False)
    view = hr.open(root)["clicks"].state(pipeline=own_pipeline, at="main")
    assert waiting(view) == "2 more elements (1 of 3 so far)"


def test_a_damaged_file_of_state_is_named(tmp_path: Path) -> None:
    own_pipeline = pipeline(hr.Repeatedly(hr.AfterCount(3)))
    view = ran(tmp_path, own_pipeline, ONE)
    store = open_store(TemporaryDeployment(tmp_path).root)
    assert view.manifest is not None
    (file,) = [file for layer in view.manifest.tables["state"] for file in layer.files]
    store.write(file.path, store.read(file.path).replace(b"ann", b"Ann"))
    with pytest.raises(BrokenObjectError, match=file.path):
        view.to_arrow()
