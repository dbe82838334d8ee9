"""Shipped pipelines against an independent computation of their final answers; one of each kind of run on Spark too.

``current`` must be the truth for any cut into epochs and for any landing order within the watermark's bound; nothing
may be dropped as late, and the panes must tell one consistent story.
"""

from pathlib import Path
from types import ModuleType

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import headrace as hr
from headrace import Pipeline
from pipelines import aircraft_sessions, busy_aircraft, flights_departures
from tests.flights import flight_truth
from tests.process.executors import ExecutorUnderTest
from tests.reading import read

SPARK = pytest.mark.spark
DEPARTURES, SESSIONS, BUSY = flights_departures.departures, aircraft_sessions.sessions, busy_aircraft.busy
YEAR = tuple(range(1, 13))
SPRING = (2, 3, 4, 5)
MARCH_APRIL = (3, 4)
FEBRUARY = (2,)


def name_of(value: object) -> str:
    """For the ids of tests."""
    named_value = value[0] if isinstance(value, tuple) else value
    return (
        named_value.name if isinstance(named_value, Pipeline) else named_value if isinstance(named_value, str) else ""
    )


def run(pipeline: Pipeline, root: str, files_per_epoch: int, executor: ExecutorUnderTest) -> hr.types.RunResult:
    handle = hr.open(root, create=True)[pipeline]
    return handle.run(files_per_epoch=files_per_epoch, executor=executor.executor, publish=False)


def assert_current_is_the_truth(pipeline: Pipeline, root: str, rows: pd.DataFrame) -> None:
    """``current`` on main equals the truth about ``rows`` of the data file, and no record was dropped."""
    columns, truth = {
        DEPARTURES.name: lambda: (flight_truth.DEPARTURES, flight_truth.departures(rows)),
        SESSIONS.name: lambda: (flight_truth.SESSIONS, flight_truth.sessions(rows)),
        BUSY.name: lambda: (flight_truth.BUSY, flight_truth.busy(rows)),
    }[pipeline.name]()
    current = flight_truth.normal(read(pipeline, root, "current", "main").to_pandas(), columns)
    pd.testing.assert_frame_equal(current, flight_truth.normal(truth, columns), check_exact=False, rtol=1e-12, atol=0)
    assert read(pipeline, root, "late", "main").num_rows == 0


def assert_dead_letters(pipeline: Pipeline, root: str, rows: pd.DataFrame) -> None:
    """Records without tail number, each once, and no other."""
    dead_letters = read(pipeline, root, "rejected", "main")
    expected = 0 if pipeline is DEPARTURES else int(rows["tailnum"].isna().sum())
    assert dead_letters.num_rows == expected
    if expected:
        reasons = set(dead_letters["reason"].to_pylist())
        assert len(reasons) == 1
        assert "tailnum" in reasons.pop()
        assert (
            len(set(zip(dead_letters["file"].to_pylist(), dead_letters["position"].to_pylist(), strict=True)))
            == expected
        )


def assert_panes_are_consistent(pipeline: Pipeline, panes: pa.Table) -> None:
    """No pane twice, every retraction withdraws one earlier pane, at most one ON_TIME pane per key and window."""
    key = next(iter(pipeline.key_types))
    with duckdb.connect() as connection:
        connection.register("panes", panes)

        def number(query: str) -> int:
            return int(connection.sql(f"select count(*) from ({query})").fetchall()[0][0])

        window = f"{key}, window_start, window_end"
        text_twice = f"select 1 from panes group by {window}, pane_index, is_retraction having count(*) > 1"
        unmatched_text = f"""
            select 1 from (from panes where is_retraction) r
            anti join (from panes where not is_retraction) p
            on r.{key} = p.{key} and r.window_start = p.window_start and r.window_end = p.window_end
              and r.pane_index = p.pane_index and (p.epoch, p.sequence) < (r.epoch, r.sequence)"""
        on_time = (
            f"select 1 from panes where timing = 'ON_TIME' and not is_retraction group by {window} having count(*) > 1"
        )
        assert number("from panes") > 0
        assert number(text_twice) == 0
        assert number(unmatched_text) == 0
        # A session that grows after its on-time pane owes a new one, in a window of its own: still one per window.
        assert number(on_time) == 0


@pytest.mark.parametrize(
    ("case", "executor"),
    [
        ((DEPARTURES, SPRING), "local"),  # the year on Spark
        ((SESSIONS, MARCH_APRIL), "local"),
        pytest.param((DEPARTURES, YEAR), "spark", marks=SPARK),
    ],
    indirect=["executor"],
    ids=name_of,
)
def test_in_one_epoch(
    case: tuple[Pipeline, tuple[int, ...]],
    executor: ExecutorUnderTest,
    land_flights: ModuleType,
    year: pd.DataFrame,
    tmp_path: Path,
) -> None:
    pipeline, months = case
    root, rows = tmp_path.as_uri(), flight_truth.data_file(months)
    land_flights.land(root, files=6, table=year[year["month"].isin(months)])
    assert run(pipeline, root, 6, executor).epochs == (0,)
    assert_current_is_the_truth(pipeline, root, rows)
    assert_dead_letters(pipeline, root, rows)


@pytest.mark.parametrize(
    ("pipeline", "executor"),
    [(DEPARTURES, "local"), (SESSIONS, "local"), pytest.param(SESSIONS, "spark", marks=SPARK)],
    indirect=["executor"],
    ids=name_of,
)
def test_two_months_in_three_runs(
    pipeline: Pipeline, land_flights: ModuleType, year: pd.DataFrame, executor: ExecutorUnderTest, tmp_path: Path
) -> None:
    root, rows = tmp_path.as_uri(), flight_truth.data_file(MARCH_APRIL)
    flights = year[year["month"].isin(MARCH_APRIL)]
    for instalment in (1, 2, 3):
        land_flights.land(root, instalment, 3, 6, flights)
        assert run(pipeline, root, 2, executor).epochs == (instalment - 1,)
    assert_current_is_the_truth(pipeline, root, rows)
    assert_dead_letters(pipeline, root, rows)
    assert_panes_are_consistent(pipeline, read(pipeline, root, "panes", "main"))


@pytest.mark.parametrize("pipeline", [DEPARTURES, SESSIONS], ids=lambda p: p.name)
def test_a_month_in_twenty_epochs(
    pipeline: Pipeline, land_flights: ModuleType, year: pd.DataFrame, executor: ExecutorUnderTest, tmp_path: Path
) -> None:
    root, rows = tmp_path.as_uri(), flight_truth.data_file(FEBRUARY)
    land_flights.land(root, files=20, table=year[year["month"].isin(FEBRUARY)])
    assert len(run(pipeline, root, 1, executor).epochs) == 20  # more layers than stay apart
    assert_current_is_the_truth(pipeline, root, rows)
    assert_dead_letters(pipeline, root, rows)
    panes = read(pipeline, root, "panes", "main")
    assert_panes_are_consistent(pipeline, panes)
    if pipeline is DEPARTURES:
        assert set(panes["timing"].to_pylist()) == {"EARLY", "ON_TIME", "LATE"}


@pytest.mark.parametrize("case", [(DEPARTURES, 1), (SESSIONS, 2)], ids=lambda case: case[0].name)
def test_any_landing_order_within_the_bound(
    case: tuple[Pipeline, int],
    land_flights: ModuleType,
    year: pd.DataFrame,
    executor: ExecutorUnderTest,
    tmp_path: Path,
) -> None:
    pipeline, seed = case
    root, rows = tmp_path.as_uri(), flight_truth.data_file((1,))
    january = year[year["month"] == 1]
    land_flights.land(root, files=10, table=shuffle_flights(january, pipeline, seed))
    assert len(run(pipeline, root, 1, executor).epochs) == 10
    assert_current_is_the_truth(pipeline, root, rows)
    panes = read(pipeline, root, "panes", "main")
    assert_panes_are_consistent(pipeline, panes)
    assert "LATE" not in panes["timing"].to_pylist()


def shuffle_flights(flights: pd.DataFrame, pipeline: Pipeline, seed: int) -> pd.DataFrame:
    """``flights`` in a random order in which none comes after one whose event time is a whole bound later."""
    bound = pipeline.event_time.watermark.bound
    event = pd.to_datetime(flights["time_hour"], utc=True) + pd.to_timedelta(
        flights["minute"].astype(float), unit="min"
    )
    delay = pd.to_timedelta(np.random.default_rng(seed).uniform(0, bound, len(flights)), unit="us")
    return flights.iloc[np.argsort((event + delay).to_numpy(), kind="stable")]


def test_two_aggregations_with_retractions(
    land_flights: ModuleType, year: pd.DataFrame, executor: ExecutorUnderTest, tmp_path: Path
) -> None:
    """Sessions that grow and merge leave the day in which they were counted before."""
    root, rows = tmp_path.as_uri(), flight_truth.data_file(FEBRUARY)
    land_flights.land(root, files=12, table=year[year["month"].isin(FEBRUARY)])
    assert len(run(BUSY, root, 1, executor).epochs) == 12
    assert_current_is_the_truth(BUSY, root, rows)
    assert_dead_letters(BUSY, root, rows)
    panes = read(BUSY, root, "panes", "main")
    assert_panes_are_consistent(BUSY, panes)
    assert sum(panes["is_retraction"].to_pylist()) > 20


def test_batch_gives_the_same_as_micro_batches(
    land_flights: ModuleType, year: pd.DataFrame, executor: ExecutorUnderTest, tmp_path: Path
) -> None:
    root, rows = tmp_path.as_uri(), flight_truth.data_file((1,))
    land_flights.land(root, files=4, table=year[year["month"] == 1])
    result = hr.open(root)[BUSY].run(mode="batch", executor=executor.executor, publish=False)
    assert (result.epochs, result.watermark) == ((0,), "+inf")
    assert_current_is_the_truth(BUSY, root, rows)
    assert all(read(BUSY, root, "current", "main")["is_last"].to_pylist())
