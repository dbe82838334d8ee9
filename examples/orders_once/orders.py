"""Orders and revenue of each country and day. The shop sends an order again until it is sure that it arrived, so
each id counts once.
"""

from datetime import datetime

import headrace as hr
from headrace import col

orders = hr.csv("landing/orders", {"id": str, "country": str, "at": datetime, "total": float}, max_files=1).event_time(
    "at", bound="2h"
)

pipeline = hr.Pipeline(
    "orders",
    orders,
    key="country",
    what={"orders": hr.count(), "total": col("total").sum(), "mean": col("total").mean()},
    where=hr.CalendarWindows("day", "Europe/Oslo"),
    when=hr.on_update(),
    how=hr.retracting(allowed_lateness="3d"),
    deduplicate=hr.Deduplicate("id", "2d"),
    executor="auto",
)
