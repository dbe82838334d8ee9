"""The pipeline of ``tests/golden/format-3``: two outputs, of which one reads the other."""

from datetime import datetime

import headrace as hr
from headrace import col

SHOP = hr.Pipeline(
    "shop",
    hr.json("landing/orders", {"user": str, "at": datetime, "amount": int}).event_time("at", bound="10m"),
    outputs={
        "hourly": hr.Output(
            key="user",
            what={"orders": hr.count(), "amount": col("amount").sum()},
            where=hr.FixedWindows("1h"),
            when=hr.on_update(),
            how=hr.retracting(allowed_lateness="1d"),
        ),
        "daily": hr.Output(
            of="hourly",
            key="user",
            what={"amount": col("amount").sum()},
            where=hr.FixedWindows("1d"),
            when=hr.on_update(),
            how=hr.retracting(allowed_lateness="1d"),
        ),
    },
    executor="local",
)
