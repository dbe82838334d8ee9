"""Progress as a manifest holds it, for tests that commit manifests by hand."""

from typing import Any

from headrace.model.triggers import Signal
from headrace.read.snapshots.progress import progress_to_json
from headrace.sources.progress import PipelineProgress


def written(progress: PipelineProgress, *signals: Signal) -> dict[str, Any]:
    """What the manifest of an epoch says that heard ``signals``, which no request gave."""
    return progress_to_json(progress, signals=signals, signals_of=None, executor="local")
