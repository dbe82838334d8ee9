"""Upkeep of landed records: they expire with the snapshots that would read them again, and are checked until then."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import groupby

from headrace.read.snapshots.landed_reading import LandedReading
from headrace.sources.landed.ranges import LandedRange
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.codec import BrokenObjectError, NewerFormatError, decode
from headrace_snapshots.format.entry import Entry
from headrace_snapshots.fsck import BACKUP, Problem
from headrace_snapshots.layout import (
    ObjectKind,
    claimed_range,
    folder,
    kind_of,
    landed_file,
    landed_input,
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
    for where, infos in _by_input(catalog.pipeline, listed):
        objects = [info.path for info in infos]
        numbers = {path: _number(catalog.pipeline, path) for path in objects}
        has_left = reading.has_left(where, infos)
        if has_left and not reading.is_read(where):
            continue
        if not any(claimed_range(catalog.pipeline, path) is None for path in objects):
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
    claims = {claimed_range(catalog.pipeline, path): path for path in objects}
    overtaken: set[str] = set()
    for number, several in attempts.items():
        if len(several) > 1 and number in claims:
            claimed = {split.path for split in _claimed(catalog, claims[number]).splits}
            overtaken |= {path for paths in several.values() if claimed.isdisjoint(paths) for path in paths}
    return overtaken


def _claimed(catalog: Catalog, path: str) -> LandedRange:
    """The range that is claimed at ``path``. Raises what reading it raises."""
    return decode("landed_range", catalog.store.read(path), path, LandedRange.from_json)


def check_landed(catalog: Catalog, entries: Iterable[Entry], kept: Collection[str]) -> Iterator[Problem]:
    """Landed records that kept snapshots would read again, or have not read: each range is claimed, and whole."""
    listed = [*catalog.store.list(folder(catalog.pipeline, ObjectKind.LANDED))]
    ours = [info for info in listed if kind_of(catalog.pipeline, info.path) is ObjectKind.LANDED]
    live = live_landed(ours, kept, {}, catalog=catalog)
    for where, infos in _by_input(catalog.pipeline, [info for info in ours if info.path in live]):
        yield from _problems(catalog, where, [info.path for info in infos])


def _problems(catalog: Catalog, where: str, objects: Collection[str]) -> Iterator[Problem]:
    claims = {number: path for path in objects if (number := claimed_range(catalog.pipeline, path)) is not None}
    files = sorted(file for path in objects if (file := landed_file(catalog.pipeline, path)) is not None)
    there = {number: [file.number for file in group] for number, group in groupby(files, lambda file: file.range)}
    numbers = {*claims, *there}
    if not numbers:  # a job that writes the first range
        return
    needed_by = "the next run, and replays of what came since"
    remedy = f"{BACKUP}; without it, nobody can read the records again"
    for number in range(min(numbers), max(numbers) + 1):
        path = f"{where}_ranges/{number:020d}.json"
        if number not in claims:
            yield Problem(path, "it is missing", needed_by, f"{BACKUP}")
            continue
        try:
            claimed = _claimed(catalog, path)
        except (BrokenObjectError, NewerFormatError, ObjectNotFoundError) as error:
            yield Problem(path, str(error), needed_by, f"{BACKUP}")
            continue
        missing = _missing(catalog.pipeline, claimed, there.get(number, ()), objects)
        if missing and not (claimed.is_landed and number == max(numbers)):  # the newest may be on its way
            split = claimed.splits[min(missing)].path
            problem = f"{len(missing)} of its {len(claimed.splits)} files are missing, such as that of {split}"
            yield Problem(path, problem, needed_by, remedy)


def _missing(pipeline: str, claimed: LandedRange, landed: Iterable[int], objects: Collection[str]) -> set[int]:
    """The numbers of the splits of a range whose files are not there: those that are ``landed`` afterwards, or that
    were written before; of others the source keeps the records.
    """
    if claimed.is_landed:
        return {*range(len(claimed.splits))} - {*landed}
    written = [
        (place, split.path) for place, split in enumerate(claimed.splits) if written_attempt(pipeline, split.path)
    ]
    there = {*objects}
    return {place for place, path in written if path not in there}


def _by_input(pipeline: str, listed: Iterable[ObjectInfo]) -> Iterator[tuple[str, list[ObjectInfo]]]:
    """Landed objects by the folder of their input."""
    by_folder: dict[str, list[ObjectInfo]] = {}
    for info in listed:
        where = landed_input(pipeline, info.path)
        assert where is not None, "objects with other names are not listed"
        by_folder.setdefault(where, []).append(info)
    yield from by_folder.items()


def _number(pipeline: str, path: str) -> int:
    """The range that a landed object is of."""
    claimed, file, written = claimed_range(pipeline, path), landed_file(pipeline, path), written_attempt(pipeline, path)
    if written is not None:
        return written[0]
    return claimed if claimed is not None else -1 if file is None else file.range
