"""Statistics of services per ten minutes, first when 95 % of the input is there: the Dataflow paper's statistics and
abuse detection on percentile watermarks (section 3.3.4), for which most of the data soon is worth more than all of it
late.

Each window speaks twice: an EARLY pane when the watermark of the fastest 95 % of the input passes its end, and the
ON_TIME pane when the watermark itself does; data later still makes LATE panes for six hours. The few stragglers are
requests whose log reached us up to 40 minutes behind the others, which is the bound: the early pane comes about
half an hour before the other. A split is a data centre, since each ships its logs on its own.

Files are Parquet.

    python scripts/land_scenarios.py latency_statistics --root file:///tmp/latency
    headrace run jobs/pipelines/scenarios/latency_statistics.py --root file:///tmp/latency
    headrace read jobs/pipelines/scenarios/latency_statistics.py --root file:///tmp/latency --view panes
"""

from datetime import timedelta

from headrace.pipeline import (
    AfterCount,
    AfterEach,
    AfterPercentileWatermark,
    AfterWatermark,
    BoundedOutOfOrderness,
    DataType,
    EventTime,
    FileFormat,
    FileSource,
    FixedWindows,
    Pipeline,
    accumulating,
    col,
    count,
    expect,
    if_,
    max_of,
    mean_of,
    sum_of,
)

statistics = Pipeline(
    name="latency_statistics",
    description="Requests and their latency per service and ten minutes, early on 95 % of the input.",
    source=FileSource(
        path="landing/requests",
        format=FileFormat.PARQUET,
        schema={
            "service": DataType.STRING,
            "centre": DataType.STRING,
            "at": DataType.TIMESTAMP,
            "milliseconds": DataType.INT,
        },
        max_files=1,
    ),
    event_time=EventTime(col("at"), watermark=BoundedOutOfOrderness(timedelta(minutes=40)), split=col("centre")),
    key={"service": col("service")},
    where=FixedWindows(timedelta(minutes=10)),
    when=AfterEach(AfterPercentileWatermark(95), AfterWatermark(late=AfterCount(1))),
    how=accumulating(allowed_lateness=timedelta(hours=6)),
    what={
        "requests": count(),
        "mean_ms": mean_of(col("milliseconds")),
        "max_ms": max_of(col("milliseconds")),
        "slow": sum_of(if_(col("milliseconds") > 500, 1, 0)),
    },
    expectations=(
        expect("column_values_to_be_between", column="requests", min_value=1),
        expect("column_pair_values_a_to_be_greater_than_b", column_A="max_ms", column_B="mean_ms", or_equal=True),
        expect("compound_columns_to_be_unique", column_list=["service", "window_start"]),
    ),
)
