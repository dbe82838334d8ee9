"""A store in this process's memory: for tests, and for pipelines that need not outlive it."""

import hashlib
import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from itertools import islice, takewhile
from typing import Final

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
            insort(self.order, (sort_key(path), path))
        self.objects[path] = bytes(data)

    def remove(self, path: str) -> None:
        if self.objects.pop(path, None) is not None:
            self.order.remove((sort_key(path), path))

    def find(self, prefix: str, start_after: str) -> list[tuple[str, bytes]]:
        begin = max(
            bisect_left(self.order, (sort_key(prefix),)), bisect_right(self.order, (sort_key(start_after), start_after))
        )
        paths = takewhile(lambda path: path.startswith(prefix), (path for _, path in islice(self.order, begin, None)))
        return [(path, self.objects[path]) for path in paths]


_shelves: dict[str, _Shelf] = {}
_shelves_lock = threading.Lock()


class MemoryStore:
    """Stores of the same ``name`` in one process see the same objects; without a name the store is its own."""

    def __init__(self, name: str = "") -> None:
        self.uri = f"memory://{name}"
        self.requests = RequestCounts()
        if name:
            with _shelves_lock:
                self._shelf = _shelves.setdefault(name, _Shelf())
        else:
            self._shelf = _Shelf()

    def read(self, path: str) -> bytes:
        self.requests.add("get")
        return self._get(path)

    def read_same(self, info: ObjectInfo) -> bytes:
        self.requests.add("get")
        data = self._get(info.path)
        if _info(info.path, data).etag != info.etag:
            raise ObjectChangedError(f"{self.uri}/{info.path} has not the ETag {info.etag} any more")
        return data

    def read_range(self, path: str, start: int, length: int) -> bytes:
        self.requests.add("get")
        return self._get(path)[start : start + length]

    def stat(self, path: str) -> ObjectInfo:
        self.requests.add("stat")
        return _info(path, self._get(path))

    def digested(self, path: str) -> None:
        return None

    def write(self, path: str, data: bytes) -> ObjectInfo:
        check_path(path)
        self.requests.add("put")
        with self._shelf.lock:
            self._shelf.put(path, data)
        return _info(path, data)

    def create(self, path: str, data: bytes) -> ObjectInfo:
        check_path(path)
        self.requests.add("create")
        with self._shelf.lock:
            if path in self._shelf.objects:
                raise ObjectExistsError(f"{self.uri}/{path} exists already")
            self._shelf.put(path, data)
        return _info(path, data)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        with self._shelf.lock:
            objects = self._shelf.find(prefix, start_after)
        self.requests.add("list")
        for position, (path, data) in enumerate(objects):
            if position and position % PAGE == 0:
                self.requests.add("list")
            yield _info(path, data)

    def delete(self, path: str) -> None:
        check_path(path)
        self.requests.add("delete")
        with self._shelf.lock:
            self._shelf.remove(path)

    def _get(self, path: str) -> bytes:
        check_path(path)
        with self._shelf.lock:
            if path not in self._shelf.objects:
                raise ObjectNotFoundError(f"there is no object {self.uri}/{path}")
            return self._shelf.objects[path]


def _info(path: str, data: bytes) -> ObjectInfo:
    return ObjectInfo(path, len(data), hashlib.sha256(data).hexdigest()[:32])


def _open(uri: str) -> MemoryStore:
    return MemoryStore(uri.partition("://")[2].strip("/"))


MEMORY: Final = StoreScheme("memory://name", _open, is_shared=False)
