"""Recover: move main back to a snapshot by a catalog entry, then replay what came after it, audit and (if asked)
publish.
"""

from contextlib import suppress
from dataclasses import replace
from typing import Any

from headrace.errors import FixConfigError
from headrace.pipeline.pipeline import Pipeline
from headrace.read.definition_plan import under_new_names
from headrace.runs.executors.choice import check_installed
from headrace.runs.following.recovery_cut import check_can_follow, take_readers_back
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from headrace.runs.recovery_target import gone_since
from headrace.runs.reporting.listener import Listener
from headrace.runs.reporting.results import RunResult
from headrace.runs.restore import InputGoneError, check_continues
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.entry import Entry
from headrace_snapshots.patches import patches_given_up, short_of, told
from headrace_snapshots.protocol import Kind
from headrace_snapshots.store import open_store

_NAMED = 3


class RecoverOptionsError(FixConfigError, code="config.recover_options"):
    """A recovery that does not say where to go back to."""


def recover(
    pipeline: Pipeline,
    root: str,
    options: RunOptions,
    *,
    listener: Listener | None = None,
    spark: Any = None,
) -> RunResult:
    """Move ``options.branch`` back to ``options.snapshot``, fence its writer, and process from there. What the branch
    had read is read as it was then (``backfill_plan``).

    If ``published`` is newer than the snapshot it moves back too, in the same entry: to what readers could see, which
    may be older. Output patches that came after it
    are given up, with a warning each: replaying does not make them again. Another attempt of the same request finds
    that entry in the log and only goes on replaying. Nothing moves for a pipeline that could not continue from there.

    ``options.with_readers``: pipelines that have read what is given up go back as well (``following.recovery_cut``),
    before anything is replayed. Raises ReadersCannotFollowError, before anything moves: another attempt takes those
    back that can go, and warns of others.
    """
    if options.snapshot is None:
        raise RecoverOptionsError("a recovery needs the snapshot to go back to; `headrace log` lists their ids")
    check_installed(pipeline, options.executor or pipeline.executor)  # before anything moves
    catalog = Catalog(open_store(root), pipeline.name)
    given_up, warnings = _move_back(catalog, pipeline, options.snapshot, options)
    if options.with_readers:
        warnings = (*warnings, *take_readers_back(catalog, options))
    # What full sweeps had found since is below the mark of the snapshot.
    result = process(
        pipeline, root, replace(options, full_sweep=True, as_read_by=given_up), listener=listener, spark=spark
    )
    return replace(result, action="recover", warnings=(*warnings, *result.warnings))


def _move_back(
    catalog: Catalog, pipeline: Pipeline, snapshot: str, options: RunOptions
) -> tuple[str | None, tuple[str, ...]]:
    """What the branch was at before this request took it back, and what that gives up, for people."""
    request = options.request or options.run_id
    head = catalog.head().refs.get(options.branch)
    if head == snapshot:
        given_up = _given_up(catalog, catalog.head().entry, options.branch, snapshot, request)
        if given_up is None:
            _check_readers(catalog, snapshot, options)
        return given_up, ()
    target = under_new_names(pipeline, catalog.manifest(snapshot))
    check_continues(pipeline, target, allow_new_aggregates=options.allow_new_aggregates)
    given_up = _moved_back(catalog, options.branch, snapshot, request)
    if given_up is not None:
        return given_up, ()
    _check_readers(catalog, snapshot, options)
    _check_input(catalog, pipeline, head, snapshot)
    patches = patches_given_up(catalog, head, snapshot)
    message = f"{_recovery(request)}: {options.message}" if options.message else _recovery(request)
    entry = catalog.rollback(
        options.branch,
        snapshot,
        message,
        replayed=True,
        patches=patches,
        give_up_delivered=options.give_up_delivered,
    )
    return head, (*short_of(catalog, entry.moves, snapshot), *told(catalog, patches, snapshot))


def _check_readers(catalog: Catalog, snapshot: str, options: RunOptions) -> None:
    """Raise ReadersCannotFollowError if readers are to go back, too, and one cannot."""
    if options.with_readers:
        check_can_follow(catalog, snapshot, options)


def _check_input(catalog: Catalog, pipeline: Pipeline, head: str | None, snapshot: str) -> None:
    """Raise InputGoneError if input that was read up to ``head``, after ``snapshot``, is gone. What cannot be read any
    more says nothing of its input, and is what people recover from.
    """
    lost: list[str] = []
    with suppress(BrokenObjectError, MissingSnapshotError):
        if head is not None and catalog.is_ancestor(snapshot, head):
            lost = gone_since(catalog, pipeline, catalog.manifest(head), catalog.manifest(snapshot))
    if lost:
        more = f"; and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
        raise InputGoneError(
            f"{catalog.pipeline}: a recovery to snapshot {snapshot} reads again what came after it, and {len(lost)} of "
            f"these files are gone: {'; '.join(lost[:_NAMED])}{more}. Put them back; choose a newer snapshot; or give "
            f"their records up with `headrace rollback {catalog.pipeline} --to {snapshot}`, and run. Nothing has moved"
        )


def is_recovery(entry: Entry, request: str) -> bool:
    """Whether ``entry`` is that by which an attempt of ``request`` went back."""
    recovery = _recovery(request)
    return entry.kind is Kind.ROLLBACK and (entry.message == recovery or entry.message.startswith(f"{recovery}: "))


def _recovery(request: str) -> str:
    """With what the message of the entry begins; then comes who decided it and why, if that is known."""
    return f"recovery {request}"


def _moved_back(catalog: Catalog, branch: str, snapshot: str, request: str) -> str | None:
    """What ``branch`` was at before ``request`` took it back to ``snapshot``, if it continues from there.

    What the branch has next was committed under another claim then, and before that claim stands the rollback. So few
    entries are read, however many epochs there have been.
    """
    head, at = catalog.head(), catalog.link(snapshot)
    after = catalog.successor(at, head.refs[branch]) if branch in head.refs else None
    if after is None:
        return None
    claims = [None if link.manifest is None else link.manifest.generation for link in (at, after)]
    if claims[0] == claims[1] is not None:
        return None
    return _given_up(catalog, head.entry if claims[1] is None else claims[1], branch, snapshot, request)


def _given_up(catalog: Catalog, until: int, branch: str, snapshot: str, request: str) -> str | None:
    """What ``request`` gave up when it took ``branch`` back to ``snapshot``, if that is what moved it there, up to the
    entry of number ``until``.
    """
    for entry in catalog.entries(before=until + 1):
        reached = any(moved == snapshot for _, moved in entry.moves.values())
        if reached and is_recovery(entry, request):
            return entry.moves.get(branch, (None, None))[0]
        if reached and entry.kind is Kind.COMMIT:
            return None
    return None
