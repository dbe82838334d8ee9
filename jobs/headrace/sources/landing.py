"""Where the inputs of a pipeline land: which files are new, and which of them make the next epoch. Without Spark."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from headrace.model.time import Instant
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.sources import FileSource
from headrace.sources.file_planning import (
    MAX_READS,
    ChangedFileError,
    ChangingFileError,
    LandedFile,
    Offsets,
    content,
    discover,
    full_sweep,
    is_unchanged,
    listed_again,
    newest_landed,
    next_batch,
    open_source,
    taken_in,
)
from headrace_snapshots.format import files as stored
from headrace_snapshots.store import ObjectStore

ByInput = Mapping[str, Sequence[LandedFile]]
"""Files by the name of their input; no entry where there are none."""

Read = TypeVar("Read")


@dataclass(frozen=True)
class Place:
    """Where one input lands: a store, and a prefix in it."""

    store: ObjectStore
    prefix: str
    source: FileSource


class Landing:
    """The places of all inputs of ``pipeline``; paths that are not whole URIs lie below ``root``."""

    def __init__(self, pipeline: Pipeline, root: ObjectStore) -> None:
        self.places = {
            given.name: Place(*open_source(root, given.source.path), source=given.source) for given in pipeline.inputs
        }

    @property
    def uris(self) -> tuple[str, ...]:
        """The URIs of the stores."""
        return tuple(dict.fromkeys(place.store.uri for place in self.places.values()))

    def new_files(
        self, offsets: Mapping[str, Offsets], swept: Iterable[stored.InputFile] | None = None
    ) -> dict[str, list[LandedFile]]:
        """What has landed since ``offsets``.

        ``swept`` are all files that were ever read: then stragglers are found as well, where nobody looks any more.
        """
        known: dict[str, list[str]] = {}
        for file in swept or ():
            known.setdefault(file.input, []).append(file.path)
        new: dict[str, list[LandedFile]] = {}
        for name, place in self.places.items():
            behind = offsets.get(name, Offsets())
            stragglers: list[LandedFile] = []
            if swept is not None:
                stragglers = full_sweep(place.store, place.prefix, behind, known.get(name, ()), place.source)
            files = [*stragglers, *discover(place.store, place.prefix, behind, place.source)]
            if files:
                new[name] = files
        return new

    def newest_landed(self, marks: Mapping[str, str]) -> dict[str, Instant | None]:
        """When the newest file of each input landed, looked for after its mark; None where that cannot be told."""
        return {
            name: newest_landed(place.store, place.prefix, marks.get(name, ""), place.source)
            for name, place in self.places.items()
        }

    def next_epoch(
        self, files: ByInput, max_files: int | None = None, max_bytes: int | None = None
    ) -> tuple[dict[str, list[LandedFile]], dict[str, list[LandedFile]]]:
        """The first of ``files`` of each input that make an epoch, taken in, and the rest. None: as the source says."""
        taken: dict[str, list[LandedFile]] = {}
        rest: dict[str, list[LandedFile]] = {}
        for name, waiting in files.items():
            source = self.places[name].source
            batch = next_batch(waiting, max_files or source.max_files, max_bytes or source.max_bytes)
            taken[name] = batch
            if len(batch) < len(waiting):
                rest[name] = list(waiting[len(batch) :])
        return self.taken(taken), rest

    def taken(self, files: ByInput) -> dict[str, list[LandedFile]]:
        """``files`` with what will tell whether they have changed. Raises VanishedFileError, ChangingFileError."""
        return {name: [taken_in(self.places[name].store, file) for file in landed] for name, landed in files.items()}

    def reading(self, files: ByInput, read: Callable[[ByInput], Read]) -> tuple[ByInput, Read]:
        """What ``read`` makes of ``files``, and these: where some changed before they were read, as they became then.

        Raises VanishedFileError; and ChangingFileError if they changed each time.
        """
        changing: dict[str, None] = {}
        for _ in range(MAX_READS):
            try:
                return files, read(files)
            except ChangedFileError:
                now = self.taken(
                    {
                        name: listed_again(self.places[name].store, self.places[name].prefix, landed)
                        for name, landed in files.items()
                    }
                )
                pairs = [pair for name, landed in now.items() for pair in zip(files[name], landed, strict=True)]
                changing |= {file.path: None for before, file in pairs if file != before}
                files = now
        raise ChangingFileError([*changing])

    def content(self, name: str, file: LandedFile) -> bytes:
        """What a file of the input ``name`` held when it was taken in. Raises VanishedFileError, ChangedFileError."""
        return content(self.places[name].store, file)

    def gone(self, read: Iterable[stored.InputFile], listed: ByInput) -> list[str]:
        """The paths of the files that were ``read`` and are not in ``listed`` with the content that they had."""
        there = {(name, file.path): file for name, landed in listed.items() for file in landed}

        def is_there(was: stored.InputFile) -> bool:
            now = there.get((was.input, was.path))
            then = LandedFile(was.path, was.size, was.etag, was.digest)
            return now is not None and is_unchanged(self.places[was.input].store, then, now)

        return [file.path for file in read if not is_there(file)]


def counted(files: ByInput) -> int:
    """How many files these are."""
    return sum(len(landed) for landed in files.values())
