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

from datetime import datetime

import headrace as hr
from headrace import col

requests = hr.parquet(
    "landing/requests",
    {"service": str, "centre": str, "at": datetime, "milliseconds": int},
    max_files=1,
).event_time("at", bound="40m", split="centre")

statistics = hr.Pipeline(
    "latency_statistics",
    requests,
    description="Requests and their latency per service and ten minutes, early on 95 % of the input.",
    key="service",
    what={
        "requests": hr.count(),
        "mean_ms": col("milliseconds").mean(),
        "max_ms": col("milliseconds").max(),
        "slow": hr.if_else(col("milliseconds") > 500, 1, 0).sum(),
    },
    where=hr.FixedWindows("10m"),
    when=hr.AfterEach(hr.AfterPercentileWatermark(95), hr.AfterWatermark(late=hr.AfterCount(1))),
    how=hr.accumulating(allowed_lateness="6h"),
    expectations=(
        hr.expect("column_values_to_be_between", column="requests", min_value=1),
        hr.expect("column_pair_values_a_to_be_greater_than_b", column_A="max_ms", column_B="mean_ms", or_equal=True),
        hr.expect("compound_columns_to_be_unique", column_list=["service", "window_start"]),
    ),
)
