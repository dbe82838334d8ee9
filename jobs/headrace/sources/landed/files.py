"""Landed files as a source: what a definition makes of their records is worked out each time that they are read."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.ext.sources import (
    FetchingReader,
    SourcePosition,
    SourceReader,
    SourceSplit,
    SplitEnumerator,
    SplitGoneError,
)
from headrace.model.time import Instant
from headrace.sources.file_planning import (
    ChangedFileError,
    VanishedFileError,
    content,
    gone,
    is_unchanged,
    listed_again,
    taken_in,
)
from headrace.sources.landed.damage import LandedDamagedError, way_on
from headrace.sources.landed.ranges import LandedRange, LandingPlace, RangeSeal, SealedFile, unread_files
from headrace_snapshots.store import ObjectNotFoundError

if TYPE_CHECKING:  # with Arrow, which planning does without
    import pyarrow as pa

    from headrace.formats.required import RequiredColumns
    from headrace.formats.scan import ScannedRecords, Span


@dataclass(frozen=True)
class LandedEnumerator(SplitEnumerator):
    """Finds landed files of a ``source``; the position is the name of the last one read."""

    place: LandingPlace
    source: SplitEnumerator
    _ranges: dict[int, LandedRange] = field(default_factory=dict, init=False, repr=False, compare=False)

    def unread(self, position: SourcePosition, read: Collection[str] | None = None) -> Iterator[SourceSplit]:
        """Files behind the position, as far as ranges are whole. None is a straggler."""
        for info in unread_files(self.place, position.mark):
            yield SourceSplit(info.path, info.size, info.etag)

    def after(self, position: SourcePosition, splits: Sequence[SourceSplit]) -> SourcePosition:
        """The last file."""
        return position.passed(splits[-1].path, splits) if splits else position

    def is_same(self, was: SourceSplit, now: SourceSplit) -> bool:
        """Whether a file has the content that it had."""
        return is_unchanged(self.place.store, was, now)

    def taken(self, split: SourceSplit) -> SourceSplit:
        """The file with its digest, where its ETag does not tell. Raises VanishedFileError, ChangingFileError."""
        return taken_in(self.place.store, split)

    def taken_again(self, splits: Sequence[SourceSplit]) -> list[SourceSplit]:
        """The files as they are now, taken in. Raises VanishedFileError, ChangingFileError."""
        return [self.taken(file) for file in listed_again(self.place.store, self._prefix, splits)]

    def missing(self, splits: Iterable[SourceSplit]) -> Iterator[tuple[SourceSplit, str]]:
        """The files that are gone (expired with the snapshots that would read them again) or have changed."""
        return gone(self.place.store, self._prefix, splits)

    def newest(self, position: SourcePosition) -> Instant | None:
        """When the newest range was claimed, also of those that were read."""
        return self.place.newest_at(position.mark)

    def watermarks(self, split: SourceSplit) -> Mapping[str, Instant]:
        """What the source knows of what a file is of. Raises SplitGoneError, BrokenObjectError where that is lost."""
        file = self.place.file(split.path)
        assert file is not None, "only such were landed"
        if file.range not in self._ranges:
            self._ranges[file.range] = self.place.claimed(file.range)
        return self.source.watermarks(self._ranges[file.range].splits[file.number])

    def explain(self) -> str:
        """What the source says."""
        return f"nothing of it was landed: {self.source.explain()}"

    @property
    def _prefix(self) -> str:
        return self.place.folder.rstrip("/")


@dataclass(frozen=True)
class LandedReader(SourceReader):
    """Reads landed files at a ``place`` as a ``source`` reads what it fetches."""

    place: LandingPlace
    source: FetchingReader
    _seals: dict[int, RangeSeal | None] = field(default_factory=dict, init=False, repr=False, compare=False)

    def read(self, split: SourceSplit, span: "Span", required: "RequiredColumns") -> "ScannedRecords":
        """The records of a file. Raises SplitGoneError, LandedDamagedError."""
        source = self.source.by_rules(split.rules)
        return source.scanned(as_fetched(self._content(split), split.path), required, split.path)

    @property
    def rules(self) -> int:
        """The number of the source."""
        return self.source.rules

    def _content(self, split: SourceSplit) -> bytes:
        """What a file has, held against the seal of its range, or where that has none, to what was read before."""
        sealed = self._sealed(split)
        try:
            data = content(self.place.store, split) if sealed is None else self.place.store.read(split.path)
        except (VanishedFileError, ObjectNotFoundError) as error:
            raise SplitGoneError(split.path, "is gone", way_on(split.path)) from error
        except ChangedFileError as error:
            raise LandedDamagedError(split.path, "has changed since it was read") from error
        if sealed is not None and SealedFile.of(data) != sealed:
            raise LandedDamagedError(split.path, "has another content than when it was landed")
        return data

    def _sealed(self, split: SourceSplit) -> SealedFile | None:
        file = self.place.file(split.path)
        if file is None:
            return None
        if file.range not in self._seals:
            self._seals[file.range] = self.place.seal(file.range)
        seal = self._seals[file.range]
        return None if seal is None or not seal.files else seal.files[file.number]


def as_fetched(data: bytes, path: str) -> "pa.Table":
    """What was fetched, from the content of the file at ``path``. Raises LandedDamagedError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(pa.BufferReader(data), use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise LandedDamagedError(path, f"is not a whole file of them ({error})") from error
