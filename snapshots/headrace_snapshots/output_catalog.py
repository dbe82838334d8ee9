"""The catalog of a pipeline as one of its outputs sees it: its manifests are those of that output alone, and its
``published`` is that of the output.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import NoReturn, TypeVar

from headrace_snapshots.ancestry import Link
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.entry import Entry
from headrace_snapshots.format.filelog import IndexNode
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import (
    UnknownOutputError,
    all_names_before,
    called_before,
    called_where,
    output_names,
    seen_by,
    with_names,
)
from headrace_snapshots.log import LostEntry
from headrace_snapshots.protocol import Head
from headrace_snapshots.refs import MAIN, PUBLISHED, is_published, published_of, published_ref

T = TypeVar("T")


class OutputCatalog(Catalog):
    """Answers what a ``Catalog`` answers, for readers of an ``output``. It changes nothing: who writes a branch writes
    all outputs. What one of a catalog's outputs has read all of them know.
    """

    def __init__(self, catalog: Catalog, output: str) -> None:
        super().__init__(catalog.store, catalog.pipeline)
        self._log = catalog._log
        self.whole = catalog
        """The catalog of all outputs."""
        self.output = output

    def manifest(self, snapshot_id: str) -> Manifest:
        """The manifest of a snapshot, as the output sees it, also under a name that it had before. Raises
        UnknownOutputError if the snapshot lacks it.
        """
        manifest = self.whole.manifest(snapshot_id)
        called = self._called_in(manifest)
        return seen_by(manifest if called == self.output else with_names(manifest, {self.output: called}), self.output)

    def called_at(self, snapshot_id: str) -> str:
        """What the output is called in a snapshot; its name if that cannot be told."""
        with suppress(BrokenObjectError, MissingSnapshotError):
            return self._called_in(self.whole.manifest(snapshot_id))
        return self.output

    def was_called(self, name: str, snapshot_id: str) -> bool:
        """Whether that was the output's name in a snapshot. Of one that is gone: whether it ever was, and no other
        output has it now.
        """
        try:
            return self._called_in(self.whole.manifest(snapshot_id)) == name
        except (BrokenObjectError, MissingSnapshotError):
            main = self._main_at(self.whole.known_head().refs)
            return main is not None and name in called_before(main, self.output)

    def _called_in(self, manifest: Manifest) -> str:
        there = output_names(manifest)
        if self.output in there:
            return self.output
        return next((old for old in self._called_before() if old in there), self.output)

    def _called_before(self) -> tuple[str, ...]:
        """What main says the output was called before, also what others are called now: a snapshot without the output
        is from before these were. Nothing where that cannot be read.
        """
        main = self._main_at(self.whole.known_head().refs)
        return () if main is None else all_names_before(main, self.output)

    def _main_at(self, refs: Mapping[str, str]) -> Manifest | None:
        with suppress(BrokenObjectError, MissingSnapshotError):
            return None if (main := refs.get(MAIN)) is None else self.whole.manifest(main)
        return None

    def read_node(self, node_id: str) -> IndexNode:
        """An inner node of a file log. Raises BrokenObjectError."""
        return self.whole.read_node(node_id)

    def link(self, snapshot_id: str) -> Link:
        """A snapshot in its line of descent, also one from before the output came, whose manifest is not for it."""
        try:
            return super().link(snapshot_id)
        except UnknownOutputError:
            manifest = self.whole.manifest(snapshot_id)
            return Link(snapshot_id, manifest.epoch, manifest.parent)

    def _line(self, snapshot_id: str, until: str | None, read: Callable[[str], Manifest]) -> Iterator[Manifest]:
        try:
            yield from super()._line(snapshot_id, until, read)
        except UnknownOutputError:
            if until is not None:  # else what came before the output has nothing of it
                raise

    def head(self) -> Head:
        """Every ref and generation now; of all that is published only what the output has."""
        return self._seen(super().head())

    def known_head(self) -> Head:
        """``head``, or of a damaged log what the newest entry that can be read says."""
        return self._seen(super().known_head())

    def history(self, before: int | None = None) -> Iterator[Entry | LostEntry]:
        """The entries below number ``before`` (default: all), newest first, as the output sees them."""
        newest = None if before is None else self._newest_main
        for entry in super().history(before):
            if isinstance(entry, Entry):
                newest = newest or self._main_at(entry.refs)
                called = self._called_by(entry, newest)
                yield entry.replace(refs=self._own(entry.refs, called), moves=self._own(entry.moves, called))
            else:
                yield entry

    def _called_by(self, entry: Entry, newest: Manifest | None) -> str | None:
        """What the output, as ``newest`` has it, was called when ``entry`` was written."""
        if newest is None:
            return self.output
        return called_where(published_of(dict.fromkeys((*entry.refs, *entry.moves), "")), newest, self.output)

    @cached_property
    def _newest_main(self) -> Manifest | None:
        return self._main_at(self.whole.known_head().refs)

    def _seen(self, head: Head) -> Head:
        return replace(head, refs=self._own(head.refs, self.output))

    def _own(self, by_ref: Mapping[str, T], called: str | None) -> dict[str, T]:
        own = None if called is None else published_ref(called)
        return {
            PUBLISHED if ref == own else ref: value
            for ref, value in by_ref.items()
            if ref == own or not is_published(ref)
        }

    def write_manifest(self, manifest: Manifest) -> NoReturn:
        """Raise TypeError: a manifest has all outputs."""
        raise self._is_for_readers()

    def _append(self, *_: object, **__: object) -> NoReturn:
        raise self._is_for_readers()

    def _is_for_readers(self) -> TypeError:
        return TypeError(f"the catalog of output {self.output} of {self.pipeline} is for readers")


def seen_catalog(catalog: Catalog, output: str) -> Catalog:
    """``catalog`` as ``output`` sees it; "": the output without a name, which is all that there is."""
    return OutputCatalog(catalog, output) if output else catalog
