"""Where the branch of a backfill begins: at the newest snapshot that readers have seen and that holds nothing yet of
the windows in question, so that all of their input is read again; or at nothing.
"""

from dataclasses import dataclass

from headrace.model.time import render
from headrace.model.windows import Window
from headrace.pipeline.fingerprint import fingerprint
from headrace.pipeline.graph import Pipeline
from headrace.pipeline.reach import reach
from headrace.read.progress import StoredProgress
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
    """The newest snapshot, not newer than ``published``, up to which no epoch accepted a record that a window touching
    ``span`` depends on. Nothing if there is none, or no span, or if the pipeline has changed since.

    Goes back from ``published``, a request for each epoch, until epochs have read nothing as new as the span. A record
    that lay too far ahead of the clock when it was read (12.14) does not count as that; its window keeps it. A dead
    letter counts as one of the span, if it was read once there was something as new.
    """
    if span is None:
        return ForkPoint(None, "all input is read again")
    needed, published = reach(pipeline, span), catalog.head().refs.get(PUBLISHED)
    if published is None:
        return ForkPoint(None, "nothing is published yet")
    if needed is None:
        return ForkPoint(None, "a window function of the pipeline's own does not say how far its windows reach")
    try:
        return _judged(pipeline, needed, _newest_without(catalog, published, needed))
    except (BrokenObjectError, MissingSnapshotError) as error:
        return ForkPoint(None, f"an older snapshot that it might begin with cannot be read ({error})")


def _judged(pipeline: Pipeline, needed: Window, found: Manifest | None) -> ForkPoint:
    """``found``, the newest snapshot without anything of ``needed``, if ``pipeline`` can go on from it."""
    read = f"of the event times from {render(needed.start)} to {render(needed.end)}, on which the range depends"
    if found is None:
        return ForkPoint(None, f"the first epoch has read some {read}")
    if found.fingerprint != fingerprint(pipeline):
        return ForkPoint(
            None, f"the pipeline has changed since snapshot {found.snapshot_id}, whose state means another"
        )
    return ForkPoint(found, f"the newest snapshot that readers have seen and that has read none {read}")


def _newest_without(catalog: Catalog, published: str, needed: Window) -> Manifest | None:
    """The newest snapshot up to ``published`` such that no epoch up to it accepted an event time in ``needed``."""
    found: Manifest | None = None
    for manifest in catalog.ancestry(published):
        progress = StoredProgress.of(manifest)
        low, high = progress.min_event_time, progress.max_event_time
        is_older = progress.newest is None or progress.newest < needed.start
        touches = low is not None and high is not None and low < needed.end and high >= needed.start
        if touches or (manifest.counts.get("rejected") and not is_older):
            found = None
        elif found is None:
            found = manifest
        if is_older:
            break
    return found
