"""The pipeline of ``tests/golden/format-3-written``: ranges that jobs of Spark have written."""

from datetime import datetime

import headrace as hr
from headrace import col

VISITS = hr.Pipeline(
    "visits",
    hr.spark_source(
        "tests.sources.spark_ranges:Folder", {"user": str, "at": datetime, "amount": int}, connection="folder"
    ).event_time("at", bound="10m"),
    key="user",
    what={"visits": hr.count(), "amount": col("amount").sum()},
    where=hr.FixedWindows("1h"),
    when=hr.on_update(),
    how=hr.retracting(allowed_lateness="1d"),
    executor="local",
)
