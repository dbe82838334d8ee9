"""Backfill: replay everything into a new branch with the pipeline as it is now, audit that, and cut over to it.

Main goes on undisturbed until the cut-over, which is one catalog entry: main and published become the branch's head.
It is refused while main has read files that the branch has not, so that nothing that was visible is lost.
"""

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from headrace.audit.store import AuditFailedError, AuditOutcome, failure_message, read_audit
from headrace.errors import FixConfigError, RetryError
from headrace.model.time import instant, render
from headrace.pipeline.graph import Pipeline
from headrace.read.branches import UnknownBranchError
from headrace.read.progress import StoredProgress
from headrace.read.roots import check_root
from headrace.runs.executors.choice import check_installed
from headrace.runs.options import MAIN, RunOptions
from headrace.runs.process import process
from headrace.runs.publish import AuditMissingError, published_result
from headrace.runs.report import Listener
from headrace.runs.results import RunResult
from headrace.runs.results import now as timestamp
from headrace_snapshots.catalog import Catalog, Head
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.files import InputFile
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.protocol import Kind
from headrace_snapshots.store import open_store

_CUT_OVER_SEARCH = 1000
"""Entries of the log: an attempt that comes again comes soon."""


class ClockAheadError(FixConfigError):
    """A branch whose clock is ahead of the real one: main would wait until that catches up."""

    code = "config.clock_ahead"


class BranchBehindError(RetryError):
    """Main has taken in input that the branch has not."""

    code = "retry.branch_behind"


def branch_of(options: RunOptions) -> str:
    """The branch that a backfill fills: the one asked for, or one named after the run."""
    return f"backfill-{options.run_id}" if options.branch == MAIN else options.branch


def backfill(
    pipeline: Pipeline,
    root: str,
    options: RunOptions,
    *,
    listener: Listener | None = None,
    spark: Any = None,
) -> RunResult:
    """Fork an empty branch (or go on with it), replay all input there, audit the whole of it. Publishes nothing.

    Raises MissingRootError when there is no such root, and what ``process`` raises.
    """
    branch = branch_of(options)
    check_installed(pipeline, options.executor or pipeline.executor)  # before anything moves
    store = open_store(root)
    check_root(store)  # a fork would make it
    catalog = Catalog(store, pipeline.name)
    if branch not in catalog.head().generations:
        catalog.fork(branch, None)
    # What a full sweep has found for main meanwhile is below the mark of the branch.
    options = replace(options, branch=branch, publish=False, full_sweep=True)
    result = process(pipeline, root, options, listener=listener, spark=spark)
    return replace(result, action="backfill")


def cut_over(pipeline: str, root: str, branch: str, *, run_id: str = "cut_over") -> RunResult:
    """Make ``branch`` main and published, if its whole audit succeeded and it has taken in all that main has.

    ``epochs`` and ``rows`` of the result are those of the whole branch: all that becomes visible. When the branch was
    cut over to already nothing happens, and the result is that of then, for the sake of a caller that died before it
    could tell.
    Raises UnknownBranchError, AuditMissingError, AuditFailedError, ClockAheadError, BranchBehindError. No Spark.
    """
    started_at = timestamp()
    store = open_store(root)
    catalog = Catalog(store, pipeline)
    now = catalog.head()
    done = None if branch in now.generations else _cut_over_before(catalog, now, branch)
    head = now.refs.get(branch) or done
    if head is None:
        raise UnknownBranchError(
            f"pipeline {pipeline} has no snapshot on a branch {branch!r}; "
            f"branches: {', '.join(sorted(now.refs)) or 'none'}"
        )
    outcome = read_audit(store, pipeline, None, head)
    manifest = catalog.manifest(head)
    replayed = list(catalog.ancestry(head))
    if done is None:
        _check_audit(pipeline, branch, head, outcome)
        _check_clock(pipeline, branch, manifest)
        old_main = now.refs.get(MAIN)
        if old_main is not None:
            _check_caught_up(catalog, manifest, old_main)
        catalog.promote(branch, expected_main=old_main)
    return published_result(manifest, replayed, outcome, action="cut_over", run_id=run_id, started_at=started_at)


def _cut_over_before(catalog: Catalog, now: Head, branch: str) -> str | None:
    """The snapshot that ``branch`` ended with, if nothing but commits has moved main since it became main."""
    for entry in islice(catalog.entries(before=now.entry + 1), _CUT_OVER_SEARCH):
        if MAIN in entry.moves and entry.kind is not Kind.COMMIT:
            return entry.refs.get(MAIN) if entry.detail == {"branch": branch} else None
    return None


def _check_audit(pipeline: str, branch: str, head: str, outcome: AuditOutcome | None) -> None:
    if outcome is None:
        raise AuditMissingError(f"branch {branch} of {pipeline} at {head} has no audit; run the backfill again")
    if not outcome.success:
        raise AuditFailedError(failure_message(outcome))


def _check_clock(pipeline: str, branch: str, manifest: Manifest) -> None:
    clock = StoredProgress.of(manifest).processing_time
    if clock > instant(datetime.now(UTC)):
        raise ClockAheadError(
            f"branch {branch} of {pipeline} is a replay whose clock stands at {render(clock)}, which is still to come: "
            "clocks never go back, so main would do nothing by processing time until then. Replay with an earlier "
            "--clock, or run a backfill"
        )


def _check_caught_up(catalog: Catalog, manifest: Manifest, old_main: str) -> None:
    """Raise BranchBehindError if main has read files that the branch of ``manifest`` has not, by name.

    Inputs that the branch does not have any more do not count; of one that reads from another place now only numbers
    can be compared.
    """
    taken, wanted = _files_read(catalog, manifest), _files_main_read(catalog, old_main)
    behind: list[str] = []
    for name in StoredProgress.of(manifest).marks:
        here, there = taken[name], wanted[name]
        if here & there or len(here) < len(there):
            behind += sorted(there - here)
    if behind:
        raise BranchBehindError(
            f"branch {manifest.branch} of {catalog.pipeline} has not read {len(behind)} files that main has, such as "
            f"{behind[0]}. Run the backfill again with branch {manifest.branch}; it goes on where it stopped. Files "
            "that are gone from where they landed have to be put back before"
        )


def _files_main_read(catalog: Catalog, head: str) -> Mapping[str, set[str]]:
    """As far as that can still be told: a main whose newest snapshots are broken is what a backfill replaces."""
    for link in catalog.lineage(head):
        with suppress(BrokenObjectError):
            if link.manifest is not None:
                return _files_read(catalog, link.manifest)
    return defaultdict(set)


def _files_read(catalog: Catalog, manifest: Manifest) -> Mapping[str, set[str]]:
    """The paths of all files that were read up to ``manifest``, by input."""
    found: dict[str, set[str]] = defaultdict(set)
    for record in catalog.files(manifest.logs["inputs"]):
        for file in record.files:
            if isinstance(file, InputFile):
                found[file.input].add(file.path)
    return found
