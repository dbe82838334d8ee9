"""How many aircraft sessions of each day had more than two legs: two aggregations in a chain, on real flights.

The first stage is that of ``aircraft_sessions``: every pane of a session withdraws the one before it, and sessions that
merge withdraw both. The second counts sessions by the day (UTC) in which they end, so that a session which grows past
midnight leaves one day and enters the next: its retraction finds the old day by the old pane's timestamp. Without
retractions every refinement of a session would count once more (Dataflow paper, section 2.3; semantics 7.6).

A session ends eight hours after its last scheduled departure. Sessions are kept for two days after their end, and so
are days: what withdraws a session that a day counted always finds that day open.
"""

from datetime import datetime

import headrace as hr
from headrace import col

TWO_DAYS = "2d"

flights = hr.json(
    "landing/flights",
    {"tailnum": str, "time_hour": datetime, "minute": int, "dep_time": int, "air_time": int},
    max_files=10,
).event_time(col("time_hour").plus(minutes=col("minute")), bound="4h")

busy = hr.Pipeline(
    "busy_aircraft",
    flights,
    description="Aircraft sessions with more than two legs, by the day in which they end.",
    key="tailnum",
    filter=col("dep_time").is_not_null(),
    what={"legs": hr.count(), "air_minutes": col("air_time").sum()},
    where=hr.Sessions("8h"),
    when=hr.on_update(),
    how=hr.retracting(allowed_lateness=TWO_DAYS),
    then=(
        hr.Aggregation(
            key={"sessions_of": hr.lit("more than two legs")},
            filter=col("legs") > 2,
            what={
                "sessions": hr.count(),
                "legs": col("legs").sum(),
                "most_legs": col("legs").max(),
                "air_minutes": col("air_minutes").sum(),
            },
            where=hr.FixedWindows("1d"),
            how=hr.retracting(allowed_lateness=TWO_DAYS),
        ),
    ),
    expectations=(
        hr.expect("column_values_to_be_between", column="sessions", min_value=1),
        hr.expect("column_pair_values_a_to_be_greater_than_b", column_A="legs", column_B="sessions"),
        hr.expect("compound_columns_to_be_unique", column_list=["sessions_of", "window_start"]),
    ),
)
