"""Object stores: one small port, and an adapter for each kind; ``open_store`` chooses by the scheme of the URI."""

from headrace.errors import FixConfigError
from headrace_snapshots.store.local import LocalStore
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
    is_there,
)
from headrace_snapshots.store.scheme import SCHEMES, StoreScheme, shown

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
    "is_there",
    "open_store",
    "scheme_of",
]


def open_store(uri: str) -> ObjectStore:
    """The store whose root is ``uri``: ``file:///folder``, ``s3://bucket/prefix``, ``memory://name``, or a URI of a
    scheme that another distribution brings.

    Makes no request. Raises FixConfigError when the URI is none of these or the environment lacks what it needs.
    """
    return scheme_of(uri).open(uri)


def scheme_of(uri: str) -> StoreScheme:
    """What kind of store ``uri`` is the root of. Raises FixConfigError when nobody has that kind."""
    # No URL parser: a path or key may hold any character, '#' and '?' too.
    scheme, separator, _ = uri.partition("://")
    store_scheme = SCHEMES.get(scheme) if separator else None
    if store_scheme is None:
        forms = [listed.form for name in SCHEMES.names() if (listed := SCHEMES.get(name)) is not None]
        raise FixConfigError(f"{shown(uri)!r} is not a root of a store: use {', '.join(forms[:-1])} or {forms[-1]}")
    return store_scheme
