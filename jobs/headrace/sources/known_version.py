"""What is remembered of a file that was read, beside its name."""

from typing import NamedTuple

import xxhash

from headrace.ext.sources import SourceSplit


class KnownVersion(NamedTuple):
    """What tells the content that a file had when it was read: its size, and hashes of its ETag and of its digest."""

    size: int
    etag: int
    digest: int | None

    @classmethod
    def of(cls, file: SourceSplit) -> "KnownVersion":
        """What is remembered of ``file``."""
        return cls(file.size, hashed(file.etag), None if file.digest is None else hashed(file.digest))


def hashed(text: str) -> int:
    """64 bits of ``text``: enough to tell one version of one file from another."""
    return xxhash.xxh3_64_intdigest(text.encode())
