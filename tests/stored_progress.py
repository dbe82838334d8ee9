"""Progress as a manifest holds it, for tests that commit manifests by hand."""

from collections.abc import Iterable
from typing import Any

from headrace.model.triggers import Signal
from headrace.read.snapshots.progress import continuing_to_json, epoch_to_json
from headrace.sources.progress import PipelineProgress


def progress_fields(progress: PipelineProgress, *signals: Signal) -> dict[str, Any]:
    """What the manifest of an epoch says that heard ``signals``, which no request gave."""
    return progress_to_json(progress, signals=signals, signals_of=None, executor="local")


def progress_to_json(
    progress: PipelineProgress, *, signals: Iterable[Signal], signals_of: str | None, executor: str
) -> dict[str, Any]:
    """All that the manifest of an epoch says of its progress."""
    of_epoch = epoch_to_json(progress, signals=signals, executor=executor)
    return {**continuing_to_json(progress, signals_of=signals_of), **of_epoch}
