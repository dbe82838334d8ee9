"""What an audit is about: the snapshots that readers have not seen, their files, and their rows.

The rows that an audit looks at: a frame of Spark's, or a table in this process.

Rows as they are kept with a finding, and shown to people.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

from headrace.model.time import instant, render
from headrace.pipeline.expectations import ExpectationView
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import news_since, output_names, parked_in
from headrace_snapshots.format.table_names import UNNAMED
from headrace_snapshots.output_catalog import seen_catalog
from headrace_snapshots.refs import MAIN, PUBLISHED, published_ref

if TYPE_CHECKING:
    from headrace.kernel.types import Names
    from headrace.read.views.columns import ViewColumns


class Frame(Protocol):
    """Rows that are scanned several times."""

    @property
    def columns(self) -> Sequence[str]: ...

    def count(self) -> int:
        """How many rows there are."""

    def persist(self) -> Any:
        """Hold them: they are scanned again."""

    def unpersist(self) -> Any:
        """Let them go."""


FAILING_ROWS: Final = 5
"""As many of the rows that are to blame are kept."""

_LONGEST_VALUE: Final = 200

Row = Mapping[str, str | int | float | bool | None]
"""A row for people: values by column, times as ISO 8601 in UTC."""


def shown_value(value: Any) -> str | int | float | bool | None:
    """One of Python's values as it is kept and shown: times in UTC, long text cut."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, datetime):
        return render(instant(value.replace(tzinfo=UTC) if value.tzinfo is None else value))
    text = str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


@dataclass(frozen=True)
class UnpublishedRange:
    """What a branch has and readers have not: the snapshots after ``after`` (None: the beginning) up to ``until``."""

    after: str | None
    until: str

    def __str__(self) -> str:
        return f"({self.after or 'the beginning'}, {self.until}]"


def unpublished_range(catalog: Catalog, branch: str) -> UnpublishedRange | None:
    """What an audit of ``branch`` is about, as the catalog has it now; None when that is nothing.

    Of main, all beyond ``published``; of another branch, all beyond what it and ``published`` have in common, which was
    audited when it was published.
    """
    return _unpublished(catalog, branch, catalog.head().refs, PUBLISHED)


def unpublished_ranges(catalog: Catalog, branch: str, outputs: Iterable[str]) -> dict[str, UnpublishedRange | None]:
    """``unpublished_range`` of each of the ``outputs``, as the catalog has all of them now."""
    refs = catalog.head().refs
    return {
        output: _unpublished(seen_catalog(catalog, output), branch, refs, published_ref(output)) for output in outputs
    }


def _unpublished(catalog: Catalog, branch: str, refs: Mapping[str, str], published_by: str) -> UnpublishedRange | None:
    head, published = refs.get(branch), refs.get(published_by)
    if head is None:
        return None
    after = published if branch == MAIN else last_published(catalog, head, published)
    return None if after == head else UnpublishedRange(after, head)


def going_on(catalog: Catalog, branch: str, outputs: Iterable[str]) -> list[str]:
    """The ``outputs`` that the head of ``branch`` has and that are not parked there: what others have is not new. All
    where it has no snapshot.
    """
    head = catalog.head().refs.get(branch)
    if head is None:
        return [*outputs]
    manifest = catalog.manifest(head)
    there = {*output_names(manifest)} - {*parked_in(manifest)}
    return [output for output in outputs if output in there]


def last_published(catalog: Catalog, head: str, published: str | None) -> str | None:
    """The newest snapshot in the line of ``head`` that readers of ``published`` have seen; None: nothing of it. None
    also if it has expired: nobody can tell any more what came after it, and all that is left counts as unseen.
    """
    common = None if published is None else catalog.common_ancestor(published, head)
    return None if common is None or isinstance(common.problem, MissingSnapshotError) else common.snapshot_id


@dataclass(frozen=True)
class AuditedFiles:
    """Files by view: those of panes, and those of ``current`` with rows that epochs after ``since`` wrote, which count:
    what these hide is not what changed. ``epochs``: which one wrote a file, by its path.
    """

    files: Mapping[ExpectationView, Sequence[DataFile]]
    since: int
    epochs: Mapping[str, int]

    def names(self, view: ExpectationView, columns: "ViewColumns") -> "dict[str, Names]":
        """What the files of ``view`` call its ``columns``, by their paths."""
        from headrace.read.views.columns import View as ReadersView  # with Arrow, which parsing DAGs does without

        return {file.path: columns.names(ReadersView(view), self.epochs[file.path]) for file in self.files[view]}


def audited_files(catalog: Catalog, published: str | None, head: Manifest) -> AuditedFiles:
    """What an audit of (``published``, ``head``] may look at. What an output missed while it was parked, and caught up
    with since, is new to readers though it is of epochs that they have seen; and all of one that was computed again.
    """
    before = None if published is None else catalog.manifest(published)
    since = news_since(before, head, head.schema.get("output", ""))
    records = catalog.files(head.logs[UNNAMED.panes], since_epoch=since)
    panes = [(file, record.epoch) for record in records for file in record.files if isinstance(file, DataFile)]
    layers = [layer for layer in head.tables[UNNAMED.current] if layer.last_epoch > since]
    current = [(file, layer.last_epoch) for layer in layers for file in layer.files]
    files = {ExpectationView.PANES: [file for file, _ in panes], ExpectationView.CURRENT: [file for file, _ in current]}
    return AuditedFiles(files, since, {file.path: epoch for file, epoch in (*panes, *current)})
