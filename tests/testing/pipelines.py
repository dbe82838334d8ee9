"""Small pipelines that tests of ``headrace.testing`` run."""

from datetime import datetime
from typing import Any

import headrace as hr
from headrace import col

SCHEMA = {"origin": str, "at": datetime, "delay": int}


def delays(**parts: Any) -> hr.Pipeline:
    """Departures per origin and hour, early, on time and late."""
    defaults = {
        "input": hr.json("landing/flights", SCHEMA).event_time("at", bound="1h"),
        "key": "origin",
        "what": {"flights": hr.count(), "worst": col("delay").max()},
        "where": hr.FixedWindows("1h"),
        "when": hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1)),
        "how": hr.retracting(allowed_lateness="2h"),
    }
    return hr.Pipeline("delays", **{**defaults, **parts})


def flight(time: str, delay: int | None = None, origin: str | None = "JFK") -> dict[str, Any]:
    """A record of ``delays``."""
    return {"origin": origin, "at": time, "delay": delay}
