"""Release: a person lets readers see what an audit did not pass."""

from headrace.errors import FixConfigError
from headrace.runs.publishing.planned_publish import UpstreamUnpublishedError
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.entry import Entry
from headrace_snapshots.format.output_view import output_names, seen_by, upstream_of
from headrace_snapshots.refs import published_of

STAY = "readers see a newer snapshot and stay there; a rollback to this one takes them back to it from now on"
"""What a release says that moves nothing."""


class NothingToReleaseError(FixConfigError, code="config.nothing_to_release"):
    """Readers of all outputs see the snapshot already."""


def release(catalog: Catalog, snapshot: str, message: str, output: str | None = None) -> Entry:
    """Let readers see ``snapshot`` of an ``output``, or of all that are behind it, for the reason ``message``. Where
    readers see what came after it nothing moves, and a rollback may take them there.

    Raises UpstreamUnpublishedError if the output is computed of one that readers do not see so far, UnknownOutputError,
    RefusedError.
    """
    manifest = catalog.manifest(snapshot)
    seen = published_of(catalog.head().refs)
    if output is not None:
        seen_by(manifest, output)
        above = upstream_of(manifest).get(output, ())
        behind = [name for name in above if not _is_seen(catalog, seen.get(name), snapshot)]
        if behind:
            raise UpstreamUnpublishedError(
                f"output {output} of {catalog.pipeline} is computed of {' and '.join(behind)}, of which readers do not "
                f"see {snapshot}: release that first, `headrace release {catalog.pipeline}.{behind[0]} {snapshot}`; or "
                f"all together, `headrace release {catalog.pipeline} {snapshot}`"
            )
        return catalog.release(snapshot, message, [output])
    outputs = output_names(manifest)
    if any(outputs):
        there = tuple(name for name in outputs if seen.get(name) != snapshot)
        if not there:
            raise NothingToReleaseError(f"readers of all outputs of {catalog.pipeline} see {snapshot} already")
        outputs = tuple(name for name in there if not _is_seen(catalog, seen.get(name), snapshot)) or there
    return catalog.release(snapshot, message, outputs)


def _is_seen(catalog: Catalog, shown: str | None, snapshot: str) -> bool:
    return shown is not None and catalog.is_ancestor(snapshot, shown)
