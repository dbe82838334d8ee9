"""What a branch recorded of its epochs: the files that each read, when it ran, which signals it heard.

That and the pipeline decide all that an epoch does, so it is what a replay needs.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.model.time import MAX_INSTANT, Instant
from headrace.model.triggers import Signal
from headrace.read.progress import StoredProgress, input_file
from headrace.sources.landing import ByInput
from headrace.sources.planning import InputFile
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.filelog import LoggedFile
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import Manifest


@dataclass(frozen=True)
class RecordedEpoch:
    """An epoch as it ran, or is to run: its files by input in the order of their arrival, its processing time, the
    signals that it hears; whether the input ends with it.
    """

    files: ByInput
    processing_time: Instant
    signals: tuple[Signal, ...] = ()
    is_last: bool = False


def recorded_epochs(catalog: Catalog, snapshot_id: str, until: str | None = None) -> list[RecordedEpoch]:
    """The epochs of ``snapshot_id`` and of all before it, down to but without its ancestor ``until``, oldest first. A
    request for each of them.

    Raises MissingSnapshotError, BrokenObjectError.
    """
    manifests = [*catalog.ancestry(snapshot_id, until)][::-1]
    if not manifests:
        return []
    records = catalog.files(manifests[-1].logs["inputs"], since_epoch=manifests[0].epoch - 1)
    files = {record.epoch: _by_input(record.files) for record in records}
    return [_recorded(manifest, files.get(manifest.epoch, {})) for manifest in manifests]


def _by_input(files: Iterable[LoggedFile]) -> ByInput:
    found: dict[str, list[InputFile]] = {}
    for file in files:
        if not isinstance(file, DataFile):
            found.setdefault(file.input, []).append(input_file(file))
    return found


def _recorded(manifest: Manifest, files: ByInput) -> RecordedEpoch:
    progress = StoredProgress.of(manifest)
    return RecordedEpoch(
        files=files,
        processing_time=progress.processing_time,
        signals=progress.signals,
        is_last=progress.watermark == MAX_INSTANT,  # no record can take it there
    )
