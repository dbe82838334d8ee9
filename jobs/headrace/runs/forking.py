"""Where the branch of a backfill begins: at the newest snapshot that readers have seen and that has read nothing yet as
new as the windows in question, so that all of their input is read again; or at nothing.
"""

from dataclasses import dataclass

from headrace.model.time import Instant, render
from headrace.model.windows import Window
from headrace.pipeline.fingerprint import fingerprint
from headrace.pipeline.graph import Pipeline
from headrace.pipeline.reach import reach
from headrace.read.progress import StoredProgress
from headrace_snapshots.ancestry import Link
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.refs import PUBLISHED


@dataclass(frozen=True)
class ForkPoint:
    """The snapshot of ``manifest`` (None: nothing), and why that one, for people."""

    manifest: Manifest | None
    because: str

    @property
    def snapshot(self) -> str | None:
        """Its id."""
        return None if self.manifest is None else self.manifest.snapshot_id

    def __str__(self) -> str:
        manifest = self.manifest
        begins = "nothing" if manifest is None else f"snapshot {manifest.snapshot_id} (epoch {manifest.epoch})"
        return f"the backfill begins with {begins}: {self.because}"


def fork_point(catalog: Catalog, pipeline: Pipeline, span: Window | None) -> ForkPoint:
    """The newest snapshot, not newer than ``published``, up to which no epoch had read anything as new as the first
    event time on which windows touching ``span`` depend. Nothing if there is none, or no span, or if the pipeline has
    changed since.

    Takes few requests, however many epochs there are: the newest event time that was read never goes back. A record
    that lay too far ahead of the clock (12.14) is no part of it; its window keeps it.
    """
    if span is None:
        return ForkPoint(None, "all input is read again")
    needed, published = reach(pipeline, span), catalog.head().refs.get(PUBLISHED)
    if published is None:
        return ForkPoint(None, "nothing is published yet")
    if needed is None:
        return ForkPoint(None, "a window function of the pipeline's own does not say how far its windows reach")
    try:
        found = _newest_before(catalog, published, needed.start)
    except (BrokenObjectError, MissingSnapshotError) as error:
        return ForkPoint(None, f"an older snapshot that it might begin with cannot be read ({error})")
    return _judged(pipeline, needed.start, found)


def _judged(pipeline: Pipeline, start: Instant, found: Manifest | None) -> ForkPoint:
    """``found``, the newest snapshot without anything as new as ``start``, if ``pipeline`` can go on from it."""
    read = f"as new as {render(start)}, where the event times begin that matter to the range"
    if found is None:
        return ForkPoint(None, f"the first epoch that is kept has read something {read}, or one before it may have")
    if found.fingerprint != fingerprint(pipeline):
        return ForkPoint(
            None, f"the pipeline has changed since snapshot {found.snapshot_id}, whose state means something else"
        )
    return ForkPoint(found, f"the newest snapshot that readers have seen and that has read nothing {read}")


def _newest_before(catalog: Catalog, published: str, start: Instant) -> Manifest | None:
    """The newest snapshot up to ``published`` that has read nothing as new as ``start``; None if there is none."""
    newer = _link(catalog, published)
    if _is_before(newer, start):
        return newer.manifest
    found: Link | None = None
    since = -1
    while between := _ancestors(newer, since):
        for epoch, snapshot_id in between:
            try:
                link = _link(catalog, snapshot_id)
            except MissingSnapshotError:  # it has expired, and so has what came before it
                since = epoch
                break
            if _is_before(link, start):
                found, since = link, epoch
                break
            newer = link
    return None if found is None else found.manifest


def _ancestors(newer: Link, since: int) -> list[tuple[int, str]]:
    """The ancestors that ``newer`` names of epochs after ``since``, newest first."""
    return [(epoch, snapshot) for epoch, snapshot in sorted(newer.ancestors.items(), reverse=True) if epoch > since]


def _link(catalog: Catalog, snapshot_id: str) -> Link:
    """Raises BrokenObjectError or MissingSnapshotError if its manifest cannot be read."""
    link = catalog.link(snapshot_id)
    if link.problem is not None:
        raise link.problem
    return link


def _is_before(link: Link, start: Instant) -> bool:
    assert link.manifest is not None
    newest = StoredProgress.of(link.manifest).newest
    return newest is None or newest < start
