"""Making small manifests for catalog tests."""

from headrace_snapshots.catalog import Catalog, Claim
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.names import data_prefix
from tests.manifests import new_manifest


def data_path(pipeline: str, epoch: int, attempt: str, table: str, name: str) -> str:
    """The path of the data file ``name`` of ``table``."""
    return f"{data_prefix(pipeline, epoch, attempt)}/{table}-{name}.parquet"


def manifest_for(
    catalog: Catalog, claim: Claim, parent: str | None, snapshot_id: str | None = None, outputs: tuple[str, ...] = ()
) -> Manifest:
    """A manifest of the epoch after ``parent``, under ``claim``, with nothing in it but the names of ``outputs``."""
    return new_manifest(
        snapshot_id=snapshot_id or catalog.new_snapshot_id(),
        pipeline=catalog.pipeline,
        fingerprint="f",
        branch=claim.branch,
        epoch=0 if parent is None else catalog.manifest(parent).epoch + 1,
        parent=parent,
        generation=claim.generation,
        created_at="2026-01-01T00:00:00Z",
        progress={"watermark": None, **({"outputs": {}} if outputs else {})},
        schema={"outputs": {output: {"fingerprint": "f"} for output in outputs}} if outputs else {},
        definition={"outputs": {}} if outputs else {},
    )


def commit_some(catalog: Catalog, claim: Claim, count: int, outputs: tuple[str, ...] = ()) -> list[str]:
    """Commit ``count`` empty epochs after the claim's head; the ids of their snapshots."""
    ids: list[str] = []
    parent = catalog.head().refs.get(claim.branch)
    for _ in range(count):
        manifest = manifest_for(catalog, claim, parent, outputs=outputs)
        catalog.commit(claim, manifest)
        parent = manifest.snapshot_id
        ids.append(parent)
    return ids
