"""The second pipeline of ``make demo-reach``: weeks of each shop, of the days that the first one publishes."""

import headrace as hr
from headrace import col

weekly = hr.Pipeline(
    "weekly",
    hr.published("orders.daily", {"shop": str, "orders": int, "amount": int}),
    key="shop",
    what={"orders": col("orders").sum(), "amount": col("amount").sum(), "best_day": col("amount").max()},
    where=hr.FixedWindows("7d"),
    when=hr.on_update(),
    how=hr.retracting("60d"),
    sinks=[hr.iceberg("reach.weekly", connection="catalog", partition_by=None)],
    executor="local",
)
