"""The landed files: every flight once, in order of an arrival that a second, slower computation finds as well."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from zoneinfo import ZoneInfo

import pandas as pd
import pytest

from headrace.errors import FixConfigError, FixDataError
from headrace.ext.stores import open_store

pytestmark = pytest.mark.slow

PUERTO_RICO = ("BQN", "PSE", "SJU", "STT")


def reference_arrival(record: dict[str, object], zone: ZoneInfo) -> datetime:
    """The rules of land_flights, one record at a time in plain Python: minute by minute from departure to landing."""
    scheduled_departure = datetime.fromisoformat(str(record["time_hour"])) + timedelta(
        minutes=int(str(record["minute"]))
    )
    if record["dep_time"] is None:
        return scheduled_departure
    departure = scheduled_departure + timedelta(minutes=int(str(record["dep_delay"])))
    if record["arr_time"] is None:
        return departure + timedelta(hours=12)
    expected = int(str(record["arr_time"])) % 2400
    landing = departure + timedelta(minutes=1)
    while landing.astimezone(zone).hour * 100 + landing.astimezone(zone).minute != expected:
        landing += timedelta(minutes=1)
    return landing


def lines(data: bytes) -> list[dict[str, object]]:
    return [json.loads(line) for line in data.splitlines()]


def test_every_flight_is_there_once_in_order_of_arrival(year: pd.DataFrame) -> None:
    assert len(year) == 336_776
    assert year["arrived_at"].is_monotonic_increasing
    assert year["arrived_at"].notna().all()
    assert not year.duplicated(["year", "month", "day", "carrier", "flight", "origin", "sched_dep_time"]).any()
    assert year["dep_time"].isna().sum() == 8_255
    assert (year["dep_time"].notna() & year["arr_time"].isna()).sum() == 458
    assert year["tailnum"].isna().sum() == 2_512


def test_arrivals_are_those_of_a_slow_computation(land_flights: ModuleType, year: pd.DataFrame) -> None:
    airports = pd.read_csv(land_flights._data() / "airports.csv").set_index("faa")["tzone"].to_dict()
    odd = (
        (year["arr_time"] == 2400)
        | (year["dest"].isin(PUERTO_RICO))
        | (year["month"].isin([3, 11]) & (year["day"] < 12))
    )
    sample = pd.concat([year[year["dep_time"].isna()].head(50), year[odd].iloc[::40], year.iloc[::499]])
    records = lines(land_flights.json_lines(sample))
    assert any(record["arr_time"] == 2400 for record in records)
    for record in records:
        name = "America/Puerto_Rico" if record["dest"] in PUERTO_RICO else airports[record["dest"]]
        arrival = datetime.fromisoformat(str(record["arrived_at"]))
        assert arrival == reference_arrival(record, ZoneInfo(name)), record


def test_a_time_in_an_hour_that_the_clock_skips_is_of_a_clock_not_yet_moved(year: pd.DataFrame) -> None:
    rows_of_flight_35 = year[
        (year["month"] == 3) & (year["day"] == 9) & (year["carrier"] == "B6") & (year["flight"] == 35)
    ]
    assert rows_of_flight_35["arr_time"].tolist() == [203]
    assert rows_of_flight_35["arrived_at"].tolist() == [datetime(2013, 3, 10, 7, 3, tzinfo=UTC)]


def test_a_record_that_contradicts_itself_is_refused(land_flights: ModuleType, year: pd.DataFrame) -> None:
    rows = year[year["air_time"].notna()].head(3).assign(air_time=2000)
    zones = pd.Series("America/New_York", index=rows.index)
    with pytest.raises(FixDataError, match="3 flights landed before their time in the air"):
        land_flights.arrivals(rows, zones)


def test_instalments_are_the_year_in_order(land_flights: ModuleType, year: pd.DataFrame, tmp_path: Path) -> None:
    root = tmp_path.as_uri()
    week = year.head(5_000)
    paths = [path for k in (1, 2, 3) for path in land_flights.land(root, k, 3, 7, week)]
    assert paths == [f"landing/flights/part-{n:06d}.jsonl" for n in range(1, 8)]
    store = open_store(root)
    assert [info.path for info in store.list("landing/")] == paths
    records = [record for path in paths for record in lines(store.read(path))]
    assert [r["arrived_at"] for r in records] == week["arrived_at"].dt.strftime("%Y-%m-%dT%H:%M:%SZ").tolist()
    cancelled_record = next(r for r in records if r["dep_time"] is None)
    assert cancelled_record["air_time"] is None
    assert list(cancelled_record) == list(week.columns)

    info_before = store.stat(paths[0])
    assert land_flights.land(root, 1, 3, 7, week) == paths[:2]
    assert store.stat(paths[0]) == info_before
    with pytest.raises(FixConfigError, match="another number of files"):
        land_flights.land(root, 1, 3, 8, week)


@pytest.mark.parametrize(("instalment", "instalments", "files"), [(0, 3, 10), (4, 3, 10), (1, 3, 2)])
def test_instalments_that_do_not_exist_are_refused(
    land_flights: ModuleType, tmp_path: Path, instalment: int, instalments: int, files: int
) -> None:
    with pytest.raises(FixConfigError, match="want 1 <= k <= n <= files"):
        land_flights.land(tmp_path.as_uri(), instalment, instalments, files)


def test_the_script_lands_from_the_command_line(
    land_flights: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    land_flights.main(["--root", tmp_path.as_uri(), "--instalment", "5", "--of", "50", "--files", "50"])
    assert capsys.readouterr().out == (
        "landed 1 files: landing/flights/part-000005.jsonl to landing/flights/part-000005.jsonl\n"
    )
