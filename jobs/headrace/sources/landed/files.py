"""Files that are landed of a source, and the source that they are read as.

``LandedReader`` reads landed files: what a definition makes of their records is worked out each time that they are
read.

``ClaimedEnumerator`` gives splits that were claimed as ranges and are read where they are. They are of sources that
keep their records and cut them elsewhere each time, or files that a job has written. So an older position gives the
same splits again, as files do.
"""

import io
import os
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from headrace.ext import sources as source_ports
from headrace.model.time import Instant
from headrace.sources import file_planning
from headrace.sources.landed import ranges
from headrace_snapshots.format.files import InputFile
from headrace_snapshots.names import landed_file
from headrace_snapshots.store import ObjectExistsError, ObjectNotFoundError, UnknownOutcomeError

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
        return position.passed(splits[-1].path, splits) if splits else position

    def is_same(self, was: source_ports.SourceSplit, now: source_ports.SourceSplit) -> bool:
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
        return position.passed(splits[-1].etag.partition(_MARK)[2], splits) if splits else position

    def missing(self, splits: Iterable[source_ports.SourceSplit]) -> Iterator[tuple[source_ports.SourceSplit, str]]:
        splits_by_path = {split.path: split for split in splits}
        for split, how in self.source.missing([without_place(split) for split in splits_by_path.values()]):
            yield splits_by_path[split.path], how

    def newest(self, position: source_ports.SourcePosition) -> Instant | None:
        """When the newest range was claimed, also of those that were read."""
        return self.place.newest_at(position.mark)

    def watermarks(self, split: source_ports.SourceSplit) -> Mapping[str, Instant]:
        return self.source.watermarks(without_place(split))

    def is_correction(self, split: source_ports.SourceSplit) -> bool:
        return self.source.is_correction(without_place(split))

    def explain(self) -> str:
        return self.source.explain()


@dataclass(frozen=True)
class ClaimedReader(source_ports.SourceReader):
    """Reads what was claimed where it is."""

    source: source_ports.SourceReader

    def read(self, split: source_ports.SourceSplit, span: "Span", required: "RequiredColumns") -> "ScannedRecords":
        return self.source.read(without_place(split), span, required)

    @property
    def rules(self) -> int:
        return self.source.rules

    def is_divisible(self, split: source_ports.SourceSplit) -> bool:
        return self.source.is_divisible(without_place(split))


def without_place(split: source_ports.SourceSplit) -> source_ports.SourceSplit:
    """``split`` as its source planned it."""
    return replace(split, etag=split.etag.partition(_MARK)[0])


def landed_as(pipeline: str, split: source_ports.SourceSplit | InputFile) -> str:
    """The path of a split; for a split that was claimed and not landed, the path that its file would have."""
    place = split.etag.rpartition(_MARK)[2]
    return split.path if landed_file(pipeline, place) is None else place


MOST_SPLITS: Final = 64
"""So many splits a range has at most: what a lander that is killed leaves to others."""

_WRITERS: Final = max(2, min(8, os.cpu_count() or 2))


@dataclass(frozen=True)
class PortionSize:
    """A portion has at most so many ``files`` and ``bytes``, as an epoch has; a larger split is one of its own. None:
    all that there is.
    """

    files: int | None = None
    bytes: int | None = None


ALL: Final = PortionSize()


@dataclass(frozen=True)
class Portion:
    """What was landed at once: how many files were ``put``; about how many bytes are ``left``, 0: it was the last."""

    put: int
    left: int = 0


@dataclass
class _PortionRoom:
    """What is left of a portion of that ``most``."""

    most: PortionSize
    files: int = 0
    bytes: int = 0

    def has_room_for(self, split: source_ports.SourceSplit) -> bool:
        """Whether there is room for ``split``, as there is in an empty one."""
        if not self.files:
            return True
        fits = self.most.files is None or self.files < self.most.files
        return fits and (self.most.bytes is None or self.bytes + split.size <= self.most.bytes)

    def take_splits(self, splits: Iterable[source_ports.SourceSplit]) -> None:
        for split in splits:
            self.files, self.bytes = self.files + 1, self.bytes + split.size


@dataclass(frozen=True)
class Lander:
    """Lands what ``enumerator`` finds and ``reader`` fetches at a ``place``; without a reader it only claims."""

    place: ranges.LandingPlace
    enumerator: source_ports.SplitEnumerator
    reader: source_ports.FetchingReader | None
    most_splits: ClassVar[int] = MOST_SPLITS

    def land(self, after_path: str = "") -> int:
        """Complete what others have claimed, then land what is new; how many files were put.

        The end is that of the source when it began. ``after_path``: a file of which it is known that all up to it are
        there. Raises what ``fetch`` raises where records are gone that were never landed."""
        return sum(portion.put for portion in self.land_portions(after_path))

    def land_portions(self, after_path: str = "", most: PortionSize = ALL) -> Iterator[Portion]:
        """What ``land_next`` lands, in portions; each is landed when it is asked for, the last one says that it is."""
        newest = self.place.newest_range(after_path)
        put = 0
        if newest is not None:
            put = (
                self._complete_range(newest)
                if newest.is_landed or self.reader is None
                else self._land_claimed(after_path)
            )
        room, is_over = _PortionRoom(most), False
        while not is_over:
            position = source_ports.SourcePosition("" if newest is None else newest.after)
            waiting = deque(self.enumerator.unread(position))
            is_over = True
            while waiting:
                if not room.has_room_for(waiting[0]):
                    yield Portion(put, sum(split.size for split in waiting))
                    put, room = 0, _PortionRoom(most)
                batch = self._next_batch(waiting, replace(room))
                position = self.enumerator.after(position, batch)
                wanted_range = self._wanted_range(0 if newest is None else newest.number + 1, batch, position.mark)
                if not wanted_range.splits:
                    continue
                self._check_is_free(wanted_range)
                newest = self._claim_range(wanted_range)
                put += self._complete_range(newest, is_new=newest is wanted_range)
                room.take_splits(newest.splits)
                if newest != wanted_range:  # another one's, who may have seen more, or less
                    is_over = False
                    break
        yield Portion(put)

    def waiting_splits(self, after_path: str = "") -> list[source_ports.SourceSplit]:
        """What the source has that nobody has claimed, as splits of the source; writes nothing."""
        newest = self.place.newest_range(after_path)
        return [*self.enumerator.unread(source_ports.SourcePosition("" if newest is None else newest.after))]

    def _next_batch(
        self, waiting: deque[source_ports.SourceSplit], room: _PortionRoom
    ) -> tuple[source_ports.SourceSplit, ...]:
        """What of ``waiting`` becomes the next range, where there is ``room`` for the first."""
        batch: list[source_ports.SourceSplit] = []
        while waiting and len(batch) < self.most_splits and room.has_room_for(waiting[0]):
            batch.append(waiting.popleft())
            room.take_splits(batch[-1:])
        return tuple(batch)

    def _wanted_range(self, number: int, splits: tuple[source_ports.SourceSplit, ...], mark: str) -> ranges.LandedRange:
        """The range to claim for ``splits``, which end at ``mark``; without any split there is none to claim."""
        return ranges.LandedRange(number, splits, mark, is_landed=self.reader is not None)

    def _claim_range(self, wanted_range: ranges.LandedRange) -> ranges.LandedRange:
        """The range of that number: ``wanted_range``, unless somebody was faster."""
        try:
            self.place.claim_range(wanted_range)
        except ObjectExistsError:
            return self.place.claimed_range(wanted_range.number)
        except UnknownOutcomeError:
            with suppress(ObjectExistsError):
                self.place.claim_range(wanted_range)
            return self.place.claimed_range(wanted_range.number)
        return wanted_range

    def _check_is_free(self, wanted_range: ranges.LandedRange) -> None:
        """Raises SplitGoneError where there are files of a range that nobody has claimed. Its claim is gone, and files
        of another range would be mixed with them.
        """
        if (
            wanted_range.is_landed
            and self.place.files_of(wanted_range)
            and wanted_range.number not in self.place.claimed_numbers("")
        ):
            path = self.place.claim_path(wanted_range.number)
            raise source_ports.SplitGoneError(path, "is gone, and files of it are there", ranges.way_on(path))

    def _land_claimed(self, after_path: str) -> int:
        """Put the files of ranges that were claimed alone, while the source was read where it is, from the one on that
        was read last.
        """
        return sum(
            self._complete_range(self.place.claimed_range(number)) for number in self.place.claimed_numbers(after_path)
        )

    def _complete_range(self, claim: ranges.LandedRange, *, is_new: bool = False) -> int:
        """Put those files of a range that are not there, and seal it; how many were put. ``is_new``: none is there."""
        seal = None if is_new else self.place.read_seal(claim.number)
        if self.reader is None:
            if seal is None:
                self.place.put_seal(ranges.RangeSeal(claim))
            return 0
        sealed_files = None if seal is None or not seal.files else seal.files
        landed_paths = set() if is_new else self.place.files_of(claim)
        missing = [
            number for number in range(len(claim.splits)) if self.place.file_path(claim, number) not in landed_paths
        ]
        files = dict(enumerate(sealed_files or ()))
        if missing:
            with (
                self.reader.connected() as reader,
                ThreadPoolExecutor(_WRITERS, thread_name_prefix="landing") as pool,
            ):
                put = pool.map(partial(self._put, reader, claim, files), missing)
                files |= dict(zip(missing, put, strict=True))
        if sealed_files is None:
            with suppress(ranges.LandedDamagedError):  # no whole file is held against nothing; reading says so
                landed_numbers = {*range(len(claim.splits))} - {*files}
                files |= {number: self._put_before(claim, number) for number in landed_numbers}
                self.place.put_seal(
                    ranges.RangeSeal(claim, tuple(files[number] for number in range(len(claim.splits))))
                )
        return len(missing)

    def _put_before(self, claim: ranges.LandedRange, number: int) -> ranges.SealedFile:
        """What a file is that another lander has put. Raises LandedDamagedError."""
        path = self.place.file_path(claim, number)
        data = self.place.store.read(path)
        as_fetched(data, path)
        return ranges.SealedFile.from_data(data)

    def _put(
        self,
        reader: source_ports.FetchingReader,
        claim: ranges.LandedRange,
        sealed_files: Mapping[int, ranges.SealedFile],
        number: int,
    ) -> ranges.SealedFile:
        """Put a file, which is the same as that of the number in ``sealed_files``, if there is one; what it is."""
        path, data = self.place.file_path(claim, number), encode_table(reader.fetch(claim.splits[number]))
        file = ranges.SealedFile.from_data(data)
        if sealed_files.get(number, file) != file:
            raise ranges.LandedDamagedError(path, "is gone, and the source gives other bytes in its place")
        try:
            self._create_object(path, data)
        except ObjectExistsError:  # another lander was faster, with the same records
            return self._put_before(claim, number)
        return file

    def _create_object(self, path: str, data: bytes) -> None:
        try:
            self.place.store.create(path, data)
        except UnknownOutcomeError:
            self.place.store.create(path, data)


@dataclass(frozen=True)
class WritingLander(Lander):
    """Has the job of a ``writer`` write the files of each split, and claims them as a range once they are there. A
    lander that is killed, or that another one overtakes, leaves files that nobody claims.
    """

    reader: None = field(default=None, init=False)
    writer: source_ports.WritingReader = field(kw_only=True)
    most_splits: ClassVar[int] = 1

    def _wanted_range(self, number: int, splits: tuple[source_ports.SourceSplit, ...], mark: str) -> ranges.LandedRange:
        (split,) = splits
        written_splits = self.writer.write(split, self.place.written_folder(number, self.writer.new_attempt()))
        return ranges.LandedRange(number, tuple(written_splits), mark, is_landed=False)


def encode_table(records: "pa.Table") -> bytes:
    """The content of a file with the records that were ``records``."""
    import pyarrow.parquet as pq

    content = io.BytesIO()
    pq.write_table(records, content, compression="zstd", compression_level=1, write_statistics=False)
    return content.getvalue()


class LandedPortions:
    """What the ``landers`` of a run land, by input, each after the file in ``after_paths``, up to which all are there,
    ``most`` at once.

    ``left``: about how many bytes inputs have that are not landed yet; an input of which all is landed is not there.
    """

    def __init__(
        self, landers: Mapping[str, Lander], after_paths: Mapping[str, str], most: Mapping[str, PortionSize]
    ) -> None:
        self._portions: dict[str, Iterator[Portion]] = {
            name: lander.land_portions(after_paths.get(name, ""), most[name]) for name, lander in landers.items()
        }
        self.left: dict[str, int] = {}
        self.land_next(self._portions)

    def land_next(self, names: Iterable[str]) -> None:
        """Land the next portion of each of these inputs. Raises what landing raises."""
        for name in [*names]:
            left = next(self._portions[name]).left
            self.left |= {name: left}
            if not left:
                del self.left[name]
