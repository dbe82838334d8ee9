"""Roots: what has run under one; and those that are not there, since a typing mistake makes none."""

from collections.abc import Iterator

from headrace.errors import FixConfigError
from headrace.sources.input_diagnostics import around, children, exists
from headrace_snapshots.log import has_log
from headrace_snapshots.store import ObjectStore


class MissingRootError(FixConfigError, code="config.missing_root"):
    """There is no such root, and nothing to make it for."""


def check_root(store: ObjectStore) -> None:
    """Raise MissingRootError, with what there is instead, unless the root of ``store`` exists."""
    if not exists(store):
        raise MissingRootError(
            f"the root {store.uri} does not exist: {around(store)}. A run that finds input makes it, and so does "
            "`headrace run --create`"
        )


def has_run(store: ObjectStore, name: str) -> bool:
    """Whether a pipeline of that name has run under the root of ``store``."""
    return name.isidentifier() and has_log(store, name)


def pipelines_under(store: ObjectStore) -> Iterator[str]:
    """The names of the pipelines that have run under the root of ``store``."""
    folders = (name.removesuffix("/") for name in children(store, "") if name.endswith("/"))
    return (name for name in folders if has_run(store, name))
