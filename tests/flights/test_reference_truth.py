"""The reference interpreter and the independent truth agree on real flights: so both may judge the engine."""

from types import ModuleType
from typing import Any

import pandas as pd
import pytest

from headrace import Pipeline
from headrace.ext.sources import Instant
from headrace_lab.reference import Epoch, EpochResult, fold_current, run_pipeline
from pipelines import aircraft_sessions, flights_departures
from tests.flights import flight_truth

pytestmark = pytest.mark.slow

DEPARTURES, SESSIONS = flights_departures.departures, aircraft_sessions.sessions
EPOCH = pd.Timestamp(0, tz="UTC")
MICROSECOND = pd.Timedelta(microseconds=1)


def records(flights: pd.DataFrame) -> list[dict[str, Any]]:
    """Landed flights as the reference takes them: None for missing, microseconds since 1970 for timestamps."""
    rows = flights.astype(object).where(flights.notna(), None).to_dict("records")
    hours = {text: (pd.Timestamp(text) - EPOCH) // MICROSECOND for text in flights["time_hour"].unique()}
    return [{**row, "time_hour": hours[row["time_hour"]]} for row in rows]


def run(pipeline: Pipeline, land_flights: ModuleType, flights: pd.DataFrame, epochs: int) -> list[EpochResult]:
    """The reference's results of ``flights`` cut into ``epochs``."""
    parts = land_flights.split(flights, epochs)
    return run_pipeline(pipeline, [Epoch(Instant(n), records(part)) for n, part in enumerate(parts)])


def current(pipeline: Pipeline, results: list[EpochResult]) -> pd.DataFrame:
    """``current`` of the reference as a table."""
    panes = fold_current(pane for result in results for pane in result.panes)
    names = [*pipeline.key, "window_start", "window_end", *pipeline.what]
    rows = [
        (*key, EPOCH + window.start * MICROSECOND, EPOCH + window.end * MICROSECOND, *pane.values)
        for (key, window), pane in panes.items()
    ]
    return pd.DataFrame(rows, columns=names)


@pytest.mark.parametrize("epochs", [1, 3, 40])
@pytest.mark.parametrize("pipeline", [DEPARTURES, SESSIONS], ids=lambda p: p.name)
def test_reference_and_truth_agree(
    pipeline: Pipeline, epochs: int, land_flights: ModuleType, year: pd.DataFrame
) -> None:
    days = range(7, 11)  # of which two are of a blizzard: records without a tail number
    flights = year[(year["month"] == 2) & year["day"].isin(days)]
    rows = flight_truth.data_file((2,))
    rows = rows[rows["day"].isin(days)]
    results = run(pipeline, land_flights, flights, epochs)
    if pipeline is DEPARTURES:
        columns, truth = flight_truth.DEPARTURES, flight_truth.departures(rows)
    else:
        columns, truth = flight_truth.SESSIONS, flight_truth.sessions(rows)
    actual_frame = flight_truth.normal(current(pipeline, results), columns)
    pd.testing.assert_frame_equal(actual_frame, flight_truth.normal(truth, columns), rtol=1e-12, atol=0)
    assert not any(result.drops for result in results)
    rejected_pairs = [(r.column, r.record["dep_time"]) for result in results for r in result.rejected]
    assert rejected_pairs == [("tailnum", None)] * (int(rows["tailnum"].isna().sum()) if pipeline is SESSIONS else 0)
