"""Payments per user and day: a user's file with a pipeline, as ``headrace run`` takes it. The benchmarks' pipelines are
made of it.
"""

from datetime import datetime

import headrace as hr
from headrace import col

DAY = "1d"

payments = hr.parquet("landing", {"user": int, "at": datetime, "amount": int}, max_files=1, max_bytes=2**40).event_time(
    "at", bound="10s"
)

PAYMENTS = hr.Pipeline(
    "payments",
    payments,
    key="user",
    what={"payments": hr.count(), "amount": col("amount").sum()},
    where=hr.FixedWindows(DAY),
    when=hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1)),
    how=hr.accumulating(allowed_lateness=DAY, on_time="if_non_empty"),
)
