"""NEXMark's queries over the persons, auctions and bids of an auction house. ``generator.py`` lands them, ``sql/`` asks
DuckDB the same, and the page docs/nexmark.md says what each query is.
"""

from datetime import datetime
from decimal import Decimal

import headrace as hr
from headrace import col, if_else

BID = {
    "auction": int,
    "bidder": int,
    "price": int,
    "channel": str,
    "url": str,
    "date_time": datetime,
    "extra": str,
}
AUCTION = {
    "id": int,
    "item_name": str,
    "description": str,
    "initial_bid": int,
    "reserve": int,
    "date_time": datetime,
    "expires": datetime,
    "seller": int,
    "category": int,
    "extra": str,
}
PERSON = {
    "id": int,
    "name": str,
    "email_address": str,
    "credit_card": str,
    "city": str,
    "state": str,
    "date_time": datetime,
    "extra": str,
}
bids = hr.json("landing/bids", BID, max_files=1)  # a micro-batch for each file
auctions = hr.json("landing/auctions", AUCTION, max_files=1).event_time("date_time", bound="4s", idle="1m")
persons = hr.json("landing/persons", PERSON, max_files=1).event_time("date_time", bound="4s", idle="1m")

# What comes late, by up to a minute, corrects what stands
late = "1m"
corrected = {"when": hr.on_update(), "how": hr.retracting(allowed_lateness=late)}
every_10_seconds = {"where": hr.FixedWindows("10s"), **corrected}
daily = {"where": hr.CalendarWindows("day"), **corrected}
of_all_time = {"where": hr.GlobalWindows(), **corrected}

euros = col("price") * Decimal("0.908")
hour = col("date_time").hour()
time_of_day = if_else(hour.between(8, 18), "dayTime", if_else((hour <= 6) | (hour >= 20), "nightTime", "otherTime"))
number_of_c = col("extra").split("c").length() - 1
channel = col("channel").lower()
channel_id = col("url").regexp_extract("(&|^)channel_id=([^&]*)", 2)
known_id = hr.coalesce(
    if_else(channel == "apple", "0", None),
    if_else(channel == "google", "1", None),
    if_else(channel == "facebook", "2", None),
    if_else(channel == "baidu", "3", None),
    channel_id,
)
directories = col("url").split("/")


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
        "q1": hr.Rows(["auction", "bidder", "extra", {"price": euros}]),
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
            [
                "auction",
                "bidder",
                "price",
                "extra",
                {"dt": col("date_time").strftime("%Y-%m-%d"), "hm": col("date_time").strftime("%H:%M")},
            ]
        ),
        "q11": hr.Output(key="bidder", what={"bid_count": hr.count()}, where=hr.Sessions("10s"), **corrected),
        "q14": hr.Rows(
            ["auction", "bidder", "extra", {"price": euros, "bid_time_type": time_of_day, "c_counts": number_of_c}],
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
            ["auction", "bidder", "price", "channel", {"channel_id": known_id}],
            filter=channel_id.is_not_null() | channel.is_in(["apple", "google", "facebook", "baidu"]),
        ),
        "q22": hr.Rows(
            ["auction", "bidder", "price", "channel", {f"dir{n}": directories.item(n + 2) for n in (1, 2, 3)}]
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

q3 = hr.Pipeline(
    "q3",
    auctions,
    join=[hr.as_of(persons.named("persons"), on={"seller": "id"}, columns=["name", "city", "state"], lateness=late)],
    rows=["name", "city", "state", "id"],
    filter=(col("category") == 10) & col("state").is_in(["OR", "ID", "CA"]),
    executor="auto",
)

q8 = hr.Pipeline(
    "q8",
    persons,
    join=[
        hr.same_window(
            auctions.named("auctions"), on={"id": "seller"}, window=hr.FixedWindows("10s"), columns={"auction": "id"}
        )
    ],
    outputs={"q8": hr.Rows(["name"], key="id", take=hr.distinct(), **every_10_seconds)},
    executor="auto",
)

# Bids with the auction that they are for
of_auction = {
    **{name: col(name) for name in AUCTION if name not in ("id", "date_time", "extra")},
    "opened": col("date_time"),
    "auction_extra": col("extra"),
}
waited = col("date_time").cast(int) - col("opened").cast(int)  # microseconds
sold = hr.Pipeline(
    "sold",
    bids.event_time("date_time", bound="4s"),
    join=[hr.as_of(auctions.named("auctions"), on={"auction": "id"}, columns=of_auction, lateness=late)],
    outputs={
        "q20": hr.Rows([*BID, *of_auction], filter=col("category") == 10),
        "q9": hr.Rows(  # the highest bid; of several the first
            key="auction",
            filter=col("date_time") <= col("expires"),
            take=hr.top(1, by=col("price") * Decimal(10**15) - waited),
        ),
        "q4": hr.Output(of="q9", key="category", what={"final": col("price").mean()}, **of_all_time),
        "last_ten": hr.Rows(["auction", "price"], of="q9", key="seller", take=hr.top(10, by="expires")),
        "q6": hr.Output(of="last_ten", key="seller", what={"final": col("price").mean()}, **of_all_time),
    },
    executor="auto",
)

side_input = hr.csv("landing/side_input", {"key": int, "value": str, "since": datetime})
q13 = hr.Pipeline(
    "q13",
    bids.event_time("date_time", bound="4s"),
    join=[
        hr.as_of(
            side_input.event_time("since", bound="0s", idle="1m").named("side_input"),
            on={col("auction") % 10_000: "key"},
            columns=["value"],
            lateness=late,
        )
    ],
    rows=["auction", "bidder", "price", "date_time", "value"],
    executor="auto",
)
