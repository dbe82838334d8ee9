"""The objects that snapshots are made of, none of which changes once it is stored.

``check_data_file`` and others say of data files whether they still are what was written. ``Objects`` has manifests, and
nodes of file logs and of layers: what was read is remembered.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, takewhile
from pathlib import Path
from typing import Final, TypeVar

from headrace.this_process import Size
from headrace_snapshots import names
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format import files as stored_files
from headrace_snapshots.format.codec import BrokenObjectError, checksum
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store import (
    LocalStore,
    ObjectInfo,
    ObjectNotFoundError,
    ObjectStore,
    do_all,
    is_there,
    lists_in_pages,
)


def read_verified(store: ObjectStore, file: stored_files.DataFile) -> bytes:
    """The content of ``file``, once its length and checksum are found right. Raises BrokenObjectError."""
    try:
        data = store.read(file.path)
    except ObjectNotFoundError as error:
        raise missing_error(store, file) from error
    _check_content(store, file, len(data), checksum(data))
    return data


_PAGE = 1_000
"""Names in a page of a listing."""

_WORTH = 16
"""A page is asked for in place of so many looks at objects at least: stores charge as much for it as for twelve."""


def list_objects(store: ObjectStore, paths: Iterable[str]) -> dict[str, ObjectInfo]:
    """What listings say of those of ``paths`` of which many lie in one folder, if a store lists in pages. They say
    nothing of what is not there, nor of what lies among too many others.
    """
    folders: dict[str, list[str]] = {}
    for path in paths if lists_in_pages(store) else ():
        folders.setdefault(path.rpartition("/")[0], []).append(path)
    many = [wanted_paths for wanted_paths in folders.values() if len(wanted_paths) >= _WORTH]
    return {info.path: info for infos in do_all(store, partial(_list_wanted, store), many) for info in infos}


def _list_wanted(store: ObjectStore, wanted_paths: Sequence[str]) -> list[ObjectInfo]:
    first, last = min(wanted_paths), max(wanted_paths)
    same = takewhile(lambda place: first[place] == last[place], range(min(len(first), len(last))))
    beginning = "".join(first[place] for place in same)
    left, infos = {*wanted_paths}, []
    for info in islice(store.list(beginning), _PAGE * (len(wanted_paths) // _WORTH)):
        if info.path in left:
            infos.append(info)
            left.remove(info.path)
            if not left:
                break
    return infos


def check_size(store: ObjectStore, file: stored_files.DataFile, info: ObjectInfo | None = None) -> ObjectInfo:
    """What the store says of ``file``, or a listing has said (``info``), if it is there with its length; its content is
    not read. Raises BrokenObjectError.
    """
    info = info_of(store, file) if info is None else info
    if info.size != file.bytes:
        raise _broken_object_error(store, file, f"has {info.size} bytes, its manifest says {file.bytes}")
    return info


def info_of(store: ObjectStore, file: stored_files.DataFile) -> ObjectInfo:
    """What the store says of ``file``. Raises BrokenObjectError if it is gone."""
    try:
        return store.stat(file.path)
    except ObjectNotFoundError as error:
        raise missing_error(store, file) from error


def verified_range(store: ObjectStore, file: stored_files.DataFile, parts: Sequence[tuple[int, int, str]]) -> bytes:
    """Neighbouring ``parts`` of ``file`` (start, length, hex SHA-256), with one request, once their checksums are found
    right. Raises BrokenObjectError.
    """
    begin, length = parts[0][0], sum(part[1] for part in parts)
    try:
        data = store.read_range(file.path, begin, length)
    except ObjectNotFoundError as error:
        raise missing_error(store, file) from error
    for start, size, sha256 in parts:
        if checksum(data[start - begin : start - begin + size]) != sha256:
            raise changed_error(store, file)
    return data


def check_data_file(store: ObjectStore, file: stored_files.DataFile) -> None:
    """Hold ``file`` against its length and checksum; a local one is never whole in memory. Raises BrokenObjectError."""
    if not isinstance(store, LocalStore):
        read_verified(store, file)
        return
    try:
        size, digest = store.sha256(file.path)
    except ObjectNotFoundError as error:
        raise missing_error(store, file) from error
    _check_content(store, file, size, digest)


def local_copy(store: ObjectStore, file: stored_files.DataFile, path: Path) -> Path:
    """Where a reader of local files finds ``file``, once its length and checksum are found right. That is where it is,
    if the store is local, else a copy at ``path``. Raises BrokenObjectError.
    """
    if isinstance(store, LocalStore):
        check_data_file(store, file)
        return store.root / file.path
    path.write_bytes(read_verified(store, file))
    return path


def missing_error(store: ObjectStore, file: stored_files.DataFile) -> BrokenObjectError:
    """What is wrong with ``file`` if it is gone."""
    return _broken_object_error(store, file, "is missing")


def changed_error(store: ObjectStore, file: stored_files.DataFile) -> BrokenObjectError:
    """What is wrong with ``file`` if it is not what was written."""
    return _broken_object_error(store, file, "does not have the checksum in its manifest")


def _check_content(store: ObjectStore, file: stored_files.DataFile, size: int, digest: str) -> None:
    if size != file.bytes:
        raise _broken_object_error(store, file, f"has {size} bytes, its manifest says {file.bytes}")
    if digest != file.sha256:
        raise changed_error(store, file)


def _broken_object_error(store: ObjectStore, file: stored_files.DataFile, problem: str) -> BrokenObjectError:
    remedy = "restore it from a backup, or continue from an older snapshot"
    return BrokenObjectError(f"{store.uri}/{file.path} {problem}: {remedy}")


CACHED_OBJECTS: Final = Size(256)
_SMALL_LEAF_FILES = 128
"""A leaf that names no more files is remembered when it is written: names files are made of it soon after."""
Immutable = TypeVar("Immutable")


class Objects:
    """The manifests and nodes of ``pipeline`` in ``store``. Usable from many threads."""

    def __init__(self, store: ObjectStore, pipeline: str, new_id: Callable[[], str]) -> None:
        self.store = store
        self.pipeline = pipeline
        self._new_id = new_id
        self._manifests: dict[str, Manifest] = {}
        self._nodes: dict[str, stored_files.IndexNode] = {}
        self._files: dict[str, stored_files.FilesByRecord] = {}
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
        manifest = manifest.read_by(self._files_of)
        self._remember(manifest)
        return manifest

    def is_stored(self, snapshot_id: str) -> bool:
        """Whether the manifest of a snapshot is in the store now, whatever was read of it before."""
        return is_there(self.store, self._manifest_path(snapshot_id))

    def file_records(
        self, log: stored_files.FileLog, since_epoch: int | None = None
    ) -> Iterator[stored_files.FileRecord]:
        """Records of a file log, oldest first, of epochs after ``since_epoch``."""
        return stored_files.iterate_records(log, self._read_nodes, since_epoch)

    def newest_files(self, log: stored_files.FileLog) -> Iterator[stored_files.FileRecord]:
        """Records of a file log, newest first; reads only as far back as is asked for."""
        return stored_files.newest_first(log, self._read_nodes)

    def files_beyond(self, log: stored_files.FileLog, files: int) -> Iterator[stored_files.FileRecord]:
        """Records of a file log after those of its first so many ``files``, oldest first."""
        return stored_files.records_after_files(log, files, self._read_nodes)

    def _read_nodes(self, ids: Sequence[str]) -> list[stored_files.IndexNode]:
        return do_all(self.store, self.read_node, ids, stored_files.RADIX.value)

    def layers(self, manifest: Manifest, tables: Iterable[str]) -> list[stored_files.Layer]:
        """The layers of ``tables`` that a manifest has, with their files at hand: nodes are read several at once.
        Raises BrokenObjectError.
        """
        layers = [layer for table in tables for layer in manifest.tables.get(table, ())]
        do_all(self.store, lambda node: node.by_record, [layer.node for layer in layers if layer.node is not None])
        return layers

    def _files_of(self, ref: stored_files.FilesNode) -> stored_files.FilesByRecord:
        """What a node of a layer or of a merge has."""
        with self._lock:
            if ref.id in self._files:
                return self._files[ref.id]
        node = self._load_node(ref.id)
        leaves = do_all(self.store, self._load_node, [leaf.id for leaf in node.refs]) if node.refs else [node]
        files = tuple(stored_files.files_in(record) for leaf in leaves for record in leaf.records)
        self._cache_object(self._files, ref.id, files)
        return files

    def read_node(self, node_id: str) -> stored_files.IndexNode:
        """An inner node of a file log. Raises BrokenObjectError."""
        with self._lock:
            if node_id in self._nodes:
                return self._nodes[node_id]
        node = self._load_node(node_id)
        self._cache_object(self._nodes, node_id, node)
        return node

    def _load_node(self, node_id: str) -> stored_files.IndexNode:
        path = self._node_path(node_id)
        where = f"{self.store.uri}/{path}"
        try:
            node = stored_files.IndexNode.from_bytes(self.store.read(path), where)
        except ObjectNotFoundError as error:
            raise BrokenObjectError(
                f"{where} is missing: restore it from a backup, or continue from an older snapshot"
            ) from error
        if node.id != node_id:
            raise BrokenObjectError(f"{where} is another node ({node.id}): continue from an older snapshot")
        return node

    # Writing what is not visible yet

    def new_snapshot_id(self) -> str:
        """A fresh id for a snapshot, which also names its attempt at an epoch."""
        return self._new_id()[:16]

    def data_prefix(self, epoch: int, attempt: str) -> str:
        """Where that attempt at that epoch puts its data files."""
        return names.data_prefix(self.pipeline, epoch, attempt)

    def append_record(self, log: stored_files.FileLog, record: stored_files.FileRecord) -> stored_files.FileLog:
        """``log`` with ``record`` at its end; index nodes that this completes are stored."""
        longer, nodes = stored_files.append(log, record, self._new_id())
        self.write_nodes(nodes)
        return longer

    def cut(self, log: stored_files.FileLog, floor: int) -> stored_files.FileLog:
        """``log`` without what is older than epoch ``floor``, but for what shares a leaf with newer records."""
        shorter, nodes = stored_files.cut_before_epoch(log, floor, self.read_node, self._new_id())
        self.write_nodes(nodes)
        return shorter

    def write_nodes(self, nodes: Iterable[stored_files.IndexNode]) -> None:
        """Store nodes of file logs; storing one again changes nothing."""
        for node in nodes:
            self._write_node(node)
            if node.records and node.ref.files <= _SMALL_LEAF_FILES:
                self._cache_object(self._nodes, node.id, node)

    def _write_node(self, node: stored_files.IndexNode) -> None:
        self.store.write(self._node_path(node.id), node.to_bytes())

    def write_manifest(self, manifest: Manifest, parent: Manifest | None = None) -> Manifest:
        """Store a manifest that no entry names yet, after nodes that its ``parent`` lacks. Gives what was stored."""
        manifest, nodes = manifest.in_nodes(parent, self._new_id)
        do_all(self.store, self._write_node, nodes)
        self.store.write(self._manifest_path(manifest.snapshot_id), manifest.to_bytes())
        return manifest

    def _remember(self, manifest: Manifest) -> None:
        self._cache_object(self._manifests, manifest.snapshot_id, manifest)

    def _cache_object(self, objects: dict[str, Immutable], name: str, value: Immutable) -> None:
        with self._lock:
            objects[name] = value
            if len(objects) > CACHED_OBJECTS.value:
                del objects[next(iter(objects))]

    def _manifest_path(self, snapshot_id: str) -> str:
        return names.manifest_path(self.pipeline, snapshot_id)

    def _node_path(self, node_id: str) -> str:
        return names.node_path(self.pipeline, node_id)
