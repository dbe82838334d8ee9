"""Data files of snapshots: whether they still are what was written."""

from collections.abc import Sequence
from pathlib import Path

from headrace_snapshots.format.codec import BrokenObjectError, checksum
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.store import LocalStore, ObjectNotFoundError, ObjectStore


def verify(store: ObjectStore, file: DataFile) -> bytes:
    """The content of ``file``, once its length and checksum are found right. Raises BrokenObjectError."""
    try:
        data = store.read(file.path)
    except ObjectNotFoundError as error:
        raise missing(store, file) from error
    _check(store, file, len(data), checksum(data))
    return data


def look(store: ObjectStore, file: DataFile) -> None:
    """Whether ``file`` is there with its length; its content is not read. Raises BrokenObjectError."""
    try:
        size = store.stat(file.path).size
    except ObjectNotFoundError as error:
        raise missing(store, file) from error
    if size != file.bytes:
        raise _broken(store, file, f"has {size} bytes, its manifest says {file.bytes}")


def verified_range(store: ObjectStore, file: DataFile, parts: Sequence[tuple[int, int, str]]) -> bytes:
    """Neighbouring ``parts`` of ``file`` (start, length, hex SHA-256), with one request, once their checksums are found
    right. Raises BrokenObjectError.
    """
    begin, length = parts[0][0], sum(part[1] for part in parts)
    try:
        data = store.read_range(file.path, begin, length)
    except ObjectNotFoundError as error:
        raise missing(store, file) from error
    for start, size, sha256 in parts:
        if checksum(data[start - begin : start - begin + size]) != sha256:
            raise changed(store, file)
    return data


def check(store: ObjectStore, file: DataFile) -> None:
    """Hold ``file`` against its length and checksum; a local one is never whole in memory. Raises BrokenObjectError."""
    if not isinstance(store, LocalStore):
        verify(store, file)
        return
    try:
        size, digest = store.sha256(file.path)
    except ObjectNotFoundError as error:
        raise missing(store, file) from error
    _check(store, file, size, digest)


def local_copy(store: ObjectStore, file: DataFile, path: Path) -> Path:
    """Where a reader of local files finds ``file``, once its length and checksum are found right: where it is, if the
    store is local, else a copy at ``path``. Raises BrokenObjectError.
    """
    if isinstance(store, LocalStore):
        check(store, file)
        return store.root / file.path
    path.write_bytes(verify(store, file))
    return path


def missing(store: ObjectStore, file: DataFile) -> BrokenObjectError:
    """What is wrong with ``file`` if it is gone."""
    return _broken(store, file, "is missing")


def changed(store: ObjectStore, file: DataFile) -> BrokenObjectError:
    """What is wrong with ``file`` if it is not what was written."""
    return _broken(store, file, "does not have the checksum in its manifest")


def _check(store: ObjectStore, file: DataFile, size: int, digest: str) -> None:
    if size != file.bytes:
        raise _broken(store, file, f"has {size} bytes, its manifest says {file.bytes}")
    if digest != file.sha256:
        raise changed(store, file)


def _broken(store: ObjectStore, file: DataFile, problem: str) -> BrokenObjectError:
    remedy = "restore it from a backup, or continue from an older snapshot"
    return BrokenObjectError(f"{store.uri}/{file.path} {problem}: {remedy}")
