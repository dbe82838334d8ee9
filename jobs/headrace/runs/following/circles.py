"""Whether a pipeline reads itself, through whatever others: asked for as long as it has read nothing of one of them."""

from headrace.errors import HeadraceError
from headrace.pipeline.checks.circles import check_no_circle
from headrace.read.lineage.inputs import positions_of
from headrace.read.lineage.placed import PlacedPipeline, RootStores
from headrace.read.upstream.position import UpstreamPosition
from headrace.runs.context import RunContext
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
