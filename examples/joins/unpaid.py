"""Orders that were not paid within an hour. One that is paid late, but in time for the join, is withdrawn again."""

from datetime import datetime

import headrace as hr
from headrace import col

payments = (
    hr.json("landing/payments", {"order_id": int, "amount": int, "at": datetime}, max_files=1)
    .event_time("at", bound="1m", idle="10m")
    .named("payments")
)
orders = hr.json("landing/orders", {"id": int, "shop": str, "at": datetime}).event_time("at", bound="1m")
paid = hr.within(
    payments,
    on={"id": "order_id"},
    between=("0s", "1h"),
    columns={"paid": "amount"},
    outer=True,
    lateness="1d",
)

unpaid = hr.Pipeline(
    "unpaid",
    orders,
    join=[paid],
    rows=["id", "shop"],
    filter=col("paid").is_null(),
    id="id",
    executor="local",
)
