"""Each flight with the wind at its airport in that hour: a join of two inputs. A flight without weather is kept."""

from datetime import datetime

import headrace as hr
from headrace import col

flights = hr.json(
    "landing/flights", {"airport": str, "at": datetime, "flight": str, "wind": float}, max_files=1
).event_time("at", bound="10m")

weather = (
    hr.csv("landing/weather", {"station": str, "at": datetime, "speed": float})
    .event_time("at", bound="0s")
    .named("weather", columns={"airport": col("station"), "wind": col("speed")})
)

pipeline = hr.Pipeline(
    "windy",
    flights,
    union=[weather],
    key="airport",
    what={"winds": col("flight").pairs(col("wind"), outer="left"), "strongest": col("wind").max()},
    where=hr.FixedWindows("1h"),
    when=hr.AfterWatermark(late=hr.AfterCount(1)),
    how=hr.accumulating(allowed_lateness="6h"),
    executor="auto",
)
