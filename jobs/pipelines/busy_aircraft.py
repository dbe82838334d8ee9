"""How many aircraft sessions of each day had more than two legs: two aggregations in a chain, on real flights.

The first stage is that of ``aircraft_sessions``: every pane of a session withdraws the one before it, and sessions that
merge withdraw both. The second counts sessions by the day (UTC) in which they end, so that a session which grows past
midnight leaves one day and enters the next: its retraction finds the old day by the old pane's timestamp. Without
retractions every refinement of a session would count once more (Dataflow paper, section 2.3; semantics 7.6).

A session ends eight hours after its last scheduled departure. Sessions are kept for two days after their end, and so
are days: what withdraws a session that a day counted always finds that day open.
"""

from datetime import timedelta

from headrace.pipeline import (
    AfterCount,
    AfterWatermark,
    Aggregation,
    BoundedOutOfOrderness,
    DataType,
    EventTime,
    FileFormat,
    FileSource,
    FixedWindows,
    Pipeline,
    Sessions,
    col,
    count,
    expect,
    lit,
    max_of,
    retracting,
    sum_of,
)

TWO_DAYS = timedelta(days=2)

busy = Pipeline(
    name="busy_aircraft",
    description="Aircraft sessions with more than two legs, by the day in which they end.",
    source=FileSource(
        path="landing/flights",
        format=FileFormat.JSON,
        schema={
            "tailnum": DataType.STRING,
            "time_hour": DataType.TIMESTAMP,
            "minute": DataType.INT,
            "dep_time": DataType.INT,
            "air_time": DataType.INT,
        },
        max_files=10,
    ),
    event_time=EventTime(
        col("time_hour").plus(minutes=col("minute")),
        watermark=BoundedOutOfOrderness(timedelta(hours=4)),
    ),
    key={"tailnum": col("tailnum")},
    filter=col("dep_time").is_not_null(),
    where=Sessions(timedelta(hours=8)),
    when=AfterWatermark(early=AfterCount(1), late=AfterCount(1)),
    how=retracting(allowed_lateness=TWO_DAYS),
    what={"legs": count(), "air_minutes": sum_of(col("air_time"))},
    then=(
        Aggregation(
            key={"sessions_of": lit("more than two legs")},
            filter=col("legs") > 2,
            where=FixedWindows(timedelta(days=1)),
            when=None,
            how=retracting(allowed_lateness=TWO_DAYS),
            what={
                "sessions": count(),
                "legs": sum_of(col("legs")),
                "most_legs": max_of(col("legs")),
                "air_minutes": sum_of(col("air_minutes")),
            },
        ),
    ),
    expectations=(
        expect("column_values_to_be_between", column="sessions", min_value=1),
        expect("column_pair_values_a_to_be_greater_than_b", column_A="legs", column_B="sessions"),
        expect("compound_columns_to_be_unique", column_list=["sessions_of", "window_start"]),
    ),
)
