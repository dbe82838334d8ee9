"""Why a window has fired or not: what becomes of windows, and the words for it."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import Pipeline, col
from headrace.model.time import render
from headrace.read.explanation import Explanation, WindowStatus
from headrace.read.open_windows import StateDefinitionError
from headrace.read.snapshots.snapshot_refs import NoSnapshotError
from headrace.read.views.arrow_types import ExplainError
from headrace.testing.deployment import TemporaryDeployment
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.names import MAIN
from headrace_snapshots.store import open_store
from tests.read.test_state import NOON, Element, pipeline, ran

pytestmark = pytest.mark.slow  # whole runs

EARLY = hr.AfterWatermark(early=hr.AfterCount(2), late=hr.AfterCount(1))


def explain_key(
    folder: Path, found_pipeline: Pipeline, key: Any, window: str | None = None, **more: Any
) -> Explanation:
    start = None if window is None else f"2026-03-01T{window}:00Z"
    return hr.open(TemporaryDeployment(folder).root)["clicks"].explain(
        key, window=start, pipeline=found_pipeline, **more
    )


def statuses(explanation: Explanation) -> list[tuple[str, WindowStatus]]:
    return [(render(window.window.start)[11:16], window.status) for window in explanation.windows]


def test_a_window_that_waits_says_for_what_and_who_holds_the_watermark_back(tmp_path: Path) -> None:
    own_pipeline = pipeline(EARLY)
    ran(tmp_path, own_pipeline, [("ann", "10:10", 1), ("ann", "10:20", 2)], [("ann", "10:30", 4), ("bob", "10:30", 1)])
    lines = str(explain_key(tmp_path, own_pipeline, "ann", "10:00")).splitlines()
    text = "held back by input 'source'"
    assert lines[0].startswith("clicks at snapshot ")
    assert lines[0].endswith(" (epoch 1), aggregation 1: user = ann")
    assert lines[1:] == [
        f"the watermark stands at 2026-03-01T10:20:00Z, {text}; it last moved on at 2026-03-01T12:00:00Z",
        "the newest epoch ran at 2026-03-01T12:00:00Z",
        "",
        "window [2026-03-01T10:00:00Z, 2026-03-01T11:00:00Z): open, has fired 1 pane",
        "  holds clicks = 3, amount = 7; 1 element that no pane has shown yet",
        "  its trigger:",
        "    [ ] around the end of the window",
        "        [ ] early: 2 elements have arrived",
        "            waits for 1 more element (1 of 2 so far)",
        "        [ ] on time: the watermark passes the end of the window",
        f"            waits for the watermark to pass 2026-03-01T11:00:00Z (it stands at 2026-03-01T10:20:00Z, {text})",
        "        [ ] late: an epoch brings an element",
        "  expires once the watermark passes 2026-03-01T12:00:00Z: "
        "it gives what no pane has shown by then; elements after that are late",
        "  pane 0, early, of epoch 0: clicks = 2, amount = 3",
    ]


def test_the_split_that_holds_the_watermark_back_is_named(tmp_path: Path) -> None:
    source = hr.json("landing/clicks", {"user": str, "at": datetime, "amount": int})
    own_pipeline = Pipeline(
        "clicks",
        source.event_time("at", bound="10m", split=col("user")),
        key=None,
        what={"clicks": hr.count()},
        where=hr.FixedWindows("1h"),
    )
    ran(tmp_path, own_pipeline, [("ann", "10:10", 1), ("bob", "13:00", 1)])
    explanation = explain_key(tmp_path, own_pipeline, None)
    assert explanation.held_back_by == "split 'ann' of input 'source'"
    assert "no key" in str(explanation).splitlines()[0]
    assert [window.status for window in explanation.windows] == [WindowStatus.OPEN, WindowStatus.OPEN]


def test_what_has_become_of_windows(tmp_path: Path) -> None:
    own_pipeline = pipeline(EARLY, how=hr.retracting(allowed_lateness="1h"))
    first = [("ann", "08:10", 1), ("ann", "08:20", 1), ("bob", "10:30", 1)]
    ran(
        tmp_path,
        own_pipeline,
        first,
        [("ann", "10:15", 1), ("ann", "08:30", 1), ("bob", "09:05", 7)],
        [("bob", "11:30", 7)],
    )
    ann = explain_key(tmp_path, own_pipeline, "ann")
    assert statuses(ann) == [("08:00", WindowStatus.EXPIRED), ("10:00", WindowStatus.OPEN)]
    expired_window = ann.windows[0]
    assert (expired_window.panes, expired_window.late) == (2, 1)
    text = str(ann)
    assert "window [2026-03-01T08:00:00Z, 2026-03-01T09:00:00Z): expired, has fired 2 panes" in text
    assert "  the watermark has passed 2026-03-01T10:00:00Z: elements that still come for it are late" in text
    assert "  pane 0, withdrawn, of epoch 0: clicks = 2, amount = 2" in text
    assert "  1 element was dropped: too late for it (headrace read --view late)" in text


def test_panes_and_late_elements_of_older_epochs_can_be_left_out(tmp_path: Path) -> None:
    own_pipeline = pipeline(EARLY)
    ran(
        tmp_path,
        own_pipeline,
        [("ann", "10:10", 1), ("ann", "10:20", 1), ("bob", "12:30", 1)],
        [("ann", "10:30", 1)],
        [("ann", "12:40", 1), ("ann", "12:50", 1)],
    )
    every, newest = explain_key(tmp_path, own_pipeline, "ann"), explain_key(tmp_path, own_pipeline, "ann", epochs=1)
    assert statuses(every) == [("10:00", WindowStatus.EXPIRED), ("12:00", WindowStatus.OPEN)]
    assert (every.windows[0].late, every.since) == (1, 0)
    assert (newest.windows, newest.since) == (every.windows[1:], 2)
    assert "panes and late records of epochs before 2 are left out" in str(newest)
    assert "are left out" not in str(every)
    assert explain_key(tmp_path, own_pipeline, "ann", epochs=3) == every


def test_of_other_windows_no_panes_are_read(tmp_path: Path) -> None:
    own_pipeline = pipeline(EARLY)
    ran(tmp_path, own_pipeline, *([("ann", f"{hour:02}:{minute}", 1)] for hour in range(8, 18) for minute in (10, 20)))
    reader = hr.open(TemporaryDeployment(tmp_path).root)["clicks"]
    reader.explain("ann", pipeline=own_pipeline)  # which keeps manifests
    requests = reader.catalog.store.requests
    requests_before = requests.snapshot()
    every = reader.explain("ann", pipeline=own_pipeline)
    of_all, requests_before = requests.since(requests_before)["get"], requests.snapshot()
    (one,) = reader.explain("ann", window="2026-03-01T12:30:00Z", pipeline=own_pipeline).windows
    assert requests.since(requests_before)["get"] <= of_all - 2 * 8
    assert one in every.windows
    assert one.panes == 2


def test_a_window_of_which_nothing_came_is_told_from_one_that_came_too_late(tmp_path: Path) -> None:
    own_pipeline = pipeline(EARLY)
    ran(tmp_path, own_pipeline, [("bob", "12:30", 1)], [("ann", "08:10", 1)])
    (late,) = explain_key(tmp_path, own_pipeline, "ann", "08:20").windows
    assert (late.status, late.panes, late.late) == (WindowStatus.EXPIRED, 0, 1)
    (window,) = explain_key(tmp_path, own_pipeline, "ann", "12:20").windows
    assert (window.status, window.panes, window.late) == (WindowStatus.ABSENT, 0, 0)
    assert "no element of this key has come into it" in "\n".join(window.lines())
    (other,) = explain_key(tmp_path, own_pipeline, "ann").windows
    assert other == late, "what was late is known without asking for it"
    assert "no element with this key has ever come into a window" in str(explain_key(tmp_path, own_pipeline, "zoe"))


def test_dead_letters_are_named_where_nothing_came(tmp_path: Path) -> None:
    own_pipeline = pipeline(EARLY)
    deployment = TemporaryDeployment(tmp_path)
    deployment.land(own_pipeline, {"user": "ann", "at": "2026-03-01T10:10:00Z", "amount": 1})
    (tmp_path / "landing" / "clicks" / "broken.jsonl").write_text('{"user": "zoe", "at": "yesterday"}\n')
    deployment.run(own_pipeline, at=NOON)
    assert "1 record of all keys could not be used" in str(explain_key(tmp_path, own_pipeline, "zoe"))
    assert "could not be used" not in str(explain_key(tmp_path, own_pipeline, "ann"))


def test_a_window_whose_trigger_has_finished_is_closed(tmp_path: Path) -> None:
    own_pipeline = pipeline(hr.AfterCount(1))
    ran(tmp_path, own_pipeline, [("ann", "10:10", 1)])
    (window,) = explain_key(tmp_path, own_pipeline, "ann").windows
    assert (window.status, window.panes, window.holding) == (WindowStatus.CLOSED, 1, None)
    assert "its trigger has finished: elements that still come for it are dropped" in "\n".join(window.lines())


def test_sessions_that_became_one(tmp_path: Path) -> None:
    own_pipeline = pipeline(
        hr.Repeatedly(hr.AfterCount(1)), where=hr.Sessions("20m"), how=hr.retracting(allowed_lateness="2h")
    )
    ran(tmp_path, own_pipeline, [("ann", "10:00", 1)], [("ann", "10:10", 1)])
    session = explain_key(tmp_path, own_pipeline, "ann", "10:25")
    assert statuses(session) == [("10:00", WindowStatus.OPEN)], "any time in a window names it"
    both = explain_key(tmp_path, own_pipeline, "ann")
    assert statuses(both) == [("10:00", WindowStatus.MERGED), ("10:00", WindowStatus.OPEN)]
    assert "part of a larger window now" in str(both)


def test_a_chain_is_explained_aggregation_by_aggregation(tmp_path: Path) -> None:
    second_aggregation = hr.Aggregation(key=None, what={"users": hr.count()}, where=hr.FixedWindows("2h"))
    own_pipeline = pipeline(hr.Default(), how=hr.retracting(allowed_lateness="1h"), then=[second_aggregation])
    ran(tmp_path, own_pipeline, [("ann", "10:10", 1), ("ann", "11:20", 1)])
    last = explain_key(tmp_path, own_pipeline, None)
    assert last.stage == 2
    assert last.held_back_by is not None
    assert last.held_back_by.startswith("input 'source'"), "nothing waits on time above"
    (window,) = last.windows
    assert (window.panes, window.late) == (0, None)
    first = explain_key(tmp_path, own_pipeline, "ann", stage=1)
    assert statuses(first) == [("10:00", WindowStatus.OPEN), ("11:00", WindowStatus.OPEN)]
    assert [(each.panes, list(each.last_panes)) for each in first.windows] == [(1, []), (0, [])]
    with pytest.raises(ExplainError, match="leave key out"):
        explain_key(tmp_path, own_pipeline, "ann")
    with pytest.raises(StateDefinitionError, match="counted from 1 to 2"):
        explain_key(tmp_path, own_pipeline, "ann", stage=0)


def test_aggregations_above_that_wait_hold_the_watermark_back(tmp_path: Path) -> None:
    how = hr.retracting(allowed_lateness="1h", timestamp="earliest")
    second_aggregation = hr.Aggregation(key=None, what={"users": hr.count()}, where=hr.FixedWindows("2h"))
    own_pipeline = pipeline(hr.Default(), how=how, then=[second_aggregation])
    ran(tmp_path, own_pipeline, [("ann", "11:10", 1), ("ann", "11:50", 1)])
    assert explain_key(tmp_path, own_pipeline, None).held_back_by == "windows of aggregation 1 that wait"


def test_an_older_snapshot_is_explained_as_it_was(tmp_path: Path) -> None:
    own_pipeline = pipeline(EARLY)
    ran(tmp_path, own_pipeline, [("ann", "10:10", 1)], [("ann", "10:20", 1)])
    clicks = hr.open(TemporaryDeployment(tmp_path).root)["clicks"]
    first = clicks.snapshots().to_arrow()["snapshot"][0].as_py()
    (window_then,) = explain_key(tmp_path, own_pipeline, "ann", at=first).windows
    (now,) = explain_key(tmp_path, own_pipeline, "ann").windows
    assert (window_then.panes, now.panes) == (0, 1)


def test_windows_that_are_over_are_counted_where_there_are_many(tmp_path: Path) -> None:
    own_pipeline = pipeline(EARLY, where=hr.FixedWindows("5m"), how=hr.accumulating())
    elements: Sequence[Element] = [("ann", f"{10 + n // 12}:{n % 12 * 5:02}", 1) for n in range(25)]
    ran(tmp_path, own_pipeline, elements, [("ann", "14:00", 1)])
    explanation = explain_key(tmp_path, own_pipeline, "ann")
    assert (explanation.earlier, len(explanation.windows)) == (5, 21)
    assert "5 windows before them are over" in str(explanation)
    (first,) = explain_key(tmp_path, own_pipeline, "ann", "10:00").windows
    assert first.status is WindowStatus.EXPIRED


def test_a_window_that_outlives_the_calendar(tmp_path: Path) -> None:
    own_pipeline = pipeline(hr.Default(), how=hr.accumulating(allowed_lateness="4000000d"))
    view = ran(tmp_path, own_pipeline, [("ann", "10:10", 1), ("ann", "11:20", 1)])
    on_time, early = view.to_arrow()["_due_watermark"].to_pylist()
    assert on_time is None, "its expiry is after the year 9999"
    assert early == datetime(2026, 3, 1, 12, tzinfo=UTC)
    explanation = explain_key(tmp_path, own_pipeline, "ann")
    assert "expires once the watermark passes the year 9999" in str(explanation)
    assert [window["expires"] for window in explanation.to_json()["windows"]] == [None, None]


KEYS: list[tuple[type, Any, str]] = [
    (int, 7, "7"),
    (bool, True, "true"),
    (date, date(2026, 3, 1), "2026-03-01"),
    (datetime, datetime(2026, 3, 1, tzinfo=UTC), "2026-03-01T00:00:00Z"),
    (Decimal, Decimal("1.5"), "1.5"),
    (bytes, b"\x01\x02", "AQI="),
]


@pytest.mark.parametrize(
    ("where", "starts"),
    [
        (hr.SlidingWindows("1h", "30m"), ["13:00", "13:30"]),
        (hr.SlidingWindows("15m", "1h"), []),
        (hr.FixedWindows("1h", phase=col("user").length() * 60_000_000), ["13:03"]),
        (hr.ShiftedOutputTime(hr.CalendarWindows("day"), "5m"), ["00:00"]),
        (hr.Sessions("1h"), []),
    ],
    ids=["sliding", "between", "phase", "calendar", "sessions"],
)
def test_a_time_of_which_nothing_is_known_is_in_the_windows_that_an_element_would_be_in(
    tmp_path: Path, where: hr.WindowFn, starts: list[str]
) -> None:
    own_pipeline = pipeline(EARLY, where=where)
    ran(tmp_path, own_pipeline, [("bob", "13:40", 1)])
    assert statuses(explain_key(tmp_path, own_pipeline, "ann", "13:40")) == [
        (start, WindowStatus.ABSENT) for start in starts
    ]


@pytest.mark.parametrize(("kind", "value", "text"), KEYS, ids=lambda value: getattr(value, "__name__", None))
def test_keys_of_every_type_are_found_by_value_and_as_a_command_line_writes_them(
    tmp_path: Path, kind: type, value: Any, text: str
) -> None:
    own_pipeline = Pipeline(
        "clicks",
        hr.json("landing/clicks", {"user": str, "k": kind, "at": datetime}).event_time("at", bound="10m"),
        key=["user", "k"],
        what={"clicks": hr.count()},
        where=hr.FixedWindows("1h"),
    )
    deployment = TemporaryDeployment(tmp_path)
    moment = datetime(2026, 3, 1, 10, tzinfo=UTC) + timedelta(minutes=5)
    deployment.land(own_pipeline, {"user": "ann", "k": value, "at": moment})
    deployment.run(own_pipeline, at=NOON)
    by_value = explain_key(tmp_path, own_pipeline, ("ann", value))
    assert [window.status for window in by_value.windows] == [WindowStatus.OPEN]
    assert explain_key(tmp_path, own_pipeline, ["ann", text]) == by_value
    assert explain_key(tmp_path, own_pipeline, {"k": value, "user": "ann"}) == by_value
    if kind is not bool:
        with pytest.raises(ExplainError, match="is not the"):
            explain_key(tmp_path, own_pipeline, ["ann", "x"])


@pytest.mark.parametrize("key", [None, [], ["ann", "bob"], {"name": "ann"}, [None], 7])
def test_what_is_no_key_of_the_pipeline_is_an_error(tmp_path: Path, key: Any) -> None:
    own_pipeline = pipeline(EARLY)
    ran(tmp_path, own_pipeline, [("ann", "10:10", 1)])
    with pytest.raises(ExplainError, match="key"):
        explain_key(tmp_path, own_pipeline, key)


def test_what_is_no_window_is_an_error(tmp_path: Path) -> None:
    own_pipeline = pipeline(EARLY)
    ran(tmp_path, own_pipeline, [("ann", "10:10", 1)])
    clicks = hr.open(TemporaryDeployment(tmp_path).root)["clicks"]
    for window in ("soon", "2026-03-01T10:00:00", datetime(2026, 3, 1)):
        with pytest.raises(ExplainError, match="is not a time"):
            clicks.explain("ann", window=window, pipeline=own_pipeline)


def test_without_a_snapshot_there_is_nothing_to_explain(tmp_path: Path) -> None:
    Catalog(open_store(tmp_path.as_uri()), "clicks").claim(MAIN, "a run")
    with pytest.raises(NoSnapshotError, match="no snapshot yet at main"):
        hr.open(tmp_path.as_uri())["clicks"].explain("ann", pipeline=pipeline(EARLY))


def test_a_row_that_having_withholds_is_said_to_be_and_why(tmp_path: Path) -> None:
    what = {"clicks": hr.count(), "amount": col("amount").sum(), "each": col("amount") / col("clicks")}
    condition, when = (col("clicks") > 1) & (col("each") < 4), hr.Repeatedly(hr.AfterCount(1))
    own_pipeline = pipeline(when, what=what, having=condition, how=hr.retracting("1h"))
    ran(
        tmp_path,
        own_pipeline,
        [("ann", "10:10", 3), ("bob", "08:10", 1)],
        [("ann", "10:20", 2)],
        [("ann", "10:30", 40)],
    )
    (ann,) = explain_key(tmp_path, own_pipeline, "ann").windows
    lines = [*ann.lines()]
    why = "having ((clicks > 1) and (each < 4)) is false of clicks = 3, each = 15.0"
    assert lines[0].endswith("open, has fired 3 panes")
    assert lines[1] == f"  readers do not see its newest pane: {why}"
    assert lines[3] == f"  a pane of that would not leave: {why}"
    assert [pane["pane_index"] for pane in ann.last_panes] == [1, 1], "what left, and its withdrawal"
    assert ann.to_json()["withheld"] == {
        "condition": "((clicks > 1) and (each < 4))",
        "is_null": False,
        "values": {"clicks": 3, "each": 15.0},
    }
    (bob,) = explain_key(tmp_path, own_pipeline, "bob", "08:00").windows
    assert bob.status is WindowStatus.EXPIRED
    assert next(iter(bob.lines())).endswith(
        "expired, without a pane of which having ((clicks > 1) and (each < 4)) was true"
    )
    plain = pipeline(when, what=what, how=hr.discarding("1h"), having=col("amount") / (col("clicks") - 1) > 0)
    ran(tmp_path / "other", plain, [("ann", "10:10", 3)], [("ann", "10:20", 3)])
    (ann,) = explain_key(tmp_path / "other", plain, "ann").windows
    assert ann.withheld is None, "a discarding window does not remember what it emitted"
    assert ann.holding is not None
    assert str(ann.holding.withheld).endswith("is false of amount = 0, clicks = 0")
    nothing = pipeline(when, what=what, how=hr.retracting("1h"), having=col("amount") / (col("clicks") - 1) > 0)
    ran(tmp_path / "nothing", nothing, [("ann", "10:10", 3)])
    (ann,) = explain_key(tmp_path / "nothing", nothing, "ann").windows
    assert str(ann.withheld).endswith("is NULL of amount = 3, clicks = 1")
