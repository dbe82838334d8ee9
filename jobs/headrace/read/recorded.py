"""What a branch recorded of its epochs: the files that each read, when it ran, which signals it heard.

That and the pipeline decide all that an epoch does, so it is what a replay needs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.model.time import MAX_INSTANT, Instant, parse
from headrace.model.triggers import Signal
from headrace.model.windows import Window
from headrace.sources.landing import ByInput, Landing
from headrace.sources.planning import InputFile
from headrace.sources.progress import Progress
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format import files as stored
from headrace_snapshots.format.codec import BrokenObjectError
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


def recorded_epochs(catalog: Catalog, snapshot_id: str) -> list[RecordedEpoch]:
    """The epochs of ``snapshot_id`` and of all before it, oldest first. A request for each of them.

    Raises MissingSnapshotError, BrokenObjectError.
    """
    manifests = [*catalog.ancestry(snapshot_id)][::-1]
    files = {record.epoch: _by_input(record.files) for record in catalog.files(manifests[-1].logs["inputs"])}
    return [_recorded(manifest, files.get(manifest.epoch, {})) for manifest in manifests]


def _by_input(files: Iterable[LoggedFile]) -> ByInput:
    found: dict[str, list[InputFile]] = {}
    for file in files:
        if not isinstance(file, DataFile):
            found.setdefault(file.input, []).append(_input_file(file))
    return found


def _input_file(file: stored.InputFile) -> InputFile:
    return InputFile(file.path, file.size, file.etag, file.digest)


def progress_of(catalog: Catalog, manifest: Manifest) -> Progress:
    """How far ``manifest`` has come, with the files that its offsets remember. Raises BrokenObjectError."""
    return Progress.from_json(manifest.progress, _recent_files(catalog, manifest))


def unread_files(
    catalog: Catalog, landing: Landing, manifest: Manifest | None, progress: Progress, *, full_sweep: bool
) -> dict[str, list[InputFile]]:
    """What has landed and was not read by ``manifest`` or before, to which ``progress`` has come; ``full_sweep``: also
    where nobody looks any more.
    """
    read = None
    if full_sweep and manifest is not None:
        records = catalog.files(manifest.logs["inputs"])
        read = [file for record in records for file in record.files if isinstance(file, stored.InputFile)]
    return landing.new_files(progress.offsets, read)


def _recent_files(catalog: Catalog, manifest: Manifest) -> Mapping[str, Sequence[InputFile]]:
    """The files behind the mark of each input, by name. Reads the log of inputs back until it has them all."""
    offsets = {name: each["offsets"] for name, each in manifest.progress["inputs"].items()}
    missing = sum(each["recent"] for each in offsets.values())
    found: dict[str, list[InputFile]] = {name: [] for name in offsets}
    records = catalog.newest_files(manifest.logs["inputs"]) if missing else ()
    for record in records:
        for file in record.files:
            if isinstance(file, stored.InputFile) and file.path > offsets[file.input]["mark"]:
                found[file.input].append(_input_file(file))
                missing -= 1
        if not missing:
            break
    if missing:
        raise BrokenObjectError(
            f"snapshot {manifest.snapshot_id} of {catalog.pipeline} (epoch {manifest.epoch}) remembers {missing} files "
            "more than its log of inputs names: go on from an older snapshot"
        )
    return {name: sorted(files, key=lambda file: file.path) for name, files in found.items()}


def _recorded(manifest: Manifest, files: ByInput) -> RecordedEpoch:
    progress: Mapping[str, Any] = manifest.progress
    return RecordedEpoch(
        files=files,
        processing_time=parse(progress["processing_time"]),
        signals=signals_from_json(progress["signals"]),
        is_last=parse(progress["watermark"]) == MAX_INSTANT,  # no record can take it there
    )


def signals_to_json(signals: Iterable[Signal]) -> list[dict[str, Any]]:
    """A JSON value; the inverse of ``signals_from_json``."""
    return [
        {
            "name": signal.name,
            "key": None if signal.key is None else list(signal.key),
            "window": None if signal.window is None else list(signal.window),
        }
        for signal in signals
    ]


def signals_from_json(value: Iterable[Mapping[str, Any]]) -> tuple[Signal, ...]:
    """The inverse of ``signals_to_json``."""
    return tuple(
        Signal(
            signal["name"],
            None if signal["key"] is None else tuple(signal["key"]),
            None if signal["window"] is None else Window(*signal["window"]),
        )
        for signal in value
    )
