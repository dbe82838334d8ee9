"""The pipelines of ``tests/golden/format-3-published``: clicks by the hour, and one that reads them, by the day."""

from datetime import datetime

import headrace as hr
from headrace import col

CLICKS = hr.Pipeline(
    "clicks",
    hr.json("landing/clicks", {"user": str, "at": datetime, "amount": int}).event_time("at", bound="10m"),
    key="user",
    what={"clicks": hr.count(), "amount": col("amount").sum()},
    where=hr.FixedWindows("1h"),
    when=hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1)),
    how=hr.retracting(allowed_lateness="1d"),
    executor="local",
)
"""Also the pipeline of ``format-1`` and ``format-2``."""

DAYS = hr.Pipeline(
    "days",
    hr.published("clicks", {"user": str, "clicks": int, "amount": int}),
    key="user",
    what={"clicks": col("clicks").sum(), "amount": col("amount").sum(), "most": col("amount").max()},
    where=hr.FixedWindows("1d"),
    when=hr.on_update(),
    how=hr.retracting(allowed_lateness="1d"),
    executor="local",
)
