"""Objects in one flat folder, such as one in memory (``memdir:///dev/shm/headrace``): files with quoted names.

What is put survives the process, not a power cut.
"""

import hashlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from headrace.errors import FixConfigError
from headrace.ext.stores import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectInfo,
    ObjectNotFoundError,
    RequestCounts,
    StoreScheme,
    check_path,
    sort_key,
)

_TEMPORARY_PREFIX = "+"
"""How names of files begin that are being written; no quoted path does."""


class MemDirStore:
    """The objects below the path of ``uri``. An ETag is a hash of the content, and so needs no digest."""

    def __init__(self, uri: str) -> None:
        self.uri = uri.rstrip("/")
        self.requests = RequestCounts()
        self._folder = Path(uri.partition("://")[2])

    def read(self, path: str) -> bytes:
        self.requests.add("get")
        return self._content(path)

    def read_same(self, info: ObjectInfo) -> bytes:
        data = self.read(info.path)
        if _info(info.path, data).etag != info.etag:
            raise ObjectChangedError(f"{self.uri}/{info.path} has not the ETag {info.etag} any more")
        return data

    def read_range(self, path: str, start: int, length: int) -> bytes:
        return self.read(path)[start : start + length]

    def stat(self, path: str) -> ObjectInfo:
        self.requests.add("stat")
        return _info(path, self._content(path))

    def digested(self, path: str) -> None:
        return None

    def write(self, path: str, data: bytes) -> ObjectInfo:
        self.requests.add("put")
        self._write_unnamed(path, data).replace(self._file(path))
        return _info(path, data)

    def create(self, path: str, data: bytes) -> ObjectInfo:
        self.requests.add("create")
        temporary_path = self._write_unnamed(path, data)
        try:
            os.link(temporary_path, self._file(path))  # fails if the name is taken
        except FileExistsError as error:
            raise ObjectExistsError(f"{self.uri}/{path} exists already") from error
        finally:
            temporary_path.unlink()
        return _info(path, data)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        self.requests.add("list")
        names = [file.name for file in self._folder.iterdir()] if self._folder.is_dir() else []
        paths = [unquote(name, errors="surrogateescape") for name in names if not name.startswith(_TEMPORARY_PREFIX)]
        for path in sorted(paths, key=sort_key):
            if path.startswith(prefix) and (not start_after or sort_key(path) > sort_key(start_after)):
                try:
                    yield _info(path, self._content(path))
                except ObjectNotFoundError:
                    continue  # deleted since

    def delete(self, path: str) -> None:
        self.requests.add("delete")
        self._file(path).unlink(missing_ok=True)

    def _file(self, path: str) -> Path:
        return self._folder / quote(check_path(path), safe=" ", errors="surrogateescape")

    def _write_unnamed(self, path: str, data: bytes) -> Path:
        check_path(path)
        self._folder.mkdir(parents=True, exist_ok=True)
        unnamed_path = self._folder / f"{_TEMPORARY_PREFIX}{uuid.uuid4().hex}"
        unnamed_path.write_bytes(data)
        return unnamed_path

    def _content(self, path: str) -> bytes:
        try:
            return self._file(path).read_bytes()
        except FileNotFoundError as error:
            raise ObjectNotFoundError(f"there is no object {self.uri}/{path}") from error


def _info(path: str, data: bytes) -> ObjectInfo:
    return ObjectInfo(path, len(data), hashlib.sha256(data).hexdigest()[:32])


def _open(uri: str) -> MemDirStore:
    if not uri.partition("://")[2].startswith("/"):
        raise FixConfigError(f"{uri!r} names no folder: use memdir:///dev/shm/headrace")
    return MemDirStore(uri)


MEMDIR: Final = StoreScheme("memdir:///folder", _open, variables="MEMDIR_", secrets=("MEMDIR_KEY",))
