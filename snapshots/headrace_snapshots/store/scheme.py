"""Kinds of object stores, by the scheme of their URI: Headrace's own, and those of other distributions.

A store of another distribution is an entry point of ``headrace.stores``: a ``StoreScheme``, by its scheme. The adapter
of a scheme is imported when somebody opens a store of it.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.entry_points import EntryPointGroup

if TYPE_CHECKING:
    from headrace_snapshots.store.port import ObjectStore


@dataclass(frozen=True)
class StoreScheme:
    """What is to be known of a kind of store beside the port: how to open one, and from where it can be reached.

    ``form`` is how users write a root of it ("s3://bucket/prefix"). ``open`` gives the store of such a URI, which it
    may refuse with a FixConfigError that does not show what stands before an @; it makes no request. ``is_shared``:
    other processes see what this one writes. ``variables`` is how the names of environment variables begin that say how
    to reach it (one text, or several): tasks on other machines get them.
    """

    form: str
    open: "Callable[[str], ObjectStore]"
    is_shared: bool = True
    variables: str | tuple[str, ...] | None = None

    def settings(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The variables of ``environment`` that a process elsewhere needs to reach the store."""
        prefix = self.variables
        return {} if prefix is None else {n: value for n, value in environment.items() if n.startswith(prefix)}


SCHEMES: Final[EntryPointGroup[StoreScheme]] = EntryPointGroup(
    "headrace.stores",
    "store scheme",
    provides="headrace_snapshots.store.scheme:StoreScheme",
    built_in={
        "file": "headrace_snapshots.store.local:FILE",
        "s3": "headrace_snapshots.store.s3_root:S3",
        "memory": "headrace_snapshots.store.memory:MEMORY",
    },
)


def shown(uri: str) -> str:
    """``uri`` as a message shows it: without what may be a user and a secret."""
    return re.sub(r"://.*@", "://...@", uri)


_variables: ContextVar[Mapping[str, str] | None] = ContextVar("store_variables", default=None)


def store_variables() -> Mapping[str, str]:
    """The variables that say how to reach a store: the environment, or what ``reached_by`` says instead."""
    variables = _variables.get()
    return os.environ if variables is None else variables


@contextmanager
def reached_by(variables: Mapping[str, str]) -> Iterator[None]:
    """Stores that this thread opens inside take ``variables`` instead of the environment, which stays as it is."""
    token = _variables.set(variables)
    try:
        yield
    finally:
        _variables.reset(token)
