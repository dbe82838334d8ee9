"""Which snapshots readers of an output could see, or a person has released, as the log tells.

A rollback takes readers to no other. So it is held against the entries that let readers see something: a publish, a
release, a promotion. A rollback is none of them: earlier versions took readers to snapshots that no audit had passed.
"""

from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Final

from headrace_snapshots.catalog_reader import CatalogReader
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import JSON, BrokenObjectError
from headrace_snapshots.format.entry import Entry
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import all_names_before, called_in, called_since, output_names
from headrace_snapshots.protocol import Head, Kind
from headrace_snapshots.refs import is_published, output_of

RELEASED: Final = "released"
"""The field of the ``detail`` of a release that has what it is about: snapshots by ref, also where nothing moves."""

_LETS_SEE = frozenset({Kind.PUBLISH, Kind.RELEASE, Kind.PROMOTE})
_READERS = 16
_UNREADABLE = (BrokenObjectError, MissingSnapshotError)


def newest_entries(catalog: CatalogReader, oldest: int = 0, before: int | None = None) -> Iterator[Entry]:
    """The entries of the log that can be read, newest first, down to number ``oldest``; several are read at once.
    ``before``: only those with a lower number.
    """
    head = catalog.known_head()
    first = max(head.base, oldest)
    with ThreadPoolExecutor(_READERS, thread_name_prefix="log") as pool:
        for newest in range(head.entry if before is None else before - 1, first - 1, -_READERS):
            numbers = range(newest, max(newest - _READERS, first - 1), -1)
            yield from (entry for entry in pool.map(partial(_entry, catalog), numbers) if entry is not None)


def _entry(catalog: CatalogReader, number: int) -> Entry | None:
    """The entry of that number; None if it is lost, or was folded away meanwhile."""
    entry = next(catalog.entries(number + 1), None)
    return entry if entry is not None and entry.number == number else None


def names_in(catalog: CatalogReader, to: str, main: str) -> dict[str, str | None] | None:
    """What each output of ``to`` is called in ``main``, which has come from it: where that cannot be read, what it is
    called in ``to``. None if that cannot be read either.
    """
    with suppress(*_UNREADABLE):
        then = catalog.manifest(to)
        with suppress(*_UNREADABLE):
            return called_since(then, next(catalog.readable(main)))
        return {output: output for output in output_names(then)}
    return None


def newest_seen(catalog: CatalogReader, to: str, output: str, main: str | None) -> str | None:
    """The newest snapshot at or before ``to`` that readers of its ``output`` could see, or that was released, when main
    went on to ``main``; None if none is kept.
    """
    line = _OutputLine.of(catalog, to, output, main)
    oldest: Entry | None = None
    for entry in newest_entries(catalog):
        for ref, snapshot in lets_see(entry).items():
            if line.has(ref, snapshot):
                return snapshot
        oldest = entry
    before = () if oldest is None else [*_seen_before(catalog, oldest)]
    known = {snapshot: catalog.link(snapshot).epoch for ref, snapshot in before if line.has(ref, snapshot)}
    return max(known, key=known.__getitem__, default=None)


def _seen_before(catalog: CatalogReader, oldest: Entry) -> Iterator[tuple[str, str]]:
    """What readers could see before the ``oldest`` entry that is left, by ref."""
    yield from ((ref, snapshot) for ref, snapshot in oldest.refs_before.items() if is_published(ref))
    horizon = catalog.known_head().horizon
    for ref, snapshots in () if horizon is None else horizon.seen.items():
        yield from ((ref, snapshot) for snapshot in snapshots)


def seen_until(catalog: CatalogReader, head: Head, first_entry: int, kept: Collection[str]) -> dict[str, list[str]]:
    """Tell which ``kept`` snapshots readers could see, as entries below ``first_entry`` say, which are to be
    deleted, and those that are deleted already; by ref.
    """
    seen = {} if head.horizon is None else {ref: dict.fromkeys(ids) for ref, ids in head.horizon.seen.items()}
    for entry in newest_entries(catalog, before=first_entry) if kept else ():
        for ref, snapshot in lets_see(entry).items():
            seen.setdefault(ref, {})[snapshot] = None
    of_kept = {ref: [snapshot for snapshot in snapshots if snapshot in kept] for ref, snapshots in seen.items()}
    return {ref: snapshots for ref, snapshots in of_kept.items() if snapshots}


def lets_see(entry: Entry) -> dict[str, str]:
    """What readers may see from ``entry`` on, by ref."""
    if entry.kind not in _LETS_SEE:
        return {}
    moved = {ref: after for ref, (_, after) in entry.moves.items() if is_published(ref) and after is not None}
    released: Mapping[str, JSON] = (entry.detail or {}).get(RELEASED, {}) if entry.kind is Kind.RELEASE else {}
    return {**released, **moved}


class _OutputLine:
    """The snapshots of an output up to one of them, and under which names it had them."""

    def __init__(
        self, catalog: CatalogReader, to: str, manifest: Manifest | None, output: str, since: set[str]
    ) -> None:
        self._catalog, self._to, self._manifest, self._output, self._since = catalog, to, manifest, output, since

    @classmethod
    def of(cls, catalog: CatalogReader, to: str, output: str, main: str | None) -> "_OutputLine":
        """The line of ``output``, as ``to`` calls it, which has other names on the way to ``main``."""
        then: Manifest | None = None
        since = {output}
        with suppress(*_UNREADABLE):
            then = catalog.manifest(to)
            now = None if main is None else next(catalog.readable(main), None)
            called = None if now is None else called_since(then, now).get(output)
            since |= set() if now is None or called is None else {called, *all_names_before(now, called)}
        return cls(catalog, to, then, output, since)

    def has(self, ref: str, snapshot: str) -> bool:
        """Whether ``snapshot``, which readers by ``ref`` could see, is kept, and one of these."""
        with suppress(*_UNREADABLE):
            return (
                self._catalog.is_ancestor(snapshot, self._to)
                and self._is_called(output_of(ref), snapshot)
                and self._catalog.is_kept(snapshot)
            )
        return False

    def _is_called(self, name: str, snapshot: str) -> bool:
        """Whether ``name`` was the output's, in ``snapshot`` or since."""
        if self._manifest is None:
            return name == self._output
        there = self._catalog.manifest(snapshot)
        then = called_in(there, self._manifest, self._output)
        return then is not None and (name == then or (name in self._since and name not in output_names(there)))
