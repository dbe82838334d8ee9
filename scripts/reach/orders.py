"""The first pipeline of ``make demo-reach``: orders of a topic of Kafka by shop, for each hour and for each day."""

from datetime import datetime

import headrace as hr
from headrace import col

RETRACTING_HOW = hr.retracting("30d")

orders = hr.Pipeline(
    "orders",
    hr.kafka("orders", {"shop": str, "amount": int, "at": datetime}, connection="events").event_time("at", bound="1h"),
    outputs={
        "hourly": hr.Output(
            key="shop",
            what={"orders": hr.count(), "amount": col("amount").sum()},
            where=hr.FixedWindows("1h"),
            when=hr.on_update(),
            how=RETRACTING_HOW,
            sinks=[hr.postgres("hourly", connection="warehouse")],
        ),
        "daily": hr.Output(
            of="hourly",
            key="shop",
            what={"orders": col("orders").sum(), "amount": col("amount").sum()},
            where=hr.FixedWindows("1d"),
            when=hr.on_update(),
            how=RETRACTING_HOW,
            sinks=[hr.delta("daily", connection="lake")],
        ),
    },
    executor="local",
)
