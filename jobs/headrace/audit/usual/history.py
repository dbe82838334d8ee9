"""What earlier versions were like, by their figures alone: a small object beside the audit of each.

History is a line, not a calendar. The object named after a snapshot has the figures of the versions that lead to it,
the last of which it ends. A version that begins with snapshot A goes by the object of A. If A lies within a version
(after a recovery), or no audit measured it (a patch, a release), there is none. Then the object of the newest snapshot
before A that has one counts. So a branch goes by the history of where it was forked, a rollback forgets what it took
back, and no clock is read.

A branch that begins with nothing goes by what readers see when it is first audited. The result of an audit names the
snapshot whose object it went by, and another audit of the same range goes by the same.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from headrace.audit.usual.measures import VersionMeasure
from headrace.errors import RestoreError
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.sealed import sealed, unsealed
from headrace_snapshots.layout import ObjectKind, audited_range, folder, history_path
from headrace_snapshots.store import ObjectNotFoundError, ObjectStore

FORMAT: Final = 1

_LOOKED_BACK: Final = 200
"""Snapshots before the beginning of a version among which one is looked for that has an object."""


class HistoryDamagedError(RestoreError, code="restore.history_damaged"):
    """The figures of earlier versions are not what was written."""


@dataclass(frozen=True)
class VersionHistory:
    """The versions up to snapshot ``against``, oldest first; none if that is None."""

    against: str | None = None
    versions: tuple[VersionMeasure, ...] = ()


def history_before(catalog: Catalog, snapshot: str | None, warn: Callable[[str], None]) -> VersionHistory:
    """The versions that lead to ``snapshot`` (None: to nothing). ``warn`` is told if what is kept of them is damaged,
    and passed over.
    """
    if snapshot is None:
        return VersionHistory()
    if (history := _readable(catalog, snapshot, warn)) is not None:
        return history
    known = {*_kept(catalog)} - {snapshot}
    if not known:
        return VersionHistory()
    for link in islice(catalog.lineage(snapshot), _LOOKED_BACK):
        if link.snapshot_id in known and (history := _readable(catalog, link.snapshot_id, warn)) is not None:
            return history
    return VersionHistory()


def _readable(catalog: Catalog, snapshot: str, warn: Callable[[str], None]) -> VersionHistory | None:
    try:
        versions = read_history(catalog.store, catalog.pipeline, snapshot, catalog.called_at(snapshot))
    except HistoryDamagedError as error:
        warn(str(error))
        return None
    return None if versions is None else VersionHistory(snapshot, versions)


def _kept(catalog: Catalog) -> list[str]:
    """The snapshots that have an object of the output whose catalog it is."""
    paths = (info.path for info in catalog.store.list(folder(catalog.pipeline, ObjectKind.AUDITS)))
    ends = ((path, about.end) for path in paths if (about := audited_range(catalog.pipeline, path)) is not None)
    return [end for path, end in ends if path == history_path(catalog.pipeline, end, catalog.called_at(end))]


def read_history(
    store: ObjectStore, pipeline: str, snapshot: str, output: str = ""
) -> tuple[VersionMeasure, ...] | None:
    """The versions of an ``output`` that lead to ``snapshot``, oldest first; None if none are kept. Raises
    HistoryDamagedError.
    """
    path = history_path(pipeline, snapshot, output)
    try:
        document = unsealed(json.loads(store.read(path)))
        if document["format"] != FORMAT or document["snapshot"] != snapshot:
            raise ValueError(f"it is of format {document['format']} and snapshot {document['snapshot']}")
        return tuple(map(VersionMeasure.from_json, document["versions"]))
    except ObjectNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise HistoryDamagedError(
            f"{path} is not what was written ({error!r}): the figures of the versions that it names are lost, and "
            "checks against history go by those before them; restore it from a backup to have them again"
        ) from error


def write_history(
    store: ObjectStore, pipeline: str, snapshot: str, versions: Sequence[VersionMeasure], output: str = ""
) -> None:
    """Keep the ``versions`` of an ``output`` that lead to ``snapshot``, oldest first (one put)."""
    document = {"format": FORMAT, "snapshot": snapshot, "versions": [version.to_json() for version in versions]}
    store.write(history_path(pipeline, snapshot, output), sealed(document))
