"""Output patches that a rollback gives up. Reading epochs again does not make them, so the user learns which they are,
and what makes each again.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import DamagedLogError, MissingSnapshotError, RefusedError
from headrace_snapshots.format.codec import JSON, BrokenObjectError
from headrace_snapshots.format.manifest import Manifest, Patch
from headrace_snapshots.refs import BEGINNING, MAIN, delivery_of, is_delivery, is_published, output_of


@dataclass(frozen=True)
class GivenUp:
    """What a rollback to the snapshot ``to`` (None: the beginning) moves, the ``patches`` that main loses by it, newest
    first, and for each what it was and what makes it again.
    """

    to: str | None
    moves: Mapping[str, tuple[str | None, str | None]]
    patches: tuple[Patch, ...]
    told: tuple[str, ...]

    def to_json(self) -> JSON:
        """A JSON object."""
        moves = {ref: list(move) for ref, move in self.moves.items()}
        return {"moves": moves, "patches": [patch.to_json() for patch in self.patches], "told": [*self.told]}


_UNREADABLE = (BrokenObjectError, DamagedLogError, MissingSnapshotError)


def would_give_up(catalog: Catalog, branch: str, to: str | None, *, give_up_delivered: bool = False) -> GivenUp:
    """What a rollback of ``branch`` to ``to`` would do; nothing is done. Raises RefusedError, as the rollback would."""
    moves = catalog.would_roll_back(branch, to, give_up_delivered=give_up_delivered)
    patches = patches_given_up(catalog, moves[branch][0], to) if branch == MAIN else []
    sinks = sorted({delivery_of(ref)[1] for ref in moves if is_delivery(ref)})
    stays = (f"what sink {sink} got stays there, and rows that become final again go to it again" for sink in sinks)
    return GivenUp(to, moves, tuple(patches), (*short_of(catalog, moves, to), *told(catalog, patches, to), *stays))


def short_of(catalog: Catalog, moves: Mapping[str, tuple[str | None, str | None]], to: str | None) -> Iterator[str]:
    """For people: which readers ``moves`` take to what is older than the target ``to``, as they could not see that."""
    for ref, (_, shown) in moves.items():
        if is_published(ref) and shown not in {None, to}:
            output = output_of(ref)
            of, name = (f" of {output}", f"{catalog.pipeline}.{output}") if output else ("", catalog.pipeline)
            yield (
                f"readers{of} go back to {shown}{_epoch(catalog, shown)}: {to}{_epoch(catalog, to)} was never "
                f"published. The next run audits what lies between; or `headrace release {name} {to}` lets readers see "
                "it"
            )


def _epoch(catalog: Catalog, snapshot: str | None) -> str:
    """Its epoch, in brackets, as far as that can be told."""
    with suppress(*_UNREADABLE):
        return "" if snapshot is None else f" (epoch {catalog.link(snapshot).epoch})"
    return ""


def how_back(catalog: Catalog, to: str | None) -> str:
    """The commands by which a person takes main back to ``to`` (None: the beginning), in backticks; a release comes
    first where readers could see nothing of it.
    """
    back = f"`headrace rollback {catalog.pipeline} --to {to or BEGINNING}`"
    try:
        catalog.would_roll_back(MAIN, to, give_up_delivered=True)
    except RefusedError:
        return f"`headrace release {catalog.pipeline} {to} --message WHY` and {back}"
    return back


def patches_given_up(catalog: Catalog, head: str | None, to: str | None) -> list[Patch]:
    """The patches that the line of ``head`` has and that of ``to`` (None: nothing) has not, newest first, as far as
    manifests that name them can be read.
    """
    patches: list[Patch] = []
    if head is None:
        return patches
    with suppress(*_UNREADABLE):
        common = None if to is None else catalog.common_ancestor(head, to)
        after = -1 if common is None else common.epoch
        newest = _readable(catalog, head)
        while newest is not None and newest.patch is not None and newest.patch.epoch > after:
            patches.append(newest.patch)
            before = catalog.ancestor_at(newest.snapshot_id, newest.patch.epoch - 1)
            newest = None if before is None else _readable(catalog, before)
    return patches


def told(catalog: Catalog, patches: Collection[Patch], to: str | None) -> Iterator[str]:
    """For people: that these ``patches`` are given up by going back to ``to``, and what makes each again."""
    for patch in patches:
        yield (
            f"the patch of epoch {patch.epoch}, by branch {patch.branch}, is given up: once the run has read again "
            f"what came after, {_again(catalog, patch, to)}"
        )


def warned(catalog: Catalog, head: str | None, to: str | None) -> str:
    """``told`` as the end of a message that advises to go from ``head`` back to ``to``; empty if there is nothing."""
    lines = [*told(catalog, patches_given_up(catalog, head, to), to)]
    return f". This gives up output patches: {'; '.join(lines)}" if lines else ""


def _again(catalog: Catalog, patch: Patch, to: str | None) -> str:
    whole, refs = catalog.pipeline, catalog.known_head().refs
    name = f"{whole}.{patch.output}" if patch.output else whole
    backfill = (
        f"`headrace backfill {whole}` computes such a branch again, and `headrace promote {name} BRANCH --patch` takes "
        "its results"
    )
    with suppress(*_UNREADABLE):
        if _goes_on_without(catalog, patch, to):
            at = refs.get(patch.branch)
            if at is not None and catalog.is_ancestor(patch.snapshot, at):
                return f"`headrace promote {name} {patch.branch} --patch` makes it again"
            if catalog.is_kept(patch.snapshot):
                return (
                    f"`headrace fork {whole} {patch.snapshot} patch-{patch.epoch}` and `headrace promote {name} "
                    f"patch-{patch.epoch} --patch` make it again"
                )
    return backfill


def _goes_on_without(catalog: Catalog, patch: Patch, to: str | None) -> bool:
    """Whether what was patched from continues from nothing that main has after ``to``."""
    main = catalog.known_head().refs.get(MAIN)
    common = None if main is None else catalog.common_ancestor(patch.snapshot, main)
    return common is None or (to is not None and catalog.is_ancestor(common.snapshot_id, to))


def _readable(catalog: Catalog, snapshot: str) -> Manifest | None:
    """The manifest of ``snapshot``, or of the newest before it that can be read."""
    return next((link.manifest for link in catalog.lineage(snapshot) if link.manifest is not None), None)
