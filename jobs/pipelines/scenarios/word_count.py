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

import headrace as hr
from headrace import col

stream = hr.json("landing/words", {"word": str}, max_files=4).arrival_time()

words = hr.Pipeline(
    "word_count",
    stream,
    description="How often each word came so far.",
    key={"word": col("word").lower()},
    what={"times": hr.count()},
    where=hr.GlobalWindows(),
    when=hr.Repeatedly(hr.AfterCount(1)),
    how=hr.accumulating(allowed_lateness=None),
    expectations=(
        hr.expect("column_values_to_be_unique", column="word"),
        hr.expect("column_values_to_be_between", column="times", min_value=1),
    ),
)
