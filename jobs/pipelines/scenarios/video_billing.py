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

from datetime import timedelta

from headrace.pipeline import (
    AfterCount,
    AfterWatermark,
    Aggregation,
    BoundedOutOfOrderness,
    DataType,
    Deduplicate,
    EventTime,
    FileFormat,
    FileSource,
    FixedWindows,
    Pipeline,
    Sessions,
    col,
    count,
    expect,
    least,
    retracting,
    sum_of,
)

KEPT = timedelta(days=30)
BILLABLE_SECONDS = 30
PAID_SECONDS = 180

billing = Pipeline(
    name="video_billing",
    description="Cents that each advertiser owes per day, for sessions of viewers who watched their ads.",
    source=FileSource(
        path="landing/ad_views",
        format=FileFormat.JSON,
        schema={
            "id": DataType.STRING,
            "viewer": DataType.STRING,
            "advertiser": DataType.STRING,
            "at": DataType.TIMESTAMP,
            "seconds": DataType.INT,
        },
        max_files=4,
    ),
    event_time=EventTime(col("at"), watermark=BoundedOutOfOrderness(timedelta(hours=1))),
    deduplicate=Deduplicate(col("id"), horizon=KEPT),
    key={"viewer": col("viewer"), "advertiser": col("advertiser")},
    where=Sessions(timedelta(minutes=30)),
    when=AfterWatermark(early=AfterCount(1), late=AfterCount(1)),
    how=retracting(allowed_lateness=KEPT),
    what={"seconds": sum_of(col("seconds"))},
    then=(
        Aggregation(
            key={"advertiser": col("advertiser")},
            filter=col("seconds") >= BILLABLE_SECONDS,
            where=FixedWindows(timedelta(days=1)),
            when=None,
            how=retracting(allowed_lateness=KEPT),
            what={
                "sessions": count(),
                "seconds": sum_of(col("seconds")),
                "cents": sum_of(least(col("seconds"), PAID_SECONDS)),
            },
        ),
    ),
    expectations=(
        expect("column_values_to_be_between", column="sessions", min_value=1),
        expect("column_pair_values_a_to_be_greater_than_b", column_A="seconds", column_B="cents", or_equal=True),
        expect("compound_columns_to_be_unique", column_list=["advertiser", "window_start"]),
    ),
)
