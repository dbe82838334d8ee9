"""What is kept of a catalog, and which objects that needs. Anything that cannot be read stops it.

A snapshot that cannot be read does not say what it needs, and a deletion must know the needs of all kept snapshots.

``FactsIndex`` has what an expiry asks of snapshots and of nodes of file logs. Neither ever changes, so each is read
once. An expiry stores what it knows of the snapshots that it keeps with its mark; the next one begins with that and
reads only what has come since. What is not known is read several objects at a time. A memo that cannot be read is as
good as none: everything is read again.
"""

import base64
import json
import logging
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from sys import intern
from typing import Any, TypeVar

from headrace.errors import FixConfigError
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError, canonical_json
from headrace_snapshots.format.files import DataFile, IndexNode, files_in
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import output_names, parked_in
from headrace_snapshots.holds import ReaderHold, held_snapshots
from headrace_snapshots.names import MAIN, TAGS, is_delivery, is_published, manifest_path, node_path, published_of
from headrace_snapshots.protocol.moves import Head, Past, Replaced

_READERS = 16
_INDEX_FORMAT = 2
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class SnapshotFacts:
    """What is remembered of a manifest: where it stands, and the data files and nodes that it names itself."""

    id: str
    epoch: int
    branch: str
    generation: int
    parent: str | None
    created_at: datetime
    files: tuple[str, ...]
    nodes: tuple[str, ...]

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> "SnapshotFacts":
        refs = {ref.id for log in manifest.logs.values() for ref in log.refs} | {node.id for node in manifest.nodes}
        return cls(
            manifest.snapshot_id,
            manifest.epoch,
            manifest.branch,
            manifest.generation,
            manifest.parent,
            datetime.fromisoformat(manifest.created_at),
            _interned_names(file.path for file in files_of(manifest)),
            _interned_names(refs),
        )


@dataclass(frozen=True)
class NodeFacts:
    """What is remembered of a node: the paths of the data files, and the ids of the nodes, it names."""

    files: tuple[str, ...]
    below: tuple[str, ...]

    @classmethod
    def from_node(cls, node: IndexNode) -> "NodeFacts":
        return cls(
            _interned_names(file.path for file in data_files(node)), _interned_names(ref.id for ref in node.refs)
        )


@dataclass
class FactsIndex:
    """Facts by id. ``notes``: what those who ask more of objects want to remember of each, by path."""

    catalog: Catalog
    snapshots: dict[str, SnapshotFacts] = field(default_factory=dict)
    nodes: dict[str, NodeFacts] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def snapshot_facts(self, snapshot_id: str) -> SnapshotFacts:
        """Raises BrokenObjectError, MissingSnapshotError."""
        if snapshot_id not in self.snapshots:
            self.snapshots[snapshot_id] = SnapshotFacts.from_manifest(self.catalog.manifest(snapshot_id))
        return self.snapshots[snapshot_id]

    def node_facts(self, node_id: str) -> NodeFacts:
        """Raises BrokenObjectError."""
        if node_id not in self.nodes:
            self.nodes[node_id] = NodeFacts.from_node(self.catalog.read_node(node_id))
        return self.nodes[node_id]

    def learn_snapshots(self, snapshot_ids: Collection[str]) -> None:
        """Read those that are not known, several at once. What cannot be read is left to those who ask for it."""
        self._read_facts(
            self.snapshot_facts, [snapshot_id for snapshot_id in snapshot_ids if snapshot_id not in self.snapshots]
        )

    def learn_nodes(self, node_ids: Collection[str]) -> None:
        """Read those that are not known, several at once. What cannot be read is left to those who ask for it."""
        self._read_facts(self.node_facts, [node_id for node_id in node_ids if node_id not in self.nodes])

    def _read_facts(self, read: Callable[[str], Answer], wanted_ids: Sequence[str]) -> None:
        def read_if_possible(one: str) -> None:
            with suppress(BrokenObjectError, MissingSnapshotError):
                read(one)

        with ThreadPoolExecutor(_READERS) as pool:
            for _ in pool.map(read_if_possible, wanted_ids):
                pass

    def encode_facts(self, snapshot_ids: Collection[str]) -> str:
        """The facts of these snapshots, which must be known, and of all nodes below them, as text; and the notes."""
        snapshots = sorted((self.snapshots[item] for item in snapshot_ids), key=lambda item: (item.epoch, item.id))
        nodes = self._nodes_below(snapshots)
        numbers: dict[str, int] = {}

        def number_names(names: Iterable[str]) -> list[int]:
            return sorted(numbers.setdefault(name, len(numbers)) for name in names)

        node_rows = [[name, number_names(node.files), number_names(node.below)] for name, node in nodes.items()]
        rows: list[list[Any]] = []
        last: tuple[set[int], set[int]] = (set(), set())
        for item in snapshots:
            own = ({*number_names(item.files)}, {*number_names(item.nodes)})
            # neighbours name nearly the same, so each says what differs from the one before it
            changes = [
                [sorted(now - previous), sorted(previous - now)] for now, previous in zip(own, last, strict=True)
            ]
            time_text = item.created_at.isoformat()
            rows.append([item.id, item.epoch, item.branch, item.generation, item.parent, time_text, *changes])
            last = own
        document = {"nodes": node_rows, "snapshots": rows, "names": [*numbers], "notes": self.notes}
        return base64.b64encode(zlib.compress(canonical_json({"format": _INDEX_FORMAT, **document}), 1)).decode("ascii")

    def _nodes_below(self, snapshots: Iterable[SnapshotFacts]) -> dict[str, NodeFacts]:
        facts: dict[str, NodeFacts] = {}
        left = {node for snapshot in snapshots for node in snapshot.nodes}
        while left:
            node_id = left.pop()
            facts[node_id] = self.node_facts(node_id)
            left |= {*facts[node_id].below} - facts.keys()
        return dict(sorted(facts.items()))

    def restore_facts(self, text: str | None) -> None:
        """Take over what ``encode_facts`` gave, if anything; the checksum of the mark says that it is whole."""
        if text is None:
            return
        document = json.loads(zlib.decompress(base64.b64decode(text, validate=True)))
        # what another version has noted is found again
        if document["format"] != _INDEX_FORMAT:
            return
        names = [intern(name) for name in document["names"]]
        for name, files, child_numbers in document["nodes"]:
            self.nodes[name] = NodeFacts(_names_at(names, files), _names_at(names, child_numbers))
        last: tuple[set[int], set[int]] = (set(), set())
        for snapshot, epoch, branch, generation, parent, time_text, *changes in document["snapshots"]:
            files, nodes = (
                (now - {*removed_numbers}) | {*new} for now, (new, removed_numbers) in zip(last, changes, strict=True)
            )
            last = files, nodes
            place = snapshot, epoch, branch, generation, parent, datetime.fromisoformat(time_text)
            self.snapshots[snapshot] = SnapshotFacts(*place, _names_at(names, files), _names_at(names, nodes))
        self.notes.update(document["notes"])


def files_of(manifest: Manifest) -> Iterable[DataFile]:
    """The data files that a manifest names itself, not in nodes. They are files of layers, of what becomes of layers,
    of the newest records of file logs, and of names.
    """
    yield from merged_of(manifest)
    yield from layered_of(manifest)
    yield from logged_of(manifest)


def layered_of(manifest: Manifest) -> Iterable[DataFile]:
    """The data files of layers that a manifest names itself."""
    return (file for layers in manifest.tables.values() for layer in layers for file in layer.own)


def logged_of(manifest: Manifest) -> Iterable[DataFile]:
    """The data files of file logs, and of names, that a manifest names itself."""
    yield from names_of(manifest)
    for log in manifest.logs.values():
        for record in log.tail:
            yield from files_in(record)


def merged_of(manifest: Manifest) -> Iterable[DataFile]:
    """The data files of what is done of merges, which can be done again, without those in nodes."""
    for merges in manifest.merges.values():
        yield from (file for merge in merges for part in merge.own for file in part)


def names_of(manifest: Manifest) -> Iterable[DataFile]:
    """The data files of names of what was read, which can be made of the log again."""
    for log in manifest.logs.values():
        yield from () if log.names is None else (names.file for names in log.names.files)


def data_files(node: IndexNode) -> Iterable[DataFile]:
    """The data files that a node names itself."""
    for record in node.records:
        yield from files_in(record)


def _interned_names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(intern(name) for name in sorted({*names}))


def _names_at(names: Sequence[str], places: Iterable[int]) -> tuple[str, ...]:
    return tuple(names[place] for place in sorted(places))


_logger = logging.getLogger(__name__)


class KeepError(FixConfigError, code="config.keep"):
    """A rule that would keep nothing, or makes no sense."""


@dataclass(frozen=True)
class Keep:
    """What an expiry keeps of main: the ``last`` published snapshots, and those ``younger`` than that.

    What main was before a promotion counts as published just before all that was promoted. Whatever has a ref is kept
    besides, tags only with ``tags``, and all of main that is not published yet. Raises KeepError.
    """

    last: int = 100
    younger: timedelta | None = None
    tags: bool = True

    def __post_init__(self) -> None:
        if self.last < 1:
            raise KeepError(f"keep_last={self.last} keeps no snapshot to continue from: keep at least 1")
        if self.younger is not None and self.younger < timedelta(0):
            raise KeepError(f"keep_for={self.younger} is less than no time")


@dataclass(frozen=True)
class SnapshotPosition:
    """Where a snapshot stands; ``before``: the snapshot before it, of those that were kept until now."""

    id: str
    epoch: int
    branch: str
    generation: int
    parent: str | None
    before: str | None
    created_at: datetime


@dataclass(frozen=True)
class ReaderBehind:
    """A reader, by ``name``, that has read nothing of what the rule keeps. ``unread`` published snapshots came after
    what it has read, the first of them ``since`` (ISO 8601). 0 and None: it has only to take back what main has given
    up.
    """

    name: str
    unread: int
    since: str | None


@dataclass(frozen=True)
class KeptSnapshots:
    """What is kept at ``head``, and what is not any more, by id. ``main``: its line, newest first, without gaps.

    ``grafts``: see Horizon. ``past``: what of main's can still be returned to, or must not come back. ``held_by``: the
    outputs that have published least, if more is kept for that than of the others. ``readers``: those for whom more is
    kept than the rule says, by how far it goes back. ``behind``: those of them that are far behind, furthest first.
    """

    head: Head
    snapshots: Mapping[str, SnapshotPosition]
    expired: frozenset[str]
    main: tuple[SnapshotPosition, ...]
    grafts: Mapping[str, str | None]
    past: Past
    held_by: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()
    behind: tuple[ReaderBehind, ...] = ()

    @property
    def oldest(self) -> SnapshotPosition | None:
        """The last of ``main``."""
        return self.main[-1] if self.main else None

    @property
    def lost_tags(self) -> list[str]:
        """The tags whose snapshots are not kept."""
        return [ref for ref, snapshot in self.head.refs.items() if snapshot in self.expired]


@dataclass(frozen=True)
class _SeenRange:
    """The ``oldest`` and the ``newest`` snapshot that readers of any output see; None: of an output nothing yet.
    ``behind``: the outputs that are at the oldest, if others are not.
    """

    oldest: str | None
    newest: str | None
    behind: tuple[str, ...]


class Lineages:
    """The lines of descent of a catalog."""

    def __init__(self, facts: FactsIndex) -> None:
        self._facts = facts
        self._positions: dict[str, SnapshotPosition] = {}

    def compute_kept(
        self,
        head: Head,
        keep: Keep,
        now: datetime,
        holds: Sequence[ReaderHold] = (),
        snapshots_there: Collection[str] = (),
    ) -> KeptSnapshots:
        """What ``keep`` keeps at ``head``, and besides what readers hold of ``snapshots_there``: of main all from the
        oldest of that on. ``now`` only says what is young.

        Raises BrokenObjectError, MissingSnapshotError.
        """
        cutoff = now - keep.younger if keep.younger is not None else None
        main = [*self._line_positions(head, head.refs.get(MAIN))]
        seen_range = self._seen_by_readers(main, published_of(head.refs))
        kept_by_rule = self._with_parked_needs(main, self._kept_positions(main, seen_range.oldest, 0, keep, cutoff))
        ages = {position.id: age for age, position in enumerate(main)}
        # the next delivery to a sink that cannot take back begins at what it has
        delivered_ids = {snapshot for ref, snapshot in head.refs.items() if is_delivery(ref)}
        line = main[
            : max(
                [len(kept_by_rule), *(1 + ages[one] for one in {*held_snapshots(holds), *delivered_ids} if one in ages)]
            )
        ]
        aside = {
            one: self._snapshot_position(head, one)
            for one in held_snapshots(holds)
            if one not in ages and one in snapshots_there
        }
        lines = self._kept_replaced_lines(head, main, seen_range.oldest, keep, cutoff)
        replaced_promotions = tuple(promotion for promotion, line_positions in lines if line_positions)
        given_up = self._given_up(head, keep, {position.id for position in main}, replaced_promotions)
        kept_positions = {
            position.id: position for positions in (line, *(own for _, own in lines)) for position in positions
        }
        had = {*given_up, *(position.id for position in main)}
        had |= {
            position.id
            for promotion_before, _ in lines
            for position in self._line_positions(head, promotion_before.main)
        }
        for branch in sorted({*head.generations} - {MAIN}):
            kept_positions |= {own.id: own for own in self._kept_on_branch(head, branch, had, keep, cutoff)}
        if keep.tags:
            tagged_ids = (snapshot for ref, snapshot in head.refs.items() if ref.startswith(TAGS))
            kept_positions |= {snapshot: self._snapshot_position(head, snapshot) for snapshot in tagged_ids}
        kept_positions |= aside
        starts = {*head.refs.values(), *(promotion_before.main for promotion_before, _ in lines), *aside}
        positions = {position.id: position for start in starts for position in self._line_positions(head, start)}
        grafts = {
            position.id: self._next_kept(position, positions, kept_positions) for position in kept_positions.values()
        }
        return KeptSnapshots(
            head,
            kept_positions,
            frozenset(positions) - frozenset(kept_positions),
            tuple(line),
            {
                snapshot: promotion_before
                for snapshot, promotion_before in grafts.items()
                if promotion_before != kept_positions[snapshot].parent
            },
            Past(head.past.since, replaced_promotions, given_up),
            seen_range.behind
            if len(self._with_parked_needs(main, self._kept_positions(main, seen_range.newest, 0, keep, cutoff)))
            < len(kept_by_rule)
            else (),
            _kept_for(holds, ages, len(kept_by_rule), aside),
            self._readers_behind(head, holds, main, len(kept_by_rule), aside),
        )

    def _readers_behind(
        self,
        head: Head,
        holds: Iterable[ReaderHold],
        main: Sequence[SnapshotPosition],
        number_kept: int,
        aside: Collection[str],
    ) -> tuple[ReaderBehind, ...]:
        """The readers whose newest snapshot of ``main`` is older than ``number_kept`` snapshots, furthest behind
        first. One that has only read what main has given up has come to where main left that.
        """
        ages = {position.id: age for age, position in enumerate(main)}
        published_ids = published_of(head.refs)
        readers_behind: list[tuple[int, ReaderBehind]] = []
        for hold in holds:
            read = min((ages[one] for one in hold.snapshots if one in ages), default=None)
            if read is None:
                lines = [self._line_positions(head, one) for one in hold.snapshots if one in aside]
                read = min((self._left_main(line, ages) for line in lines), default=None)
            elif read < number_kept:
                continue
            if read is not None:
                unread = main[ages.get(published_ids.get(hold.output, ""), read) : read]
                since_text = unread[-1].created_at.isoformat(timespec="seconds") if unread else None
                readers_behind.append((-read, ReaderBehind(hold.name, len(unread), since_text)))
        return tuple(reader for _, reader in sorted(readers_behind, key=lambda one: (one[0], one[1].name)))

    @staticmethod
    def _left_main(line: Iterable[SnapshotPosition], ages: Mapping[str, int]) -> int:
        """The age of the newest of ``line`` that main has, too; that of main's beginning if it has none of it."""
        return next((ages[position.id] for position in line if position.id in ages), len(ages))

    def _with_parked_needs(
        self, line: Sequence[SnapshotPosition], kept_positions: Sequence[SnapshotPosition]
    ) -> list[SnapshotPosition]:
        """``kept_positions``, the newest of ``line``, and what outputs that are parked at its head need to go on: all
        since each of them stands.
        """
        if not line:
            return [*kept_positions]
        first = min(parked_in(self._facts.catalog.manifest(line[0].id)).values(), default=line[0].epoch)
        return [
            position for number, position in enumerate(line) if number < len(kept_positions) or position.epoch >= first
        ]

    def _seen_by_readers(self, line: Sequence[SnapshotPosition], published_ids: Mapping[str, str]) -> "_SeenRange":
        """What readers see of ``line``: ``published_ids`` has the snapshot by output."""
        ids = [position.id for position in line]
        outputs = output_names(self._facts.catalog.manifest(ids[0])) if any(published_ids) and ids else ()
        ages = {
            output: ids.index(published_id) for output, published_id in published_ids.items() if published_id in ids
        }
        ages |= {output: len(ids) for output in outputs if output not in ages}  # never published
        if not ages:
            return _SeenRange(None, None, ())
        newest, oldest = min(ages.values()), max(ages.values())
        outputs_behind = (
            tuple(sorted(output for output, age in ages.items() if age == oldest)) if oldest > newest else ()
        )
        id_by_age = {age: ids[age] if age < len(ids) else None for age in (oldest, newest)}
        return _SeenRange(id_by_age[oldest], id_by_age[newest], outputs_behind)

    @staticmethod
    def _kept_positions(
        line: Iterable[SnapshotPosition], published_id: str | None, newer: int, keep: Keep, cutoff: datetime | None
    ) -> list[SnapshotPosition]:
        """Keeps of a line, from its head back, all down to ``published_id``, then what the rule keeps when ``newer``
        snapshots have been published since.
        """
        kept_positions: list[SnapshotPosition] = []
        number_below = 0
        for position in line:
            number_below += number_below > 0 or position.id == published_id
            if number_below > 1 and number_below + newer > keep.last and not _is_young(position, cutoff):
                break
            kept_positions.append(position)
        return kept_positions

    def _kept_replaced_lines(
        self,
        head: Head,
        main: Sequence[SnapshotPosition],
        published_id: str | None,
        keep: Keep,
        cutoff: datetime | None,
    ) -> list[tuple[Replaced, list[SnapshotPosition]]]:
        """What is kept of what main was before each promotion, oldest first; nothing of what main has again. Lines that
        cannot be read are left out: a broken main may have been the reason for its promotion. ``published_id``: the
        oldest that readers of ``main`` see.
        """
        positions: list[tuple[Replaced, list[SnapshotPosition]]] = []
        newer, line = 0, main
        for promotion in reversed(head.past.replaced):
            newer += _number_of(line, published_id, promotion.by)
            try:
                line = [*self._line_positions(head, promotion.main)]
                published_id = self._seen_by_readers(line, published_of(promotion.published_refs)).oldest
                kept_positions = self._kept_positions(line, published_id, newer, keep, cutoff)
                named_by(self._facts, [position.id for position in kept_positions])
            except (BrokenObjectError, MissingSnapshotError) as error:
                _logger.warning("what main was before entry %s cannot be returned to: %s", promotion.entry, error)
                continue
            is_kept = newer < keep.last or _is_young(kept_positions[0], cutoff)
            is_gone = promotion.main not in {position.id for position in main}
            positions.append((promotion, kept_positions if is_kept and is_gone else []))
        return positions[::-1]

    def _given_up(
        self, head: Head, keep: Keep, main: Collection[str], replacements: Iterable[Replaced]
    ) -> tuple[str, ...]:
        """What must not come back to main. It is the newest snapshot of each line that main left for good to which a
        branch, or a kept tag, leads. Nothing else can get a ref any more.
        """
        standing = {replacement.main for replacement in replacements}
        left = [snapshot for snapshot in head.past.heads if snapshot not in standing]
        leading = [
            snapshot
            for ref, snapshot in head.refs.items()
            if ref != MAIN
            and not is_published(ref)
            and not is_delivery(ref)
            and (keep.tags or not ref.startswith(TAGS))
        ]
        ids: set[str] = set()
        for one in left:
            for other in leading:
                with suppress(BrokenObjectError, MissingSnapshotError):
                    common = self._facts.catalog.common_ancestor(one, other)
                    if common is not None and common.snapshot_id not in main:
                        ids.add(common.snapshot_id)
        return tuple(sorted(ids))

    def _kept_on_branch(
        self, head: Head, branch: str, had: Collection[str], keep: Keep, cutoff: datetime | None
    ) -> list[SnapshotPosition]:
        """Work in progress: all that main never ``had``, what that was forked from, and what the rule keeps."""
        is_own, line, number_kept = True, [*self._line_positions(head, head.refs.get(branch))], 0
        for number, position in enumerate(line):
            if not is_own and number >= keep.last and not _is_young(position, cutoff):
                break
            number_kept = number + 1
            is_own = is_own and position.id not in had
        return self._with_parked_needs(line, line[:number_kept])

    def _line_positions(self, head: Head, start: str | None) -> Iterator[SnapshotPosition]:
        current = start
        while current is not None:
            snapshot = self._snapshot_position(head, current)
            yield snapshot
            current = snapshot.before

    def _snapshot_position(self, head: Head, snapshot_id: str) -> SnapshotPosition:
        if snapshot_id not in self._positions:
            facts = self._facts.snapshot_facts(snapshot_id)
            grafts = {} if head.horizon is None else head.horizon.grafts
            self._positions[snapshot_id] = SnapshotPosition(
                snapshot_id,
                facts.epoch,
                facts.branch,
                facts.generation,
                facts.parent,
                grafts.get(snapshot_id, facts.parent),
                facts.created_at,
            )
        return self._positions[snapshot_id]

    @staticmethod
    def _next_kept(
        snapshot: SnapshotPosition,
        positions: Mapping[str, SnapshotPosition],
        kept_positions: Mapping[str, SnapshotPosition],
    ) -> str | None:
        ancestor = snapshot.before
        while ancestor is not None and ancestor not in kept_positions:
            ancestor = positions[ancestor].before
        return ancestor


def _kept_for(
    holds: Iterable[ReaderHold], ages: Mapping[str, int], number_kept: int, aside: Collection[str]
) -> tuple[str, ...]:
    """The readers for whom more is kept than ``number_kept`` snapshots of main, by how far it goes back."""
    oldest = {
        hold: max((len(ages) if one in aside else ages.get(one, -1) for one in hold.snapshots), default=-1)
        for hold in holds
    }
    holds_that_keep = [hold for hold in oldest if oldest[hold] >= number_kept]
    return tuple(hold.name for hold in sorted(holds_that_keep, key=lambda hold: (-oldest[hold], hold.name)))


def named_by(facts: FactsIndex, snapshots: Collection[str], *, as_far_as_known: bool = False) -> set[str]:
    """The paths of all that these snapshots need, their manifests among it. ``as_far_as_known``: what a broken node
    names is left out.

    Raises BrokenObjectError, MissingSnapshotError.
    """
    pipeline = facts.catalog.pipeline
    names: set[str] = set()
    nodes: set[str] = set()
    for snapshot in map(facts.snapshot_facts, snapshots):
        names.add(manifest_path(pipeline, snapshot.id))
        names.update(snapshot.files)
        nodes.update(snapshot.nodes)
    visited_nodes: set[str] = set()
    while nodes := nodes - visited_nodes:
        facts.learn_nodes(nodes)
        visited_nodes |= nodes
        read = [facts.node_facts(node) for node in nodes if node in facts.nodes or not as_far_as_known]
        names.update(path for node in read for path in node.files)
        nodes = {name for node in read for name in node.below}
    return names | {node_path(pipeline, node) for node in visited_nodes}


def _number_of(line: Iterable[SnapshotPosition], first: str | None, last: str) -> int:
    """How many snapshots of ``line`` there are from ``first`` back to ``last``, with both; 0 if it has not both."""
    ids = [position.id for position in line]
    return ids.index(last) - ids.index(first) + 1 if first in ids and last in ids else 0


def _is_young(snapshot: SnapshotPosition, cutoff: datetime | None) -> bool:
    return cutoff is not None and snapshot.created_at >= cutoff
