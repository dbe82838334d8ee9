"""NEXMark's queries that need no join, over the bids of an auction house. ``generator.py`` lands the bids, ``sql/``
asks DuckDB the same, and the page docs/nexmark.md says what each query is and what is missing.
"""

from datetime import datetime
from decimal import Decimal

import headrace as hr
from headrace import Expr, col, if_else

BID = {
    "auction": int,
    "bidder": int,
    "price": int,
    "channel": str,
    "url": str,
    "date_time": datetime,
    "extra": str,
}
bids = hr.json("landing/bids", BID, max_files=1)  # a micro-batch for each file

# A bid that comes late, by up to a minute, corrects what stands
corrected = {"when": hr.on_update(), "how": hr.retracting(allowed_lateness="1m")}
every_10_seconds = {"where": hr.FixedWindows("10s"), **corrected}
daily = {"where": hr.CalendarWindows("day"), **corrected}

euros = col("price") * Decimal("0.908")
hour = col("date_time").hour()
channel = col("channel").lower()
channel_id = col("url").regexp_extract("(&|^)channel_id=([^&]*)", 2)
directories = col("url").split("/")


def columns(*names: str, **computed: Expr) -> dict[str, Expr]:
    """Columns that are taken as they are, and others."""
    return {name: col(name) for name in names} | computed


ranks = {
    "rank1": col("price") < 10_000,
    "rank2": (col("price") >= 10_000) & (col("price") < 1_000_000),
    "rank3": col("price") >= 1_000_000,
}
bids_by_rank = {
    "total_bids": hr.count(),
    **{f"{rank}_bids": if_else(is_ranked, 1, 0).sum() for rank, is_ranked in ranks.items()},
}
distinct_by_rank = {
    "total_bidders": col("bidder").distinct(),
    **{f"{rank}_bidders": if_else(is_ranked, col("bidder"), None).distinct() for rank, is_ranked in ranks.items()},
    "total_auctions": col("auction").distinct(),
    **{f"{rank}_auctions": if_else(is_ranked, col("auction"), None).distinct() for rank, is_ranked in ranks.items()},
}

nexmark = hr.Pipeline(
    "nexmark",
    bids.event_time("date_time", bound="4s"),
    outputs={
        "q0": hr.Rows([*BID]),
        "q1": hr.Rows(columns("auction", "bidder", "extra", price=euros)),
        "q2": hr.Rows(["auction", "price"], filter=col("auction") % 123 == 0),
        "q5": hr.Output(
            key="auction",
            what={"num": hr.count()},
            where=hr.SlidingWindows("10s", period="2s"),
            **corrected,
            then=[
                hr.Aggregation(  # one window ends every two seconds
                    what={"num": col("num").max(), "auction": col("auction").max_by(col("num"))},
                    where=hr.FixedWindows("2s"),
                    **corrected,
                )
            ],
        ),
        "q7": hr.Rows([*BID], take=hr.top(1, by="price"), **every_10_seconds),
        "q10": hr.Rows(
            columns(
                "auction",
                "bidder",
                "price",
                "extra",
                dt=col("date_time").strftime("%Y-%m-%d"),
                hm=col("date_time").strftime("%H:%M"),
            )
        ),
        "q11": hr.Output(key="bidder", what={"bid_count": hr.count()}, where=hr.Sessions("10s"), **corrected),
        "q14": hr.Rows(
            columns(
                "auction",
                "bidder",
                "extra",
                price=euros,
                bid_time_type=if_else(
                    hour.between(8, 18), "dayTime", if_else((hour <= 6) | (hour >= 20), "nightTime", "otherTime")
                ),
                c_counts=col("extra").split("c").length() - 1,
            ),
            filter=(euros > 1_000_000) & (euros < 50_000_000),
        ),
        "q15": hr.Output(what=bids_by_rank | distinct_by_rank, **daily),
        "q16": hr.Output(
            key="channel",
            what={"minute": col("date_time").strftime("%H:%M").max(), **bids_by_rank, **distinct_by_rank},
            **daily,
        ),
        "q17": hr.Output(
            key="auction",
            what={
                **bids_by_rank,
                "min_price": col("price").min(),
                "max_price": col("price").max(),
                "avg_price": col("price").mean(),
                "sum_price": col("price").sum(),
            },
            **daily,
        ),
        "q18": hr.Rows([*BID], key=["bidder", "auction"], take=hr.newest()),
        "q19": hr.Rows([*BID], key="auction", take=hr.top(10, by="price")),
        "q21": hr.Rows(
            columns(
                "auction",
                "bidder",
                "price",
                "channel",
                channel_id=hr.coalesce(
                    if_else(channel == "apple", "0", None),
                    if_else(channel == "google", "1", None),
                    if_else(channel == "facebook", "2", None),
                    if_else(channel == "baidu", "3", None),
                    channel_id,
                ),
            ),
            filter=channel_id.is_not_null() | channel.is_in(["apple", "google", "facebook", "baidu"]),
        ),
        "q22": hr.Rows(
            columns(
                "auction",
                "bidder",
                "price",
                "channel",
                dir1=directories.item(3),
                dir2=directories.item(4),
                dir3=directories.item(5),
            )
        ),
    },
    executor="auto",
)

q12 = hr.Pipeline(
    "q12",
    bids.arrival_time(),
    key="bidder",
    what={"bid_count": hr.count()},
    **every_10_seconds,
    executor="auto",
)
