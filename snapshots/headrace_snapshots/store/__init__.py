"""Object stores: an adapter for each kind, behind one small port (``headrace.ext.stores``).

The adapter of S3 and its libraries are loaded only where a root in a bucket is opened.
"""

import re
from typing import TYPE_CHECKING, Final

from headrace.errors import FixConfigError
from headrace.ext.stores import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectInfo,
    ObjectNotFoundError,
    ObjectPathError,
    ObjectStore,
    RequestCounts,
    StoreScheme,
    StoreUnavailableError,
    UnknownOutcomeError,
    do_all,
    do_both,
    folders_in,
    is_there,
    lists_in_pages,
    open_store,
    scheme_of,
    shown,
)
from headrace.installed import require_extra
from headrace_snapshots.store.local import LocalStore

if TYPE_CHECKING:
    from headrace_snapshots.store.s3 import S3Store

__all__ = [
    "LocalStore",
    "ObjectChangedError",
    "ObjectExistsError",
    "ObjectInfo",
    "ObjectNotFoundError",
    "ObjectPathError",
    "ObjectStore",
    "RequestCounts",
    "StoreScheme",
    "StoreUnavailableError",
    "UnknownOutcomeError",
    "do_all",
    "do_both",
    "folders_in",
    "is_there",
    "lists_in_pages",
    "open_store",
    "scheme_of",
]


def _open_bucket(uri: str) -> "S3Store":
    bucket, _, prefix = uri.partition("://")[2].partition("/")
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", bucket):
        raise FixConfigError(f"{shown(uri)!r} has no valid bucket name: use s3://bucket/prefix, without keys")
    require_extra("s3", shown(uri))
    from headrace_snapshots.store.s3 import S3Config, S3Store

    return S3Store(bucket, prefix.strip("/"), S3Config.from_environment())


_SECRETS: Final = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")

S3: Final = StoreScheme("s3://bucket/prefix", _open_bucket, variables=("AWS_", "HEADRACE_S3_"), secrets=_SECRETS)
