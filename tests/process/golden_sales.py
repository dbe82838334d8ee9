"""The pipeline of ``tests/golden/format-1-landed``: a topic of Kafka, whose records were landed."""

from datetime import datetime

import headrace as hr
from headrace import col

SALES = hr.Pipeline(
    "sales",
    hr.kafka(
        "sales",
        {"user": str, "at": datetime, "amount": int, "kafka_offset": int},
        connection="events",
    ).event_time("at", bound="10m"),
    key="user",
    what={"orders": hr.count(), "amount": col("amount").sum(), "last": col("kafka_offset").max()},
    where=hr.FixedWindows("1h"),
    when=hr.on_update(),
    how=hr.retracting(allowed_lateness="1d"),
    executor="local",
)
