"""Object stores: one small port, an adapter each for memory, local files and S3; ``open_store`` chooses by the URI."""

import re
from pathlib import Path
from urllib.parse import unquote

from headrace.errors import FixConfigError
from headrace.extras import require
from headrace_snapshots.store.local import LocalStore
from headrace_snapshots.store.memory import MemoryStore
from headrace_snapshots.store.port import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectInfo,
    ObjectNotFoundError,
    ObjectPathError,
    ObjectStore,
    RequestCounts,
    StoreUnavailableError,
    UnknownOutcomeError,
)

__all__ = [
    "LocalStore",
    "MemoryStore",
    "ObjectChangedError",
    "ObjectExistsError",
    "ObjectInfo",
    "ObjectNotFoundError",
    "ObjectPathError",
    "ObjectStore",
    "RequestCounts",
    "StoreUnavailableError",
    "UnknownOutcomeError",
    "open_store",
]


def open_store(uri: str) -> ObjectStore:
    """The store whose root is ``uri``: ``file:///folder``, ``s3://bucket/prefix`` or ``memory://name``.

    Makes no request. Raises FixConfigError when the URI is none of these or the environment lacks what it needs.
    """
    # No URL parser: a path or key may hold any character, '#' and '?' too.
    scheme, separator, rest = uri.partition("://")
    if not separator or scheme not in {"file", "s3", "memory"}:
        raise FixConfigError(
            f"{_shown(uri)!r} is not a root of a store: use file:///folder, s3://bucket/prefix or memory://name"
        )
    if scheme == "memory":
        return MemoryStore(rest.strip("/"))
    if scheme == "file":
        if not rest.startswith("/"):
            raise FixConfigError(f"{_shown(uri)!r} names a host: a local root has three slashes, as in file:///folder")
        return LocalStore(Path(unquote(rest)))
    bucket, _, prefix = rest.partition("/")
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", bucket):
        raise FixConfigError(
            f"{_shown(uri)!r} has no valid bucket name: use s3://bucket/prefix; keys come from the environment"
        )
    require("s3", _shown(uri))
    from headrace_snapshots.store.s3 import S3Config, S3Store  # minio is loaded only where S3 is used

    return S3Store(bucket, prefix.strip("/"), S3Config.from_environment())


def _shown(uri: str) -> str:
    """``uri`` without what may be a user and a secret."""
    return re.sub(r"://.*@", "://...@", uri)
