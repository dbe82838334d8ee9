"""Landed records: they expire with the snapshots that would read them again, and fsck looks at them.

Landed records expire with the snapshots that would read them again; what names their objects for others, too.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from urllib.parse import unquote

from headrace.ext.sources import SplitGoneError
from headrace.read.snapshots.epoch_history import LandedReading, before_range
from headrace.sources.landed.files import as_fetched
from headrace.sources.landed.ranges import (
    LandedDamagedError,
    LandedRange,
    LandingPlace,
    RangeSeal,
    SealedFile,
    digest_of,
)
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError, NewerFormatError
from headrace_snapshots.format.entry import Entry
from headrace_snapshots.fsck import BACKUP, Problem
from headrace_snapshots.layout import (
    ObjectKind,
    claimed_range,
    folder,
    kind_of,
    landed_file,
    landed_input,
    seal_path,
    sealed_range,
    written_attempt,
)
from headrace_snapshots.store import ObjectInfo, ObjectNotFoundError


def live_landed(
    listed: Collection[ObjectInfo], kept: Collection[str], notes: dict[str, str], *, catalog: Catalog
) -> set[str]:
    """Find the landed objects that some kept snapshot would read again, or has not read yet: the ranges of each input
    from the first on that one of them has not read to its end, and always the newest, from which landing goes on. Of an
    input that has left the definition no run lands any more: only what kept snapshots that have it would read.
    """
    if not listed:
        return set()
    reading = LandedReading.of(catalog, kept)
    live: set[str] = set()
    for where, infos in by_input(catalog.pipeline, listed):
        objects = [info.path for info in infos]
        numbers = {path: range_of(catalog.pipeline, path) for path in objects}
        has_left = reading.has_left(where, infos)
        if has_left and not reading.is_read(where):
            continue
        if not any(_has_records(catalog.pipeline, path) for path in objects):
            live |= numbers.keys()  # claims alone: the source keeps the records, and a backfill may begin anywhere
            continue
        last = reading.read_by_all(where, has_left=has_left)
        first = last.range + (last.number == last.last)
        if not has_left:
            first = min(first, _newest(catalog.pipeline, numbers))
        kept_objects = {path for path, number in numbers.items() if number >= first}
        live |= kept_objects - _overtaken(catalog, kept_objects)
    return live


def _newest(pipeline: str, numbers: Mapping[str, int]) -> int:
    """The newest range; what was written and not claimed yet is none."""
    return max((number for path, number in numbers.items() if written_attempt(pipeline, path) is None), default=0)


def _overtaken(catalog: Catalog, objects: Collection[str]) -> set[str]:
    """Files that were written for a range by others than those whose files it claims. What no range claims yet may
    be on its way.
    """
    attempts: dict[int, dict[str, list[str]]] = {}
    for path in objects:
        if (written := written_attempt(catalog.pipeline, path)) is not None:
            number, attempt = written
            attempts.setdefault(number, {}).setdefault(attempt, []).append(path)
    overtaken: set[str] = set()
    for number, several in attempts.items():
        if len(several) > 1 and (claimed := _claimed(catalog, objects, number)) is not None:
            named = {split.path for split in claimed.splits}
            overtaken |= {path for paths in several.values() if named.isdisjoint(paths) for path in paths}
    return overtaken


def _claimed(catalog: Catalog, objects: Collection[str], number: int) -> LandedRange | None:
    """Range ``number`` of the input that the ``objects`` are of; None if nobody has claimed it, or its claim and its
    seal are damaged, of which fsck tells.
    """
    claims = {_claim_or_seal(catalog.pipeline, path): path for path in objects}
    if number not in claims:
        return None
    with suppress(BrokenObjectError, SplitGoneError):
        return place_of(catalog, claims[number]).claimed(number)
    return None


def place_of(catalog: Catalog, path: str) -> LandingPlace:
    """Where the input is landed that the object at ``path`` is of."""
    where = landed_input(catalog.pipeline, path)
    assert where is not None, "only such are listed"
    return LandingPlace(catalog.store, catalog.pipeline, unquote(where.rstrip("/").rpartition("/")[2]))


def by_input(pipeline: str, listed: Iterable[ObjectInfo]) -> Iterator[tuple[str, list[ObjectInfo]]]:
    """Landed objects by the folder of their input."""
    by_folder: dict[str, list[ObjectInfo]] = {}
    for info in listed:
        where = landed_input(pipeline, info.path)
        assert where is not None, "objects with other names are not listed"
        by_folder.setdefault(where, []).append(info)
    yield from by_folder.items()


def _has_records(pipeline: str, path: str) -> bool:
    """Whether a landed object has records, and does not only say where they are."""
    return _claim_or_seal(pipeline, path) is None


def _claim_or_seal(pipeline: str, path: str) -> int | None:
    """The range whose claim or seal is at ``path``."""
    claimed = claimed_range(pipeline, path)
    return sealed_range(pipeline, path) if claimed is None else claimed


def range_of(pipeline: str, path: str) -> int:
    """The range that a landed object is of."""
    claimed, file = _claim_or_seal(pipeline, path), landed_file(pipeline, path)
    written = written_attempt(pipeline, path)
    if written is not None:
        return written[0]
    return claimed if claimed is not None else -1 if file is None else file.range


_NEEDED_BY = "the next run, and replays of what came since"


def check_landed(
    catalog: Catalog, entries: Iterable[Entry], kept: Collection[str], *, deep: bool = False, repair: bool = False
) -> Iterator[Problem]:
    """Each range is claimed, whole, and as its seal says; ``deep``: its files are read for that. ``repair`` writes
    claims again from seals, and seals from claims and the files as they are.
    """
    listed = [*catalog.store.list(folder(catalog.pipeline, ObjectKind.LANDED))]
    ours = [info for info in listed if kind_of(catalog.pipeline, info.path) is ObjectKind.LANDED]
    readable = [snapshot for snapshot in kept if _is_readable(catalog, snapshot)]  # of others fsck has told
    live = live_landed(ours, readable, {}, catalog=catalog)
    reading = LandedReading.of(catalog, readable)
    for where, infos in by_input(catalog.pipeline, ours):
        needed = {info.path: info for info in infos if info.path in live}
        if needed:
            yield from _InputCheck(catalog, where, needed, deep=deep, repair=repair).problems(reading)


def _is_readable(catalog: Catalog, snapshot: str) -> bool:
    try:
        catalog.manifest(snapshot)
    except (BrokenObjectError, MissingSnapshotError):
        return False
    return True


@dataclass(frozen=True)
class _InputCheck:
    """The landed objects of an input, with its folder, that somebody needs."""

    catalog: Catalog
    where: str
    objects: Mapping[str, ObjectInfo]
    deep: bool
    repair: bool

    @cached_property
    def place(self) -> LandingPlace:
        return place_of(self.catalog, next(iter(self.objects)))

    def problems(self, reading: LandedReading) -> Iterator[Problem]:
        attempts = {path for path in self.objects if written_attempt(self.catalog.pipeline, path) is not None}
        numbers = {range_of(self.catalog.pipeline, path) for path in self.objects.keys() - attempts}
        read = reading.furthest(self.where)
        has_left = reading.has_left(self.where, [*self.objects.values()])
        if read is not None and not has_left and read.range > max(numbers, default=-1):
            numbers.add(read.range)  # it has been read, so it was there
        if not numbers:  # a job that writes the first range
            return
        for number in range(min(numbers), max(numbers) + 1):
            yield from self._of_range(number, is_newest=number == max(numbers))

    def _of_range(self, number: int, *, is_newest: bool) -> Iterator[Problem]:
        path, seal = self.place.claim_path(number), self.place.seal(number)
        try:
            claimed, promises = self.place.claim_alone(number)
        except (BrokenObjectError, NewerFormatError, ObjectNotFoundError) as error:
            problem = "it is missing" if isinstance(error, ObjectNotFoundError) else str(error)
            if seal is None or isinstance(error, NewerFormatError):
                yield Problem(path, problem, _NEEDED_BY, self._way_on(number))
                return
            yield self._written_again(path, problem, self.place.encoded_claim(seal.range))
            claimed, promises = seal.range, True
        if seal is not None and seal.range != claimed and (seal.range.is_landed or not claimed.is_landed):
            yield Problem(path, "it is another claim than its seal says", _NEEDED_BY, self._way_on(number))
            return
        wrong = [*self._files(claimed, seal, is_newest=is_newest)]
        yield from wrong
        is_broken = seal is None and seal_path(self.catalog.pipeline, self.place.input, number) in self.objects
        is_gone = seal is None and promises and not is_newest  # of the newest, the next run makes another
        if (is_broken or is_gone) and not wrong:
            yield self._sealed_again(claimed)

    def _written_again(self, path: str, problem: str, data: bytes) -> Problem:
        remedy = f"{BACKUP}; or `headrace fsck {self.catalog.pipeline} --repair` writes it again"
        damage = Problem(path, problem, _NEEDED_BY, remedy)
        if not self.repair:
            return damage
        self.catalog.store.write(path, data)
        return replace(damage, remedy="it was written again from what is beside it", is_repaired=True)

    def _sealed_again(self, claimed: LandedRange) -> Problem:
        """The seal is gone, or broken: its files are held against nothing until there is another."""
        path = seal_path(self.catalog.pipeline, self.place.input, claimed.number)
        problem = "it is broken" if path in self.objects else "it is missing"
        paths = [self.place.path(claimed, number) for number in range(len(claimed.splits))] if claimed.is_landed else []
        files = tuple(SealedFile.of(self.catalog.store.read(path)) for path in paths) if self.repair else ()
        return self._written_again(
            path,
            f"{problem}: files of the range are held against nothing",
            self.place.encoded_seal(RangeSeal(claimed, files)),
        )

    def _files(self, claimed: LandedRange, seal: RangeSeal | None, *, is_newest: bool) -> Iterator[Problem]:
        """What is wrong with the files of a range: those that are landed, or that were written before."""
        splits = {
            number: self.place.path(claimed, number) if claimed.is_landed else split.path
            for number, split in enumerate(claimed.splits)
            if claimed.is_landed or written_attempt(self.catalog.pipeline, split.path)
        }
        missing = [number for number, path in splits.items() if path not in self.objects]
        remedy = self._way_on(claimed.number)
        if missing and not (claimed.is_landed and is_newest and seal is None):  # the newest may be on its way
            split = claimed.splits[missing[0]].path
            problem = f"{len(missing)} of its {len(claimed.splits)} files are missing, such as that of {split}"
            yield Problem(self.place.claim_path(claimed.number), problem, _NEEDED_BY, remedy)
        for number, path in splits.items():
            wrong = None if number in missing else self._content(path, claimed, seal, number)
            if wrong is not None:
                yield Problem(path, wrong, _NEEDED_BY, remedy)

    def _content(self, path: str, claimed: LandedRange, seal: RangeSeal | None, number: int) -> str | None:
        """What is wrong with a file that is there."""
        sealed = seal.files[number] if seal is not None and seal.files else None
        size = sealed.size if sealed is not None else None if claimed.is_landed else claimed.splits[number].size
        if size is not None and self.objects[path].size != size:
            return f"it has {self.objects[path].size} bytes, and had {size} when it was landed"
        if not self.deep:
            return None
        data = self.catalog.store.read(path)
        if not claimed.is_landed:
            is_same = digest_of(data) == claimed.splits[number].etag
            return None if is_same else "it has another content than when it was written"
        if sealed is not None:
            return "it has another content than when it was landed" if SealedFile.of(data) != sealed else None
        try:
            as_fetched(data, path)
        except LandedDamagedError as error:
            return str(error)
        return None

    def _way_on(self, number: int) -> str:
        """What helps where there is no backup."""
        name, where = self.catalog.pipeline, self.where
        main = self.catalog.head().refs.get("main")
        before = before_range(self.catalog, where, number)
        back = "" if before == main else f"`headrace rollback {name} --to {before or 'beginning'}`, then "
        return (
            f"{BACKUP}; without one {back}delete what {where} has of range {number} and later ({number:020d}-* and "
            f"_ranges/{number:020d}.*, all behind them, _written/{number:020d}-*): the next run lands again what the "
            "source still has"
        )
