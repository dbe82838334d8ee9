"""What the words of a command line name: a root, a pipeline's catalog, a snapshot."""

from headrace.errors import FixConfigError
from headrace.pipeline.loading.registry import resolve
from headrace.read.deployment import Deployment
from headrace.read.roots import check_root
from headrace.read.snapshots.snapshot_refs import named_id
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.layout import manifest_path
from headrace_snapshots.store import ObjectNotFoundError, open_store


def existing(root: str) -> str:
    """``root``. Raises MissingRootError if there is none: what is not there is not a pipeline without results."""
    check_root(open_store(root))
    return root


def catalog_of(pipeline: str, root: str) -> Catalog:
    """The catalog of a pipeline under a root that exists: one with results there by its name, without its file. Raises
    MissingRootError, UnknownPipelineError.
    """
    store = open_store(existing(root))
    return Catalog(store, pipeline if pipeline in Deployment(store) else resolve(pipeline).name)


def manifest_named(snapshot: str, root: str, pipeline: str | None) -> Manifest:
    """The manifest of a snapshot of ``pipeline``, or by its id of whichever pipeline under ``root`` has it."""
    if pipeline is not None:
        catalog = catalog_of(pipeline, root)
        return catalog.manifest(named_id(catalog, catalog.head(), snapshot))
    store = open_store(existing(root))
    for name in Deployment(store):
        try:
            store.stat(manifest_path(name, snapshot))
        except ObjectNotFoundError:
            continue
        return Catalog(store, name).manifest(snapshot)
    raise FixConfigError(
        f"no pipeline has a snapshot with the id {snapshot!r} under {root}; `headrace log PIPELINE` lists ids, and "
        "branches and tags are those of a pipeline (--pipeline)"
    )
