"""Who gets what the connection says: the environment of a task while it runs, and of what it starts; stores that the
API server opens. It is never in arguments, templates or Spark's configuration.
"""

import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from headrace_airflow.failures import headrace_errors
from headrace_airflow.roots.connection import StoreVariables, store_variables
from headrace_airflow.roots.root import Root

_SECONDS = 30.0


def forget_connections(roots: Iterable[Root], but: str) -> None:
    """Take the connections to the stores of ``roots`` out of the environment of this process, except ``but`` that: so
    a task and what it starts have the keys of one root alone, also where Airflow's connections are variables.
    """
    for name in _variables_of(roots) - {_variable(but)}:
        os.environ.pop(name, None)


@contextmanager
def without_connections(roots: Iterable[Root]) -> Iterator[None]:
    """Inside, the environment has none of the connections to the stores of ``roots``."""
    hidden = {name: os.environ.pop(name) for name in _variables_of(roots) if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)


def _variables_of(roots: Iterable[Root]) -> set[str]:
    return {_variable(root.store) for root in roots if root.store}


def _variable(connection: str) -> str:
    return f"AIRFLOW_CONN_{connection.upper()}"


class reaching_store(headrace_errors):  # noqa: N801  # a context manager, called like a function
    """Inside, the environment says how the store of ``root`` is reached. Raises as ``headrace_errors`` does."""

    def __init__(self, root: Root) -> None:
        self._root = root

    def __enter__(self) -> None:
        with headrace_errors():
            variables = store_variables(self._root)
        self._before = dict(os.environ)
        after = variables.over(self._before)
        for name in variables.without:
            os.environ.pop(name, None)
        os.environ.update({name: after[name] for name in variables.values})
        self._touched = {*variables.values, *variables.without}

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            super().__exit__(kind, error, trace)  # which takes secrets out by their variables
        finally:
            for name in self._touched:
                os.environ.pop(name, None)
                if name in self._before:
                    os.environ[name] = self._before[name]


class KeptVariables:
    """The variables of a root's connection in a process that lasts and opens stores in several threads: asked for now
    and then, and never put into its environment, where others look for keys of their own.
    """

    def __init__(self, root: Root) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._kept: tuple[float, StoreVariables] | None = None

    def get(self) -> StoreVariables:
        """What the connection said at most half a minute ago. Raises StoreConnectionError."""
        with self._lock:
            if self._kept is None or time.monotonic() - self._kept[0] > _SECONDS:
                self._kept = (time.monotonic(), store_variables(self._root))
            return self._kept[1]
