"""The pipeline of ``tests/golden/format-1-loop``: its loop turns one round in an epoch, which leaves some in flight."""

from datetime import datetime

import headrace as hr
from headrace import col

ROADS = hr.Pipeline(
    "roads",
    hr.json("landing/roads", {"a": str, "b": str, "km": int, "at": datetime}).event_time("at", bound="10m"),
    key=["a", "b"],
    loop=hr.Loop(
        start=hr.if_else(col("vertex") == "harbour", 0, None),
        step=col("value") + col("km"),
        combine="least",
        both_ways=True,
        rounds=1,
    ),
    where=hr.GlobalWindows(),
    when=hr.on_update(),
    how=hr.accumulating(),
    executor="local",
)
