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


def kept(store: ObjectStore) -> PipelineSummary:
    """The summary that is stored."""
    found = read_summary(store, "clicks")
    assert found is not None
    return found


@pytest.mark.slow
def test_a_run_leaves_a_summary_of_what_it_published(run: Run, store: ObjectStore) -> None:
    run("a.jsonl", range(10), expecting(100), "oops")
    found = kept(store)
    assert (found.state, found.epoch, found.published_epoch, found.unpublished) == (PipelineState.PUBLISHED, 0, 0, 0)
    assert (found.totals["records"], found.totals["rejected"]) == (11, 1)
    assert found.watermark == "2026-11-20T00:08:00Z"
    assert found.audit is not None
    assert (found.audit.success, found.audit.expectations) == (True, 1)
    assert found.run is not None
    assert (found.run.action, found.run.status) == ("process", "succeeded")
    assert found.published_at is not None


def test_what_is_summarized_is_what_the_catalog_says(run: Run, store: ObjectStore) -> None:
    for number in range(3):
        run(f"{number}.jsonl", range(number * 5, number * 5 + 7))
    by_then = kept(store)
    now = summarize_pipeline(Catalog(store, "clicks"), None, by_then.run)
    assert by_then == msgspec.structs.replace(now, made_at=by_then.made_at)


def test_only_new_epochs_are_read(run: Run, store: ObjectStore) -> None:
    for number in range(3):
        run(f"{number}.jsonl", range(number * 5, number * 5 + 7))
    catalog = Catalog(store, "clicks")
    before = store.requests.snapshot()
    summarize_pipeline(catalog, kept(store))
    from_summary = store.requests.since(before)["get"]
    before = store.requests.snapshot()
    summarize_pipeline(Catalog(store, "clicks"))
    assert from_summary < store.requests.since(before)["get"]


@pytest.mark.slow
def test_a_failed_audit_is_told_and_a_release_ends_it(run: Run, root: str, store: ObjectStore) -> None:
    run("a.jsonl", range(10))
    with pytest.raises(AuditFailedError):
        run("b.jsonl", range(5, 15), expecting(1))
    found = kept(store)
    assert (found.state, found.unpublished) == (PipelineState.AUDIT_FAILED, 1)
    assert found.run is not None
    assert found.run.error_code == "data.audit_failed"
    hr.open(root)["clicks"].release("main", message="seen by ada")
    assert (kept(store).state, kept(store).unpublished) == (PipelineState.PUBLISHED, 0)


def test_a_rollback_is_summarized(run: Run, root: str, store: ObjectStore) -> None:
    run("a.jsonl", range(10))
    first = kept(store)
    run("b.jsonl", range(5, 15))
    assert first.snapshot is not None
    hr.open(root)["clicks"].rollback(to=first.snapshot)
    found = kept(store)
    assert (found.snapshot, found.published) == (first.snapshot, first.snapshot)
    assert [line.epoch for line in found.epochs] == [0]
    run("c.jsonl", range(15, 20))
    assert [line.epoch for line in kept(store).epochs] == [0, 1]


def test_a_promotion_that_was_made_before_is_summarized(run: Run, root: str, store: ObjectStore) -> None:
    run("a.jsonl", range(10))
    handle = hr.open(root)[clicks()]
    handle.backfill(branch="again")
    catalog = Catalog(store, "clicks")
    refs = catalog.head().refs
    catalog.promote("again", expected_main=refs["main"])  # as an attempt that is killed right after
    assert kept(store).published == refs["main"]
    assert handle.promote("again").snapshot == refs["again"]
    assert kept(store).published == refs["again"]


def test_a_summary_has_the_newest_epochs_alone(run: Run, root: str, store: ObjectStore) -> None:
    for number in range(EPOCHS + 2):
        line = json.dumps({"user": "ada", "at": (START + timedelta(minutes=number)).isoformat()})
        store.write(f"landing/clicks/{number:02}.jsonl", f"{line}\n".encode())
    hr.open(root, create=True)[clicks()].run(files_per_epoch=1)
    assert [line.epoch for line in kept(store).epochs] == [*range(2, EPOCHS + 2)]


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"format": 2}', b"[]"])
def test_a_damaged_summary_is_written_again(run: Run, store: ObjectStore, damage: bytes) -> None:
    run("a.jsonl", range(10))
    store.write(summary_path("clicks"), damage)
    assert read_summary(store, "clicks") is None
    run("b.jsonl", range(5, 15))
    assert kept(store).epoch == 1


def test_a_broken_head_is_a_state_and_no_error(run: Run, store: ObjectStore) -> None:
    run("a.jsonl", range(10))
    head = kept(store).snapshot
    assert head is not None
    store.write(manifest_path("clicks", head), b"broken")
    found = summarize_pipeline(Catalog(store, "clicks"))
    assert found.state is PipelineState.DAMAGED
    assert found.problem is not None
    assert head in found.problem


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
    found = summarize_pipeline(Catalog(store, "clicks"))
    assert (found.state, found.epoch, found.epochs) == (PipelineState.EMPTY, None, ())


def test_those_that_need_a_person_come_first() -> None:
    some = [PipelineSummary(f"p{number}", "", 0, state) for number, state in enumerate(reversed(PipelineState))]
    assert [one.state for one in urgent_first(some, to_instant(START))] == [*PipelineState]


def test_a_missed_deadline_and_an_overdue_timer_need_a_person_too() -> None:
    calm = [PipelineSummary(name, "", 0, PipelineState.PUBLISHED) for name in ("a", "b", "c")]
    overdue = msgspec.structs.replace(calm[1], fires_at="2026-11-19T23:59:00Z")
    later = msgspec.structs.replace(calm[0], fires_at="2026-11-20T00:01:00Z")
    waiting = PipelineSummary("d", "", 0, PipelineState.UNPUBLISHED)
    failed = PipelineSummary("e", "", 0, PipelineState.FAILED)
    some = [later, overdue, calm[2], waiting, failed]
    assert [one.pipeline for one in urgent_first(some, to_instant(START), {"c"})] == ["e", "c", "d", "b", "a"]


def test_a_summary_says_what_is_due_and_how_old_the_newest_file_is(run: Run, store: ObjectStore) -> None:
    run("a.jsonl", range(10))
    found = kept(store)
    assert (found.fires_at, found.fires_after) == (None, "2026-11-20T00:08:59.999999Z")
    assert found.newest_file_at == found.epochs[-1].processing_time
    assert (found.newest_event_time, found.published_watermark) == ("2026-11-20T00:09:00Z", "2026-11-20T00:08:00Z")


def test_only_the_input_is_named_to_those_who_see_no_values() -> None:
    found = PipelineSummary("a", "", 0, PipelineState.PUBLISHED, held_back_by="source, split 4711")
    assert found.without_values.held_back_by == "source"
    assert PipelineSummary("a", "", 0, PipelineState.EMPTY).without_values.held_back_by is None


@pytest.mark.parametrize("path", [".summaries/a-b.json", ".summaries/a.txt", "a/b.json", ".summaries/x/y.json"])
def test_other_objects_are_no_summaries(path: str) -> None:
    assert summarized_pipeline(path) is None
    assert summarized_pipeline(summary_path("clicks")) == "clicks"


# --- limits -----------------------------------------------------------------------------------------------------------


def test_what_a_limit_holds_back_needs_a_person_until_it_is_released(run: Run, root: str, store: ObjectStore) -> None:
    with pytest.raises(LimitExceededError):
        run("a.jsonl", range(3), clicks(limits=hr.Limits(rejected="1%")), "oops")
    found = kept(store)
    assert found.state is PipelineState.LIMIT_EXCEEDED
    assert found.exceeded == ["dead letters: 1 of 4 records (25.00%); the limit is 1%"]
    assert found.line_to_json()["exceeded"] == found.exceeded
    hr.open(root)["clicks"].release("main", message="seen by ada")
    assert (kept(store).state, kept(store).exceeded) == (PipelineState.PUBLISHED, [])


def test_a_limit_that_warns_needs_a_person_though_readers_see_all(run: Run, store: ObjectStore) -> None:
    run("a.jsonl", range(3), clicks(limits=hr.Limits(rejected=hr.limit(warn=0))), "oops")
    found = kept(store)
    assert (found.state, found.unpublished) == (PipelineState.LIMIT_EXCEEDED, 0)
    assert found.exceeded == ["dead letters: 1 of 4 records (25.00%); the limit is 0 records"]


def test_a_summary_grows_old_by_itself(run: Run, store: ObjectStore) -> None:
    run("a.jsonl", range(3), clicks(limits=hr.Limits(newest_file="1h")))
    found = kept(store)
    assert found.as_of(to_instant(datetime.now(UTC))).state is PipelineState.PUBLISHED
    later = found.as_of(to_instant(datetime.now(UTC) + timedelta(minutes=61)))
    assert later.state is PipelineState.LIMIT_EXCEEDED
    assert later.exceeded[0].startswith("age of the newest file: 1h 1m, of input source, landed at ")


def test_a_producer_that_has_stopped_is_no_failed_pipeline(run: Run, root: str, store: ObjectStore) -> None:
    pipeline = clicks(limits=hr.Limits(newest_file=hr.limit(fail="1us")))
    with pytest.raises(LimitExceededError):
        run("a.jsonl", range(3), pipeline)
    hr.open(root)["clicks"].release("main", message="seen by ada")
    with pytest.raises(StaleDataError):
        hr.open(root)[pipeline].run()
    assert kept(store).state is PipelineState.LIMIT_EXCEEDED
