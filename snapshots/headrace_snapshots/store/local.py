"""Stores of one machine: a folder of its file system, or the memory of this process.

``file_of`` spells names of files in UTF-8, whatever the locale of the process is. Python decodes names as the locale
says. In a process without UTF-8 a file would have another name than in the next one, and be read once more.

``unnamed_file`` is a file that gets its name only once it is complete: a reader sees all of a file or nothing. A file
without a name yet is locked by its writer. One that nobody has locked was left by a process that died; it goes with the
next put of another.

``LocalStore`` is a folder of a local (or mounted POSIX) file system. Every put writes a file of its own first and then
gives it its name in one step. That step is ``os.replace`` for a write, ``os.link`` (which fails when the name is taken)
for a create. What is put survives a power cut. The file is flushed, the folder that names it, and every folder above
that up to the root, even if another process made it.

``MemoryStore`` is for tests, and for pipelines that need not outlive this process.
"""

import errno
import fcntl
import hashlib
import os
import sys
import threading
import uuid
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice, takewhile
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO, Final, TypeVar
from urllib.parse import unquote

import xxhash

from headrace.errors import FixConfigError
from headrace.ext import stores as store_ports

_NAMES_ARE_UTF8: Final = sys.getfilesystemencoding() == "utf-8"


def file_of(path: str) -> str:
    """What Python calls the file of ``path``."""
    return path if _NAMES_ARE_UTF8 else os.fsdecode(store_ports.sort_key(path))


@contextmanager
def unnamed_file(folder: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """A new file in ``folder``, locked as long as this lasts, and removed then if it is still there."""
    while True:
        path = folder / uuid.uuid4().hex
        with path.open("xb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                if os.fstat(file.fileno()).st_nlink:
                    yield path, file
                    return
            finally:
                path.unlink(missing_ok=True)
        # Somebody who swept had the lock first: once more, under another name.


def sweep_folder(folder: Path) -> None:
    """Remove from ``folder`` what processes left there that died."""
    for left in folder.iterdir():
        # Gone already, still locked, or another user's, who will sweep it.
        with suppress(FileNotFoundError, BlockingIOError, PermissionError), left.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left.unlink()


UNNAMED_FOLDER = ".headrace-unnamed"
"""Below the root: files without a name yet; never listed."""

_CHUNK_BYTES = 1 << 20
_MOST_LOOKS = 3
"""How often a file is looked at that changes meanwhile."""

_PERSON_MUST_ACT = (PermissionError, NotADirectoryError, IsADirectoryError, FileExistsError)
_FOR_EVER = {errno.ELOOP, errno.ENAMETOOLONG, errno.EROFS, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}
"""What a file system will say again."""

Result = TypeVar("Result")


class LinkLoopError(FixConfigError, code="config.link_loop"):
    """A folder holds a link to itself, or to one that holds it: everything in it has names without end."""


class LocalStore:
    """Objects are files below ``root``, which is made at the first write. ``etag`` is made of size and mtime in ns."""

    def __init__(self, root: Path) -> None:
        if not root.is_absolute():
            raise FixConfigError(f"the root of a local store must be an absolute path, not {root}")
        self.root = root
        self.uri = root.as_uri()
        self.requests = store_ports.RequestCounts()
        self._flushed_folders: set[Path] = set()
        self._is_swept = False

    def read(self, path: str) -> bytes:
        return self._run_on_file("get", path, Path.read_bytes)

    def read_same(self, info: store_ports.ObjectInfo) -> bytes:
        return self._run_on_file("get", info.path, lambda file: _read_unchanged(file, info))

    def read_range(self, path: str, start: int, length: int) -> bytes:
        def read_part(file: Path) -> bytes:
            with file.open("rb") as content:
                content.seek(start)
                return content.read(length)

        return self._run_on_file("get", path, read_part)

    def stat(self, path: str) -> store_ports.ObjectInfo:
        return self._run_on_file("stat", path, lambda file: _file_info(path, file.stat()))

    def digested(self, path: str) -> store_ports.ObjectInfo:
        return self._run_on_file("get", path, lambda file: _stat_with_digest(file, path))

    def sha256(self, path: str) -> tuple[int, str]:
        """Length of ``path`` and hex SHA-256 of its content, of which a piece is in memory at a time."""
        return self._run_on_file("get", path, _file_sha256)

    def write(self, path: str, data: bytes) -> store_ports.ObjectInfo:
        target = self._file_path(path)
        self.requests.add("put")
        with _store_errors(target), self._write_unnamed(target, data) as (unnamed_path, info):
            self._give_name(target, lambda: unnamed_path.replace(target))
            _flush_folder(target.parent)
        return store_ports.ObjectInfo(path, info.size, info.etag)

    def create(self, path: str, data: bytes) -> store_ports.ObjectInfo:
        target = self._file_path(path)
        self.requests.add("create")
        with _store_errors(target), self._write_unnamed(target, data) as (unnamed_path, info):
            try:
                self._give_name(target, lambda: os.link(unnamed_path, target))
            except FileExistsError:
                raise store_ports.ObjectExistsError(f"{target} exists already") from None
            try:
                _flush_folder(target.parent)
            except OSError as error:
                raise store_ports.UnknownOutcomeError(
                    f"{target} was created, but may not survive a crash: {error}"
                ) from error
        return store_ports.ObjectInfo(path, info.size, info.etag)

    def list(self, prefix: str, start_after: str = "") -> Iterator[store_ports.ObjectInfo]:
        self.requests.add("list")
        folder = prefix.rpartition("/")[0]
        if folder:
            store_ports.check_path(folder)
        with _store_errors(self.root / file_of(folder)):
            yield from _walk_files(self.root / file_of(folder), f"{folder}/" if folder else "", prefix, start_after, ())

    def find_present(self, paths: Sequence[str]) -> tuple[str, ...]:
        """Give those of ``paths`` that are there, in their order. Unlike a listing it is no slower in a long folder."""
        self.requests.add("list")
        root, present = str(self.root), []
        with _store_errors(self.root):
            for path in paths:
                try:
                    os.stat(f"{root}/{file_of(store_ports.check_path(path))}")  # noqa: PTH116  # a Path takes longer
                except (FileNotFoundError, NotADirectoryError):
                    continue
                present.append(path)
        return tuple(present)

    def has_changed_since(self, folder: str, path: str) -> bool:
        """Whether a name in ``folder`` came or went since ``path`` was written; True if either is not there."""
        with _store_errors(self.root):
            try:
                folder_status = self._file_path(folder).stat()
                return folder_status.st_mtime_ns > self._file_path(path).stat().st_mtime_ns
            except (FileNotFoundError, NotADirectoryError):
                return True

    def delete(self, path: str) -> None:
        target = self._file_path(path)
        self.requests.add("delete")
        with _store_errors(target):
            target.unlink(missing_ok=True)
            with suppress(OSError):  # it is not empty, or gone
                if target.parent != self.root:
                    target.parent.rmdir()

    def _file_path(self, path: str) -> Path:
        return self.root / file_of(store_ports.check_path(path))

    def _run_on_file(self, kind: str, path: str, operation: Callable[[Path], Result]) -> Result:
        file = self._file_path(path)
        self.requests.add(kind)
        with _store_errors(file):
            # A folder, or a file where the path needs a folder, holds no object of that path.
            if not file.is_file():
                raise store_ports.ObjectNotFoundError(f"there is no object {file}")
            return operation(file)

    @contextmanager
    def _write_unnamed(self, target: Path, data: bytes) -> Iterator[tuple[Path, store_ports.ObjectInfo]]:
        """A complete file on disk without its name yet, with size and etag; removed if it still has none afterwards."""
        folder = self.root / UNNAMED_FOLDER
        self._make_folder(folder)
        self._sweep_once(folder)
        self._make_folder(target.parent)
        with unnamed_file(folder) as (unnamed_path, file):
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            yield unnamed_path, _file_info(target.name, os.fstat(file.fileno()))

    def _give_name(self, target: Path, name: Callable[[], object]) -> None:
        """Give a file its name. A process that deleted the last file of its folder may just have removed the folder."""
        try:
            name()
        except FileNotFoundError:
            self._make_folder(target.parent)
            name()

    def _make_folder(self, folder: Path) -> None:
        """Make ``folder`` where it is missing, and flush what names it, up to the root."""
        if folder in self._flushed_folders and folder.is_dir():
            return
        if folder != self.root:
            self._make_folder(folder.parent)
            folder.mkdir(exist_ok=True)
            _flush_folder(folder.parent)  # also if it was there: who made it may not have come to that yet
        elif not folder.is_dir():
            new_folders = [ancestor for ancestor in (folder, *folder.parents) if not ancestor.exists()]
            folder.mkdir(parents=True, exist_ok=True)
            for ancestor in new_folders:
                _flush_folder(ancestor.parent)
        self._flushed_folders.add(folder)

    def _sweep_once(self, folder: Path) -> None:
        """Remove from ``folder``, once, what processes left there that died."""
        if self._is_swept:
            return
        self._is_swept = True
        sweep_folder(folder)


def _walk_files(
    folder: Path, base: str, prefix: str, start_after: str, ancestors: tuple[tuple[int, int], ...]
) -> Iterator[store_ports.ObjectInfo]:
    """Files below ``folder`` in the byte order of their whole paths: a folder sorts as its name with ``/`` after it.
    ``ancestors``: which folders the walk has come through. Raises LinkLoopError.
    """
    begin, mark = store_ports.sort_key(base), store_ports.sort_key(start_after)
    if begin <= mark and not mark.startswith(begin):
        return
    start_name = mark[len(begin) :] if mark.startswith(begin) else b""
    try:
        status = folder.stat()
        folder_identity = (status.st_dev, status.st_ino)
        if folder_identity in ancestors:
            raise LinkLoopError(
                f"{folder} is a link to a folder that it lies in, so that what is in there has names without end: "
                "remove the link"
            )
        with os.scandir(os.fsencode(folder)) as scan:
            # most names of a long log are behind: nothing is asked of them but that
            later_entries = [
                entry for entry in scan if (name := entry.name) > start_name or start_name.startswith(name)
            ]
        named_entries = [(entry.name + b"/" if entry.is_dir() else entry.name, entry) for entry in later_entries]
    except (FileNotFoundError, NotADirectoryError):
        return
    for name, entry in sorted(named_entries, key=itemgetter(0)):
        path = base + name.decode("utf-8", "surrogateescape")
        if path.endswith("/"):
            relevant = path.startswith(prefix) or prefix.startswith(path)
            if relevant and path != f"{UNNAMED_FOLDER}/":
                yield from _walk_files(
                    folder / os.fsdecode(entry.name), path, prefix, start_after, (*ancestors, folder_identity)
                )
        elif name > start_name and path.startswith(prefix):
            try:
                if entry.is_file():
                    yield _file_info(path, entry.stat())
            except FileNotFoundError:
                continue  # deleted while the listing was under way


def _read_unchanged(file: Path, info: store_ports.ObjectInfo) -> bytes:
    """The content of ``file``. Raises ObjectChangedError if it is not that of ``info``."""
    with file.open("rb", buffering=0) as content:
        info_before = _file_info(info.path, os.fstat(content.fileno()))
        data = content.readall()
        # once more, since a writer may have been at work while it was read
        info_after = _file_info(info.path, os.fstat(content.fileno()))
    if info.digest is None:
        is_same = info_before.etag == info_after.etag == info.etag
    else:
        is_same = xxh3_digest(xxhash.xxh3_64(data)) == info.digest
    if not is_same:
        raise store_ports.ObjectChangedError(
            f"{file} is not what it was when it was {info.size} bytes with ETag {info.etag}"
        )
    return data


def _stat_with_digest(file: Path, path: str) -> store_ports.ObjectInfo:
    """XXH3 with 64 bits: made to find changes, at the speed of memory, and not to withstand forgery."""
    for _ in range(_MOST_LOOKS):
        hasher, chunk, size = xxhash.xxh3_64(), bytearray(_CHUNK_BYTES), 0
        with file.open("rb", buffering=0) as content:
            info_before = _file_info(path, os.fstat(content.fileno()))
            while read := content.readinto(chunk):
                hasher.update(memoryview(chunk)[:read])
                size += read
            info_after = _file_info(path, os.fstat(content.fileno()))
        if info_before == info_after and size == info_after.size:
            return replace(info_after, digest=xxh3_digest(hasher))
    raise store_ports.ObjectChangedError(f"{file} changed each of the {_MOST_LOOKS} times that it was looked at")


def xxh3_digest(hasher: xxhash.xxh3_64) -> str:
    """The digest that a ``LocalStore`` gives a file whose content ``hasher`` has taken in."""
    return f"xxh3-{hasher.hexdigest()}"


def _file_sha256(file: Path) -> tuple[int, str]:
    with file.open("rb", buffering=0) as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
        return content.tell(), digest


def _file_info(path: str, status: os.stat_result) -> store_ports.ObjectInfo:
    etag = f"{status.st_size}-{status.st_mtime_ns}"
    return store_ports.ObjectInfo(path, status.st_size, etag, modified=status.st_mtime_ns // 1000)


def _flush_folder(folder: Path) -> None:
    """Let what names the files and folders in ``folder`` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _store_errors(path: Path) -> Iterator[None]:
    """Turn the system's errors about ``path`` into the port's."""
    try:
        yield
    except FileNotFoundError as error:
        raise store_ports.ObjectNotFoundError(f"there is no object {path}") from error
    except OSError as error:
        where = error.filename or path
        if error.errno == errno.ELOOP:
            raise LinkLoopError(f"{where} is a link that leads back to itself: remove the link") from error
        if isinstance(error, _PERSON_MUST_ACT) or error.errno in _FOR_EVER:
            raise FixConfigError(
                f"{path} cannot be used: {error.strerror}; check the root folder and its rights"
            ) from error
        raise store_ports.StoreUnavailableError(f"{path} cannot be used now: {error.strerror}") from error


def _open_folder(uri: str) -> LocalStore:
    path = uri.partition("://")[2]
    if not path.startswith("/"):
        raise FixConfigError(
            f"{store_ports.shown(uri)!r} names a host: a local root has three slashes, as in file:///folder"
        )
    return LocalStore(Path(file_of(unquote(path))))


FILE: Final = store_ports.StoreScheme("file:///folder", _open_folder)


PAGE = 1000
"""Objects per counted page of a listing, as S3 has it."""


class _Shelf:
    """What stores of one name share."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.objects: dict[str, bytes] = {}
        self.order: list[tuple[bytes, str]] = []
        """Every path after what it sorts by."""

    def put(self, path: str, data: bytes) -> None:
        if path not in self.objects:
            insort(self.order, (store_ports.sort_key(path), path))
        self.objects[path] = bytes(data)

    def remove(self, path: str) -> None:
        if self.objects.pop(path, None) is not None:
            self.order.remove((store_ports.sort_key(path), path))

    def find(self, prefix: str, start_after: str) -> list[tuple[str, bytes]]:
        begin = max(
            bisect_left(self.order, (store_ports.sort_key(prefix),)),
            bisect_right(self.order, (store_ports.sort_key(start_after), start_after)),
        )
        paths = takewhile(lambda path: path.startswith(prefix), (path for _, path in islice(self.order, begin, None)))
        return [(path, self.objects[path]) for path in paths]


_shelves: dict[str, _Shelf] = {}
_shelves_lock = threading.Lock()


class MemoryStore:
    """Stores of the same ``name`` in one process see the same objects; without a name the store is its own."""

    def __init__(self, name: str = "") -> None:
        self.uri = f"memory://{name}"
        self.requests = store_ports.RequestCounts()
        if name:
            with _shelves_lock:
                self._shelf = _shelves.setdefault(name, _Shelf())
        else:
            self._shelf = _Shelf()

    def read(self, path: str) -> bytes:
        self.requests.add("get")
        return self._get_object(path)

    def read_same(self, info: store_ports.ObjectInfo) -> bytes:
        self.requests.add("get")
        data = self._get_object(info.path)
        if _value_info(info.path, data).etag != info.etag:
            raise store_ports.ObjectChangedError(f"{self.uri}/{info.path} has not the ETag {info.etag} any more")
        return data

    def read_range(self, path: str, start: int, length: int) -> bytes:
        self.requests.add("get")
        return self._get_object(path)[start : start + length]

    def stat(self, path: str) -> store_ports.ObjectInfo:
        self.requests.add("stat")
        return _value_info(path, self._get_object(path))

    def digested(self, path: str) -> None:
        return None

    def write(self, path: str, data: bytes) -> store_ports.ObjectInfo:
        store_ports.check_path(path)
        self.requests.add("put")
        with self._shelf.lock:
            self._shelf.put(path, data)
        return _value_info(path, data)

    def create(self, path: str, data: bytes) -> store_ports.ObjectInfo:
        store_ports.check_path(path)
        self.requests.add("create")
        with self._shelf.lock:
            if path in self._shelf.objects:
                raise store_ports.ObjectExistsError(f"{self.uri}/{path} exists already")
            self._shelf.put(path, data)
        return _value_info(path, data)

    def list(self, prefix: str, start_after: str = "") -> Iterator[store_ports.ObjectInfo]:
        with self._shelf.lock:
            objects = self._shelf.find(prefix, start_after)
        self.requests.add("list")
        for position, (path, data) in enumerate(objects):
            if position and position % PAGE == 0:
                self.requests.add("list")
            yield _value_info(path, data)

    def delete(self, path: str) -> None:
        store_ports.check_path(path)
        self.requests.add("delete")
        with self._shelf.lock:
            self._shelf.remove(path)

    def _get_object(self, path: str) -> bytes:
        store_ports.check_path(path)
        with self._shelf.lock:
            if path not in self._shelf.objects:
                raise store_ports.ObjectNotFoundError(f"there is no object {self.uri}/{path}")
            return self._shelf.objects[path]


def _value_info(path: str, data: bytes) -> store_ports.ObjectInfo:
    return store_ports.ObjectInfo(path, len(data), hashlib.sha256(data).hexdigest()[:32])


def _open_memory(uri: str) -> MemoryStore:
    return MemoryStore(uri.partition("://")[2].strip("/"))


MEMORY: Final = store_ports.StoreScheme("memory://name", _open_memory, is_shared=False)
