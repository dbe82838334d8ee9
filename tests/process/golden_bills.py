"""The pipeline of ``tests/golden/format-4``: its final rows go to a function, and all rows to a table of Delta."""

from datetime import datetime

import headrace as hr
from headrace import col
from headrace.ext.sinks import FinalRows

SENT_ROWS: list[tuple[str, str, str, int]] = []
"""The id, the user, the beginning of the window and the amount of each row that was handed over."""


def send(rows: FinalRows) -> None:
    """Take each row."""
    SENT_ROWS.extend((row["_id"], row["user"], row["window_start"].isoformat(), row["amount"]) for row in rows)


BILLS = hr.Pipeline(
    "bills",
    hr.json("landing/orders", {"user": str, "at": datetime, "amount": int}).event_time("at", bound="10m"),
    key="user",
    what={"orders": hr.count(), "amount": col("amount").sum()},
    where=hr.FixedWindows("1h"),
    when=hr.on_update(),
    how=hr.retracting(),
    sinks=[
        hr.final_rows("tests.process.golden_bills:send"),
        hr.delta("reports/bills", connection="lake"),
    ],
    executor="local",
)
