"""What each user watched lately, refreshed on the clock: the Dataflow paper's recommendations on processing-time
triggers (section 3.3.5). A partial tree of a user's activity every ten minutes is worth more than the whole one at the
end, and no watermark needs to be waited for.

The window is a session of the user's activity with gaps below 30 minutes. Its trigger looks at the clock alone: each
ten minutes (12:10, 12:20, ...) every session with news is emitted again, with all it holds, and what was emitted before
is withdrawn, since sessions merge. The watermark only says when a session is forgotten: a day after its end. Processing
time is as precise as the schedule: run this one every ten minutes. A run without new files still emits what is due.

Telephones report when they have a network, so activity arrives out of order and up to some hours late.

    python scripts/land_scenarios.py recommendations --root file:///tmp/activity
    headrace run jobs/pipelines/scenarios/recommendations.py --root file:///tmp/activity  # again ten minutes later
    headrace read jobs/pipelines/scenarios/recommendations.py --root file:///tmp/activity
"""

from datetime import timedelta

from headrace.pipeline import (
    AfterProcessingTime,
    BoundedOutOfOrderness,
    DataType,
    EventTime,
    FileFormat,
    FileSource,
    Pipeline,
    Repeatedly,
    Sessions,
    col,
    collect_of,
    count,
    distinct_of,
    expect,
    last_of,
    retracting,
)

activity = Pipeline(
    name="recommendations",
    description="The videos of each user's sessions, refreshed every ten minutes.",
    source=FileSource(
        path="landing/activity",
        format=FileFormat.JSON,
        schema={"user": DataType.STRING, "video": DataType.STRING, "at": DataType.TIMESTAMP},
        max_files=4,
    ),
    event_time=EventTime(col("at"), watermark=BoundedOutOfOrderness(timedelta(minutes=15))),
    key={"user": col("user")},
    where=Sessions(timedelta(minutes=30)),
    when=Repeatedly(AfterProcessingTime(align=timedelta(minutes=10))),
    how=retracting(allowed_lateness=timedelta(days=1)),
    what={
        "views": count(),
        "videos": distinct_of(col("video")),
        "latest": last_of(col("video")),
        "watched": collect_of(col("video")),
    },
    expectations=(
        expect("column_values_to_be_between", column="views", min_value=1),
        expect("column_pair_values_a_to_be_greater_than_b", column_A="views", column_B="videos", or_equal=True),
        expect("compound_columns_to_be_unique", column_list=["user", "window_start"]),
    ),
)
