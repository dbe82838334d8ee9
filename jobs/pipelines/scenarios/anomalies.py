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

from datetime import timedelta

from headrace.pipeline import (
    AfterAny,
    AfterCount,
    AfterEach,
    AfterProcessingTime,
    AfterWatermark,
    Aggregation,
    BoundedOutOfOrderness,
    DataDriven,
    DataType,
    EventTime,
    FileFormat,
    FileSource,
    FixedWindows,
    OrFinally,
    Pipeline,
    Repeatedly,
    col,
    count,
    expect,
    max_of,
    retracting,
    sum_of,
)

COUNTED = {"searches": sum_of(col("searches")), "usual": sum_of(col("usual"))}
TRENDING = (col("searches") >= 50) & (col("searches") > col("usual") * 3)
LATENESS = timedelta(hours=1)

anomalies = Pipeline(
    name="anomalies",
    description="Trending search queries per hour, alarmed as soon as a window of ten minutes trends.",
    source=FileSource(
        path="landing/searches",
        format=FileFormat.JSON,
        schema={
            "query": DataType.STRING,
            "server": DataType.STRING,
            "at": DataType.TIMESTAMP,
            "searches": DataType.INT,
            "usual": DataType.INT,
        },
        max_files=1,
    ),
    event_time=EventTime(col("at"), watermark=BoundedOutOfOrderness(timedelta(minutes=3)), split=col("server")),
    key={"query": col("query")},
    where=FixedWindows(timedelta(minutes=10)),
    when=AfterEach(
        DataDriven(COUNTED, TRENDING),
        OrFinally(Repeatedly(AfterAny(AfterCount(20), AfterProcessingTime(timedelta(minutes=1)))), AfterWatermark()),
        Repeatedly(AfterCount(1)),
    ),
    how=retracting(allowed_lateness=LATENESS),
    what=COUNTED,
    then=(
        Aggregation(
            key={"query": col("query")},
            filter=TRENDING,
            where=FixedWindows(timedelta(hours=1)),
            when=Repeatedly(AfterCount(1)),
            how=retracting(allowed_lateness=LATENESS),
            what={"trending": count(), "searches": sum_of(col("searches")), "peak": max_of(col("searches"))},
        ),
    ),
    expectations=(
        expect("column_values_to_be_between", column="trending", min_value=1, max_value=6),
        expect("column_pair_values_a_to_be_greater_than_b", column_A="searches", column_B="peak", or_equal=True),
        expect("compound_columns_to_be_unique", column_list=["query", "window_start"]),
    ),
)
