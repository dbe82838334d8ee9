"""Landed records expire with the snapshots that would read them again; what names their objects for others, too."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from urllib.parse import unquote

from headrace.ext.sources import SplitGoneError
from headrace.read.snapshots.landed_reading import LandedReading
from headrace.sources.landed.ranges import LandedRange, LandingPlace
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.layout import (
    claimed_range,
    landed_file,
    landed_input,
    sealed_range,
    written_attempt,
)
from headrace_snapshots.store import ObjectInfo


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
