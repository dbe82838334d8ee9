"""The newest event time of all records that were read, whatever became of them."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.distribute.records import Piece, ReadShare, read_records
from headrace.kernel.stage import CompiledStage
from headrace.model.time import Instant, to_instant
from headrace.pipeline.endpoints import OWN
from headrace.sources.landing import Landing
from headrace.sources.progress import EpochClocks
from headrace.sources.source_clock import NOT_SAID, newest_read
from headrace_snapshots.store import open_store

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOW = to_instant(NOON + timedelta(hours=1))
SCHEMA = {"user": str, "at": datetime}


def instant_at(minutes: int) -> Instant:
    return to_instant(NOON + timedelta(minutes=minutes))


def pipeline(transform: hr.SparkFunction | None = None, **parts: Any) -> hr.Pipeline:
    source = hr.json("landing", SCHEMA, transform=transform)
    return hr.Pipeline(
        "newest",
        source.event_time("at", bound="5m", max_ahead="2h"),
        key="user",
        what={"number": hr.count()},
        where=hr.FixedWindows("1h"),
        **parts,
    )


def handed_on(folder: Path, tested_pipeline: hr.Pipeline, minutes: Sequence[int | None]) -> ReadShare:
    """What is read of one file, with a line that does not parse."""
    path = folder / "landing" / "a.jsonl"
    path.parent.mkdir()
    rows = [{"user": "ann", "at": None if each is None else (NOON + timedelta(minutes=each)).isoformat()}
            for each in minutes]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + "no record\n")
    landing = Landing(tested_pipeline, open_store(folder.as_uri()))
    pieces = [Piece(OWN, file) for file in landing.take_files(landing.new_files({}))[OWN]]
    return read_records(tested_pipeline, [CompiledStage(tested_pipeline.stages[0])], landing, pieces, NOW)


def test_what_a_users_own_code_gets_counts_though_it_may_drop_it(tmp_path: Path) -> None:
    tested_pipeline = pipeline(hr.SparkFunction("nowhere:f", deterministic=True, returns=SCHEMA))
    clocks = handed_on(tmp_path, tested_pipeline, [5, 90, None, 500])
    assert clocks.handed_on == instant_at(90), "the last is too far ahead"
    assert clocks.records is not None
    assert len(clocks.records.columns["_reject"]) == 1, "the line that does not parse"


def test_where_it_makes_the_event_time_they_may_be_as_late_as_may_be(tmp_path: Path) -> None:
    tested_pipeline = pipeline(
        hr.SparkFunction("nowhere:f", deterministic=True, returns={"user": str, "at": datetime, "when": datetime})
    )
    own_pipeline = hr.Pipeline(
        "newest", tested_pipeline.source.event_time("when", bound="5m", max_ahead="2h"), key="user",
        what={"number": hr.count()}, where=hr.FixedWindows("1h"),
    )  # fmt: skip
    assert handed_on(tmp_path, own_pipeline, [5]).handed_on == NOW + 2 * 3_600_000_000


def test_without_records_there_is_none(tmp_path: Path) -> None:
    assert (
        handed_on(tmp_path, pipeline(hr.SparkFunction("nowhere:f", deterministic=True, returns=SCHEMA)), []).handed_on
        is None
    )


@pytest.mark.parametrize(
    ("pipeline", "clocks", "expected"),
    [
        (pipeline(), EpochClocks(), None),
        (pipeline(), EpochClocks(newest=instant_at(1), newest_read=instant_at(2)), instant_at(2)),
        (pipeline(), EpochClocks(newest=instant_at(1), newest_read=NOT_SAID), instant_at(1)),
        (
            pipeline(filter=col("user") != "bob"),
            EpochClocks(newest=instant_at(1), newest_read=NOT_SAID, processing_time=instant_at(30)),
            instant_at(150),
        ),
    ],
    ids=["nothing", "said", "nothing was dropped", "something may have been dropped"],
)
def test_older_manifests_do_not_say_it(pipeline: hr.Pipeline, clocks: EpochClocks, expected: Instant | None) -> None:
    assert newest_read(pipeline, clocks) == expected
