"""Revenue of each desk in EUR, at the rate that held when a trade was made; a rate that comes late corrects it."""

from datetime import datetime

import headrace as hr
from headrace import col

rates = (
    hr.json("landing/rates", {"currency": str, "rate": float, "at": datetime}, max_files=1)
    .event_time("at", bound="1m", idle="10m")
    .named("rates")
)
trades = hr.json("landing/trades", {"desk": str, "currency": str, "amount": float, "at": datetime}).event_time(
    "at", bound="1m"
)

revenue = hr.Pipeline(
    "revenue",
    trades,
    join=[hr.as_of(rates, on="currency", columns=["rate"], max_age="2d")],
    key="desk",
    what={"trades": hr.count(), "eur": (col("amount") * col("rate")).sum()},
    where=hr.FixedWindows("1h"),
    when=hr.on_update(),
    how=hr.retracting("1d"),
    executor="local",
)
