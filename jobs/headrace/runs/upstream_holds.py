"""What a run needs the pipelines that it reads to keep: its holds on them."""

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from headrace.errors import FixConfigError, HeadraceError
from headrace.pipeline.sources import upstream_sources
from headrace.sources.landing import ByInput
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.holds import ReaderHold, drop_holds, hold_at, holds_of
from headrace_snapshots.names import MAIN, ObjectKind, kind_of, manifest_path, object_folder
from headrace_snapshots.store import ObjectStore, open_store

if TYPE_CHECKING:
    from headrace.runs.epochs import RunContext


class UnknownReaderError(FixConfigError, code="config.unknown_reader"):
    """Nobody of that name reads a pipeline, or readers below several roots do."""


_log = logging.getLogger(__name__)
_OWN_ROOT = ""
"""The root of what lies beside the reader, which may have another name since."""


class ConsumedPosition(NamedTuple):
    """What a snapshot has consumed of an output of a pipeline, as notes of an expiry have it. ``snapshot``: None if the
    upstream has gone back to its beginning.
    """

    root: str
    pipeline: str
    output: str
    snapshot: str | None
    epoch: int


PositionsBySnapshot = dict[str, dict[str, ConsumedPosition]]
"""What each snapshot has consumed, by input."""


def hold_upstreams(run: "RunContext", files: ByInput) -> None:
    """Let the pipelines that are read keep what ``files`` name, before any of that is read. Who may not write there is
    told what may happen, and reads all the same.
    """
    sources = upstream_sources(run.pipeline.inputs)
    if not sources:
        return
    from headrace.read.upstream import ReadPipeline, UpstreamStep

    for name, source in sources.items():
        steps = [UpstreamStep.from_split(split) for split in files.get(name, ())]
        snapshots = [side for step in steps for side in (step.begin, step.end) if side is not None]
        if not snapshots:
            continue
        upstream = ReadPipeline(source, run.store)
        own = ReaderHold(run.store.uri, run.pipeline.name, name, source.output, tuple(dict.fromkeys(snapshots)))
        try:
            _add_hold(run.catalog, upstream.store, source.pipeline, own)
        except HeadraceError as error:
            run.warn(
                f"input {name}: {source.upstream} cannot be told what is still needed of it ({error.code}: "
                f"{error}). If it expires what was read last, {run.pipeline.name} has to be computed "
                "again; keep more of it (its retention=), or let runs write below "
                f"{upstream.store.uri}/{source.pipeline}/readers/. Until then, what goes back with its readers there "
                f"does not see {run.pipeline.name}, unless --reader-root names {run.store.uri}"
            )


def _add_hold(catalog: Catalog, store: ObjectStore, upstream: str, own: ReaderHold) -> None:
    try:
        old_hold = hold_at(store, own.path(upstream))
        old_snapshots: Sequence[str] = () if old_hold is None else old_hold.snapshots
    except BrokenObjectError:  # what was in it follows from what the reader keeps
        old_hold, old_snapshots = (
            None,
            _by_upstream(catalog, _consumed_by_all(catalog)).get((store.uri, upstream, own.input, own.output), ()),
        )
    snapshots = tuple(dict.fromkeys([*old_snapshots, *own.snapshots]))
    if old_hold is None or snapshots != old_hold.snapshots:
        replace(own, snapshots=snapshots).put(store, upstream)


def drop_reader(catalog: Catalog, reader: str, root: str | None = None) -> list[str]:
    """End the holds of ``reader`` on the pipeline of ``catalog``; what ended. ``root``: of the reader below that root
    alone. Raises UnknownReaderError, also where readers of that name are below several roots and none is given.
    """
    readable, damaged_holds = holds_of(catalog.store, catalog.pipeline)
    roots = sorted({hold.root for hold in readable if reader in (hold.pipeline, hold.name)})
    if root is None and len(roots) > 1:
        raise UnknownReaderError(
            f"{reader} holds something of {catalog.pipeline} below {len(roots)} roots: {', '.join(roots)}. Name the "
            f"one that is gone: `headrace drop {catalog.pipeline} {reader} --reader --reader-root {roots[0]}`"
        )
    dropped_holds = drop_holds(catalog.store, catalog.pipeline, reader, root)
    if not dropped_holds:
        reader_names = ", ".join(sorted({*(one.name for one in readable), *(one.reader for one in damaged_holds)}))
        where = "" if root is None else f" from root {root}"
        held_from = f" (it does from {', '.join(roots)})" if roots else ""
        raise UnknownReaderError(
            f"{reader} holds nothing of {catalog.pipeline}{where}{held_from}; {reader_names or 'nobody'} does"
        )
    return dropped_holds


def note_consumed(
    kept_ids: Collection[str], notes: dict[str, str], *, catalog: Catalog, positions: PositionsBySnapshot
) -> None:
    """Note what each kept snapshot has consumed of other pipelines, and put it into ``positions``. Only manifests that
    are not in ``notes`` are read. One that does not say it is asked again by the next expiry.
    """
    positions.clear()
    paths = {manifest_path(catalog.pipeline, snapshot): snapshot for snapshot in kept_ids}
    for path in [path for path in notes if path not in paths and _is_manifest(catalog, path)]:
        del notes[path]
    for path, snapshot in paths.items():
        if path in notes:
            positions[snapshot] = {name: ConsumedPosition(*row) for name, row in json.loads(notes[path]).items()}
        else:
            with suppress(MissingSnapshotError, BrokenObjectError):  # nothing goes back to it
                positions[snapshot] = _consumed_by(catalog, snapshot)
                notes[path] = json.dumps(positions[snapshot])


def let_go(catalog: Catalog, positions: PositionsBySnapshot) -> None:
    """Let upstream pipelines keep no more for ``catalog``'s pipeline than the ``positions`` of its kept snapshots, and
    what came after. A run may be about to commit what came after. A hold that cannot be read is put again. So is one on
    a pipeline beside it that is not there: after a move it had the root's old name. What cannot be told them, they
    keep.
    """
    main = catalog.head().refs.get(MAIN)
    inputs_read = () if main is None else positions.get(main, ())
    for (root, pipeline, name, output), snapshots in _by_upstream(catalog, positions).items():
        own, is_beside = ReaderHold(catalog.store.uri, catalog.pipeline, name, output, ()), root == catalog.store.uri
        try:
            store = catalog.store if is_beside else open_store(root)
            _trim_hold(store, pipeline, own, snapshots, is_needed=is_beside and name in inputs_read)
        except HeadraceError as error:
            _log.warning("%s keeps what %s does not need any more: %s", pipeline, catalog.pipeline, error.code)


def _trim_hold(
    store: ObjectStore, upstream: str, own: ReaderHold, snapshots: Sequence[str], *, is_needed: bool
) -> None:
    """Let the hold begin with the first of ``snapshots`` that it has. Where there is none, it is put if it
    ``is_needed``; one that cannot be read is put again.
    """
    try:
        old_hold = hold_at(store, own.path(upstream))
    except BrokenObjectError:
        old_hold, is_needed = None, True
    if old_hold is None:
        if is_needed:
            replace(own, snapshots=tuple(snapshots)).put(store, upstream)
        return
    first = next((number for number, snapshot in enumerate(old_hold.snapshots) if snapshot in snapshots), 0)
    if first:
        replace(own, snapshots=old_hold.snapshots[first:]).put(store, upstream)


def _consumed_by_all(catalog: Catalog) -> PositionsBySnapshot:
    """What snapshots have consumed to which something may go back; main also to before a promotion or a rollback."""
    positions: PositionsBySnapshot = {}
    horizon = catalog.head().horizon
    marked_paths = () if horizon is None else catalog.marks.read(horizon.mark)
    for info in catalog.store.list(object_folder(catalog.pipeline, ObjectKind.MANIFESTS)):
        if info.path not in marked_paths and _is_manifest(catalog, info.path):
            snapshot = PurePosixPath(info.path).stem
            with suppress(MissingSnapshotError, BrokenObjectError):  # nothing goes back to it
                positions[snapshot] = _consumed_by(catalog, snapshot)
    return positions


def _consumed_by(catalog: Catalog, snapshot: str) -> dict[str, ConsumedPosition]:
    """What a snapshot has consumed. Raises MissingSnapshotError, BrokenObjectError."""
    from headrace.read.upstream import upstreams_of

    upstreams = upstreams_of(catalog.manifest(snapshot), _OWN_ROOT)
    return {
        name: ConsumedPosition(position.root, position.pipeline, position.output, position.snapshot, position.epoch)
        for name, position in upstreams.items()
    }


def _by_upstream(catalog: Catalog, positions: PositionsBySnapshot) -> Mapping[tuple[str, str, str, str], Sequence[str]]:
    """The snapshots that were consumed, oldest first, by root, pipeline, input and output."""
    epochs_by_upstream: dict[tuple[str, str, str, str], dict[str, int]] = {}
    for inputs in positions.values():
        for name, what in inputs.items():
            if what.snapshot is not None:
                upstream = (what.root or catalog.store.uri, what.pipeline, name, what.output)
                epochs_by_upstream.setdefault(upstream, {})[what.snapshot] = what.epoch
    return {upstream: sorted(epochs, key=epochs.__getitem__) for upstream, epochs in epochs_by_upstream.items()}


def _is_manifest(catalog: Catalog, path: str) -> bool:
    return kind_of(catalog.pipeline, path) is ObjectKind.MANIFESTS
