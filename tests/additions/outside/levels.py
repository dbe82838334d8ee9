"""Levels of rivers in files of fixed width: the highest of each station and hour."""

from datetime import datetime

import headrace as hr

LEVELS = hr.FileSource("landing/levels", "fixed_width", {"station": str, "level": int, "at": datetime})

pipeline = hr.Pipeline(
    "levels",
    LEVELS.event_time("at", bound="0s"),
    key="station",
    what={"highest": hr.col("level").max(), "readings": hr.count()},
    where=hr.FixedWindows("1h"),
    executor="local",
)
