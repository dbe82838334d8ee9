"""Lands what a source has: claims ranges of it, one after the other, and writes their files, or has them written.

``LandedPortions`` are what a run lands, as large as its epochs: the next one when the one before it has been read.
"""

import io
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from headrace.ext import sources as source_ports
from headrace.sources.landed.files import as_fetched
from headrace.sources.landed.ranges import LandedDamagedError, LandedRange, LandingPlace, RangeSeal, SealedFile, way_on
from headrace_snapshots.store import ObjectExistsError, UnknownOutcomeError

if TYPE_CHECKING:
    import pyarrow as pa


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

    place: LandingPlace
    enumerator: source_ports.SplitEnumerator
    reader: source_ports.FetchingReader | None
    most_splits: ClassVar[int] = MOST_SPLITS

    def land(self, after: str = "") -> int:
        """Complete what others have claimed, then land what is new; how many files were put.

        The end is that of the source when it began. ``after``: a file of which it is known that all up to it are there.
        Raises what ``fetch`` raises where records are gone that were never landed.
        """
        return sum(portion.put for portion in self.land_portions(after))

    def land_portions(self, after: str = "", most: PortionSize = ALL) -> Iterator[Portion]:
        """What ``land_next`` lands, in portions; each is landed when it is asked for, the last one says that it is."""
        newest = self.place.newest_range(after)
        put = 0
        if newest is not None:
            put = self._complete_range(newest) if newest.is_landed or self.reader is None else self._land_claimed(after)
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

    def waiting_splits(self, after: str = "") -> list[source_ports.SourceSplit]:
        """What the source has that nobody has claimed, as splits of the source; writes nothing."""
        newest = self.place.newest_range(after)
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

    def _wanted_range(self, number: int, splits: tuple[source_ports.SourceSplit, ...], mark: str) -> LandedRange:
        """The range to claim for ``splits``, which end at ``mark``; without any split there is none to claim."""
        return LandedRange(number, splits, mark, is_landed=self.reader is not None)

    def _claim_range(self, wanted_range: LandedRange) -> LandedRange:
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

    def _check_is_free(self, wanted_range: LandedRange) -> None:
        """Raises SplitGoneError where there are files of a range that nobody has claimed: its claim is gone, and files
        of another one would be mixed with them.
        """
        if (
            wanted_range.is_landed
            and self.place.files_of(wanted_range)
            and wanted_range.number not in self.place.claimed_numbers("")
        ):
            path = self.place.claim_path(wanted_range.number)
            raise source_ports.SplitGoneError(path, "is gone, and files of it are there", way_on(path))

    def _land_claimed(self, after_path: str) -> int:
        """Put the files of ranges that were claimed alone, while the source was read where it is, from the one on that
        was read last.
        """
        return sum(
            self._complete_range(self.place.claimed_range(number)) for number in self.place.claimed_numbers(after_path)
        )

    def _complete_range(self, claim: LandedRange, *, is_new: bool = False) -> int:
        """Put those files of a range that are not there, and seal it; how many were put. ``is_new``: none is there."""
        seal = None if is_new else self.place.read_seal(claim.number)
        if self.reader is None:
            if seal is None:
                self.place.put_seal(RangeSeal(claim))
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
            with suppress(LandedDamagedError):  # what is no whole file is held against nothing; reading it says so
                landed_numbers = {*range(len(claim.splits))} - {*files}
                files |= {number: self._put_before(claim, number) for number in landed_numbers}
                self.place.put_seal(RangeSeal(claim, tuple(files[number] for number in range(len(claim.splits)))))
        return len(missing)

    def _put_before(self, claim: LandedRange, number: int) -> SealedFile:
        """What a file is that another lander has put. Raises LandedDamagedError."""
        path = self.place.file_path(claim, number)
        data = self.place.store.read(path)
        as_fetched(data, path)
        return SealedFile.from_data(data)

    def _put(
        self,
        reader: source_ports.FetchingReader,
        claim: LandedRange,
        sealed_files: Mapping[int, SealedFile],
        number: int,
    ) -> SealedFile:
        """Put a file, which is the same as that of the number in ``sealed_files``, if there is one; what it is."""
        path, data = self.place.file_path(claim, number), encode_table(reader.fetch(claim.splits[number]))
        file = SealedFile.from_data(data)
        if sealed_files.get(number, file) != file:
            raise LandedDamagedError(path, "is gone, and the source gives other bytes in its place")
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

    def _wanted_range(self, number: int, splits: tuple[source_ports.SourceSplit, ...], mark: str) -> LandedRange:
        (split,) = splits
        written_splits = self.writer.write(split, self.place.written_folder(number, self.writer.new_attempt()))
        return LandedRange(number, tuple(written_splits), mark, is_landed=False)


def encode_table(fetched: "pa.Table") -> bytes:
    """The content of a file with the records that were ``fetched``."""
    import pyarrow.parquet as pq

    content = io.BytesIO()
    pq.write_table(fetched, content, compression="zstd", compression_level=1, write_statistics=False)
    return content.getvalue()


class LandedPortions:
    """What the ``landers`` of a run land, by input, each ``after`` a file up to which all are there, ``most`` at once.

    ``left``: about how many bytes inputs have that are not landed yet; an input of which all is landed is not there.
    """

    def __init__(
        self, landers: Mapping[str, Lander], after: Mapping[str, str], most: Mapping[str, PortionSize]
    ) -> None:
        self._portions: dict[str, Iterator[Portion]] = {
            name: lander.land_portions(after.get(name, ""), most[name]) for name, lander in landers.items()
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
