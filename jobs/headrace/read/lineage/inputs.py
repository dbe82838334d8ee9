"""The inputs of a pipeline that are other pipelines, and how far each has come: also where nothing was read yet."""

from headrace.pipeline.following.upstream_source import PUBLISHED_KIND, upstream_sources
from headrace.pipeline.pipeline import Pipeline
from headrace.read.lineage.placed import PlacedPipeline, RootStores
from headrace.read.upstream.position import UpstreamPosition, upstreams_of
from headrace_snapshots.format.manifest import Manifest


def positions_of(
    stores: RootStores, at: PlacedPipeline, manifest: Manifest | None, definition: Pipeline | None = None
) -> dict[str, UpstreamPosition]:
    """What a snapshot of a pipeline (None: it has none yet) has consumed of others, by input, and where those inputs
    begin of which it has consumed nothing. Inputs are those of the ``definition``, which may read others by now; None:
    as the snapshot says. Raises BrokenObjectError.
    """
    consumed = {} if manifest is None else upstreams_of(manifest)
    if definition is None:
        places = {} if manifest is None else _stored_places(manifest)
        begun = {name: _begun(stores, at, place) for name, place in places.items() if name not in consumed}
        return begun | consumed
    positions = {name: _begun(stores, at, source.place) for name, source in upstream_sources(definition).items()}
    read = {name: one for name, one in consumed.items() if name in positions}
    return positions | {name: one for name, one in read.items() if one.upstream == positions[name].upstream}


def _stored_places(manifest: Manifest) -> dict[str, str]:
    inputs = manifest.definition.get("inputs", ())
    return {given["name"]: given["path"] for given in inputs if given.get("kind") == PUBLISHED_KIND}


def _begun(stores: RootStores, reader: PlacedPipeline, place: str) -> UpstreamPosition:
    root, _, upstream = place.rpartition("/")
    pipeline, _, output = upstream.partition(".")
    store = stores.opened(root) if root else stores.of(reader.root)
    return UpstreamPosition.begun(store.uri, pipeline, output)
