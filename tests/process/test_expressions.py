"""Expressions and aggregates over landed files give the same on both executors, and what the oracle gives."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import headrace as hr
from headrace import col
from headrace.testing import end, rows, run
from tests.process.executors import ExecutorUnderTest, on_both
from tests.reading import read

LOG = col("line").regexp_extract(r"\[([^\]]+)\]", 1).strptime("%d/%b/%Y:%H:%M:%S %z")
PATH = col("line").split(" ").item(-1)
SPENT_FIELD = col("payload").json_field("spent", float)
"""Of a line of a web server's log, and of a text that holds JSON."""

WHAT: dict[str, Any] = {
    "logged": LOG.max(),
    "folders": PATH.split("/").slice(1, 2).length().max(),
    "pages": PATH.regexp_replace(r"\d+", "N").collect(),
    "digest": PATH.sha256().min(),
    "month": col("at").strftime("%b %Y", "Europe/Oslo").max(),
    "size": SPENT_FIELD.power(2).sqrt().ln().max(),
    "flags": col("n").bit_and(6).shift_left(2).max(),
    "dearest": PATH.max_by(SPENT_FIELD),
    "cheapest": PATH.min_by(SPENT_FIELD),
    "first": col("n").list_agg(2, SPENT_FIELD),
    "spent": PATH.map_agg(SPENT_FIELD),
    "often": col("n").mode(),
    "all": (SPENT_FIELD > 1).bool_and(),
    "one": (SPENT_FIELD > 1).bool_or(),
    "quantiles": col("n").quantiles([0.5, 1.0]),
}
LINES = [
    ("a", 5, "10.0.0.1 [01/Jan/2026:10:00:00 +0100] /shop/17/buy", '{"spent": 2.5}'),
    ("a", 6, "10.0.0.2 [01/Jan/2026:09:30:00 +0000] /shop/18/buy", '{"spent": 1}'),
    ("a", 5, "10.0.0.3 [no time] /", '{"spent": null}'),
    ("b", 3, "", "no JSON"),
]


def records() -> list[dict[str, Any]]:
    names, time_pattern = ("user", "n", "line", "payload"), "2026-01-01T10:{:02}:00Z"
    return [
        {**dict(zip(names, line, strict=True)), "at": time_pattern.format(minute)} for minute, line in enumerate(LINES)
    ]


def build() -> hr.Pipeline:
    columns = {"user": str, "n": int, "line": str, "payload": str, "at": datetime}
    source = hr.json("landing", columns, max_files=1).event_time("at", bound="1h")
    return hr.Pipeline("said", source, key="user", where=hr.FixedWindows("1h"), when=hr.on_update(), what=WHAT)


@on_both
def test_both_executors_give_what_the_oracle_gives(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    for number, record in enumerate(records()):
        (tmp_path / "landing" / f"{number}.json").write_text(json.dumps(record) + "\n")
    executor.run(build(), tmp_path.as_uri(), publish=False)
    first, second = read(build(), tmp_path.as_uri(), "current", "main").to_pylist()
    assert {name: first[name] for name in WHAT} == {
        "logged": datetime(2026, 1, 1, 9, 30, tzinfo=UTC),
        "folders": 2,
        "pages": ["/", "/shop/N/buy", "/shop/N/buy"],
        "digest": "3c0a754e9502671311da2f723b8350eed201f15671bb87987b912ff3b2e33060",
        "month": "Jan 2026",
        "size": 0.9162907318741551,
        "flags": 24,
        "dearest": "/shop/17/buy",
        "cheapest": "/shop/18/buy",
        "first": [6, 5],
        "spent": [{"left": "/shop/17/buy", "right": 2.5}, {"left": "/shop/18/buy", "right": 1.0}],
        "often": 5,
        "all": False,
        "one": True,
        "quantiles": [5, 6],
    }
    nothing = dict.fromkeys(WHAT)
    assert {name: second[name] for name in WHAT} == {
        **nothing, "folders": 0, "pages": [""], "digest": second["digest"], "month": "Jan 2026",
        "flags": 8, "first": [], "spent": [], "often": 3, "quantiles": [3, 3],
    }  # fmt: skip


def test_the_oracle_gives_the_same_panes() -> None:
    steps = [*[rows(record) for record in records()], end()]
    found_panes, expected_panes = (run(build(), steps, executor=name).panes for name in ("local", "reference"))
    assert list(map(str, found_panes)) == list(map(str, expected_panes))
    assert any(pane.is_retraction for pane in found_panes)
