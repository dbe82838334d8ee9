"""What of a catalog is kept, and which objects that needs. Reads strictly: what cannot be read stops it.

A snapshot that cannot be read does not say what it needs, so whoever deletes must know all of those that are kept.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from headrace.errors import FixConfigError
from headrace_snapshots.facts import Facts
from headrace_snapshots.layout import manifest_path, node_path
from headrace_snapshots.protocol import Head
from headrace_snapshots.refs import MAIN, PUBLISHED, TAGS


class KeepError(FixConfigError):
    """A rule that would keep nothing, or makes no sense."""

    code = "config.keep"


@dataclass(frozen=True)
class Keep:
    """What an expiry keeps of main: the ``last`` published snapshots, and those ``younger`` than that.

    Whatever has a ref is kept besides, tags only with ``tags``, and all of main that is not published yet.
    Raises KeepError.
    """

    last: int = 100
    younger: timedelta | None = None
    tags: bool = True

    def __post_init__(self) -> None:
        if self.last < 1:
            raise KeepError(f"keep_last={self.last} keeps no snapshot to go on from: keep at least 1")
        if self.younger is not None and self.younger < timedelta(0):
            raise KeepError(f"keep_for={self.younger} is less than no time")


@dataclass(frozen=True)
class Snapshot:
    """Where a snapshot stands; ``before``: the snapshot before it, of those that were kept until now."""

    id: str
    epoch: int
    branch: str
    generation: int
    parent: str | None
    before: str | None
    created_at: datetime


@dataclass(frozen=True)
class Kept:
    """What is kept at ``head``, and what is not any more, by id. ``oldest``: of main's line as far as it has no gap.

    ``grafts``: see Horizon.
    """

    head: Head
    snapshots: Mapping[str, Snapshot]
    expired: frozenset[str]
    oldest: Snapshot | None
    grafts: Mapping[str, str | None]

    @property
    def lost_tags(self) -> list[str]:
        """The tags whose snapshots are not kept."""
        return [ref for ref, snapshot in self.head.refs.items() if snapshot in self.expired]


class Lines:
    """The lines of descent of a catalog."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._known: dict[str, Snapshot] = {}

    def kept(self, head: Head, keep: Keep, now: datetime) -> Kept:
        """What ``keep`` keeps at ``head``. ``now`` only says what is young.

        Raises BrokenObjectError, MissingSnapshotError.
        """
        cutoff = now - keep.younger if keep.younger is not None else None
        kept: dict[str, Snapshot] = {}
        line = self._main(head, keep, cutoff)
        kept.update({snapshot.id: snapshot for snapshot in line})
        for branch in sorted({*head.generations} - {MAIN}):
            kept.update({each.id: each for each in self._branch(head, branch, keep, cutoff)})
        if keep.tags:
            tagged = (snapshot for ref, snapshot in head.refs.items() if ref.startswith(TAGS))
            kept.update({snapshot: self._snapshot(head, snapshot) for snapshot in tagged})
        seen = {each.id: each for start in head.refs.values() for each in self._line(head, start)}
        grafts = {each.id: self._next_kept(each, seen, kept) for each in kept.values()}
        return Kept(
            head,
            kept,
            frozenset(seen) - frozenset(kept),
            line[-1] if line else None,
            {snapshot: before for snapshot, before in grafts.items() if before != kept[snapshot].parent},
        )

    def _main(self, head: Head, keep: Keep, cutoff: datetime | None) -> list[Snapshot]:
        """From main's head back: all that is not published, then what the rule keeps."""
        published = head.refs.get(PUBLISHED)
        kept: list[Snapshot] = []
        below = 0
        for each in self._line(head, head.refs.get(MAIN)):
            below += below > 0 or each.id == published
            if below > keep.last and not _is_young(each, cutoff):
                break
            kept.append(each)
        return kept

    def _branch(self, head: Head, branch: str, keep: Keep, cutoff: datetime | None) -> Iterator[Snapshot]:
        """Work in progress: all that was committed to the branch, what it was forked from, and what the rule keeps."""
        is_own = True
        for number, each in enumerate(self._line(head, head.refs.get(branch))):
            if not is_own and number >= keep.last and not _is_young(each, cutoff):
                return
            yield each
            is_own = is_own and each.branch == branch

    def _line(self, head: Head, start: str | None) -> Iterator[Snapshot]:
        current = start
        while current is not None:
            snapshot = self._snapshot(head, current)
            yield snapshot
            current = snapshot.before

    def _snapshot(self, head: Head, snapshot_id: str) -> Snapshot:
        if snapshot_id not in self._known:
            facts = self._facts.snapshot(snapshot_id)
            grafts = {} if head.horizon is None else head.horizon.grafts
            self._known[snapshot_id] = Snapshot(
                snapshot_id,
                facts.epoch,
                facts.branch,
                facts.generation,
                facts.parent,
                grafts.get(snapshot_id, facts.parent),
                facts.created_at,
            )
        return self._known[snapshot_id]

    @staticmethod
    def _next_kept(snapshot: Snapshot, seen: Mapping[str, Snapshot], kept: Mapping[str, Snapshot]) -> str | None:
        before = snapshot.before
        while before is not None and before not in kept:
            before = seen[before].before
        return before


def named_by(facts: Facts, snapshots: Collection[str]) -> set[str]:
    """The paths of all that these snapshots need, their manifests among it. Raises BrokenObjectError,
    MissingSnapshotError.
    """
    pipeline = facts.catalog.pipeline
    found: set[str] = set()
    nodes: set[str] = set()
    for snapshot in map(facts.snapshot, snapshots):
        found.add(manifest_path(pipeline, snapshot.id))
        found.update(snapshot.files)
        nodes.update(snapshot.nodes)
    seen: set[str] = set()
    while nodes := nodes - seen:
        facts.learn_nodes(nodes)
        seen |= nodes
        read = [facts.node(node) for node in nodes]
        found.update(path for node in read for path in node.files)
        nodes = {name for node in read for name in node.below}
    return found | {node_path(pipeline, node) for node in seen}


def _is_young(snapshot: Snapshot, cutoff: datetime | None) -> bool:
    return cutoff is not None and snapshot.created_at >= cutoff
