"""Sales of each shop and hour: early while the hour runs, on time when it is complete, corrected if a till is late."""

from datetime import datetime

import headrace as hr
from headrace import col

sales = hr.json("landing/sales", {"shop": str, "at": datetime, "amount": int}, max_files=1).event_time(
    "at", bound="30m", split="shop"
)

pipeline = hr.Pipeline(
    "sales",
    sales,
    key="shop",
    what={"sales": hr.count(), "amount": col("amount").sum(), "largest": col("amount").max()},
    where=hr.FixedWindows("1h"),
    when=hr.on_update(),
    how=hr.retracting(allowed_lateness="1d"),
    executor="auto",
)
