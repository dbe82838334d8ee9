"""Incremental word count: the example of the ABS paper ("Lightweight Asynchronous Snapshots for Distributed Dataflows",
section 3.1, figure 1): how often each word came so far, refined by every micro-batch that brings it.

A word has no event time, only its arrival, so the watermark is that of ingestion and the window is the global one: the
state is one count per word, which every snapshot holds whole. The paper's source splits lines into words; there is no
flat-map here yet, so each landed record is one word. Words are counted in lower case; a record without a word is a
dead letter.

    python scripts/land_scenarios.py word_count --root file:///tmp/words
    headrace run jobs/pipelines/scenarios/word_count.py --root file:///tmp/words
    headrace read jobs/pipelines/scenarios/word_count.py --root file:///tmp/words --order 'times desc' --limit 5
"""

from headrace.pipeline import (
    AfterCount,
    DataType,
    EventTime,
    FileFormat,
    FileSource,
    GlobalWindows,
    Ingestion,
    Pipeline,
    Repeatedly,
    accumulating,
    col,
    count,
    expect,
    lower,
)

words = Pipeline(
    name="word_count",
    description="How often each word came so far.",
    source=FileSource(
        path="landing/words",
        format=FileFormat.JSON,
        schema={"word": DataType.STRING},
        max_files=4,
    ),
    event_time=EventTime(None, watermark=Ingestion()),
    key={"word": lower(col("word"))},
    where=GlobalWindows(),
    when=Repeatedly(AfterCount(1)),
    how=accumulating(allowed_lateness=None),
    what={"times": count()},
    expectations=(
        expect("column_values_to_be_unique", column="word"),
        expect("column_values_to_be_between", column="times", min_value=1),
    ),
)
