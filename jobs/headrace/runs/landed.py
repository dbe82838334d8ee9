"""Upkeep of landed records: they expire with the snapshots that would read them again, and are checked until then."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import groupby

from headrace.read.snapshots.progress import StoredProgress
from headrace.sources.landed.ranges import LandedRange
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.codec import BrokenObjectError, NewerFormatError, decode
from headrace_snapshots.format.entry import Entry
from headrace_snapshots.fsck import BACKUP, Problem
from headrace_snapshots.layout import (
    LandedFile,
    ObjectKind,
    claimed_range,
    folder,
    kind_of,
    landed_file,
    landed_input,
)
from headrace_snapshots.store import ObjectInfo, ObjectNotFoundError

_BEGINNING = LandedFile(-1, 0, 0)


def live_landed(
    listed: Collection[ObjectInfo], kept: Collection[str], notes: dict[str, str], *, catalog: Catalog
) -> set[str]:
    """Find the landed objects that some kept snapshot would read again, or has not read yet: the ranges of each input
    from the first on that one of them has not read to its end, and always the newest, from which landing goes on.
    """
    if not listed:
        return set()
    read = _read_by_all(catalog, kept)
    live: set[str] = set()
    for where, objects in _by_input(catalog.pipeline, listed):
        numbers = {path: _number(catalog.pipeline, path) for path in objects}
        if not any(landed_file(catalog.pipeline, path) for path in objects):
            live |= (
                numbers.keys()
            )  # nothing but claims: the source keeps the records, and a backfill may begin anywhere
            continue
        last = read.get(where, _BEGINNING)
        first = last.range + (last.number == last.last)
        live |= {path for path, number in numbers.items() if number >= min(first, max(numbers.values()))}
    return live


def check_landed(catalog: Catalog, entries: Iterable[Entry], kept: Collection[str]) -> Iterator[Problem]:
    """Landed records that kept snapshots would read again, or have not read: each range is claimed, and whole."""
    listed = [*catalog.store.list(folder(catalog.pipeline, ObjectKind.LANDED))]
    ours = [info for info in listed if kind_of(catalog.pipeline, info.path) is ObjectKind.LANDED]
    live = live_landed(ours, kept, {}, catalog=catalog)
    for where, objects in _by_input(catalog.pipeline, [info for info in ours if info.path in live]):
        yield from _problems(catalog, where, objects)


def _problems(catalog: Catalog, where: str, objects: Collection[str]) -> Iterator[Problem]:
    claims = {number: path for path in objects if (number := claimed_range(catalog.pipeline, path)) is not None}
    files = sorted(file for path in objects if (file := landed_file(catalog.pipeline, path)) is not None)
    there = {number: [file.number for file in group] for number, group in groupby(files, lambda file: file.range)}
    numbers = {*claims, *there}
    needed_by = "the next run, and replays of what came since"
    remedy = f"{BACKUP}; without it, nobody can read the records again"
    for number in range(min(numbers), max(numbers) + 1):
        path = f"{where}_ranges/{number:020d}.json"
        if number not in claims:
            yield Problem(path, "it is missing", needed_by, f"{BACKUP}")
            continue
        try:
            claimed = decode("landed_range", catalog.store.read(path), path, LandedRange.from_json)
        except (BrokenObjectError, NewerFormatError, ObjectNotFoundError) as error:
            yield Problem(path, str(error), needed_by, f"{BACKUP}")
            continue
        missing = {*range(len(claimed.splits))} - {*there.get(number, ())} if claimed.is_landed else set()
        if missing and number < max(numbers):  # the newest may be on its way
            split = claimed.splits[min(missing)].path
            problem = f"{len(missing)} of its {len(claimed.splits)} files are missing, such as that of {split}"
            yield Problem(path, problem, needed_by, remedy)


def _read_by_all(catalog: Catalog, kept: Collection[str]) -> Mapping[str, LandedFile]:
    """Up to which file, by folder, every kept snapshot has read; a branch without a snapshot has read nothing."""
    head = catalog.head()
    if head.generations.keys() - head.refs.keys():
        return {}
    least: dict[str, LandedFile] | None = None
    for snapshot in kept:
        marks = StoredProgress.of(catalog.manifest(snapshot)).marks
        own = {
            where: file
            for mark in marks.values()
            if (where := landed_input(catalog.pipeline, mark.path)) is not None
            and (file := landed_file(catalog.pipeline, mark.path)) is not None
        }
        least = own if least is None else {name: min(least[name], own[name]) for name in least.keys() & own.keys()}
    return least or {}


def _by_input(pipeline: str, listed: Iterable[ObjectInfo]) -> Iterator[tuple[str, list[str]]]:
    """The paths of landed objects by the folder of their input."""
    by_folder: dict[str, list[str]] = {}
    for info in listed:
        where = landed_input(pipeline, info.path)
        assert where is not None, "objects with other names are not listed"
        by_folder.setdefault(where, []).append(info.path)
    yield from by_folder.items()


def _number(pipeline: str, path: str) -> int:
    """The range that a landed object is of."""
    claimed, file = claimed_range(pipeline, path), landed_file(pipeline, path)
    return claimed if claimed is not None else -1 if file is None else file.range
