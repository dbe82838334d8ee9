"""Search queries that trend: the Dataflow paper's anomaly detection on data-driven and composite triggers (section
3.3.6; the pipeline itself is Zeitgeist of the MillWheel paper, section 2).

Log servers report how often a query was searched and how often their model expected it (``usual``). In windows of ten
minutes the first aggregation adds both up, and its trigger speaks in three parts, one after the other:

1. data-driven: as soon as a window has at least 50 searches and more than three times the usual ones;
2. from then on after every 20 reports or once a minute, whichever is first, until the watermark passes its end;
3. after that for every late report.

A window that never trends stays silent until it expires an hour after its end, and its closing pane does not pass the
filter. The second aggregation counts trending windows by query and hour, at once for each pane. A window that looked
like a trend after one minute and is an ordinary one after ten is withdrawn, and so is its alarm.

    python scripts/land_scenarios.py anomalies --root file:///tmp/queries
    headrace run jobs/pipelines/scenarios/anomalies.py --root file:///tmp/queries
    headrace read jobs/pipelines/scenarios/anomalies.py --root file:///tmp/queries --view panes
"""

from datetime import datetime

import headrace as hr
from headrace import col

COUNTED = {"searches": col("searches").sum(), "usual": col("usual").sum()}
TRENDING = (col("searches") >= 50) & (col("searches") > col("usual") * 3)
LATENESS = "1h"

searches = hr.json(
    "landing/searches",
    {"query": str, "server": str, "at": datetime, "searches": int, "usual": int},
    max_files=1,
).event_time("at", bound="3m", split="server")

anomalies = hr.Pipeline(
    "anomalies",
    searches,
    description="Trending search queries per hour, alarmed as soon as a window of ten minutes trends.",
    key="query",
    what=COUNTED,
    where=hr.FixedWindows("10m"),
    when=hr.AfterEach(
        hr.DataDriven(COUNTED, TRENDING),
        hr.OrFinally(hr.Repeatedly(hr.AfterAny(hr.AfterCount(20), hr.AfterProcessingTime("1m"))), hr.AfterWatermark()),
        hr.Repeatedly(hr.AfterCount(1)),
    ),
    how=hr.retracting(allowed_lateness=LATENESS),
    then=(
        hr.Aggregation(
            key="query",
            filter=TRENDING,
            what={"trending": hr.count(), "searches": col("searches").sum(), "peak": col("searches").max()},
            where=hr.FixedWindows("1h"),
            when=hr.Repeatedly(hr.AfterCount(1)),
            how=hr.retracting(allowed_lateness=LATENESS),
        ),
    ),
    expectations=(
        hr.expect("column_values_to_be_between", column="trending", min_value=1, max_value=6),
        hr.expect("column_pair_values_a_to_be_greater_than_b", column_A="searches", column_B="peak", or_equal=True),
        hr.expect("compound_columns_to_be_unique", column_list=["query", "window_start"]),
    ),
)
