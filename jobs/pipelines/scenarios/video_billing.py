"""Billing advertisers for the ads that viewers watched: the running example of the Dataflow paper (section 1) and its
billing pipelines (section 3.3.3): sessions, then a bill per day, with retractions between them.

A session is one viewer's watching of one advertiser's ads with gaps below 30 minutes. The advertiser pays a cent per
second of a session that has at least 30 seconds, and for no more than 180 seconds of it; a session is billed to the day
(UTC) in which it ends. So a bill is no sum over ads: a belated ad can join two sessions, and what they cost together is
more or less than what they cost apart, perhaps on another day. The first aggregation withdraws the sessions that it
replaces, and the second takes them off the bill again.

Out of order, late and more than once: a device that was offline reports its ads when it is back, hours or days later,
and one that heard no answer reports them again. Sessions and bills are kept for 30 days, and so are the ids of ads, of
which each counts once.

A correction is more input, to this same pipeline (section 3.3.1): ads that were not reported, and a record with
negative ``seconds`` for an ad that must not be paid. README.md beside this file walks through one.

    python scripts/land_scenarios.py video_billing --root file:///tmp/video
    headrace run jobs/pipelines/scenarios/video_billing.py --root file:///tmp/video
    headrace read jobs/pipelines/scenarios/video_billing.py --root file:///tmp/video --order advertiser,window_start
"""

from datetime import datetime

import headrace as hr
from headrace import col

KEPT = "30d"
BILLABLE_SECONDS = 30
PAID_SECONDS = 180

views = hr.json(
    "landing/ad_views",
    {"id": str, "viewer": str, "advertiser": str, "at": datetime, "seconds": int},
    max_files=4,
).event_time("at", bound="1h")

billing = hr.Pipeline(
    "video_billing",
    views,
    description="Cents that each advertiser owes per day, for sessions of viewers who watched their ads.",
    deduplicate=hr.Deduplicate(col("id"), horizon=KEPT),
    key=["viewer", "advertiser"],
    what={"seconds": col("seconds").sum()},
    where=hr.Sessions("30m"),
    when=hr.on_update(),
    how=hr.retracting(allowed_lateness=KEPT),
    then=(
        hr.Aggregation(
            key="advertiser",
            filter=col("seconds") >= BILLABLE_SECONDS,
            what={
                "sessions": hr.count(),
                "seconds": col("seconds").sum(),
                "cents": hr.least(col("seconds"), PAID_SECONDS).sum(),
            },
            where=hr.FixedWindows("1d"),
            how=hr.retracting(allowed_lateness=KEPT),
        ),
    ),
    expectations=(
        hr.expect("column_values_to_be_between", column="sessions", min_value=1),
        hr.expect("column_pair_values_a_to_be_greater_than_b", column_A="seconds", column_B="cents", or_equal=True),
        hr.expect("compound_columns_to_be_unique", column_list=["advertiser", "window_start"]),
    ),
)
