"""How a pipeline follows those that it reads: in no circle, and what they compute again counts as it did at first.

Whether a pipeline reads itself, through whatever others: asked for as long as it has read nothing of one of them.

What an upstream computes again counts here as it did the first time, or the run stops.

Where an upstream goes back, what it had given is withdrawn here, and what it gives instead is counted. That is right as
long as the windows are open into which both fall. A window that has expired keeps its row for good: the epoch is not
committed then, and a person goes back to a snapshot of the reader from before.
"""

from collections.abc import Iterator
from contextlib import suppress

from headrace.distribute.epoch import ComputedEpoch
from headrace.errors import HeadraceError, RestoreError
from headrace.pipeline.checks.graph_checks import check_no_circle
from headrace.pipeline.upstream_source import UpstreamSource
from headrace.read.lineage.cut import PlacedPipeline, RootStores, positions_of
from headrace.read.upstream import GONE, ReadPipeline, UpstreamPosition, upstreams_of
from headrace.runs.epochs import RunContext
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.refs import MAIN


def check_circles(run: RunContext, head: Manifest | None) -> None:
    """Raise UpstreamCycleError if a pipeline of which the ``head`` of the branch has consumed nothing yet, whether or
    not it has published anything, reads this one: as the newest snapshots of main say, of it and of those that it
    reads. One that has no snapshot, or cannot be looked at, is found by a later run.
    """
    stores = RootStores(run.store)
    own = PlacedPipeline("", run.pipeline.name)

    def upstreams(at: PlacedPipeline) -> list[PlacedPipeline]:
        if at == own:
            read = [one for one in positions_of(stores, own, head, run.pipeline).values() if one.snapshot is None]
        else:
            read = _of_main(stores, at)
        return [stores.placed(one.root, one.pipeline) for one in read]

    check_no_circle(own, upstreams)


def _of_main(stores: RootStores, at: PlacedPipeline) -> list[UpstreamPosition]:
    try:
        catalog = stores.catalog(at)
        snapshot = catalog.head().refs.get(MAIN)
        manifest = None if snapshot is None else catalog.manifest(snapshot)
        return [*positions_of(stores, at, manifest).values()]
    except HeadraceError:  # who reads it says what is wrong with it
        return []


_DROPS = ("late_dropped", "late_panes_dropped", "closed_dropped", "retractions_dropped")


class UpstreamMovedError(RestoreError, code="restore.upstream_moved"):
    """A pipeline that is read has gone back, and what it takes back lies in windows that have expired here."""


def check_counted(run: RunContext, computed: ComputedEpoch) -> None:
    """Raise UpstreamMovedError if an epoch that takes back, or repeats, what was counted has dropped any of it."""
    again = run.landing.counting_again(computed.files)
    if not again:
        return
    counts = computed.counts
    dropped = sum(counts[name] for name in _DROPS)
    if not dropped:
        return
    name, split = next(iter(again.items()))
    source = next(given.source for given in run.pipeline.inputs if given.name == name)
    assert isinstance(source, UpstreamSource), "no other source says so"
    elements = "1 element" if dropped == 1 else f"{dropped:,} elements"
    raise UpstreamMovedError(
        f"{run.pipeline.name}: {source} has changed what was read of it ({split.path}), and {elements} of that would "
        f"be dropped, since their windows have expired here. Nothing of it is committed. {_way_out(run, name, source)}"
    )


def _way_out(run: RunContext, name: str, source: UpstreamSource) -> str:
    reader = run.pipeline.name
    anew = f"compute {reader} again from what is published now: `headrace backfill {reader} --promote`"
    head = run.catalog.head().refs.get(run.options.branch)
    fits = None if head is None else newest_fitting(run.catalog, head, name, ReadPipeline(source, run.store))
    if fits is None:
        return f"No snapshot of {reader} is from before: {anew}"
    return (
        f"Go back to snapshot {fits} of {reader}, the newest that has read nothing of what is changed, and read on "
        f"from there: `headrace recover {reader} {fits}`; or {anew}"
    )


def newest_fitting(catalog: Catalog, head: str, name: str, upstream: ReadPipeline) -> str | None:
    """The newest snapshot in the line of ``head`` that has consumed, as its input ``name``, nothing of ``upstream``
    that is not part of what is published of it now; None if there is none.
    """
    published = upstream.published()
    for snapshot, position in _consumed_before(catalog, head, name):
        if position is not None and published is not None and _fits(upstream, position, published):
            return snapshot
    return None


def _consumed_before(catalog: Catalog, head: str, name: str) -> Iterator[tuple[str, UpstreamPosition | None]]:
    for manifest in catalog.readable(head):
        yield manifest.snapshot_id, upstreams_of(manifest).get(name)


def _fits(upstream: ReadPipeline, position: UpstreamPosition, published: str) -> bool:
    """Whether a reader at ``position`` only reads on: nothing is taken back, and nothing patched behind its back."""
    if position.is_behind or position.snapshot is None:
        return False
    with suppress(*GONE):
        begin, end = upstream.manifest(position.snapshot), upstream.manifest(published)
        is_patched = end.patch is not None and end.patch.epoch > begin.epoch
        return not is_patched and upstream.is_line(begin, end)
    return False
