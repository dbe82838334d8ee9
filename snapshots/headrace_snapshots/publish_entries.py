"""What entries say of what readers see: to people, and of outputs that have other names now."""

from collections.abc import Mapping
from contextlib import suppress

from headrace_snapshots.catalog_reader import CatalogReader
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import (
    all_names_before,
    called_before,
    called_on,
    output_names,
    outputs_of,
)
from headrace_snapshots.refs import published_ref


def renamed_refs(catalog: CatalogReader, manifest: Manifest) -> dict[str, list[str]]:
    """The refs of what readers see of outputs that had other names, and the former refs of each."""
    names = {output: called_before(manifest, output) for output in outputs_of(manifest)}
    for output, before in names.items():
        (newest,) = all_names_before(manifest, output)[:1] or (None,)
        if newest in names and _was_called(
            catalog, newest, output, manifest
        ):  # another output has the name from now on
            names[output] = (newest, *before)
    return {published_ref(name): [published_ref(old) for old in before] for name, before in names.items() if before}


def renamed_by_promotion(catalog: CatalogReader, branch: Manifest | None, main: str | None) -> dict[str, list[str]]:
    """The same as ``renamed_refs``, for outputs of a ``branch`` that takes the place of ``main``: by what main calls
    them.
    """
    if branch is None:
        return {}
    renamed, called = renamed_refs(catalog, branch), dict[str, str | None]()
    with suppress(BrokenObjectError, MissingSnapshotError):
        called = {} if main is None else called_on(catalog.manifest(main), branch)
    for output, then in called.items():
        if then == output:
            renamed.pop(published_ref(output), None)
        elif then is not None:
            renamed[published_ref(output)] = [published_ref(then)]
    return renamed


def _was_called(catalog: CatalogReader, former: str, output: str, manifest: Manifest) -> bool:
    """Whether an ``output`` of ``manifest`` had its ``former`` name until then."""
    had = () if manifest.parent is None else output_names(catalog.manifest(manifest.parent))
    return output not in had and former in had


def published_message(catalog: CatalogReader, snapshots: Mapping[str, str | None]) -> str:
    """For people: the epoch that readers see, and of which outputs where they have names."""
    outputs: dict[str, list[str]] = {}
    for output, snapshot in snapshots.items():
        if snapshot is not None:
            outputs.setdefault(snapshot, []).append(output)
    epochs = {snapshot: catalog.manifest(snapshot).epoch for snapshot in outputs}
    parts = (
        f"epoch {epochs[snapshot]}" + (f" of {', '.join(names)}" if any(names) else "")
        for snapshot, names in outputs.items()
    )
    return f"published {' and '.join(parts)}"
