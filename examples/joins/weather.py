"""Each flight with the measurements of wind at its airport in the same hour."""

from datetime import datetime

import headrace as hr

weather = (
    hr.json("landing/weather", {"station": str, "wind": int, "at": datetime}, max_files=1)
    .event_time("at", bound="1m", idle="10m")
    .named("weather")
)
flights = hr.json("landing/flights", {"flight": str, "airport": str, "at": datetime}).event_time("at", bound="1m")
of_hour = hr.same_window(
    weather,
    on={"airport": "station"},
    window=hr.FixedWindows("1h"),
    columns=["wind"],
    outer=True,
    lateness="6h",
)

windy_flights = hr.Pipeline(
    "windy_flights", flights, join=[of_hour], rows=["flight", "airport", "wind"], executor="local"
)
