"""What a watcher finds: exactly when a run would have something to do, at the price of listings."""

from datetime import UTC, datetime, timedelta

import headrace as hr
from headrace.ext.stores import ObjectStore
from headrace.model.time import Instant, to_instant
from headrace.pipeline.pipeline import Pipeline
from headrace.read.pending_work import ENOUGH, PendingWork, UnreadFiles, WorkFinder, watched_inputs
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from headrace_snapshots.store import open_store

CLICK = b'{"user": "ada", "at": "2026-11-20T00:00:00Z"}\n'


def pipeline(when: hr.Trigger | None = None) -> Pipeline:
    """Clicks per user, of two inputs."""
    columns = {"user": str, "at": datetime}
    return hr.Pipeline(
        "clicks",
        hr.json("landing/clicks", columns, suffixes=[".json"]).event_time("at", bound="1m"),
        key="user",
        what={"clicks": hr.count()},
        where=hr.FixedWindows("1h"),
        when=hr.on_update() if when is None else when,
        how=hr.retracting(allowed_lateness="1d"),
        union=[hr.json("landing/more", columns).event_time("at", bound="1m").named("more")],
        executor="local",
    )


def finder(store: ObjectStore, pipeline: Pipeline) -> WorkFinder:
    """What looks for work of the pipeline."""
    return WorkFinder(store, pipeline.name, watched_inputs(pipeline))


def now(hours: int = 0) -> Instant:
    """The time in so many hours."""
    return to_instant(datetime.now(UTC) + timedelta(hours=hours))


def run(store: ObjectStore, pipeline: Pipeline) -> str | None:
    """The snapshot after a run."""
    return process(pipeline, store.uri, RunOptions("run")).snapshot


def test_there_is_work_while_files_are_unread_and_only_then() -> None:
    store, clicks = open_store("memory://pending_files"), pipeline()
    watch = finder(store, clicks)
    assert watch.find_work(now()) is None
    store.write("landing/clicks/_hidden.json", CLICK)
    store.write("landing/clicks/a.json.tmp", CLICK)
    assert watch.find_work(now()) is None
    store.write("landing/clicks/a.json", CLICK)
    work = watch.find_work(now())
    assert work == PendingWork(None, {"source": UnreadFiles(1, len(CLICK), "landing/clicks/a.json")})
    assert watch.find_work(now()) == work
    first = run(store, clicks)
    assert watch.find_work(now()) is None
    for name in ("b", "c"):
        store.write(f"landing/more/{name}.json", CLICK)
    work = watch.find_work(now())
    assert work == PendingWork(first, {"more": UnreadFiles(2, 2 * len(CLICK), "landing/more/c.json")})
    assert finder(store, clicks).find_work(now()) == work  # one that is started again misses nothing
    run(store, clicks)
    assert watch.find_work(now()) is None


def test_a_timer_that_is_due_is_work() -> None:
    store, clicks = open_store("memory://pending_timer"), pipeline(hr.Repeatedly(hr.AfterProcessingTime("1h")))
    store.write("landing/clicks/a.json", CLICK)
    snapshot = run(store, clicks)
    watch = finder(store, clicks)
    assert watch.find_work(now()) is None
    assert watch.find_work(now(hours=2)) == PendingWork(snapshot, is_due=True)


def test_a_file_that_has_changed_is_work_since_a_run_says_so_where_people_look() -> None:
    store, clicks = open_store("memory://pending_changed"), pipeline()
    store.write("landing/clicks/a.json", CLICK)
    run(store, clicks)
    store.write("landing/clicks/a.json", CLICK * 2)
    work = finder(store, clicks).find_work(now())
    assert work is not None
    assert work.problem is not None
    assert work.problem.startswith("data.changed_file: file landing/clicks/a.json has changed")


def test_of_many_files_it_lists_a_page() -> None:
    store, clicks = open_store("memory://pending_many"), pipeline()
    for number in range(ENOUGH + 5):
        store.write(f"landing/clicks/{number:05}.json", CLICK)
    work = finder(store, clicks).find_work(now())
    assert work is not None
    assert work.files["source"].files == ENOUGH


def test_a_look_costs_a_listing_of_the_log_and_one_of_each_input() -> None:
    store, clicks = open_store("memory://pending_cost"), pipeline()
    store.write("landing/clicks/a.json", CLICK)
    run(store, clicks)
    watch = finder(store, clicks)
    watch.find_work(now())
    requests_before = store.requests.snapshot()
    watch.find_work(now())
    numbers_by_kind = {kind: number for kind, number in store.requests.since(requests_before).items() if number}
    assert numbers_by_kind == {"list": 3}
