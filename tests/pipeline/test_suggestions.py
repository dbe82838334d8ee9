"""Mistyped names say what may have been meant, whole messages."""

from collections.abc import Callable
from datetime import datetime

import pytest

import headrace as hr
from headrace import col
from headrace.errors import PipelineError

CLICKS = hr.json("landing/clicks", {"shop": str, "amount": int, "at": datetime})


def pipeline(split: str = "shop", **parts: object) -> hr.Pipeline:
    given = CLICKS.event_time("at", bound="1h", split=split)
    made = {"key": "shop", "what": {"n": hr.count()}, "where": hr.FixedWindows("1h"), **parts}
    return hr.Pipeline("sales", given, **made)  # type: ignore[arg-type]


MISTYPED: dict[str, tuple[Callable[[], object], str]] = {
    "accumulating": (
        lambda: hr.accumulating(alowed_lateness="1h"),  # type: ignore[call-arg]
        "accumulating(alowed_lateness=): there is no such argument; did you mean 'allowed_lateness'? "
        "It takes allowed_lateness, on_time, closing, timestamp, keep_last",
    ),
    "json": (
        lambda: hr.json("landing", {"a": int}, max_file=3),  # type: ignore[call-arg]
        "json(max_file=): there is no such argument; did you mean 'max_files'? It takes path, schema, max_files, "
        "max_bytes, look_back, max_rejected, on_unreadable, missing, suffixes, transform",
    ),
    "Pipeline": (
        lambda: pipeline(wat=1),
        "Pipeline(wat=): there is no such argument; did you mean 'what'? It takes name, input, key, what, where, when, "
        "how, filter, renamed, deduplicate, union, then, expectations, description, schedule, backfill, retention, "
        "executor, allow_finishing, allow_double_counting",
    ),
    "startswith": (lambda: col("a").startswith("b"), "Column has no 'startswith'; did you mean 'starts_with'?"),  # type: ignore[attr-defined]
    "len": (lambda: col("a").len(), "Column has no 'len'; did you mean 'length'?"),  # type: ignore[attr-defined]
    "split": (
        lambda: pipeline(split="shp"),
        "pipeline sales: there is no column 'shp'; did you mean 'shop'? the columns are amount, at, shop",
    ),
    "deduplicate": (
        lambda: pipeline(deduplicate=hr.Deduplicate("shp", "1d")),
        "pipeline sales: there is no column 'shp'; did you mean 'shop'? the columns are amount, at, shop",
    ),
}


@pytest.mark.parametrize("name", MISTYPED)
def test_the_whole_message(name: str) -> None:
    call, message = MISTYPED[name]
    with pytest.raises((PipelineError, AttributeError)) as caught:
        call()
    assert str(caught.value) == message
