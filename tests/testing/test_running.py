"""``headrace.testing.run``: whole pipelines in memory, on the kernel and on the reference."""

import math
import os
import re
import subprocess
import sys
import sysconfig
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.errors import DeadLetterBudgetError, FixConfigError
from headrace.testing import (
    Result,
    Step,
    UnitTestError,
    assert_current,
    assert_late,
    assert_panes,
    assert_rejected,
    at,
    end,
    processing_time,
    rows,
    run,
    signal,
    together,
    watermark,
)
from tests.testing.pipelines import SCHEMA, delays, flight


@pytest.fixture(params=["local", "reference"])
def executor(request: pytest.FixtureRequest) -> Any:
    """Each of the executors of tests."""
    return request.param


WITHOUT_LAB = """
import importlib.util, site, sys, warnings
site.addsitedir(sys.argv[1])
sys.path.append(sys.argv[2])
assert importlib.util.find_spec("headrace_lab") is None
from headrace.testing import rows, run, watermark
from tests.testing.pipelines import delays, flight
steps = [rows(flight("13:05", 5)), watermark("14:00")]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    result = run(delays(), steps, executor="reference")
(warning,) = [one for one in caught if one.category is DeprecationWarning and "headrace" in str(one.message)]
assert warning.filename == __file__, warning.filename
assert [*result.panes] == [*run(delays(), steps).panes]
print(warning.message)
"""


def test_without_the_lab_the_kernel_computes_for_the_reference_and_a_warning_says_so(tmp_path: Path) -> None:
    """In a process that has all packages of this one but headrace-lab."""
    site, script = tmp_path / "site", tmp_path / "script.py"
    site.mkdir()
    for place in Path(sysconfig.get_path("purelib")).iterdir():
        if "headrace_lab" not in place.name:
            (site / place.name).symlink_to(place)
    script.write_text(WITHOUT_LAB)
    result = subprocess.run(
        [sys.executable, "-S", str(script), str(site), str(Path(__file__).parents[2])],
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert re.search(r"headrace-lab .* The kernel computes", result.stdout)


def test_a_window_gives_early_on_time_and_late_panes_with_retractions(executor: Any) -> None:
    result = run(
        delays(),
        [rows(flight("13:05", 5)), rows(flight("13:10", 9)), watermark("14:00"), rows(flight("13:20", 30))],
        executor=executor,
    )
    window = ["13:00", "14:00"]
    assert_panes(
        result,
        [
            {"origin": "JFK", "window": window, "timing": "EARLY", "pane_index": 0, "flights": 1, "worst": 5},
            {"flights": 1, "worst": 5, "timing": "EARLY", "is_retraction": True},
            {"timing": "early", "pane_index": 1, "flights": 2, "worst": 9},
            {"pane_index": 1, "is_retraction": True},
            {"timing": "on time", "pane_index": 2, "flights": 2, "worst": 9},
            {"pane_index": 2, "is_retraction": True},
            {"timing": "LATE", "pane_index": 3, "flights": 3, "worst": 30},
        ],
    )
    assert [len(step.panes) for step in result.steps] == [1, 2, 2, 2]
    assert [pane.step for pane in result.panes] == [0, 1, 1, 2, 2, 3, 3]
    assert result.current.only("origin", "flights") == [{"origin": "JFK", "flights": 3}]
    assert result.steps[1].current.only("flights") == [{"flights": 2}]
    assert len(result.retractions) == 3
    assert not result.late
    assert not result.rejected


def test_a_window_that_begins_at_the_end_of_time_has_no_ends(executor: Any) -> None:
    has_none = col("window_start").is_null()
    last = hr.Aggregation(what={"n": hr.count(), "has_none": has_none}, where=hr.FixedWindows("1us"))
    pipeline = replace(
        delays(), where=hr.GlobalWindows(), when=hr.Repeatedly(hr.AfterCount(1)), how=hr.discarding(), then=[last]
    )
    first, *_ = run(pipeline, [rows(flight("13:05", 5)), end()], executor=executor).panes
    assert (first.window, first.values) == ((None, None), {"n": 1, "has_none": True})


def test_a_pane_has_all_that_readers_see(executor: Any) -> None:
    (pane,) = run(delays(), [rows(flight("13:05", 5))], executor=executor).panes
    assert pane.key == {"origin": "JFK"}
    assert pane.values == {"flights": 1, "worst": 5}
    assert pane.window == (datetime(1970, 1, 1, 13, tzinfo=UTC), at("14:00"))
    assert (pane.timing, pane.index, pane.is_retraction, pane.is_first, pane.is_last) == (
        "EARLY",
        0,
        False,
        True,
        False,
    )
    assert pane.time == datetime(1970, 1, 1, 13, 59, 59, 999999, tzinfo=UTC)
    assert pane["flights"] == 1
    assert pane.row["window_start"] == at("13:00")
    assert repr(pane) == "<EARLY #0 [13:00, 14:00) origin='JFK' flights=1 worst=5>"


def test_the_source_moves_the_watermark_of_its_own(executor: Any) -> None:
    result = run(delays(), [rows(flight("13:05")), rows(flight("15:00"))], executor=executor)
    assert result.steps[0].watermark == at("12:05")
    assert result.watermark == at("14:00")
    assert_panes(result.steps[1], [{"window": ["15:00", "16:00"]}, {"is_retraction": True}, {"timing": "ON_TIME"}])


def test_a_watermark_does_not_go_back(executor: Any) -> None:
    result = run(delays(), [watermark("14:00"), watermark("13:00"), rows(flight("13:30"))], executor=executor)
    assert [step.watermark for step in result.steps] == [at("14:00")] * 3


def test_records_behind_the_allowed_lateness_are_late(executor: Any) -> None:
    result = run(delays(), [watermark("16:00"), rows(flight("13:05"), flight("14:05"))], executor=executor)
    assert_late(
        result, [{"origin": "JFK", "event_time": "13:05", "window": ["13:00", "14:00"], "reason": "window expired"}]
    )
    assert_current(result, [{"window": ["14:00", "15:00"], "timing": "LATE"}])


def test_bad_records_are_rejected_as_those_of_files_are(executor: Any) -> None:
    bad = [flight("13:05", origin=None), {**flight("13:05"), "delay": "soon"}, {"origin": "JFK"}, '{"origin": "JF']
    result = run(delays(), [rows(flight("13:01"), *bad), rows(flight("0001-01-01T00:00:00Z"))], executor=executor)
    assert_rejected(
        result,
        [
            {"input": "source", "position": 1, "reason": "key is null: origin"},
            {"position": 2, "reason": "column delay: not an int"},
            {"position": 3, "reason": "event time is null", "raw": '{"origin": "JFK"}'},
            {"position": 4, "reason": "not a JSON object", "raw": '{"origin": "JF'},
            {"position": 0, "reason": "event time is outside the years 1900 to 9998"},
        ],
    )
    assert_current(result, [{"flights": 1}])


def test_a_budget_of_dead_letters_holds(executor: Any) -> None:
    pipeline = delays(input=hr.json("landing/flights", SCHEMA, max_rejected=1).event_time("at", bound="1h"))
    assert len(run(pipeline, [rows({}), rows({})], executor=executor).rejected) == 2
    with pytest.raises(DeadLetterBudgetError, match="epoch 1 rejects 2 records of input source"):
        run(pipeline, [rows({}), rows({}, {})], executor=executor)


def test_rows_are_written_in_the_format_of_their_source(executor: Any) -> None:
    given_rows = [{"origin": "a,b", "at": at("13:05"), "delay": None}, {"origin": None, "at": "13:06"}]
    for source in (hr.csv, hr.parquet, hr.json):
        pipeline = delays(input=source("landing/flights", SCHEMA).event_time("at", bound="1h"))
        result = run(pipeline, [rows(*given_rows)], executor=executor)
        assert_panes(result, [{"origin": "a,b", "flights": 1, "worst": None}])
        assert_rejected(result, [{"reason": "key is null: origin"}])


def test_csv_takes_lines_and_parquet_takes_what_it_can_hold(executor: Any) -> None:
    pipeline = delays(input=hr.csv("landing/flights", SCHEMA).event_time("at", bound="1h"))
    result = run(pipeline, [rows("JFK,1970-01-01T13:00:00Z,7", "JFK,1970-01-01T13:00:00Z")], executor=executor)
    assert_panes(result, [{"worst": 7}])
    assert_rejected(result, [{"position": 2, "reason": "not 3 fields, as the header has"}])
    pipeline = delays(input=hr.parquet("landing/flights", SCHEMA).event_time("at", bound="1h"))
    with pytest.raises(UnitTestError, match="input source, column delay: a Parquet file of this source holds int64"):
        run(pipeline, [rows({**flight("13:00"), "delay": "soon"})], executor=executor)
    with pytest.raises(UnitTestError, match="input source, a Parquet file has no lines"):
        run(pipeline, [rows("JFK")], executor=executor)


def test_the_clock_follows_event_time_until_a_step_sets_it(executor: Any) -> None:
    pipeline = delays(when=hr.Repeatedly(hr.AfterProcessingTime("5m")), how=hr.discarding(None))
    result = run(
        pipeline,
        [rows(flight("13:05")), processing_time("13:09"), processing_time("13:10"), rows(flight("13:30"))],
        executor=executor,
    )
    assert [step.processing_time for step in result.steps] == [at("13:05"), at("13:09"), at("13:10"), at("13:10")]
    assert [len(step.panes) for step in result.steps] == [0, 0, 1, 0]


def test_a_record_far_ahead_of_a_clock_that_was_set_moves_no_watermark(executor: Any) -> None:
    result = run(
        delays(), [processing_time("12:00"), rows(flight("1970-01-03T12:00:00Z"), flight("12:30"))], executor=executor
    )
    assert result.ahead == 1
    assert result.watermark == at("11:30")


def test_windows_of_arrival_go_by_the_clock(executor: Any) -> None:
    pipeline = delays(input=hr.json("landing/flights", SCHEMA).arrival_time(), when=hr.Default())
    result = run(
        pipeline, [processing_time("13:05"), rows(flight("00:00")), processing_time("14:00")], executor=executor
    )
    assert_panes(result, [{"window": ["13:00", "14:00"], "flights": 1, "timing": "ON_TIME"}])
    with pytest.raises(UnitTestError, match="step 0: input source goes by the time of arrival"):
        run(pipeline, [watermark("14:00")], executor=executor)


def test_signals_fire_the_windows_that_wait_for_them(executor: Any) -> None:
    pipeline = delays(when=hr.AfterWatermark(early=hr.AfterSignal("go"), late=hr.AfterCount(1)))
    given_rows = rows(flight("13:05"), flight("13:05", origin="LGA"))
    assert_panes(run(pipeline, [given_rows, signal("go", key="LGA")], executor=executor), [{"origin": "LGA"}])
    assert len(run(pipeline, [given_rows, signal("go")], executor=executor).panes) == 2
    assert len(run(pipeline, [together(given_rows, signal("go"))], executor=executor).panes) == 2
    with pytest.raises(UnitTestError, match="step 0: no trigger of delays waits for 'stop', but for go"):
        run(pipeline, [signal("stop")], executor=executor)


def test_the_input_ends_only_where_a_step_says_so(executor: Any) -> None:
    open_ = run(delays(when=hr.Default()), [rows(flight("13:05"))], executor=executor)
    assert not open_.panes
    closed_result = run(delays(when=hr.Default()), [rows(flight("13:05")), end()], executor=executor)
    assert_panes(closed_result, [{"timing": "ON_TIME", "is_last": True}])
    assert closed_result.watermark == datetime.max.replace(tzinfo=UTC)


def test_all_input_in_one_epoch_is_a_batch(executor: Any) -> None:
    result = run(delays(), [together(rows(flight("13:05"), flight("13:06")), end())], executor=executor)
    assert_panes(result, [{"flights": 2, "timing": "ON_TIME", "is_last": True}])


def test_several_inputs_have_watermarks_of_their_own(executor: Any) -> None:
    weather = hr.csv("landing/weather", {"airport": str, "at": datetime, "wind": int}).event_time("at", bound="0s")
    pipeline = delays(
        input=hr.json("landing/flights", {**SCHEMA, "wind": int}).event_time("at", bound="0s"),
        what={"pairs": col("delay").pairs(col("wind"))},
        union=[weather.named("weather", columns={"origin": col("airport"), "wind": col("wind")})],
        when=hr.Default(),
    )
    steps = [
        rows(flight("13:05", 5)),
        rows({"airport": "JFK", "at": "13:10", "wind": 20}, of="weather"),
        watermark("14:00", of="weather"),
    ]
    assert not run(pipeline, steps, executor=executor).panes
    result = run(pipeline, [*steps, watermark("14:00", of="source")], executor=executor)
    assert_panes(result, [{"origin": "JFK", "pairs": [(5, 20)]}])
    both = together(steps[0], steps[1], watermark("14:00"))
    assert run(pipeline, [both], executor=executor).panes.only("pairs") == [{"pairs": [(5, 20)]}]
    with pytest.raises(UnitTestError, match="step 0 names the input 'wether'; pipeline delays has source, weather"):
        run(pipeline, [rows({}, of="wether")], executor=executor)


def test_duplicates_count_once_and_forgotten_ids_are_late(executor: Any) -> None:
    schema = {**SCHEMA, "id": int}
    pipeline = delays(
        input=hr.json("landing/flights", schema).event_time("at", bound="1h"),
        deduplicate=hr.Deduplicate("id", "30m"),
        filter=col("delay") >= 0,
    )
    one = {**flight("13:05", 1), "id": 1}
    steps = [rows(one, one), rows(one, {**one, "id": 2, "delay": -1}), watermark("14:00"), rows({**one, "id": 3})]
    result = run(pipeline, steps, executor=executor)
    assert_current(result, [{"flights": 1}])
    assert_late(result, [{"event_time": "13:05", "window_start": None, "reason": "id beyond its horizon"}])


def test_stages_pass_their_panes_on(executor: Any) -> None:
    pipeline = delays(
        how=hr.retracting(allowed_lateness="1d"),
        then=[
            hr.Aggregation(
                key={"size": hr.if_else(col("flights") > 1, "many", hr.if_else(col("flights") > 0, "one", None))},
                what={"hours": hr.count()},
                where=hr.FixedWindows("1d"),
                how=hr.retracting(allowed_lateness="1d"),
            )
        ],
    )
    result = run(pipeline, [rows(flight("13:05"), flight("13:06"), flight("14:06")), end()], executor=executor)
    assert_current(result, [{"size": "many", "hours": 1}, {"size": "one", "hours": 1}])
    assert [pane.window for pane in result.current] == [(at("00:00"), at("1970-01-02"))] * 2


def test_a_global_window_has_no_ends(executor: Any) -> None:
    pipeline = delays(where=hr.GlobalWindows(), when=hr.Repeatedly(hr.AfterCount(1)), how=hr.discarding(None))
    result = run(pipeline, [rows(flight("13:05"))], executor=executor)
    assert result.panes[0].window == (None, None)
    assert result.panes[0].time is None
    assert "[∞, ∞)" in repr(result.panes)
    assert_panes(result, [{"window": [None, None], "window_start": None}])


def test_values_of_all_kinds_come_back_as_pythons_own(executor: Any) -> None:
    schema = {"at": datetime, "part": float, "good": bool, "word": str}
    pipeline = delays(
        input=hr.json("landing", schema).event_time("at", bound="1h"),
        key={"good": col("good"), "at": col("at")},
        what={"last": col("at").last(), "sum": col("part").sum(), "words": col("word").collect()},
    )
    result = run(pipeline, [rows({"at": "9:05", "part": 0.1, "good": True, "word": "a"})], executor=executor)
    assert_panes(result, [{"good": True, "at": "09:05", "last": "09:05", "sum": 0.1, "words": ["a"]}])
    assert result.panes[0].key == {"good": True, "at": at("09:05")}
    assert math.isclose(result.panes[0]["sum"], 0.1)


def test_nothing_given_gives_nothing(executor: Any) -> None:
    result = run(delays(), [], executor=executor)
    assert (len(result.panes), result.late, result.rejected, result.steps) == (0, [], [], ())
    assert result.watermark == datetime.min.replace(tzinfo=UTC)
    assert isinstance(result, Result)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([{"origin": "JFK"}], r"run\(steps\[0\]={'origin': 'JFK'}\): write rows"),
        ([rows({"orgin": "JFK"})], "record 1 of input source has a column 'orgin'; its source has origin, at, delay"),
        ([rows({"at": datetime(2013, 1, 1)})], "column at is datetime.*which has no time zone"),
        ([processing_time("13:00"), processing_time("12:00")], "step 1 sets the processing time.*does not go back"),
        (
            [rows(flight("13:00")), processing_time("12:00")],
            "step 1 sets .* records or a watermark of .*: set it before them",
        ),
        ([rows({"origin": {"JFK"}})], "cannot be written as JSON"),
    ],
)
def test_a_step_that_cannot_be_meant_says_what_to_write(steps: list[Step], message: str) -> None:
    with pytest.raises(UnitTestError, match=message):
        run(delays(), steps)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rows(["JFK"]), r"rows\(...\): record 1 is \['JFK'\]; write a dict"),  # type: ignore[arg-type]
        (lambda: watermark("1pm"), r"watermark\(...\) is '1pm': .*write a time such as \"13:00\""),
        (lambda: watermark(13), r"watermark\(...\) is 13; write a time"),  # type: ignore[arg-type]
        (lambda: processing_time(datetime(2013, 1, 1)), "has no time zone"),
        (lambda: signal(""), "is not the name of a signal"),
        (lambda: together(rows(), "13:00"), r"together\(...\): '13:00' is not a step"),  # type: ignore[arg-type]
        (lambda: together(processing_time("13:00"), processing_time("14:00")), "one processing_time"),
        (lambda: run("delays", []), r"run\(pipeline='delays'\): write the pipeline to test"),  # type: ignore[arg-type]
        (lambda: run(delays(), [], executor="spark"), "executor='spark'.*write one of local, reference"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_argument_says_what_to_write(make: Any, message: str) -> None:
    with pytest.raises(UnitTestError, match=message) as error:
        make()
    assert isinstance(error.value, FixConfigError)


def test_spark_code_is_for_the_fixture_that_starts_spark() -> None:
    function = hr.SparkFunction("parsing:flat", returns=SCHEMA, deterministic=True)
    pipeline = delays(input=hr.json("landing", SCHEMA, transform=function).event_time("at", bound="1h"))
    with pytest.raises(UnitTestError, match="parsing:flat, which is Spark code: test it with the fixture `deployment`"):
        run(pipeline, [])


def test_a_run_leaves_no_files(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cache = Path(os.environ["HEADRACE_CACHE"])
    cached_paths = {*cache.rglob("*")}
    pipeline = delays(input=hr.json("s3://nowhere/flights", SCHEMA).event_time("at", bound="1h"))
    assert run(pipeline, [rows(flight("13:05")), rows(flight("13:06")), end()]).current
    assert not list(tmp_path.iterdir())
    assert {*cache.rglob("*")} == cached_paths, "rows of state went to the disk"


def test_testing_is_reached_from_headrace() -> None:
    assert hr.testing.run is run
    assert {"run", "rows", "assert_panes"} <= {*dir(hr.testing)}
    with pytest.raises(AttributeError, match=r"headrace\.testing has no 'runs'"):
        hr.testing.runs  # noqa: B018


@pytest.mark.parametrize("where", [hr.FixedWindows("10m"), hr.SlidingWindows("10m", "5m"), hr.Sessions("10m")])
def test_a_record_without_event_time_is_a_dead_letter_whatever_the_windows(where: Any, executor: Any) -> None:
    pipeline = replace(delays(), where=where)
    early = flight("13:05", 5)
    result = run(pipeline, [rows(early, {**early, "at": None}), end()], executor=executor)
    assert [each["reason"] for each in result.rejected] == ["event time is null"]
    assert {row["flights"] for row in result.current} == {1}


def test_times_that_python_has_no_datetime_for_are_no_end(executor: Any) -> None:
    """Panes of a global window reach a day that ends after the year 9999."""
    pipeline = hr.Pipeline(
        "days",
        hr.json("landing", {"user": str, "at": datetime}).event_time("at", bound="0s"),
        key="user",
        what={"n": hr.count()},
        where=hr.GlobalWindows(),
        when=hr.on_update(),
        how=hr.retracting(),
        then=[hr.Aggregation(key="user", what={"n": col("n").sum()}, where=hr.FixedWindows("1d"))],
    )
    result = run(pipeline, [rows({"user": "a", "at": at("10:00")}), end()], executor=executor)
    assert {pane.window for pane in result.panes} == {(None, None)}
    assert [pane["n"] for pane in result.panes if not pane.is_retraction] == [1, 1, 1]
