"""The storage port: what a store of objects promises, the value it returns, its errors, and its count of requests.

A path is relative to the root of the deployment and ``/``-separated. Every operation may be called from many threads.
"""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from headrace.errors import FixConfigError, GiveUpError, RestoreError, RetryError

KINDS = ("get", "put", "create", "list", "stat", "delete")
"""Kinds of requests that a store counts; a listing counts one per page."""


class EncryptionRefusedError(FixConfigError):
    """The S3 service cannot or may not encrypt as it is asked to, or demands that it is asked."""

    code = "config.encryption"


class S3KeysError(FixConfigError):
    """There are no keys for S3, or what should give them refuses."""

    code = "config.s3_keys"


class ObjectPathError(FixConfigError):
    """A path that could leave the root, or that some store could not hold."""

    code = "config.object_path"


class ObjectNotFoundError(RestoreError):
    """There is no such object. The caller knows whether that is normal or the loss of something that was stored."""

    code = "restore.object_not_found"


class ObjectChangedError(RetryError):
    """An object is not what it was when somebody looked at it, or does not stay what it is while it is looked at."""

    code = "retry.object_changed"


class ObjectExistsError(GiveUpError):
    """``create`` found an object under that path: another writer's, or one's own whose answer was lost."""

    code = "give_up.object_exists"


class UnknownOutcomeError(RetryError):
    """A conditional put may or may not have happened: read the object back and compare before anything else."""

    code = "retry.unknown_outcome"


class StoreUnavailableError(RetryError):
    """The store could not be reached or answered that it is busy, after the adapter's own retries."""

    code = "retry.store_unavailable"


@dataclass(frozen=True)
class ObjectInfo:
    """One object: ``size`` in bytes; ``etag`` changes whenever the content does (and maybe when it does not).

    How often it changes without the content is the store's affair: see ``ObjectStore.digested``, which alone gives the
    ``digest``, a fast hash of the whole content. ``modified`` is when the store last had it written, in microseconds
    since 1970 UTC; a listing has it where that costs no request more, None elsewhere.
    """

    path: str
    size: int
    etag: str
    digest: str | None = None
    modified: int | None = field(default=None, compare=False)


class RequestCounts:
    """How many requests of each kind a store has made, retries included. Thread-safe."""

    kinds: ClassVar[tuple[str, ...]] = KINDS

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, kind: str) -> None:
        """Count one request of ``kind``."""
        with self._lock:
            self._counts[kind] += 1

    def snapshot(self) -> dict[str, int]:
        """Every kind and its count so far."""
        with self._lock:
            return {kind: self._counts[kind] for kind in self.kinds}

    def since(self, previous: Mapping[str, int]) -> dict[str, int]:
        """Every kind and how many were made after ``previous`` (an earlier snapshot)."""
        return {kind: count - previous.get(kind, 0) for kind, count in self.snapshot().items()}


class ObjectStore(Protocol):
    """A flat map from paths to immutable or replaceable bytes, with one conditional operation: ``create``.

    Any operation may raise StoreUnavailableError, FixConfigError (credentials, bucket, permissions) or ObjectPathError.
    """

    @property
    def uri(self) -> str:
        """The root, as ``open_store`` takes it; holds no secret."""

    @property
    def requests(self) -> RequestCounts:
        """Requests made so far through this object."""

    def read(self, path: str) -> bytes:
        """The content of ``path``. Raises ObjectNotFoundError."""

    def read_same(self, info: ObjectInfo) -> bytes:
        """The content that ``info`` is of, held to its digest, or where it has none to its ETag; one request.

        Raises ObjectNotFoundError, and ObjectChangedError if the object has another content now.
        """

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """So many bytes of ``path`` from ``start`` on, fewer where it ends before. Raises ObjectNotFoundError."""

    def stat(self, path: str) -> ObjectInfo:
        """Size and etag of ``path``. Raises ObjectNotFoundError."""

    def digested(self, path: str) -> ObjectInfo | None:
        """Size, ETag and digest of ``path``, all of one moment; None where the ETag serves as a digest.

        It tells what happened to an object whose ETag has changed, as that of a local file does when it is copied.
        Raises ObjectNotFoundError, and ObjectChangedError if the object changes each time that it is looked at.
        """

    def write(self, path: str, data: bytes) -> ObjectInfo:
        """Put ``data`` under ``path``, whole or not at all, replacing what is there."""

    def create(self, path: str, data: bytes) -> ObjectInfo:
        """Put ``data`` under ``path`` if nothing is there; of many concurrent calls exactly one succeeds.

        Raises ObjectExistsError, or UnknownOutcomeError when the answer was lost.
        """

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """Objects whose path starts with ``prefix`` (any string) and sorts after ``start_after``, by UTF-8 bytes."""

    def delete(self, path: str) -> None:
        """Remove ``path``; nothing happens when it is absent."""


def is_there(store: ObjectStore, path: str) -> bool:
    """Whether ``store`` has an object ``path``: one request, which reads nothing of it."""
    try:
        store.stat(path)
    except ObjectNotFoundError:
        return False
    return True


def lists_in_pages(store: ObjectStore) -> bool:
    """Whether ``store`` gives a listing in pages, a request for each, so that two of its ranges can be asked for at
    once; others walk a folder, whose names they see together.
    """
    return bool(getattr(store, "lists_in_pages", False))


def check_path(path: str) -> str:
    """``path``, if every store can hold it under its root. Raises ObjectPathError."""
    parts = path.split("/")
    if "\0" in path or any(part in {"", ".", ".."} for part in parts):
        raise ObjectPathError(
            f"{path!r} is not an object path: use non-empty names separated by single slashes, without '.' and '..'"
        )
    return path


def sort_key(path: str) -> bytes:
    """The order of listings; names that are not valid UTF-8 keep their bytes."""
    return path.encode("utf-8", "surrogateescape")
