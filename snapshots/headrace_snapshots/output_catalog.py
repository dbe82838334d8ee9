"""The catalog of a pipeline as one of its outputs sees it: its manifests are those of that output alone."""

from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import seen_by


class OutputCatalog(Catalog):
    """Answers what a ``Catalog`` answers, for readers of an ``output``. It commits nothing: who writes a branch writes
    all outputs.
    """

    def __init__(self, catalog: Catalog, output: str) -> None:
        super().__init__(catalog.store, catalog.pipeline)
        self.output = output

    def manifest(self, snapshot_id: str) -> Manifest:
        """The manifest of a snapshot, as the output sees it. Raises UnknownOutputError if the snapshot lacks it."""
        return seen_by(super().manifest(snapshot_id), self.output)

    def write_manifest(self, manifest: Manifest) -> None:
        """Raise TypeError: a manifest has all outputs."""
        raise TypeError(f"the catalog of output {self.output} of {self.pipeline} is for readers")
