"""Whether a file has the content that it had, where stores call the same content differently.

A store says of a file its ETag, and a local one its digest. S3 makes most ETags of MD5: of the whole content, or of the
MD5 of each part in which it was uploaded. What else an ETag may be made of says nothing of the content.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final

import xxhash

from headrace.ext.sources import SourceSplit
from headrace.sources.progress import KnownVersion, hash_text
from headrace.this_process import Size
from headrace_snapshots import store as object_stores
from headrace_snapshots.store.local import xxh3_digest

PIECE_BYTES: Final = Size(64 << 20)
"""So much of a file is in memory at a time where it is only compared: a driver may have little memory."""

_PART_BYTES: Final = tuple(size << 20 for size in (5, 8, 10, 15, 16, 20, 25, 32, 50, 64, 100, 128, 256, 512, 1024))
"""Sizes of parts that tools upload in by default, smallest first."""

_Update = Callable[[bytes], object]


def is_content_of(was: SourceSplit, data: bytes) -> bool:
    """Whether ``data`` is what ``was`` held."""
    return was.size == len(data) and (was.digest or was.etag) in _marks_of([data], _hashers_of(was))


def has_content(store: object_stores.ObjectStore, now: object_stores.ObjectInfo, was: SourceSplit) -> bool:
    """Whether the file ``now`` holds what ``was`` held; no if it is another one by now. Raises ObjectNotFoundError."""
    return was.size == now.size and (was.digest or was.etag) in _marks_now(store, now, _hashers_of(was))


def has_content_of_version(store: object_stores.ObjectStore, now: object_stores.ObjectInfo, was: KnownVersion) -> bool:
    """``has_content``, of what hashes alone are known of."""
    if was.size != now.size:
        return False
    hashed_mark, hashers = (
        (was.digest, _digest_hashers()) if was.digest is not None else (was.etag, _etag_hashers(now.size))
    )
    return any(hash_text(mark) == hashed_mark for mark in _marks_now(store, now, hashers))


_Hasher = tuple[_Update, Callable[[], str]]
"""Takes the content in, piece by piece, and gives what a store calls it."""


def _marks_now(
    store: object_stores.ObjectStore, now: object_stores.ObjectInfo, hashers: list[_Hasher]
) -> Iterable[str]:
    """What ``hashers`` give of the file ``now``; nothing if it is another one by now. Raises ObjectNotFoundError."""
    if not hashers:
        return ()
    if now.size <= PIECE_BYTES.value:
        with suppress(object_stores.ObjectChangedError):
            data = store.read_same(object_stores.ObjectInfo(now.path, now.size, now.etag))
            return _marks_of([data], hashers)
        return ()
    starts = range(0, now.size, PIECE_BYTES.value)
    marks = [*_marks_of((store.read_range(now.path, start, PIECE_BYTES.value) for start in starts), hashers)]
    return marks if store.stat(now.path).etag == now.etag else ()  # else the pieces may be of two contents


def _marks_of(pieces: Iterable[bytes], hashers: list[_Hasher]) -> Iterator[str]:
    for piece in pieces:
        for update, _ in hashers:
            update(piece)
    return (mark() for _, mark in hashers)


def _hashers_of(was: SourceSplit) -> list[_Hasher]:
    """For the mark of ``was`` that tells its content."""
    return _etag_hashers(was.size, was.etag) if was.digest is None else _digest_hashers()


def _digest_hashers() -> list[_Hasher]:
    digest = xxhash.xxh3_64()
    return [(digest.update, lambda: xxh3_digest(digest))]


def _etag_hashers(size: int, etag: str | None = None) -> list[_Hasher]:
    """For all ETags of MD5 that a file of that ``size`` may have, or for those that look like ``etag``."""
    is_whole = etag is None or "-" not in etag
    whole = hashlib.md5(usedforsecurity=False)
    uploads = [_UploadInParts(part_bytes) for part_bytes in _part_sizes(size, etag)]
    return [
        *([(whole.update, whole.hexdigest)] if is_whole else []),
        *((upload.update, upload.etag) for upload in uploads),
    ]


def _part_sizes(size: int, etag: str | None) -> list[int]:
    """Sizes of parts that give different ETags: all that make one part give the same."""
    sizes = [part_bytes for part_bytes in _PART_BYTES if part_bytes < size]
    sizes += [part_bytes for part_bytes in _PART_BYTES if part_bytes >= size][:1]
    if etag is None:
        return sizes
    count = etag.rpartition("-")[2] if "-" in etag else ""
    return [part_bytes for part_bytes in sizes if str(max(1, -(-size // part_bytes))) == count]


class _UploadInParts:
    """Computes the ETag that S3 gives what is uploaded in parts of a size."""

    def __init__(self, part_bytes: int) -> None:
        self._part_bytes = part_bytes
        self._digests: list[bytes] = []
        self._part, self._filled_bytes = hashlib.md5(usedforsecurity=False), 0

    def update(self, piece: bytes) -> None:
        """Take in what comes next."""
        rest = memoryview(piece)
        while rest:
            next_bytes = rest[: self._part_bytes - self._filled_bytes]
            self._part.update(next_bytes)
            self._filled_bytes += len(next_bytes)
            rest = rest[len(next_bytes) :]
            if self._filled_bytes == self._part_bytes:
                self._end_part()

    def etag(self) -> str:
        """The ETag of what was taken in; if that is nothing, it was one part."""
        if self._filled_bytes or not self._digests:
            self._end_part()
        return f"{hashlib.md5(b''.join(self._digests), usedforsecurity=False).hexdigest()}-{len(self._digests)}"

    def _end_part(self) -> None:
        self._digests.append(self._part.digest())
        self._part, self._filled_bytes = hashlib.md5(usedforsecurity=False), 0
