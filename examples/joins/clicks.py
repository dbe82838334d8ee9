"""Each click with the last impression of that advertisement that its user saw in the half hour before it, if any."""

from datetime import datetime

import headrace as hr

impressions = (
    hr.json("landing/impressions", {"user": str, "ad": str, "place": str, "at": datetime}, max_files=1)
    .event_time("at", bound="1m", idle="10m")
    .named("impressions")
)
clicks = hr.json("landing/clicks", {"id": int, "user": str, "ad": str, "at": datetime}).event_time("at", bound="1m")

attributed = hr.Pipeline(
    "attributed",
    clicks,
    join=[hr.as_of(impressions, on=["user", "ad"], columns=["place"], max_age="30m", outer=True, lateness="1d")],
    rows=["id", "ad", "place"],
    id="id",
    executor="local",
)
