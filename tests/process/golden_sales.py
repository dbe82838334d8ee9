"""The pipelines of ``tests/golden/format-1-landed``, ``format-3-landed``, ``format-3-sealed`` and ``format-3-claimed``:
a topic of Kafka, whose records were landed, or are read where they are.
"""

import json
from datetime import datetime
from typing import Any, Final

import headrace as hr
from headrace import col


def sales(**reading: Any) -> hr.Pipeline:
    """The pipeline that reads the topic so."""
    columns = {"user": str, "at": datetime, "amount": int, "kafka_offset": int}
    return hr.Pipeline(
        "sales",
        hr.kafka("sales", columns, connection="events", **reading).event_time("at", bound="10m"),
        key="user",
        what={"orders": hr.count(), "amount": col("amount").sum(), "last": col("kafka_offset").max()},
        where=hr.FixedWindows("1h"),
        when=hr.on_update(),
        how=hr.retracting(allowed_lateness="1d"),
        executor="local",
    )


SALES: Final = sales()
CLAIMING_SALES: Final = sales(land="never")


def _sold(user: str, time: str, amount: int) -> bytes:
    return json.dumps({"user": user, "at": f"2026-01-01T{time}:00Z", "amount": amount}).encode()


SENT_MESSAGES: Final = (
    (
        [_sold("ann", "00:10", 2), _sold("bob", "00:20", 1)],
        [_sold("ann", "00:30", 3), _sold("ann", "09:10", 4)],
    ),
    ([_sold("bob", "09:30", 2)], [b"no record", _sold("ann", "09:40", 5)]),
    ([_sold("ann", "10:10", 6)], [_sold("bob", "10:20", 7)]),
    ([_sold("bob", "10:30", 8)], [_sold("ann", "10:05", 9), _sold("eve", "11:00", 1)]),
)
"""What the topic got, time after time, in each of its two partitions. All roots have read what came first and second.
A run that was killed had claimed the third, but not in the root of format 1; the fourth is new to all.
"""
