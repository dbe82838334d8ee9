"""What an expiry asks of snapshots and of nodes of file logs. Neither ever changes, so each is read once.

An expiry stores what it knows of the snapshots that it keeps with its mark; the next one begins with that and reads
only what has come since. What is not known is read several objects at a time. A memo that cannot be read is as good as
none: everything is read again.
"""

import base64
import json
import zlib
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from sys import intern
from typing import Any, TypeVar

from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError, canonical
from headrace_snapshots.format.filelog import IndexNode
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import Manifest

_READERS = 16
_FORMAT = 1
Read = TypeVar("Read")


@dataclass(frozen=True)
class SnapshotFacts:
    """What is remembered of a manifest: where it stands, the paths of the data files and the ids of the nodes that it
    names itself.
    """

    id: str
    epoch: int
    branch: str
    generation: int
    parent: str | None
    created_at: datetime
    files: tuple[str, ...]
    nodes: tuple[str, ...]

    @classmethod
    def of(cls, manifest: Manifest) -> "SnapshotFacts":
        """The facts of ``manifest``."""
        refs = {ref.id for log in manifest.logs.values() for ref in log.refs}
        return cls(
            manifest.snapshot_id,
            manifest.epoch,
            manifest.branch,
            manifest.generation,
            manifest.parent,
            datetime.fromisoformat(manifest.created_at),
            _names(file.path for file in files_of(manifest)),
            _names(refs),
        )


@dataclass(frozen=True)
class NodeFacts:
    """What is remembered of a node of a file log: the paths of the data files, and the ids of the nodes, it names."""

    files: tuple[str, ...]
    below: tuple[str, ...]

    @classmethod
    def of(cls, node: IndexNode) -> "NodeFacts":
        """The facts of ``node``."""
        return cls(_names(file.path for file in data_files(node)), _names(ref.id for ref in node.refs))


@dataclass
class FactsIndex:
    """Facts by id. ``notes``: what those who judge other objects want to remember of each, by path."""

    catalog: Catalog
    snapshots: dict[str, SnapshotFacts] = field(default_factory=dict)
    nodes: dict[str, NodeFacts] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def snapshot(self, snapshot_id: str) -> SnapshotFacts:
        """Raises BrokenObjectError, MissingSnapshotError."""
        if snapshot_id not in self.snapshots:
            self.snapshots[snapshot_id] = SnapshotFacts.of(self.catalog.manifest(snapshot_id))
        return self.snapshots[snapshot_id]

    def node(self, node_id: str) -> NodeFacts:
        """Raises BrokenObjectError."""
        if node_id not in self.nodes:
            self.nodes[node_id] = NodeFacts.of(self.catalog.read_node(node_id))
        return self.nodes[node_id]

    def learn_snapshots(self, snapshot_ids: Collection[str]) -> None:
        """Read those that are not known, several at once. What cannot be read is left to those who ask for it."""
        self._learn(self.snapshot, [snapshot_id for snapshot_id in snapshot_ids if snapshot_id not in self.snapshots])

    def learn_nodes(self, node_ids: Collection[str]) -> None:
        """Read those that are not known, several at once. What cannot be read is left to those who ask for it."""
        self._learn(self.node, [node_id for node_id in node_ids if node_id not in self.nodes])

    def _learn(self, read: Callable[[str], Read], wanted: Sequence[str]) -> None:
        def attempt(one: str) -> None:
            with suppress(BrokenObjectError, MissingSnapshotError):
                read(one)

        with ThreadPoolExecutor(_READERS) as pool:
            for _ in pool.map(attempt, wanted):
                pass

    def encoded(self, snapshot_ids: Collection[str]) -> str:
        """The facts of these snapshots, which must be known, and of all nodes below them, as text; and the notes."""
        snapshots = sorted((self.snapshots[item] for item in snapshot_ids), key=lambda item: (item.epoch, item.id))
        nodes = self._below(snapshots)
        numbers: dict[str, int] = {}

        def numbered(names: Iterable[str]) -> list[int]:
            return sorted(numbers.setdefault(name, len(numbers)) for name in names)

        node_rows = [[name, numbered(node.files), numbered(node.below)] for name, node in nodes.items()]
        rows: list[list[Any]] = []
        last: tuple[set[int], set[int]] = (set(), set())
        for item in snapshots:
            own = ({*numbered(item.files)}, {*numbered(item.nodes)})
            changes = [[sorted(now - before), sorted(before - now)] for now, before in zip(own, last, strict=True)]
            at = item.created_at.isoformat()
            rows.append([item.id, item.epoch, item.branch, item.generation, item.parent, at, *changes])
            last = own
        document = {"nodes": node_rows, "snapshots": rows, "names": [*numbers], "notes": self.notes}
        return base64.b64encode(zlib.compress(canonical({"format": _FORMAT, **document}), 1)).decode("ascii")

    def _below(self, snapshots: Iterable[SnapshotFacts]) -> dict[str, NodeFacts]:
        facts: dict[str, NodeFacts] = {}
        left = {node for snapshot in snapshots for node in snapshot.nodes}
        while left:
            node_id = left.pop()
            facts[node_id] = self.node(node_id)
            left |= {*facts[node_id].below} - facts.keys()
        return dict(sorted(facts.items()))

    def remember(self, text: str | None) -> None:
        """Take over what ``encoded`` gave, if anything; the checksum of the mark says that it is whole."""
        if text is None:
            return
        document = json.loads(zlib.decompress(base64.b64decode(text, validate=True)))
        if document["format"] != _FORMAT:
            return
        names = [intern(name) for name in document["names"]]
        for name, files, below in document["nodes"]:
            self.nodes[name] = NodeFacts(_at(names, files), _at(names, below))
        last: tuple[set[int], set[int]] = (set(), set())
        for snapshot, epoch, branch, generation, parent, at, *changes in document["snapshots"]:
            files, nodes = ((now - {*gone}) | {*new} for now, (new, gone) in zip(last, changes, strict=True))
            last = files, nodes
            place = snapshot, epoch, branch, generation, parent, datetime.fromisoformat(at)
            self.snapshots[snapshot] = SnapshotFacts(*place, _at(names, files), _at(names, nodes))
        self.notes.update(document["notes"])


def files_of(manifest: Manifest) -> Iterable[DataFile]:
    """The data files that a manifest names itself: of layers, of the newest records of file logs, and of names."""
    yield from names_of(manifest)
    for layers in manifest.tables.values():
        for layer in layers:
            yield from layer.files
    for log in manifest.logs.values():
        for record in log.tail:
            yield from (file for file in record.files if isinstance(file, DataFile))


def names_of(manifest: Manifest) -> Iterable[DataFile]:
    """The data files of names of what was read, which can be made of the log again."""
    for log in manifest.logs.values():
        yield from () if log.names is None else (names.file for names in log.names.files)


def data_files(node: IndexNode) -> Iterable[DataFile]:
    """The data files that a node names itself."""
    for record in node.records:
        yield from (file for file in record.files if isinstance(file, DataFile))


def _names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(intern(name) for name in sorted({*names}))


def _at(names: Sequence[str], places: Iterable[int]) -> tuple[str, ...]:
    return tuple(names[place] for place in sorted(places))
