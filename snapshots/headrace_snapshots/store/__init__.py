"""Object stores: an adapter for each kind, behind one small port (``headrace.ext.stores``).

The adapter of S3 and its libraries are loaded only where a root in a bucket is opened.
"""

from typing import Final

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
)
from headrace_snapshots.store.local import LocalStore

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


S3: Final = StoreScheme(
    "s3://bucket/prefix",
    "headrace_snapshots.store.s3:open_bucket",
    variables=("AWS_", "HEADRACE_S3_"),
    secrets=("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
)
