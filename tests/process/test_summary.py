"""The summary of a pipeline: what it says after each run and each decision, and that nothing depends on it."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import headrace as hr
from headrace.audit.store import AuditFailedError, LimitExceededError, StaleDataError
from headrace.model.time import to_instant
from headrace.runs.reporting.summary import (
    EPOCHS,
    PipelineState,
    PipelineSummary,
    read_summary,
    summarize_pipeline,
    urgent_first,
)
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.names import manifest_path, summarized_pipeline, summary_path
from headrace_snapshots.store import ObjectStore, open_store

START = datetime(2026, 11, 20, tzinfo=UTC)
CLICKS = hr.json("landing/clicks", {"user": str, "at": datetime}).event_time("at", bound="1m")


def clicks(**more: Any) -> hr.Pipeline:
    """Clicks per user and minute; nothing is expected of them."""
    return hr.Pipeline(
        "clicks",
        CLICKS,
        key="user",
        what={"clicks": hr.count()},
        where=hr.FixedWindows("1m"),
        when=hr.on_update(),
        how=hr.retracting(allowed_lateness="1h"),
        executor="local",
        **more,
    )


def expecting(most: int) -> hr.Pipeline:
    """The clicks, of which an audit allows ``most``: Great Expectations takes seconds to import."""
    expectation = hr.expect("column_values_to_be_between", column="clicks", min_value=1, max_value=most)
    return clicks(expectations=[expectation])


Run = Callable[..., None]


@pytest.fixture
def root(tmp_path: Path) -> str:
    """An empty root."""
    return (tmp_path / "root").as_uri()


@pytest.fixture
def store(root: str) -> ObjectStore:
    """Its store."""
    return open_store(root)


@pytest.fixture
def run(root: str, store: ObjectStore) -> Run:
    """Land a file with one click in each of some minutes, and run."""

    def landed_and_run(name: str, minutes: range, pipeline: hr.Pipeline | None = None, *bad: str) -> None:
        lines = [json.dumps({"user": "ada", "at": (START + timedelta(minutes=m)).isoformat()}) for m in minutes]
        store.write(f"landing/clicks/{name}", "\n".join([*lines, *bad, ""]).encode())
        hr.open(root, create=True)[pipeline or clicks()].run()

    return landed_and_run


def stored_summary(store: ObjectStore) -> PipelineSummary:
    """The summary that is stored."""
    summary = read_summary(store, "clicks")
    assert summary is not None
    return summary


@pytest.mark.slow
def test_a_run_leaves_a_summary_of_what_it_published(run: Run, store: ObjectStore) -> None:
    run("a.jsonl", range(10), expecting(100), "oops")
    summary = stored_summary(store)
    assert (summary.state, summary.epoch, summary.published_epoch, summary.unpublished) == (
        PipelineState.PUBLISHED,
        0,
        0,
        0,
    )
    assert (summary.totals["records"], summary.totals["rejected"]) == (11, 1)
    assert summary.watermark == "2026-11-20T00:08:00Z"
    assert summary.audit is not None
    assert (summary.audit.success, summary.audit.expectations) == (True, 1)
    assert summary.run is not None
    assert (summary.run.action, summary.run.status) == ("process", "succeeded")
    assert summary.published_at is not None


def test_what_is_summarized_is_what_the_catalog_says(run: Run, store: ObjectStore) -> None:
    for number in range(3):
        run(f"{number}.jsonl", range(number * 5, number * 5 + 7))
    by_then = stored_summary(store)
    now = summarize_pipeline(Catalog(store, "clicks"), None, by_then.run)
    assert by_then == msgspec.structs.replace(now, made_at=by_then.made_at)


def test_only_new_epochs_are_read(run: Run, store: ObjectStore) -> None:
    for number in range(3):
        run(f"{number}.jsonl", range(number * 5, number * 5 + 7))
    catalog = Catalog(store, "clicks")
    requests_before = store.requests.snapshot()
    summarize_pipeline(catalog, stored_summary(store))
    from_summary = store.requests.since(requests_before)["get"]
    requests_before = store.requests.snapshot()
    summarize_pipeline(Catalog(store, "clicks"))
    assert from_summary < store.requests.since(requests_before)["get"]


@pytest.mark.slow
def test_a_failed_audit_is_told_and_a_release_ends_it(run: Run, root: str, store: ObjectStore) -> None:
    run("a.jsonl", range(10))
    with pytest.raises(AuditFailedError):
        run("b.jsonl", range(5, 15), expecting(1))
    summary = stored_summary(store)
    assert (summary.state, summary.unpublished) == (PipelineState.AUDIT_FAILED, 1)
    assert summary.run is not None
    assert summary.run.error_code == "data.audit_failed"
    hr.open(root)["clicks"].release("main", message="seen by ada")
    assert (stored_summary(store).state, stored_summary(store).unpublished) == (PipelineState.PUBLISHED, 0)


def test_a_rollback_is_summarized(run: Run, root: str, store: ObjectStore) -> None:
    run("a.jsonl", range(10))
    first = stored_summary(store)
    run("b.jsonl", range(5, 15))
    assert first.snapshot is not None
    hr.open(root)["clicks"].rollback(to=first.snapshot)
    summary = stored_summary(store)
    assert (summary.snapshot, summary.published) == (first.snapshot, first.snapshot)
    assert [line.epoch for line in summary.epochs] == [0]
    run("c.jsonl", range(15, 20))
    assert [line.epoch for line in stored_summary(store).epochs] == [0, 1]


def test_a_promotion_that_was_made_before_is_summarized(run: Run, root: str, store: ObjectStore) -> None:
    run("a.jsonl", range(10))
    handle = hr.open(root)[clicks()]
    handle.backfill(branch="again")
    catalog = Catalog(store, "clicks")
    refs = catalog.head().refs
    catalog.promote("again", expected_main=refs["main"])  # as an attempt that is killed right after
    assert stored_summary(store).published == refs["main"]
    assert handle.promote("again").snapshot == refs["again"]
    assert stored_summary(store).published == refs["again"]


def test_a_summary_has_the_newest_epochs_alone(run: Run, root: str, store: ObjectStore) -> None:
    for number in range(EPOCHS + 2):
        line = json.dumps({"user": "ada", "at": (START + timedelta(minutes=number)).isoformat()})
        store.write(f"landing/clicks/{number:02}.jsonl", f"{line}\n".encode())
    hr.open(root, create=True)[clicks()].run(files_per_epoch=1)
    assert [line.epoch for line in stored_summary(store).epochs] == [*range(2, EPOCHS + 2)]


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"format": 2}', b"[]"])
def test_a_damaged_summary_is_written_again(run: Run, store: ObjectStore, damage: bytes) -> None:
    run("a.jsonl", range(10))
    store.write(summary_path("clicks"), damage)
    assert read_summary(store, "clicks") is None
    run("b.jsonl", range(5, 15))
    assert stored_summary(store).epoch == 1


def test_a_broken_head_is_a_state_and_no_error(run: Run, store: ObjectStore) -> None:
    run("a.jsonl", range(10))
    head = stored_summary(store).snapshot
    assert head is not None
    store.write(manifest_path("clicks", head), b"broken")
    summary = summarize_pipeline(Catalog(store, "clicks"))
    assert summary.state is PipelineState.DAMAGED
    assert summary.problem is not None
    assert head in summary.problem


def test_a_store_that_refuses_ends_no_run(
    run: Run, store: ObjectStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run("a.jsonl", range(10))
    place = tmp_path / "root" / summary_path("clicks")
    place.unlink()
    place.mkdir()  # nothing can be written under that name
    (place / "x").touch()
    run("b.jsonl", range(5, 15))
    assert "the summary of clicks is not renewed" in caplog.text


def test_a_pipeline_that_never_ran_is_empty(store: ObjectStore) -> None:
    summary = summarize_pipeline(Catalog(store, "clicks"))
    assert (summary.state, summary.epoch, summary.epochs) == (PipelineState.EMPTY, None, ())


def test_those_that_need_a_person_come_first() -> None:
    some = [PipelineSummary(f"p{number}", "", 0, state) for number, state in enumerate(reversed(PipelineState))]
    assert [one.state for one in urgent_first(some, to_instant(START))] == [*PipelineState]


def test_a_missed_deadline_and_an_overdue_timer_need_a_person_too() -> None:
    calm = [PipelineSummary(name, "", 0, PipelineState.PUBLISHED) for name in ("a", "b", "c")]
    overdue = msgspec.structs.replace(calm[1], fires_at="2026-11-19T23:59:00Z")
    later_window = msgspec.structs.replace(calm[0], fires_at="2026-11-20T00:01:00Z")
    waiting = PipelineSummary("d", "", 0, PipelineState.UNPUBLISHED)
    failed_summary = PipelineSummary("e", "", 0, PipelineState.FAILED)
    some = [later_window, overdue, calm[2], waiting, failed_summary]
    assert [one.pipeline for one in urgent_first(some, to_instant(START), {"c"})] == ["e", "c", "d", "b", "a"]


def test_a_summary_says_what_is_due_and_how_old_the_newest_file_is(run: Run, store: ObjectStore) -> None:
    run("a.jsonl", range(10))
    summary = stored_summary(store)
    assert (summary.fires_at, summary.fires_after) == (None, "2026-11-20T00:08:59.999999Z")
    assert summary.newest_file_at == summary.epochs[-1].processing_time
    assert (summary.newest_event_time, summary.published_watermark) == ("2026-11-20T00:09:00Z", "2026-11-20T00:08:00Z")


def test_only_the_input_is_named_to_those_who_see_no_values() -> None:
    summary = PipelineSummary("a", "", 0, PipelineState.PUBLISHED, held_back_by="source, split 4711")
    assert summary.without_values.held_back_by == "source"
    assert PipelineSummary("a", "", 0, PipelineState.EMPTY).without_values.held_back_by is None


@pytest.mark.parametrize("path", [".summaries/a-b.json", ".summaries/a.txt", "a/b.json", ".summaries/x/y.json"])
def test_other_objects_are_no_summaries(path: str) -> None:
    assert summarized_pipeline(path) is None
    assert summarized_pipeline(summary_path("clicks")) == "clicks"


# --- limits -----------------------------------------------------------------------------------------------------------


def test_what_a_limit_holds_back_needs_a_person_until_it_is_released(run: Run, root: str, store: ObjectStore) -> None:
    with pytest.raises(LimitExceededError):
        run("a.jsonl", range(3), clicks(limits=hr.Limits(rejected="1%")), "oops")
    summary = stored_summary(store)
    assert summary.state is PipelineState.LIMIT_EXCEEDED
    assert summary.exceeded == ["dead letters: 1 of 4 records (25.00%); the limit is 1%"]
    assert summary.line_to_json()["exceeded"] == summary.exceeded
    hr.open(root)["clicks"].release("main", message="seen by ada")
    assert (stored_summary(store).state, stored_summary(store).exceeded) == (PipelineState.PUBLISHED, [])


def test_a_limit_that_warns_needs_a_person_though_readers_see_all(run: Run, store: ObjectStore) -> None:
    run("a.jsonl", range(3), clicks(limits=hr.Limits(rejected=hr.limit(warn=0))), "oops")
    summary = stored_summary(store)
    assert (summary.state, summary.unpublished) == (PipelineState.LIMIT_EXCEEDED, 0)
    assert summary.exceeded == ["dead letters: 1 of 4 records (25.00%); the limit is 0 records"]


def test_a_summary_grows_old_by_itself(run: Run, store: ObjectStore) -> None:
    run("a.jsonl", range(3), clicks(limits=hr.Limits(newest_file="1h")))
    summary = stored_summary(store)
    assert summary.as_of(to_instant(datetime.now(UTC))).state is PipelineState.PUBLISHED
    later_summary = summary.as_of(to_instant(datetime.now(UTC) + timedelta(minutes=61)))
    assert later_summary.state is PipelineState.LIMIT_EXCEEDED
    assert later_summary.exceeded[0].startswith("age of the newest file: 1h 1m, of input source, landed at ")


def test_a_producer_that_has_stopped_is_no_failed_pipeline(run: Run, root: str, store: ObjectStore) -> None:
    pipeline = clicks(limits=hr.Limits(newest_file=hr.limit(fail="1us")))
    with pytest.raises(LimitExceededError):
        run("a.jsonl", range(3), pipeline)
    hr.open(root)["clicks"].release("main", message="seen by ada")
    with pytest.raises(StaleDataError):
        hr.open(root)[pipeline].run()
    assert stored_summary(store).state is PipelineState.LIMIT_EXCEEDED
