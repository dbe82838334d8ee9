"""Outputs in the catalog of their pipeline: as each sees it, and output patches that a rollback gives up.

``OutputCatalog`` has manifests of one output alone, and its ``published`` is that of the output.

``GivenUp`` tells of output patches. Reading epochs again does not make them, so the user learns which they are, and
what makes each again.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NoReturn, TypeVar

from headrace_snapshots import names as object_names
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.catalog_reader import Link
from headrace_snapshots.errors import DamagedLogError, MissingSnapshotError, RefusedError
from headrace_snapshots.format import output_view
from headrace_snapshots.format.codec import JSON, BrokenObjectError
from headrace_snapshots.format.files import IndexNode
from headrace_snapshots.format.manifest import Manifest, Patch
from headrace_snapshots.log import Entry, LostEntry
from headrace_snapshots.protocol.moves import Head

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
        name_then = self._called_in(manifest)
        return output_view.seen_by(
            manifest if name_then == self.output else output_view.with_names(manifest, {self.output: name_then}),
            self.output,
        )

    def called_at(self, snapshot_id: str) -> str:
        """What the output is called in a snapshot; its name if that cannot be told."""
        with suppress(BrokenObjectError, MissingSnapshotError):
            return self._called_in(self.whole.manifest(snapshot_id))
        return self.output

    def was_called(self, name: str, snapshot_id: str) -> bool:
        """Whether that was the output's name in a snapshot. For a snapshot that is gone: whether it ever was, and no
        other output has it now.
        """
        try:
            return self._called_in(self.whole.manifest(snapshot_id)) == name
        except (BrokenObjectError, MissingSnapshotError):
            main = self._main_at(self.whole.known_head().refs)
            return main is not None and name in output_view.called_before(main, self.output)

    def _called_in(self, manifest: Manifest) -> str:
        outputs = output_view.output_names(manifest)
        if self.output in outputs:
            return self.output
        return next((old for old in self._called_before() if old in outputs), self.output)

    def _called_before(self) -> tuple[str, ...]:
        """What main says the output was called before, also what others are called now: a snapshot without the output
        is from before these were. Nothing where that cannot be read.
        """
        main = self._main_at(self.whole.known_head().refs)
        return () if main is None else output_view.all_names_before(main, self.output)

    def _main_at(self, refs: Mapping[str, str]) -> Manifest | None:
        with suppress(BrokenObjectError, MissingSnapshotError):
            return None if (main := refs.get(object_names.MAIN)) is None else self.whole.manifest(main)
        return None

    def read_node(self, node_id: str) -> IndexNode:
        return self.whole.read_node(node_id)

    def link(self, snapshot_id: str) -> Link:
        """A snapshot in its line of descent, also one from before the output came, whose manifest is not for it."""
        try:
            return super().link(snapshot_id)
        except output_view.UnknownOutputError:
            manifest = self.whole.manifest(snapshot_id)
            return Link(snapshot_id, manifest.epoch, manifest.parent)

    def _walk_line(self, snapshot_id: str, until_id: str | None, read: Callable[[str], Manifest]) -> Iterator[Manifest]:
        try:
            yield from super()._walk_line(snapshot_id, until_id, read)
        except output_view.UnknownOutputError:
            if until_id is not None:  # else what came before the output has nothing of it
                raise

    def head(self) -> Head:
        """Every ref and generation now; what is published is only that of the output."""
        return self._with_own_refs(super().head())

    def known_head(self) -> Head:
        """``head``, or of a damaged log what the newest entry that can be read says."""
        return self._with_own_refs(super().known_head())

    def history(self, before: int | None = None, at_once: int = 1) -> Iterator[Entry | LostEntry]:
        """The entries below number ``before`` (default: all), newest first, as the output sees them."""
        newest = None if before is None else self._newest_main
        for entry in super().history(before, at_once):
            if isinstance(entry, Entry):
                newest = newest or self._main_at(entry.refs)
                name_then = self._called_by(entry, newest)
                yield entry.replace(
                    refs=self._own_refs(entry.refs, name_then), moves=self._own_refs(entry.moves, name_then)
                )
            else:
                yield entry

    def _called_by(self, entry: Entry, newest: Manifest | None) -> str | None:
        """What the output, as ``newest`` has it, was called when ``entry`` was written."""
        if newest is None:
            return self.output
        return output_view.called_where(
            object_names.published_of(dict.fromkeys((*entry.refs, *entry.moves), "")), newest, self.output
        )

    @cached_property
    def _newest_main(self) -> Manifest | None:
        return self._main_at(self.whole.known_head().refs)

    def _with_own_refs(self, head: Head) -> Head:
        return replace(head, refs=self._own_refs(head.refs, self.output))

    def _own_refs(self, by_ref: Mapping[str, T], name_then: str | None) -> dict[str, T]:
        own = None if name_then is None else object_names.published_ref(name_then)
        return {
            object_names.PUBLISHED if ref == own else ref: value
            for ref, value in by_ref.items()
            if ref == own or not object_names.is_published(ref)
        }

    def write_manifest(self, manifest: Manifest, parent: Manifest | None = None) -> NoReturn:
        """Raise TypeError: a manifest has all outputs."""
        raise self._is_for_readers()

    def _append_entry(self, *_: object, **__: object) -> NoReturn:
        raise self._is_for_readers()

    def _is_for_readers(self) -> TypeError:
        return TypeError(f"the catalog of output {self.output} of {self.pipeline} is for readers")


def seen_catalog(catalog: Catalog, output: str) -> Catalog:
    """``catalog`` as ``output`` sees it; "": the output without a name, which is all that there is."""
    return OutputCatalog(catalog, output) if output else catalog


@dataclass(frozen=True)
class GivenUp:
    """What a rollback to the snapshot ``to`` (None: the beginning) moves, and the ``patches`` that main loses by it,
    newest first. ``told`` says what each was and what makes it again.
    """

    to: str | None
    moves: Mapping[str, tuple[str | None, str | None]]
    patches: tuple[Patch, ...]
    told: tuple[str, ...]

    def to_json(self) -> JSON:
        moves = {ref: list(move) for ref, move in self.moves.items()}
        return {"moves": moves, "patches": [patch.to_json() for patch in self.patches], "told": [*self.told]}


_UNREADABLE = (BrokenObjectError, DamagedLogError, MissingSnapshotError)


def would_give_up(catalog: Catalog, branch: str, target_id: str | None, *, give_up_delivered: bool = False) -> GivenUp:
    """What rolling ``branch`` back to ``target_id`` would do; nothing is done. Raises RefusedError as it would."""
    moves = catalog.would_roll_back(branch, target_id, give_up_delivered=give_up_delivered)
    patches = patches_given_up(catalog, moves[branch][0], target_id) if branch == object_names.MAIN else []
    sinks = sorted({object_names.delivery_of(ref)[1] for ref in moves if object_names.is_delivery(ref)})
    stays = (f"what sink {sink} got stays there, and rows that become final again go to it again" for sink in sinks)
    return GivenUp(
        target_id,
        moves,
        tuple(patches),
        (*short_of(catalog, moves, target_id), *describe_given_up(catalog, patches, target_id), *stays),
    )


def short_of(
    catalog: Catalog, moves: Mapping[str, tuple[str | None, str | None]], target_id: str | None
) -> Iterator[str]:
    """For people: which readers ``moves`` take to what is older than ``target_id``, as they could not see that."""
    for ref, (_, new_id) in moves.items():
        if object_names.is_published(ref) and new_id not in {None, target_id}:
            output = object_names.output_of(ref)
            output_text, name = (f" of {output}", f"{catalog.pipeline}.{output}") if output else ("", catalog.pipeline)
            yield (
                f"readers{output_text} go back to {new_id}{_epoch_in_brackets(catalog, new_id)}: "
                f"{target_id}{_epoch_in_brackets(catalog, target_id)} was never published. The next run audits what "
                f"lies between; or `headrace release {name} {target_id}` lets readers see it"
            )


def _epoch_in_brackets(catalog: Catalog, snapshot: str | None) -> str:
    """Its epoch, in brackets, as far as that can be told."""
    with suppress(*_UNREADABLE):
        return "" if snapshot is None else f" (epoch {catalog.link(snapshot).epoch})"
    return ""


def how_back(catalog: Catalog, target_id: str | None) -> str:
    """The commands by which a person takes main back to ``target_id`` (None: the beginning), in backticks; a release
    comes first where readers could see nothing of it.
    """
    rollback_command = f"`headrace rollback {catalog.pipeline} --to {target_id or object_names.BEGINNING}`"
    try:
        catalog.would_roll_back(object_names.MAIN, target_id, give_up_delivered=True)
    except RefusedError:
        return f"`headrace release {catalog.pipeline} {target_id} --message WHY` and {rollback_command}"
    return rollback_command


def patches_given_up(catalog: Catalog, head: str | None, target_id: str | None) -> list[Patch]:
    """The patches that the line of ``head`` has and that of ``target_id`` (None: nothing) has not, newest first. Only
    manifests that can be read count.
    """
    patches: list[Patch] = []
    if head is None:
        return patches
    with suppress(*_UNREADABLE):
        common = None if target_id is None else catalog.common_ancestor(head, target_id)
        after_epoch = -1 if common is None else common.epoch
        newest = _newest_readable(catalog, head)
        while newest is not None and newest.patch is not None and newest.patch.epoch > after_epoch:
            patches.append(newest.patch)
            id_before = catalog.ancestor_at(newest.snapshot_id, newest.patch.epoch - 1)
            newest = None if id_before is None else _newest_readable(catalog, id_before)
    return patches


def describe_given_up(catalog: Catalog, patches: Collection[Patch], target_id: str | None) -> Iterator[str]:
    """For people: that these ``patches`` are given up by going back to ``target_id``, and what makes each again."""
    for patch in patches:
        yield (
            f"the patch of epoch {patch.epoch}, by branch {patch.branch}, is given up: once the run has read again "
            f"what came after, {_how_to_patch_again(catalog, patch, target_id)}"
        )


def given_up_warning(catalog: Catalog, head: str | None, target_id: str | None) -> str:
    """The end of advice to go from ``head`` back to ``target_id``: what that gives up, empty if it is nothing."""
    lines = [*describe_given_up(catalog, patches_given_up(catalog, head, target_id), target_id)]
    return f". This gives up output patches: {'; '.join(lines)}" if lines else ""


def _how_to_patch_again(catalog: Catalog, patch: Patch, target_id: str | None) -> str:
    whole, refs = catalog.pipeline, catalog.known_head().refs
    name = f"{whole}.{patch.output}" if patch.output else whole
    backfill = (
        f"`headrace backfill {whole}` computes such a branch again, and `headrace promote {name} BRANCH --patch` takes "
        "its results"
    )
    with suppress(*_UNREADABLE):
        if _goes_on_without(catalog, patch, target_id):
            branch_head = refs.get(patch.branch)
            if branch_head is not None and catalog.is_ancestor(patch.snapshot, branch_head):
                return f"`headrace promote {name} {patch.branch} --patch` makes it again"
            if catalog.is_kept(patch.snapshot):
                return (
                    f"`headrace fork {whole} {patch.snapshot} patch-{patch.epoch}` and `headrace promote {name} "
                    f"patch-{patch.epoch} --patch` make it again"
                )
    return backfill


def _goes_on_without(catalog: Catalog, patch: Patch, target_id: str | None) -> bool:
    """Whether what was patched from continues from nothing that main has after ``target_id``."""
    main = catalog.known_head().refs.get(object_names.MAIN)
    common = None if main is None else catalog.common_ancestor(patch.snapshot, main)
    return common is None or (target_id is not None and catalog.is_ancestor(common.snapshot_id, target_id))


def _newest_readable(catalog: Catalog, snapshot: str) -> Manifest | None:
    """The manifest of ``snapshot``, or of the newest before it that can be read."""
    return next((link.manifest for link in catalog.lineage(snapshot) if link.manifest is not None), None)
