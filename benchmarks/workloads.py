"""What the benchmarks compute, in numbers and names that both sides share. Imports nothing of either side.

Event time lags by ``BOUND`` and windows live on for ``LATENESS``; so nothing of the data is dropped, and what arrives
ten minutes late refines results that were out already. Structured Streaming has one number for both: its watermark
delay is their sum, so that both sides keep a window for as long and end with the same results.
"""

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum

BOUND = timedelta(seconds=10)
LATENESS = timedelta(minutes=15)
SIZE = timedelta(minutes=10)
PERIOD = timedelta(minutes=5)
GAP = timedelta(minutes=10)
BEFORE = timedelta(minutes=6)
"""``within`` joins payments with those on the other side that came so long before, at most."""

STAYING = timedelta(hours=10)
"""Lateness of joins: all rows count to the end."""

LEFT, RIGHT = "left", "right"
"""Folders of the sides of joins."""

BUSY = 5
"""Users with more payments than this in a window are counted by ``two_stage``."""


class Workload(StrEnum):
    """What is computed per user: sums per fixed window, per sliding window, per session; or, per window, busy users;
    or per day, so that every user stays open; or the newest payment of each user, as a row; or, per window, sums by
    user, then by group, then by region, each of the one before. Or payments joined with others of their user: the last
    one that is not later, or all of some minutes before.
    """

    TUMBLING = "tumbling"
    SLIDING = "sliding"
    SESSIONS = "sessions"
    TWO_STAGE = "two_stage"
    LIVE_KEYS = "live_keys"
    SHUFFLES = "shuffles"
    NEWEST = "newest"
    AS_OF = "as_of"
    WITHIN = "within"


LIVE = (Workload.LIVE_KEYS, Workload.NEWEST)
"""Those in which every user stays open."""

JOINS = (Workload.AS_OF, Workload.WITHIN)
"""Those with two sides."""

COMPARED = (Workload.TUMBLING, Workload.SLIDING, Workload.SESSIONS, Workload.TWO_STAGE)
"""Those that peers compute, too, in whole drains."""

GROUPS, REGIONS = 10_000, 100
"""How many groups and regions ``shuffles`` has, at most."""


class Side(StrEnum):
    """Who computes it. Ours is a run; the three after it are its engine driven by ``benchmarks.driven``, with snapshots
    committed beside the next epoch, awaited before it, or without any.
    """

    OURS = "ours"
    BESIDE = "beside"
    AWAITED = "awaited"
    NONE = "none"
    STRUCTURED_STREAMING = "structured_streaming"
    DELTA_MERGE = "delta_merge"
    SPARK_BATCH = "spark_batch"
    DUCKDB = "duckdb"
    POLARS = "polars"
    FLINK = "flink"
    FLINK_BATCH = "flink_batch"
    PATHWAY = "pathway"
    BYTEWAX = "bytewax"

    @property
    def is_batch(self) -> bool:
        """It takes all files as one input, and gives one result per window."""
        return self in (Side.SPARK_BATCH, Side.DUCKDB, Side.POLARS, Side.FLINK_BATCH, Side.PATHWAY)


RESULTS: Mapping[Workload, tuple[str, ...]] = {
    **dict.fromkeys(Workload, ("user", "window_start", "window_end", "payments", "amount")),
    Workload.TWO_STAGE: ("window_start", "window_end", "users"),
    Workload.NEWEST: ("user", "amount"),
    **dict.fromkeys(JOINS, ("id", "amount", "before")),
    Workload.SHUFFLES: ("region", "window_start", "window_end", "payments", "amount"),
}
"""Columns of the results by which both sides are compared."""
