"""What fsck finds wrong with landed records that kept snapshots would read again, or have not read."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from headrace.read.snapshots.landed_reading import LandedReading, before_range
from headrace.runs.landed import by_input, live_landed, place_of, range_of
from headrace.sources.landed.damage import LandedDamagedError
from headrace.sources.landed.digests import digest_of
from headrace.sources.landed.files import as_fetched
from headrace.sources.landed.ranges import LandedRange, LandingPlace, RangeSeal, SealedFile
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError, NewerFormatError
from headrace_snapshots.format.entry import Entry
from headrace_snapshots.fsck import BACKUP, Problem
from headrace_snapshots.layout import ObjectKind, folder, kind_of, seal_path, written_attempt
from headrace_snapshots.store import ObjectInfo, ObjectNotFoundError

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
