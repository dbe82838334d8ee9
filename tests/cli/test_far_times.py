"""Times outside of the years 1 to 9999, for which Python has no datetime: what can be built is bounded, and what comes
of it all the same is shown.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.cli.main import app
from headrace.errors import PipelineError
from headrace.model.event_time import BoundedOutOfOrderness
from headrace.model.time import (
    BEGIN_OF_CALENDAR,
    END_OF_CALENDAR,
    GLOBAL_WINDOW_END,
    MIN_INSTANT,
    Instant,
    iso_8601,
    parse_instant,
    render,
)
from tests.reference.strategies import examples

FILE = """
from datetime import datetime, timedelta
import headrace as hr
from headrace import col

given = hr.json("landing", {"user": str, "at": datetime}).event_time("at", bound="0s", max_ahead=None)
often = hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1))
seen = {"n": hr.count(), "last": col("at").max(), "all": col("at").collect()}

sessions = hr.Pipeline(
    "sessions", given, key="user", what=seen, where=hr.Sessions("400d"), when=often, executor="local"
)
patient = hr.Pipeline(
    "patient", given, key="user", what=seen, where=hr.FixedWindows("1h"), when=often,
    how=hr.accumulating(timedelta.max), executor="local",
)
above = hr.Pipeline(
    "above", given, key="user", what={"n": hr.count()}, where=hr.GlobalWindows(), when=hr.Repeatedly(hr.AfterCount(1)),
    how=hr.discarding(), executor="local",
    then=[hr.Aggregation(key="user", what={"n": col("n").sum()}, where=hr.FixedWindows("1d"), when=often)],
)
months = hr.Pipeline(
    "months", given, key="user", what={"n": hr.count()}, where=hr.GlobalWindows(),
    when=hr.Repeatedly(hr.AfterCount(1)), how=hr.discarding(), executor="local",
    then=[hr.Aggregation(key="user", what={"n": col("n").sum()}, where=hr.CalendarWindows("month"), when=often)],
)
years = hr.Pipeline(
    "years", given, key="user", what=seen, where=hr.CalendarWindows("month", "Asia/Tokyo", 24), when=often,
    executor="local",
)
"""
NAMES = ("sessions", "patient", "above", "months", "years")


@dataclass(frozen=True)
class Folder:
    root: Path

    def run_command(self, *words: str) -> str:
        result = CliRunner().invoke(app, [*words, *(["--root", self.root.as_uri()] if words[0] != "check" else [])])
        assert result.exit_code == 0, (words[0], repr(result.exception), result.output[-600:])
        return result.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    found_folder = Folder(tmp_path_factory.mktemp("far"))
    (found_folder.root / "far.py").write_text(FILE)
    (found_folder.root / "landing").mkdir()
    times = ["2026-01-01T00:00:00Z", "9998-12-31T23:59:59Z", "1900-01-01T00:00:00Z"]
    lines = [json.dumps({"user": "ann", "at": time}) for time in times]
    for number, line in enumerate(lines):
        (found_folder.root / "landing" / f"{number}.json").write_text(line + "\n")
    for name in NAMES:
        found_folder.run_command("run", f"{found_folder.root}/far.py:{name}", "--publish", "--max-epochs", "1")
        found_folder.run_command("run", f"{found_folder.root}/far.py:{name}", "--no-publish")
    return found_folder


COMMANDS = [
    *[
        ["read", "NAME", "--view", view, "--format", kind]
        for view in ("current", "panes", "late", "state")
        for kind in ("json", "text")
    ],
    ["explain", "NAME", "--key", "ann"],
    ["explain", "NAME", "--key", "ann", "--format", "json"],
    ["show", "NAME", "published"],
    ["diff", "NAME", "published", "main"],
    ["diff", "NAME", "published", "main", "--format", "json"],
    ["log", "NAME"],
    ["check", "NAME"],
    ["plan", "NAME"],
]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_shows_them(folder: Folder, name: str, command: list[str]) -> None:
    folder.run_command(*[word.replace("NAME", f"{folder.root}/far.py:{name}") for word in command])


def test_an_end_beyond_the_calendar_is_told_in_full(folder: Folder) -> None:
    rows = json.loads(folder.run_command("read", f"{folder.root}/far.py:sessions", "--format", "json"))
    assert [row["window_end"] for row in rows if row["n"] == 1][-1] == "+10000-02-04T23:59:59Z"


def test_one_pipeline_that_cannot_be_described_does_not_end_the_check_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "two.py"
    file.write_text(TWO)
    result = CliRunner().invoke(app, ["check", str(file)])
    assert (result.exit_code, result.exception.__class__) == (10, SystemExit)
    assert "pipeline good" in result.stdout
    assert "it cannot be described: RuntimeError: no words" in result.stdout
    assert "2 checked, 1 wrong" in result.stdout


TWO = """
from dataclasses import dataclass
from datetime import datetime
import headrace as hr

@dataclass(frozen=True, repr=False)
class Mute(hr.CustomWindows):
    def assign(self, timestamp, record):
        return []
    def __repr__(self):
        raise RuntimeError("no words")

given = hr.json("landing", {"user": str, "at": datetime}).event_time("at", bound="0s")
bad = hr.Pipeline("bad", given, key="user", what={"n": hr.count()}, where=Mute())
good = hr.Pipeline("good", given, key="user", what={"n": hr.count()}, where=hr.FixedWindows("1h"))
"""


@pytest.mark.parametrize(
    "build",
    [
        lambda: hr.FixedWindows("3000000d"),
        lambda: hr.SlidingWindows("3000000d", "1d"),
        lambda: hr.SlidingWindows("1d", "3000000d"),
        lambda: hr.Sessions(timedelta(days=3_000_000)),
        lambda: hr.CalendarWindows("month", "UTC", 12_001),
        lambda: hr.CalendarWindows("day", "UTC", 10**9),
        lambda: hr.json("landing", {"at": datetime}).event_time("at", bound="3000000d"),
        lambda: BoundedOutOfOrderness("3000000d"),
    ],
)
def test_windows_and_bounds_of_more_than_a_thousand_years_are_refused(build: Callable[[], Any]) -> None:
    with pytest.raises(PipelineError, match="1,000 years"):
        build()


@given(st.integers(MIN_INSTANT + 1, GLOBAL_WINDOW_END - 1))
@examples(200)
def test_every_time_is_written_and_read_again(instant: int) -> None:
    assert parse_instant(render(Instant(instant))) == instant


def test_times_are_written_as_iso_8601_has_them() -> None:
    ends = [BEGIN_OF_CALENDAR, BEGIN_OF_CALENDAR - 1, END_OF_CALENDAR, END_OF_CALENDAR + 1]
    assert [render(Instant(instant)) for instant in ends] == [
        "0001-01-01T00:00:00Z",
        "+0000-12-31T23:59:59.999999Z",
        "9999-12-31T23:59:59.999999Z",
        "+10000-01-01T00:00:00Z",
    ]


FARTHEST = (-(2**63), -(2**63) + 1, -1, BEGIN_OF_CALENDAR - 1, END_OF_CALENDAR + 1, 2**63 - 2, 2**63 - 1)
EXTREMES = """
from datetime import datetime
import headrace as hr
from headrace import col

extremes = hr.Pipeline(
    "extremes", hr.json("landing", {"id": int, "us": int}).arrival_time(), key={"at": col("us").cast(datetime)},
    what={"last": col("us").cast(datetime).max(), "all": col("us").cast(datetime).collect(), "n": hr.count()},
    where=hr.GlobalWindows(), when=hr.on_update(), how=hr.retracting(), executor="local",
)
"""


def test_each_command_prints_any_time(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    (tmp_path / "far.py").write_text(EXTREMES)
    (tmp_path / "landing").mkdir()
    far = f"{tmp_path}/far.py"
    for number in range(2):
        lines = [json.dumps({"id": number, "us": us}) + "\n" for us in FARTHEST]
        (tmp_path / "landing" / f"{number}.json").write_text("".join(lines))
        folder.run_command("run", far)
        folder.run_command("tag", far, f"run{number}", "main")
    written_times = [iso_8601(us) for us in FARTHEST if us != -1]
    for words in (
        ("read", far),
        ("read", far, "--order", "last desc"),
        ("read", far, "--view", "panes", "--limit", "100"),
        ("diff", far, "run0", "run1"),
    ):
        for form in ("text", "json"):
            output = folder.run_command(*words, "--format", form)
            assert all(time in output for time in written_times), (words, form)
    for time in written_times:
        assert f"at = {time}" in folder.run_command("explain", far, f"--key={time}")
    assert [row["last"] for row in hr.open(tmp_path.as_uri())["extremes"].current().head(20)]


@pytest.mark.parametrize("executor", ["local", "reference"])
def test_unit_tests_show_any_time(executor: Any) -> None:
    scope: dict[str, Any] = {}
    exec(EXTREMES, scope)
    rows = hr.testing.rows(*[{"id": 1, "us": us} for us in FARTHEST])
    result = hr.testing.run(scope["extremes"], [rows], executor=executor)
    shown_values = {str(row["last"]).replace(" ", "T").replace("+00:00", "Z") for row in result.current}
    assert shown_values == {iso_8601(us) for us in FARTHEST}
