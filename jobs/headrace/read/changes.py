"""Definitions that have changed since a snapshot was made."""

from headrace.pipeline.fingerprint import fingerprint
from headrace.pipeline.graph import Pipeline
from headrace_snapshots.format.manifest import Manifest


def changed_since(pipeline: Pipeline, manifest: Manifest) -> str | None:
    """What there is to know if ``pipeline`` is defined otherwise now than when the snapshot was made; else None."""
    if manifest.fingerprint == fingerprint(pipeline):
        return None
    return (
        f"pipeline {pipeline.name} has changed since snapshot {manifest.snapshot_id} (epoch {manifest.epoch}): its "
        "columns, and what they mean, are still those of the definition that made it"
    )
