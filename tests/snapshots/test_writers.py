"""Writers in processes of their own, held just before the same conditional put: on local files and on a real MinIO."""

import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.context import SpawnProcess
from multiprocessing.queues import Queue
from threading import Barrier, Event
from typing import Any

import pytest
from catalog_helpers import commit_some, manifest_for

from headrace.errors import HeadraceError
from headrace_lab.catalog_checks import check_catalog
from headrace_lab.fault_plans import hold_first
from headrace_snapshots.catalog import Catalog, Claim
from headrace_snapshots.errors import FencedError
from headrace_snapshots.store import open_store
from headrace_snapshots.testing import FaultyStore

SECONDS = 60.0
spawn = multiprocessing.get_context("spawn")


def held_catalog(root: str, wait: Callable[[], object]) -> Catalog:
    return Catalog(FaultyStore(open_store(root), hold_first("create", "p/log/", wait)), "p")


def report(answers: Any, name: str, action: Callable[[], object]) -> None:
    try:
        action()
    except HeadraceError as error:
        answers.put((name, f"{error.code}: {error}"))
    else:
        answers.put((name, "done"))


@dataclass(frozen=True)
class Job:
    """One commit, of a snapshot that is called ``name``."""

    root: str
    claim: Claim
    parent: str
    name: str

    def run(self, wait: Callable[[], object], answers: Any) -> None:
        catalog = held_catalog(self.root, wait)
        manifest = manifest_for(catalog, self.claim, self.parent, self.name)
        report(answers, self.name, lambda: catalog.commit(self.claim, manifest))


def commit_at_barrier(job: Job, barrier: Barrier, answers: Any) -> None:
    job.run(lambda: barrier.wait(SECONDS), answers)


def claim_at_barrier(root: str, name: str, barrier: Barrier, answers: Any) -> None:
    catalog = held_catalog(root, lambda: barrier.wait(SECONDS))
    report(answers, name, lambda: catalog.claim("main", name))


def commit_when_released(job: Job, held_event: Event, go_on: Event, answers: Any) -> None:
    def wait() -> None:
        held_event.set()
        assert go_on.wait(SECONDS)

    job.run(wait, answers)


def collect_answers(processes: list[SpawnProcess], answers: "Queue[tuple[str, str]]") -> dict[str, str]:
    answer_by_name = dict(answers.get(timeout=SECONDS) for _ in processes)
    for process in processes:
        process.join(SECONDS)
        assert process.exitcode == 0
    return answer_by_name


@pytest.mark.slow
def test_of_two_commits_at_the_same_put_one_is_fenced(shared_root: str) -> None:
    catalog = Catalog(open_store(shared_root), "p")
    claim = catalog.claim("main", "run")
    parent = commit_some(catalog, claim, 3)[-1]
    barrier, queue = spawn.Barrier(2), spawn.Queue()
    processes = [
        spawn.Process(target=commit_at_barrier, args=(Job(shared_root, claim, parent, name), barrier, queue))
        for name in ("one", "two")
    ]
    for process in processes:
        process.start()
    answer_by_name = collect_answers(processes, queue)
    winner, loser = sorted(answer_by_name, key=lambda name: answer_by_name[name] != "done")
    assert answer_by_name[winner] == "done"
    assert answer_by_name[loser].startswith("give_up.fenced: ")
    assert (
        f"branch main is at {winner}, not at {parent} any more since entry 5 (commit: epoch 3)" in answer_by_name[loser]
    )
    assert catalog.head().refs == {"main": winner}
    assert [m.epoch for m in catalog.ancestry(winner)] == [3, 2, 1, 0]
    check_catalog(catalog.store, "p")


@pytest.mark.slow
def test_a_commit_and_a_claim_at_the_same_put_are_ordered(shared_root: str) -> None:
    catalog = Catalog(open_store(shared_root), "p")
    claim = catalog.claim("main", "run")
    parent = commit_some(catalog, claim, 1)[-1]
    barrier, queue = spawn.Barrier(2), spawn.Queue()
    processes = [
        spawn.Process(target=commit_at_barrier, args=(Job(shared_root, claim, parent, "commit"), barrier, queue)),
        spawn.Process(target=claim_at_barrier, args=(shared_root, "claim", barrier, queue)),
    ]
    for process in processes:
        process.start()
    answer_by_name = collect_answers(processes, queue)
    assert answer_by_name["claim"] == "done"
    if answer_by_name["commit"] == "done":
        assert catalog.head().refs == {"main": "commit"}
    else:
        assert answer_by_name["commit"].startswith("give_up.fenced: ")
        assert "claimed by claim" in answer_by_name["commit"]
        assert catalog.head().refs == {"main": parent}
    check_catalog(catalog.store, "p")


@pytest.mark.slow
def test_a_writer_that_was_stopped_and_fenced_changes_nothing(shared_root: str) -> None:
    catalog = Catalog(open_store(shared_root), "p")
    claim = catalog.claim("main", "run 1")
    parent = commit_some(catalog, claim, 2)[-1]
    held_event, go_on, queue = spawn.Event(), spawn.Event(), spawn.Queue()
    job = Job(shared_root, claim, parent, "stopped")
    process = spawn.Process(target=commit_when_released, args=(job, held_event, go_on, queue))
    process.start()
    assert held_event.wait(SECONDS)
    commit_some(catalog, catalog.claim("main", "run 2"), 3)
    head_before = catalog.head()
    go_on.set()
    answer_by_name = collect_answers([process], queue)
    assert answer_by_name["stopped"].startswith("give_up.fenced: ")
    assert "claimed by run 2" in answer_by_name["stopped"]
    assert Catalog(open_store(shared_root), "p").head() == head_before
    check_catalog(catalog.store, "p")


def test_a_fenced_writer_in_this_process_says_who_replaced_it(shared_root: str) -> None:
    catalog = Catalog(open_store(shared_root), "p")
    old = catalog.claim("main", "run 1")
    catalog.claim("main", "run 2")
    with pytest.raises(FencedError, match="claimed by run 2"):
        catalog.commit(old, manifest_for(catalog, old, None))
