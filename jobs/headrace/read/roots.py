"""Roots that are not there: a typing mistake makes none."""

from headrace.errors import FixConfigError
from headrace.sources.input_diagnostics import around, exists
from headrace_snapshots.store import ObjectStore


class MissingRootError(FixConfigError):
    """There is no such root, and nothing to make it for."""

    code = "config.missing_root"


def check_root(store: ObjectStore) -> None:
    """Raise MissingRootError, with what there is instead, unless the root of ``store`` exists."""
    if not exists(store):
        raise MissingRootError(
            f"the root {store.uri} does not exist: {around(store)}. A run that finds input makes it, and so does "
            "`headrace run --create`"
        )
