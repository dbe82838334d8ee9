"""Panes that lead a target from one published state to another where each pane counts by itself: of pipelines that
discard, whose rows of ``current`` are not all that was given.

A target holds the sum of panes. So a move back is the inverse of the panes that are given up, and a move to another
line that of the panes which only the old one has, newest first, and then the panes which only the new one has.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.ext.sinks import EPOCH, SIGN, ChangeSource, FillReason
from headrace.read.diff.changes import RecordOrigin, RecordQuery, are_alike, delivered_columns
from headrace.read.diff.later_panes import LaterPanes
from headrace.read.snapshots.last_stage import discards
from headrace.read.snapshots.named_panes import common_epoch, has_panes
from headrace.read.views.columns import ViewColumns
from headrace.read.views.compaction import GONE, PLACE
from headrace.read.views.database import quoted
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import Manifest

if TYPE_CHECKING:
    import duckdb

_IS_NEW, _EPOCH, _SEQUENCE = (f"_headrace_{name}" for name in ("is_new", "epoch", "sequence"))
"""Columns beside those of users, whose names do not begin so."""


def panes_apart(catalog: Catalog, before: Manifest | None, after: Manifest, *, unknown: FillReason) -> "SummedPanes":
    """What leads a target from ``before`` to ``after``, which discards. If some of the panes between have expired, or
    the target holds others, these are all panes that are left. ``unknown``: why ``before`` is None, if it is.
    """
    shown = delivered_columns(ViewColumns.from_json(after.schema))
    since = -1 if before is None else common_epoch(catalog, before, after, shown)
    reason = unknown if before is None else _reason_to_fill(catalog, before, after, since)
    if before is None or reason is not None:
        return SummedPanes(after, None, LaterPanes.of(catalog, after, -1), reason)
    withdrawn, added = (LaterPanes.of(catalog, side, since) for side in (before, after))
    return SummedPanes(after, withdrawn, added)


def panes_taken_back(catalog: Catalog, before: Manifest) -> "SummedPanes | None":
    """What leads a target from ``before``, which discards, to nothing; None if some of its panes have expired."""
    if not has_panes(catalog, before, -1):
        return None
    return SummedPanes(before, LaterPanes.of(catalog, before, -1), None)


def _reason_to_fill(catalog: Catalog, before: Manifest, after: Manifest, since: int) -> FillReason | None:
    """Why panes after epoch ``since`` do not lead from the one to the other, if they do not."""
    if not discards(before):
        return FillReason.ACCUMULATION
    if not are_alike(before, after):
        return FillReason.COLUMNS
    return None if all(has_panes(catalog, side, since) for side in (before, after)) else FillReason.EXPIRED


class SummedPanes(RecordOrigin):
    """Panes that are ``withdrawn``, each the other way round, and then those that are ``added``."""

    def __init__(
        self, shown: Manifest, withdrawn: LaterPanes | None, added: LaterPanes | None, reason: FillReason | None = None
    ) -> None:
        super().__init__(shown)
        self.withdrawn, self.added, self.reason = withdrawn, added, reason
        self.kind = ChangeSource.PANES if reason is None else ChangeSource.ALL_PANES

    @property
    def files(self) -> list[DataFile]:
        return [file for panes in (self.withdrawn, self.added) if panes is not None for file in panes.files]

    def _records(self, connection: "duckdb.DuckDBPyConnection", local: Mapping[str, Path]) -> RecordQuery | None:
        del connection
        parts = [
            self._part(panes, local, is_new=is_new)
            for panes, is_new in ((self.withdrawn, False), (self.added, True))
            if panes is not None and panes.files
        ]
        order = [_IS_NEW, _EPOCH, _SEQUENCE, *self.columns.identity]
        return RecordQuery(" union all ".join(parts), order) if parts else None

    def _part(self, panes: LaterPanes, local: Mapping[str, Path], *, is_new: bool) -> str:
        epoch, sequence = PLACE
        sign, place = (1, "") if is_new else (-1, "-")  # the newest pane is the first to be taken back
        about = (
            f"case when {GONE} then {-sign} else {sign} end as {SIGN}, "
            f"{epoch if is_new else 'null::bigint'} as {EPOCH}, "
            f"{is_new} as {_IS_NEW}, {place}{epoch} as {_EPOCH}, {place}{sequence} as {_SEQUENCE}"
        )
        return f"select {about}, {quoted(self.shown)} from {panes.rows(local, self.fold)}"
