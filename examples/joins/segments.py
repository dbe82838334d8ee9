"""Revenue of each segment that customers had when they bought; customers are a table that Debezium follows."""

from datetime import datetime

import headrace as hr
from headrace import col

customers = (
    hr.json(
        "landing/customers",
        {"id": int, "segment": str},
        versions=hr.debezium_versions("source.ts_ms", key="id"),
    )
    .event_time("changed_at", bound="1m", idle="10m")
    .named("customers")
)
sales = hr.json("landing/sales", {"customer": int, "amount": int, "at": datetime}).event_time("at", bound="1m")

segments = hr.Pipeline(
    "segments",
    sales,
    join=[hr.as_of(customers, on={"customer": "id"}, columns=["segment"])],
    key="segment",
    what={"sales": hr.count(), "revenue": col("amount").sum()},
    where=hr.FixedWindows("1d"),
    when=hr.on_update(),
    how=hr.retracting("7d"),
    executor="local",
)
