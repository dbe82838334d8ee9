"""Object stores: an adapter for each kind, behind one small port (``headrace.ext.stores``)."""

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
