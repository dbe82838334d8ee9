"""The ranges of an input: which records of its source are in which files."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Self

from headrace.model.time import Instant
from headrace.sources.connector import SourceSplit, SplitGoneError
from headrace_snapshots.format.codec import Fields, decode, encode
from headrace_snapshots.layout import (
    LandedFile,
    claimed_range,
    landed_file,
    landed_folder,
    landed_path,
    range_path,
    ranges_folder,
    written_folder,
)
from headrace_snapshots.store import ObjectInfo, ObjectStore

_KIND = "landed_range"


@dataclass(frozen=True)
class LandedRange:
    """Range ``number``: the ``splits`` of the source that its files have, one each, and the position of the source
    after them. Unless it ``is_landed`` it has no files, and its splits are read where they are.
    """

    number: int
    splits: tuple[SourceSplit, ...]
    after: str
    is_landed: bool = True

    def to_json(self) -> dict[str, Any]:
        """A JSON value; the inverse of ``from_json``."""
        splits = [{"path": split.path, "size": split.size, "etag": split.etag} for split in self.splits]
        return {"number": self.number, "splits": splits, "after": self.after, "landed": self.is_landed}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Raises MalformedError."""
        fields = Fields(value, "range")
        splits = fields.items("splits", _split_from_json)
        return cls(fields.integer("number"), splits, fields.text("after"), fields.json("landed") is True)


@dataclass(frozen=True)
class LandingPlace:
    """Where the records of an ``input`` of a ``pipeline`` are landed."""

    store: ObjectStore
    pipeline: str
    input: str

    @property
    def folder(self) -> str:
        """The folder, with a slash at its end."""
        return landed_folder(self.pipeline, self.input)

    def claim(self, claimed: LandedRange) -> None:
        """Claim a range. Raises ObjectExistsError if somebody has, and UnknownOutcomeError."""
        self.store.create(range_path(self.pipeline, self.input, claimed.number), encode(_KIND, claimed.to_json()))

    def claimed(self, number: int) -> LandedRange:
        """The range of that number. Raises ObjectNotFoundError, BrokenObjectError, NewerFormatError."""
        path = range_path(self.pipeline, self.input, number)
        return decode(_KIND, self.store.read(path), f"{self.store.uri}/{path}", LandedRange.from_json)

    def newest(self, after: str) -> LandedRange | None:
        """The range that was claimed last; looked for from the one on that has the file ``after``."""
        last = max(self.claims(after), default=None)
        return None if last is None else self.claimed(last)

    def claims(self, after: str) -> Iterator[int]:
        """The numbers of all ranges that were claimed, from the one on that has the file ``after``."""
        for info in self._claims(after):
            if (number := claimed_range(self.pipeline, info.path)) is not None:
                yield number

    def newest_at(self, after: str) -> Instant | None:
        """When the newest range was claimed; looked for from the one on that has the file ``after``. None if there is
        none, or the store does not say.
        """
        times = [info.modified for info in self._claims(after)]
        return None if not times or times[-1] is None else Instant(times[-1])

    def _claims(self, after: str) -> Iterator[ObjectInfo]:
        known = self.file(after)
        start = "" if known is None or known.range == 0 else range_path(self.pipeline, self.input, known.range - 1)
        yield from self.store.list(ranges_folder(self.pipeline, self.input), start)

    def claims_behind(self, known: LandedFile | None) -> list[int]:
        """The numbers of the ranges that have files behind the ``known`` one, or begin with it; without one, all that
        there are. Raises SplitGoneError where claims of them are gone.
        """
        if known is None:
            numbers = [*self.claims("")]
            begin = min(numbers, default=0)
        else:
            begin = known.range + (known.number == known.last)
            after = landed_path(self.pipeline, self.input, known, "-")
            numbers = [number for number in self.claims(after) if number >= begin]
        for expected, number in enumerate(numbers, begin):
            if number != expected:
                raise SplitGoneError(range_path(self.pipeline, self.input, expected), "is gone")
        return numbers

    def path(self, claimed: LandedRange, number: int) -> str:
        """Where file ``number`` of a range is."""
        file = LandedFile(claimed.number, number, len(claimed.splits) - 1)
        return landed_path(self.pipeline, self.input, file, claimed.splits[number].path)

    def written_folder(self, number: int, attempt: str) -> str:
        """The folder of one ``attempt`` at writing range ``number``, with a slash at its end."""
        return written_folder(self.pipeline, self.input, number, attempt)

    def files_of(self, claimed: LandedRange) -> set[str]:
        """The paths of the files of a range that are there."""
        return {info.path for info in self.store.list(f"{self.folder}{claimed.number:020d}-")}

    def file(self, path: str) -> LandedFile | None:
        """Which file the one at ``path`` is; None if it is none."""
        return landed_file(self.pipeline, path)

    def files(self, after: str) -> Iterator[ObjectInfo]:
        """All files that sort after the one called ``after``."""
        for info in self.store.list(self.folder, after):
            if self.file(info.path) is None:  # the ranges come behind them
                return
            yield info


def _split_from_json(fields: Fields) -> SourceSplit:
    return SourceSplit(fields.text("path"), fields.integer("size"), fields.text("etag"))


def unread_files(place: LandingPlace, after: str) -> Iterator[ObjectInfo]:
    """The files behind the one called ``after``, in order, as far as ranges are whole: the newest may be on its way.

    Raises SplitGoneError where files are gone that nobody has read. If nothing was read before (``after`` is empty), it
    begins with the first range that has not expired in part.
    """
    groups = [[*files] for _, files in groupby(place.files(after), lambda info: _file(place, info).range)]
    known = place.file(after)
    expected = None if known is None else _next(known)
    for position, infos in enumerate(groups):
        files = [_file(place, info) for info in infos]
        first, is_newest = files[0], position == len(groups) - 1
        begin = expected or LandedFile(first.range, 0, first.last)
        is_next = first.range == begin.range
        if is_next and [file.number for file in files] == [*range(begin.number, first.last + 1)]:
            yield from infos
            expected = _next(files[-1])
        elif is_newest and is_next:
            return
        elif expected is not None:
            raise SplitGoneError(f"{place.folder}{begin.range:020d}-{begin.number:05d}-...", "is gone")


def _next(file: LandedFile) -> LandedFile:
    if file.number == file.last:
        return LandedFile(file.range + 1, 0, 0)
    return LandedFile(file.range, file.number + 1, file.last)


def _file(place: LandingPlace, info: ObjectInfo) -> LandedFile:
    file = place.file(info.path)
    assert file is not None, "only such are listed"
    return file
