"""Landed files, and ranges that are read where they are, as a source.

``LandedReader`` reads landed files: what a definition makes of their records is worked out each time that they are
read.

``ClaimedEnumerator`` gives splits that were claimed as ranges and are read where they are. They are of sources that
keep their records and cut them elsewhere each time, or files that a job has written. So an older position gives the
same splits again, as files do.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from headrace.ext import sources as source_ports
from headrace.model.time import Instant
from headrace.sources import file_planning
from headrace.sources.landed import ranges
from headrace_snapshots.format.files import InputFile
from headrace_snapshots.names import landed_file
from headrace_snapshots.store import ObjectNotFoundError

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.formats.file_format import RequiredColumns, ScannedRecords, Span


@dataclass(frozen=True)
class LandedEnumerator(source_ports.SplitEnumerator):
    """Finds landed files of a ``source``; the position is the name of the last one read."""

    place: ranges.LandingPlace
    source: source_ports.SplitEnumerator
    _ranges: dict[int, ranges.LandedRange] = field(default_factory=dict, init=False, repr=False, compare=False)

    def unread(
        self, position: source_ports.SourcePosition, read: Collection[str] | None = None
    ) -> Iterator[source_ports.SourceSplit]:
        """Files behind the position, as far as ranges are whole. None is a straggler."""
        for info in ranges.unread_files(self.place, position.mark):
            yield source_ports.SourceSplit(info.path, info.size, info.etag)

    def after(
        self, position: source_ports.SourcePosition, splits: Sequence[source_ports.SourceSplit]
    ) -> source_ports.SourcePosition:
        """The last file."""
        return position.passed(splits[-1].path, splits) if splits else position

    def is_same(self, was: source_ports.SourceSplit, now: source_ports.SourceSplit) -> bool:
        """Whether a file has the content that it had."""
        return file_planning.is_unchanged(self.place.store, was, now)

    def taken(self, split: source_ports.SourceSplit) -> source_ports.SourceSplit:
        """The file with its digest, where its ETag does not tell. Raises VanishedFileError, ChangingFileError."""
        return file_planning.taken_in(self.place.store, split)

    def taken_again(self, splits: Sequence[source_ports.SourceSplit]) -> list[source_ports.SourceSplit]:
        """The files as they are now, taken in. Raises VanishedFileError, ChangingFileError."""
        return [self.taken(file) for file in file_planning.listed_again(self.place.store, self._prefix, splits)]

    def missing(self, splits: Iterable[source_ports.SourceSplit]) -> Iterator[tuple[source_ports.SourceSplit, str]]:
        """The files that are gone (expired with the snapshots that would read them again) or have changed."""
        return file_planning.missing_splits(self.place.store, self._prefix, splits)

    def newest(self, position: source_ports.SourcePosition) -> Instant | None:
        """When the newest range was claimed, also of those that were read."""
        return self.place.newest_at(position.mark)

    def watermarks(self, split: source_ports.SourceSplit) -> Mapping[str, Instant]:
        """What the source knows of what a file is of. Raises SplitGoneError, BrokenObjectError where that is lost."""
        file = self.place.landed_file(split.path)
        assert file is not None, "only such were landed"
        if file.range not in self._ranges:
            self._ranges[file.range] = self.place.claimed_range(file.range)
        return self.source.watermarks(self._ranges[file.range].splits[file.number])

    def explain(self) -> str:
        """What the source says."""
        return f"nothing of it was landed: {self.source.explain()}"

    @property
    def _prefix(self) -> str:
        return self.place.folder.rstrip("/")


@dataclass(frozen=True)
class LandedReader(source_ports.SourceReader):
    """Reads landed files at a ``place`` as a ``source`` reads what it fetches."""

    place: ranges.LandingPlace
    source: source_ports.FetchingReader
    _seals: dict[int, ranges.RangeSeal | None] = field(default_factory=dict, init=False, repr=False, compare=False)

    def read(self, split: source_ports.SourceSplit, span: "Span", required: "RequiredColumns") -> "ScannedRecords":
        """The records of a file. Raises SplitGoneError, LandedDamagedError."""
        source = self.source.by_rules(split.rules)
        return source.scanned(as_fetched(self._checked_content(split), split.path), required, split.path)

    @property
    def rules(self) -> int:
        """The number of the source."""
        return self.source.rules

    def _checked_content(self, split: source_ports.SourceSplit) -> bytes:
        """What a file has, held against the seal of its range, or where that has none, to what was read before."""
        sealed_file = self._sealed_file(split)
        try:
            data = (
                file_planning.read_content(self.place.store, split)
                if sealed_file is None
                else self.place.store.read(split.path)
            )
        except (file_planning.VanishedFileError, ObjectNotFoundError) as error:
            raise source_ports.SplitGoneError(split.path, "is gone", ranges.way_on(split.path)) from error
        except file_planning.ChangedFileError as error:
            raise ranges.LandedDamagedError(split.path, "has changed since it was read") from error
        if sealed_file is not None and ranges.SealedFile.from_data(data) != sealed_file:
            raise ranges.LandedDamagedError(split.path, "has another content than when it was landed")
        return data

    def _sealed_file(self, split: source_ports.SourceSplit) -> ranges.SealedFile | None:
        file = self.place.landed_file(split.path)
        if file is None:
            return None
        if file.range not in self._seals:
            self._seals[file.range] = self.place.read_seal(file.range)
        seal = self._seals[file.range]
        return None if seal is None or not seal.files else seal.files[file.number]


def as_fetched(data: bytes, path: str) -> "pa.Table":
    """What was fetched, from the content of the file at ``path``. Raises LandedDamagedError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(pa.BufferReader(data), use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise ranges.LandedDamagedError(path, f"is not a whole file of them ({error})") from error


_READERS: Final = 16
_MARK: Final = "#"
"""Between the ETag of a split and the place of its file, if it were landed."""


@dataclass(frozen=True)
class ClaimedEnumerator(source_ports.SplitEnumerator):
    """Gives the splits of a ``source`` that were claimed at a ``place``; the position is where the last one would have
    been landed, so ``land`` of a source may change.
    """

    place: ranges.LandingPlace
    source: source_ports.SplitEnumerator

    def unread(
        self, position: source_ports.SourcePosition, read: Collection[str] | None = None
    ) -> Iterator[source_ports.SourceSplit]:
        """Claimed splits behind the position. None is a straggler. Raises SplitGoneError if claims of them are gone."""
        last_landed = self.place.landed_file(position.mark)
        numbers = self.place.claims_behind(last_landed)
        with ThreadPoolExecutor(_READERS, thread_name_prefix="claims") as pool:
            for claim in pool.map(self.place.claimed_range, numbers):
                begin = last_landed.number + 1 if last_landed and last_landed.range == claim.number else 0
                yield from (self._with_place(claim, number) for number in range(begin, len(claim.splits)))

    def _with_place(self, claim: ranges.LandedRange, number: int) -> source_ports.SourceSplit:
        split = claim.splits[number]
        return replace(split, etag=f"{split.etag}{_MARK}{self.place.file_path(claim, number)}")

    def after(
        self, position: source_ports.SourcePosition, splits: Sequence[source_ports.SourceSplit]
    ) -> source_ports.SourcePosition:
        """Behind the last of them."""
        return position.passed(splits[-1].etag.partition(_MARK)[2], splits) if splits else position

    def missing(self, splits: Iterable[source_ports.SourceSplit]) -> Iterator[tuple[source_ports.SourceSplit, str]]:
        """What the source misses."""
        splits_by_path = {split.path: split for split in splits}
        for split, how in self.source.missing([without_place(split) for split in splits_by_path.values()]):
            yield splits_by_path[split.path], how

    def newest(self, position: source_ports.SourcePosition) -> Instant | None:
        """When the newest range was claimed, also of those that were read."""
        return self.place.newest_at(position.mark)

    def watermarks(self, split: source_ports.SourceSplit) -> Mapping[str, Instant]:
        """What the source knows."""
        return self.source.watermarks(without_place(split))

    def is_correction(self, split: source_ports.SourceSplit) -> bool:
        """What the source says."""
        return self.source.is_correction(without_place(split))

    def explain(self) -> str:
        """What the source says."""
        return self.source.explain()


@dataclass(frozen=True)
class ClaimedReader(source_ports.SourceReader):
    """Reads what was claimed where it is."""

    source: source_ports.SourceReader

    def read(self, split: source_ports.SourceSplit, span: "Span", required: "RequiredColumns") -> "ScannedRecords":
        """What the source reads."""
        return self.source.read(without_place(split), span, required)

    @property
    def rules(self) -> int:
        """What the source has."""
        return self.source.rules

    def is_divisible(self, split: source_ports.SourceSplit) -> bool:
        """Whether the source can read it in pieces."""
        return self.source.is_divisible(without_place(split))


def without_place(split: source_ports.SourceSplit) -> source_ports.SourceSplit:
    """``split`` as its source planned it."""
    return replace(split, etag=split.etag.partition(_MARK)[0])


def landed_as(pipeline: str, split: source_ports.SourceSplit | InputFile) -> str:
    """The path of a split; of one that was claimed and not landed, that which its file would have."""
    place = split.etag.rpartition(_MARK)[2]
    return split.path if landed_file(pipeline, place) is None else place
