"""The immutable objects that snapshots are made of: manifests, and nodes of file logs. What was read is remembered."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from headrace_snapshots import layout
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.filelog import FileLog, FileRecord, IndexNode, append, beyond, cut, iterate, newest_first
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store import ObjectNotFoundError, ObjectStore, is_there

_CACHED = 256
_SMALL = 128
"""A leaf that names no more files is remembered when it is written: names files are made of it soon after."""
Immutable = TypeVar("Immutable")


class Objects:
    """The manifests and nodes of ``pipeline`` in ``store``. Usable from many threads."""

    def __init__(self, store: ObjectStore, pipeline: str, new_id: Callable[[], str]) -> None:
        self.store = store
        self.pipeline = pipeline
        self._new_id = new_id
        self._manifests: dict[str, Manifest] = {}
        self._nodes: dict[str, IndexNode] = {}
        self._lock = threading.Lock()

    def manifest(self, snapshot_id: str) -> Manifest:
        """The manifest of a snapshot. Raises MissingSnapshotError or BrokenObjectError."""
        with self._lock:
            if snapshot_id in self._manifests:
                return self._manifests[snapshot_id]
        path = self._manifest_path(snapshot_id)
        try:
            data = self.store.read(path)
        except ObjectNotFoundError as error:
            raise MissingSnapshotError(
                f"pipeline {self.pipeline} has no snapshot {snapshot_id} (no object {self.store.uri}/{path}); "
                "`headrace log` lists its snapshots; if this is one that was not expired, roll back to an older one"
            ) from error
        manifest = Manifest.from_bytes(data, f"{self.store.uri}/{path}")
        if manifest.snapshot_id != snapshot_id:
            raise BrokenObjectError(f"{self.store.uri}/{path} is the manifest of {manifest.snapshot_id}")
        self._remember(manifest)
        return manifest

    def is_stored(self, snapshot_id: str) -> bool:
        """Whether the manifest of a snapshot is in the store now, whatever was read of it before."""
        return is_there(self.store, self._manifest_path(snapshot_id))

    def files(self, log: FileLog, since_epoch: int | None = None) -> Iterator[FileRecord]:
        """Records of a file log, oldest first, of epochs after ``since_epoch``."""
        return iterate(log, self.read_node, since_epoch)

    def newest_files(self, log: FileLog) -> Iterator[FileRecord]:
        """Records of a file log, newest first; reads only as far back as is asked for."""
        return newest_first(log, self._read_nodes)

    def files_beyond(self, log: FileLog, files: int) -> Iterator[FileRecord]:
        """Records of a file log after those of its first so many ``files``, oldest first."""
        return beyond(log, files, self._read_nodes)

    def _read_nodes(self, ids: Sequence[str]) -> list[IndexNode]:
        with ThreadPoolExecutor(len(ids)) as pool:
            return list(pool.map(self.read_node, ids))

    def read_node(self, node_id: str) -> IndexNode:
        """An inner node of a file log. Raises BrokenObjectError."""
        with self._lock:
            if node_id in self._nodes:
                return self._nodes[node_id]
        path = self._node_path(node_id)
        where = f"{self.store.uri}/{path}"
        try:
            node = IndexNode.from_bytes(self.store.read(path), where)
        except ObjectNotFoundError as error:
            raise BrokenObjectError(
                f"{where} is missing: restore it from a backup, or continue from an older snapshot"
            ) from error
        if node.id != node_id:
            raise BrokenObjectError(f"{where} is another node ({node.id}): continue from an older snapshot")
        self._keep(self._nodes, node_id, node)
        return node

    # Writing what is not visible yet

    def new_snapshot_id(self) -> str:
        """A fresh id for a snapshot, which also names its attempt at an epoch."""
        return self._new_id()[:16]

    def data_prefix(self, epoch: int, attempt: str) -> str:
        """Where that attempt at that epoch puts its data files."""
        return layout.data_prefix(self.pipeline, epoch, attempt)

    def append_record(self, log: FileLog, record: FileRecord) -> FileLog:
        """``log`` with ``record`` at its end; index nodes that this completes are stored."""
        longer, nodes = append(log, record, self._new_id())
        self.write_nodes(nodes)
        return longer

    def cut(self, log: FileLog, floor: int) -> FileLog:
        """``log`` without what is older than epoch ``floor``, but for what shares a leaf with newer records."""
        shorter, nodes = cut(log, floor, self.read_node, self._new_id())
        self.write_nodes(nodes)
        return shorter

    def write_nodes(self, nodes: Iterable[IndexNode]) -> None:
        """Store nodes of file logs; storing one again changes nothing."""
        for node in nodes:
            self.store.write(self._node_path(node.id), node.to_bytes())
            if node.records and node.ref.files <= _SMALL:
                self._keep(self._nodes, node.id, node)

    def write_manifest(self, manifest: Manifest) -> None:
        """Store a manifest, which no entry names yet."""
        self.store.write(self._manifest_path(manifest.snapshot_id), manifest.to_bytes())

    def _remember(self, manifest: Manifest) -> None:
        self._keep(self._manifests, manifest.snapshot_id, manifest)

    def _keep(self, objects: dict[str, Immutable], name: str, value: Immutable) -> None:
        with self._lock:
            objects[name] = value
            if len(objects) > _CACHED:
                del objects[next(iter(objects))]

    def _manifest_path(self, snapshot_id: str) -> str:
        return layout.manifest_path(self.pipeline, snapshot_id)

    def _node_path(self, node_id: str) -> str:
        return layout.node_path(self.pipeline, node_id)
