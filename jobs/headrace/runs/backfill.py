"""Backfill: replay input into a branch with the pipeline as it is now, audit that, and cut over to it.

The branch begins with nothing, or for a range of event time with the newest snapshot that has nothing of it yet
(``forking``). From there on everything is read again, as far as main has come and what has landed since: later results
may depend on it. Main goes on undisturbed until the cut-over, which is one catalog entry: main and published become the
branch's head. It is refused while main has read files that the branch has not, so that nothing that was visible is
lost; and when main does not go on any more from where the branch was forked.
"""

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from headrace.audit.range import seen
from headrace.audit.store import AuditFailedError, AuditOutcome, failure_message, read_audit
from headrace.errors import FixConfigError, RetryError
from headrace.model.time import instant, render
from headrace.model.windows import Window
from headrace.pipeline.graph import Pipeline
from headrace.read.at import UnknownBranchError
from headrace.read.progress import StoredProgress, progress_of, unread_files
from headrace.read.roots import check_root
from headrace.runs.executors.choice import check_installed
from headrace.runs.forking import ForkPoint, fork_point
from headrace.runs.options import RunOptions, RunOptionsError
from headrace.runs.process import process
from headrace.runs.publish import AuditMissingError, published_result
from headrace.runs.report import Listener, Silent
from headrace.runs.restoring import InputGoneError
from headrace.runs.results import RunResult
from headrace.runs.results import now as timestamp
from headrace.sources.landing import Landing
from headrace.sources.progress import Progress
from headrace_snapshots.catalog import Catalog, Head
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.entry import Entry
from headrace_snapshots.format.files import InputFile
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.protocol import Kind
from headrace_snapshots.refs import MAIN, PUBLISHED
from headrace_snapshots.store import open_store

_FILES_PER_EPOCH = 10_000
"""Large epochs: how many bytes are in one is for the pipeline's source to say."""
_NAMED = 3
_CUT_OVER_SEARCH = 1000
"""Entries of the log: an attempt that comes again comes soon."""


class ClockAheadError(FixConfigError):
    """A branch whose clock is ahead of the real one: main would wait until that catches up."""

    code = "config.clock_ahead"


class BranchBehindError(RetryError):
    """Main has taken in input that the branch has not."""

    code = "retry.branch_behind"


class ForkGivenUpError(FixConfigError):
    """A branch that goes on from a snapshot that main does not have any more."""

    code = "config.fork_given_up"


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
    """Fork a branch (or go on with it), read all input there that it has not, audit what is new. Publishes nothing.

    Raises MissingRootError when there is no such root, InputGoneError if input that main has read is not there any more
    and RunOptionsError for a range that the branch does not begin with (both before anything moves), and what
    ``process`` raises.
    """
    branch = branch_of(options)
    listener = listener or Silent()
    check_installed(pipeline, options.executor or pipeline.executor)  # before anything moves
    store = open_store(root)
    check_root(store)  # a fork would make it
    catalog = Catalog(store, pipeline.name)
    point = fork_point(catalog, pipeline, options.span)
    if branch not in catalog.head().generations:
        listener.noted(str(point))
    begun = _begin(catalog, Landing(pipeline, store), branch, point, options.span)
    # What a full sweep has found for main meanwhile is below the mark of the branch.
    files = options.files_per_epoch or _FILES_PER_EPOCH
    options = replace(options, branch=branch, publish=False, full_sweep=True, files_per_epoch=files)
    options = replace(options, as_read_by=catalog.head().refs.get(MAIN))
    result = process(pipeline, root, options, listener=listener, spark=spark)
    return replace(result, action="backfill", forked_from=begun)


def _begin(catalog: Catalog, landing: Landing, branch: str, point: ForkPoint, span: Window | None) -> str | None:
    """Fork ``branch`` at ``point``, unless there is one that has begun there or before; the snapshot that it has begun
    with. Moves nothing if it raises.
    """
    now = catalog.head()
    if branch not in now.generations:
        _check_input(catalog, landing, point.manifest)
        catalog.fork(branch, point.snapshot)
        return point.snapshot
    head = now.refs.get(branch)
    after = None if head is None else seen(catalog, head, now.refs.get(PUBLISHED))
    begun, wanted = (-1 if at is None else catalog.manifest(at).epoch for at in (after, point.snapshot))
    if span is not None and begun > wanted:
        raise RunOptionsError(
            f"branch {branch} of {catalog.pipeline} has begun with snapshot {after} (epoch {begun}), which has some of "
            f"the range already; {point}. Name another branch, or `headrace drop {catalog.pipeline} {branch}`"
        )
    _check_input(catalog, landing, None if head is None else catalog.manifest(head))
    return after


def _check_input(catalog: Catalog, landing: Landing, begin: Manifest | None) -> None:
    """Raise InputGoneError if main has read files that are not there to be read again behind ``begin``."""
    main = catalog.head().refs.get(MAIN)
    if main is None:
        return
    progress = Progress() if begin is None else progress_of(catalog, begin)
    listed = unread_files(catalog, landing, begin, progress, full_sweep=True)
    wanted, taken = _files_main_read(catalog, main), _files_read(catalog, begin)
    gone: list[str] = []
    for name in landing.places:
        gone += _lacking(taken[name] | {file.path for file in listed.get(name, ())}, wanted[name])
    if gone:
        where = "the beginning" if begin is None else f"snapshot {begin.snapshot_id} (epoch {begin.epoch})"
        more = f", and {len(gone) - _NAMED} more" if len(gone) > _NAMED else ""
        raise InputGoneError(
            f"a backfill of {catalog.pipeline} from {where} on reads all that main has read since, and {len(gone)} "
            f"files are gone: {', '.join(gone[:_NAMED])}{more}. Put them back; or backfill a later range (--from), "
            "which needs only what was read after its fork"
        )


def cut_over(pipeline: str, root: str, branch: str, *, run_id: str = "cut_over") -> RunResult:
    """Make ``branch`` main and published, if the audit of all that it has and readers have not succeeded, and it has
    taken in all that main has.

    ``epochs`` and ``rows`` of the result are those that become visible. When the branch was cut over to already nothing
    happens, and the result is that of then, for the sake of a caller that died before it could tell.
    Raises UnknownBranchError, AuditMissingError, AuditFailedError, ClockAheadError, ForkGivenUpError,
    BranchBehindError. No Spark.
    """
    started_at = timestamp()
    store = open_store(root)
    catalog = Catalog(store, pipeline)
    now = catalog.head()
    done = None if branch in now.generations else _cut_over_before(catalog, now, branch)
    head = now.refs.get(branch) if done is None else done.refs.get(MAIN)
    if head is None:
        raise UnknownBranchError(
            f"pipeline {pipeline} has no snapshot on a branch {branch!r}; "
            f"branches: {', '.join(sorted(now.refs)) or 'none'}"
        )
    base = seen(catalog, head, now.refs.get(PUBLISHED) if done is None else done.moves[PUBLISHED][0])
    outcome = None if base == head else read_audit(store, pipeline, base, head)
    manifest = catalog.manifest(head)
    replayed = list(catalog.ancestry(head, until=base))
    if done is None:
        if base != head:
            _check_audit(pipeline, branch, head, outcome)
        _check_clock(pipeline, branch, manifest)
        old_main = now.refs.get(MAIN)
        if old_main is not None:
            _check_fork(catalog, manifest, old_main, branch)
            _check_caught_up(catalog, manifest, old_main, branch)
        catalog.promote(branch, expected_main=old_main)
    return published_result(manifest, replayed, outcome, action="cut_over", run_id=run_id, started_at=started_at)


def _cut_over_before(catalog: Catalog, now: Head, branch: str) -> Entry | None:
    """The entry that made ``branch`` main, if nothing but commits has moved main since."""
    for entry in islice(catalog.entries(before=now.entry + 1), _CUT_OVER_SEARCH):
        if MAIN in entry.moves and entry.kind is not Kind.COMMIT:
            return entry if entry.detail == {"branch": branch} else None
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


def _check_fork(catalog: Catalog, manifest: Manifest, old_main: str, branch: str) -> None:
    """Raise ForkGivenUpError if ``branch`` would bring back snapshots that main has given up since it was forked."""
    kept = seen(catalog, manifest.snapshot_id, old_main)
    other = next((m for m in catalog.ancestry(manifest.snapshot_id, until=kept) if m.branch != branch), None)
    if other is not None:
        raise ForkGivenUpError(
            f"branch {branch} of {catalog.pipeline} goes on from snapshot {other.snapshot_id} (epoch {other.epoch}), "
            "which main does not have any more: main was rolled back, or another backfill was cut over to meanwhile. "
            "Run the backfill again, with a new branch"
        )


def _check_caught_up(catalog: Catalog, manifest: Manifest, old_main: str, branch: str) -> None:
    """Raise BranchBehindError if main has read files that ``branch``, which is at ``manifest``, has not, by name.

    Inputs that the branch does not have any more do not count.
    """
    taken, wanted = _files_read(catalog, manifest), _files_main_read(catalog, old_main)
    behind = [path for name in StoredProgress.of(manifest).marks for path in _lacking(taken[name], wanted[name])]
    if behind:
        raise BranchBehindError(
            f"branch {branch} of {catalog.pipeline} has not read {len(behind)} files that main has, such as "
            f"{behind[0]}. Run the backfill again with branch {branch}; it goes on where it stopped. Files "
            "that are gone from where they landed have to be put back before"
        )


def _lacking(here: set[str], there: set[str]) -> list[str]:
    """The paths of one input that main has read (``there``) and are not ``here``. Of an input that reads from another
    place now only numbers can be compared.
    """
    return sorted(there - here) if here & there or len(here) < len(there) else []


def _files_main_read(catalog: Catalog, head: str) -> Mapping[str, set[str]]:
    """As far as that can still be told: a main whose newest snapshots are broken is what a backfill replaces."""
    for link in catalog.lineage(head):
        with suppress(BrokenObjectError):
            if link.manifest is not None:
                return _files_read(catalog, link.manifest)
    return defaultdict(set)


def _files_read(catalog: Catalog, manifest: Manifest | None) -> Mapping[str, set[str]]:
    """The paths of all files that were read up to ``manifest`` (None: none), by input."""
    found: dict[str, set[str]] = defaultdict(set)
    if manifest is None:
        return found
    for record in catalog.files(manifest.logs["inputs"]):
        for file in record.files:
            if isinstance(file, InputFile):
                found[file.input].add(file.path)
    return found
