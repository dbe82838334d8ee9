"""The ranges of an input: which records of its source are in which files, and what these files are held against.

A run's first act is to claim what is new as a *range*, by a conditional put (``_ranges/{n}.json``). Then it writes the
files of the range, which are named by it. The ranges of an input are one chain. Each begins where the one before it
ended, and none is claimed before all files of the one before it are there. So only the newest may lack files, and the
next lander writes those before anything else. Each file is put once, whole; where two write the same, one counts.
Readers take files in the order of their names, as far as ranges are whole. A range that is whole is sealed: its seal
(``_ranges/{n}.seal.json``) has the claim again, and what each file is held against when it is read.

From there on it is files: a replay, a backfill, a recovery and both executors read the same bytes. They expire with the
snapshots that would read them again (``runs/maintenance``).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Self

import xxhash

from headrace.errors import FixDataError
from headrace.ext.sources import SourceSplit, SplitGoneError
from headrace.model.time import Instant
from headrace_snapshots import names as object_names
from headrace_snapshots import store as object_stores
from headrace_snapshots.format.codec import (
    BrokenObjectError,
    Fields,
    MalformedError,
    checksum,
    decode_object,
    encode_object,
)


def digest_of(data: bytes) -> str:
    """XXH3 with 64 bits: made to find damage, not to withstand forgery."""
    return f"xxh3-{xxhash.xxh3_64(data).hexdigest()}"


class LandedDamagedError(FixDataError, code="data.landed_damaged"):
    """A landed file has another content than it had when its range was sealed."""

    def __init__(self, path: str, how: str) -> None:
        super().__init__(f"{path}, which has landed records, {how}. {way_on(path)}")


def way_on(path: str) -> str:
    """What helps a run that needs a landed object which is damaged, or gone: often the only copy of its records."""
    pipeline = path.partition("/")[0]
    return (
        f"Bring it back from a backup. Without one `headrace fsck {pipeline}` says which snapshot to roll back to, if "
        "any, and which objects to delete. Then runs land again what the source still has"
    )


_CLAIM_KIND: Final = "landed_range"
_SEAL_KIND: Final = "landed_seal"


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
        splits = [{"path": split.path, "size": split.size, "etag": split.etag} for split in self.splits]
        return {"number": self.number, "splits": splits, "after": self.after, "landed": self.is_landed}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Raises MalformedError."""
        fields = Fields(value, "range")
        splits = fields.items("splits", _split_from_json)
        return cls(fields.integer("number"), splits, fields.text("after"), fields.json("landed") is True)


@dataclass(frozen=True)
class SealedFile:
    """A landed file as it was when its range was whole: ``size`` in bytes, and hex SHA-256 of the content."""

    size: int
    sha256: str

    @classmethod
    def from_data(cls, data: bytes) -> Self:
        return cls(len(data), checksum(data))


@dataclass(frozen=True)
class RangeSeal:
    """What is noted of a range once it is whole: ``range`` as it was claimed, and its ``files``, in order; none where
    there are no files but those that the claim itself names.
    """

    range: LandedRange
    files: tuple[SealedFile, ...] = ()

    def to_json(self) -> dict[str, Any]:
        files = [{"size": file.size, "sha256": file.sha256} for file in self.files]
        return {"range": self.range.to_json(), "files": files}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Raises MalformedError."""
        fields = Fields(value, "seal")
        claim = LandedRange.from_json(fields.fields("range").value)
        files = fields.items("files", lambda file: SealedFile(file.integer("size"), file.text("sha256")))
        if len(files) not in (0, len(claim.splits)):
            raise MalformedError(f"it has {len(files)} files for {len(claim.splits)} splits")
        return cls(claim, files)


@dataclass(frozen=True)
class LandingPlace:
    """Where the records of an ``input`` of a ``pipeline`` are landed."""

    store: object_stores.ObjectStore
    pipeline: str
    input: str

    @property
    def folder(self) -> str:
        """The folder, with a slash at its end."""
        return object_names.landed_folder(self.pipeline, self.input)

    def claim_range(self, landed_range: LandedRange) -> None:
        """Claim a range. Raises ObjectExistsError if somebody has, and UnknownOutcomeError."""
        self.store.create(self.claim_path(landed_range.number), self.encoded_claim(landed_range))

    def encoded_claim(self, landed_range: LandedRange) -> bytes:
        """The object that claims a range. It says whose it is, and that a seal comes once the range is whole."""
        return encode_object(_CLAIM_KIND, landed_range.to_json() | {"of": self.folder, "sealed": True})

    def claimed_range(self, number: int) -> LandedRange:
        """The range of that number, as its claim says, or where that is broken or gone, its seal.

        Raises SplitGoneError, BrokenObjectError, NewerFormatError.
        """
        path = self.claim_path(number)
        try:
            return self.claim_alone(number)[0]
        except (object_stores.ObjectNotFoundError, BrokenObjectError) as error:
            if (seal := self.read_seal(number)) is not None:
                return seal.range
            if isinstance(error, object_stores.ObjectNotFoundError):
                raise SplitGoneError(path, "is gone", way_on(path)) from error
            raise BrokenObjectError(f"{error}. {way_on(path)}") from error

    def claim_alone(self, number: int) -> tuple[LandedRange, bool]:
        """What the claim of that number says, and whether it promises a seal.

        Raises ObjectNotFoundError, BrokenObjectError, NewerFormatError.
        """
        path = self.claim_path(number)

        def parse_claim(value: Any) -> tuple[LandedRange, bool]:
            claim, fields = LandedRange.from_json(value), Fields(value, "range")
            self._check_is_here(fields, claim, number)
            return claim, fields.value.get("sealed") is True

        return decode_object(_CLAIM_KIND, self.store.read(path), f"{self.store.uri}/{path}", parse_claim)

    def read_seal(self, number: int) -> RangeSeal | None:
        """The seal of a range; None where there is none that can be read: then its files are held against nothing."""
        path = object_names.seal_path(self.pipeline, self.input, number)

        def parse_seal(value: Any) -> RangeSeal:
            seal = RangeSeal.from_json(value)
            self._check_is_here(Fields(value, "seal"), seal.range, number)
            return seal

        try:
            return decode_object(_SEAL_KIND, self.store.read(path), f"{self.store.uri}/{path}", parse_seal)
        except (object_stores.ObjectNotFoundError, BrokenObjectError):  # fsck says so, and makes another
            return None

    def encoded_seal(self, seal: RangeSeal) -> bytes:
        """The object that is the seal of a range."""
        return encode_object(_SEAL_KIND, seal.to_json() | {"of": self.folder})

    def put_seal(self, seal: RangeSeal) -> None:
        """Store the seal of a range, which of two that do so is the same. One without files gives way to one with.

        Raises UnknownOutcomeError where it is not there.
        """
        path, data = object_names.seal_path(self.pipeline, self.input, seal.range.number), self.encoded_seal(seal)
        try:
            self.store.create(path, data)
        except object_stores.ObjectExistsError:
            stored_seal = self.read_seal(seal.range.number)
            if stored_seal is None or len(stored_seal.files) < len(seal.files):
                self.store.write(path, data)
        except object_stores.UnknownOutcomeError:
            if self.read_seal(seal.range.number) is None:
                raise

    def _check_is_here(self, fields: Fields, claim: LandedRange, number: int) -> None:
        """Raises MalformedError for what was written elsewhere; claims of 0.1.2 do not say of which input they are."""
        if claim.number != number:
            raise MalformedError(f"it is of range {claim.number}, not {number}")
        if fields.value.get("of", self.folder) != self.folder:
            raise MalformedError(f"it is of {fields.text('of')}, not {self.folder}")

    def claim_path(self, number: int) -> str:
        return object_names.range_path(self.pipeline, self.input, number)

    def newest_range(self, after_path: str) -> LandedRange | None:
        """The range that was claimed last; looked for from the one on that has the file ``after_path``, of which is
        known that it is landed. Raises SplitGoneError where that is not so any more, and what ``claimed_range`` raises.
        """
        numbers = self.claimed_numbers(after_path)
        newest = self.claimed_range(numbers[-1]) if numbers else None
        landed_file = self.landed_file(after_path)
        if landed_file is None or not after_path.startswith(self.folder):
            return newest
        path = self.claim_path(landed_file.range)
        is_read = landed_file.number == landed_file.last and landed_file.range + 1 in numbers
        if landed_file.range not in numbers:
            if is_read:  # it has expired
                return newest
            raise SplitGoneError(path, "is gone", way_on(path))
        try:
            read = (
                newest
                if newest is not None and newest.number == landed_file.range
                else self.claimed_range(landed_file.range)
            )
        except BrokenObjectError:
            if is_read:  # fsck says so; nothing of it is needed here
                return newest
            raise
        if landed_file.number >= len(read.splits) or self.file_path(read, landed_file.number) != after_path:
            raise SplitGoneError(path, f"is not the range that was read: that one has {after_path}", way_on(path))
        return newest

    def claimed_numbers(self, after_path: str) -> list[int]:
        """The numbers of all ranges that were claimed, in order, from the one on that has the file ``after_path``."""
        landed_file = self.landed_file(after_path)
        first = 0 if landed_file is None else landed_file.range
        numbers = {self._range_number(info.path) for info in self._list_claims(after_path)}
        return sorted(number for number in numbers if number is not None and number >= first)

    def newest_at(self, after_path: str) -> Instant | None:
        """When the newest range was claimed; looked for from the one on that has the file ``after_path``. None if there
        is none, or the store does not say.
        """
        times = [info.modified for info in self._list_claims(after_path) if self._range_number(info.path) is not None]
        return None if not times or times[-1] is None else Instant(times[-1])

    def _range_number(self, path: str) -> int | None:
        """The range whose claim or seal is at ``path``."""
        range_number = object_names.claimed_range(self.pipeline, path)
        return object_names.sealed_range(self.pipeline, path) if range_number is None else range_number

    def _list_claims(self, after_path: str) -> Iterator[object_stores.ObjectInfo]:
        landed_file = self.landed_file(after_path)
        start = "" if landed_file is None or landed_file.range == 0 else self.claim_path(landed_file.range - 1)
        yield from self.store.list(object_names.ranges_folder(self.pipeline, self.input), start)

    def claims_behind(self, known_file: object_names.LandedFile | None) -> list[int]:
        """The numbers of the ranges that have files behind ``known_file``, or begin with it; without one, all that
        there are. Raises SplitGoneError where claims of them are gone.
        """
        if known_file is None:
            numbers = self.claimed_numbers("")
            begin = min(numbers, default=0)
        else:
            begin = known_file.range + (known_file.number == known_file.last)
            after_path = object_names.landed_path(self.pipeline, self.input, known_file, "-")
            numbers = [number for number in self.claimed_numbers(after_path) if number >= begin]
        for expected, number in enumerate(numbers, begin):
            if number != expected:
                path = self.claim_path(expected)
                raise SplitGoneError(path, "is gone", way_on(path))
        return numbers

    def file_path(self, landed_range: LandedRange, number: int) -> str:
        file = object_names.LandedFile(landed_range.number, number, len(landed_range.splits) - 1)
        return object_names.landed_path(self.pipeline, self.input, file, landed_range.splits[number].path)

    def written_folder(self, number: int, attempt: str) -> str:
        """The folder of one ``attempt`` at writing range ``number``, with a slash at its end."""
        return object_names.written_folder(self.pipeline, self.input, number, attempt)

    def files_of(self, landed_range: LandedRange) -> set[str]:
        """The paths of the files of a range that are there."""
        return {info.path for info in self.store.list(f"{self.folder}{landed_range.number:020d}-")}

    def landed_file(self, path: str) -> object_names.LandedFile | None:
        """Which file the one at ``path`` is; None if it is none."""
        return object_names.landed_file(self.pipeline, path)

    def list_files(self, after_path: str) -> Iterator[object_stores.ObjectInfo]:
        """All files that sort after the one called ``after_path``."""
        for info in self.store.list(self.folder, after_path):
            if self.landed_file(info.path) is None:  # the ranges come behind them
                return
            yield info


def _split_from_json(fields: Fields) -> SourceSplit:
    return SourceSplit(fields.text("path"), fields.integer("size"), fields.text("etag"))


def unread_files(place: LandingPlace, after_path: str) -> Iterator[object_stores.ObjectInfo]:
    """The files behind the one called ``after_path``, in order, as far as ranges are whole: the newest may be on its
    way.

    Raises SplitGoneError where files are gone that nobody has read. If nothing was read before (``after_path`` is
    empty), it begins with the first range that has not expired in part."""
    groups = [
        [*files] for _, files in groupby(place.list_files(after_path), lambda info: _landed_file(place, info).range)
    ]
    landed_file = place.landed_file(after_path)
    expected = None if landed_file is None else _next_file(landed_file)
    for position, infos in enumerate(groups):
        files = [_landed_file(place, info) for info in infos]
        first, is_newest = files[0], position == len(groups) - 1
        begin = expected or object_names.LandedFile(first.range, 0, first.last)
        is_next = first.range == begin.range
        if is_next and [file.number for file in files] == [*range(begin.number, first.last + 1)]:
            yield from infos
            expected = _next_file(files[-1])
        elif is_newest and is_next:
            return
        elif expected is not None:
            path = f"{place.folder}{begin.range:020d}-{begin.number:05d}-..."
            raise SplitGoneError(path, "is gone", way_on(path))


def _next_file(file: object_names.LandedFile) -> object_names.LandedFile:
    if file.number == file.last:
        return object_names.LandedFile(file.range + 1, 0, 0)
    return object_names.LandedFile(file.range, file.number + 1, file.last)


def _landed_file(place: LandingPlace, info: object_stores.ObjectInfo) -> object_names.LandedFile:
    file = place.landed_file(info.path)
    assert file is not None, "only such are listed"
    return file
