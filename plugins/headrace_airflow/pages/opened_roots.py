"""What the API server keeps of the roots that it shows: stores, summaries, and the newest catalogs."""

import os
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from headrace_airflow.pages.answers import PipelinePage
from headrace_airflow.pages.summaries import SummaryCache
from headrace_airflow.roots.connection import StoreVariables
from headrace_airflow.roots.root import Root
from headrace_airflow.roots.served import ServedRoots, served_roots
from headrace_airflow.roots.store import KeptVariables
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import ObjectStore, open_store
from headrace_snapshots.store.scheme import reached_by

_KEPT: Final = 32
"""Pipelines of a root whose manifests stay in memory."""


class OpenedRoot:
    """What is kept of one root. Opened at first use."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self._reached = KeptVariables(root)
        self._lock = threading.Lock()
        self._summaries: tuple[StoreVariables, SummaryCache] | None = None
        self._page = lru_cache(_KEPT)(self._new_page)

    @property
    def summaries(self) -> SummaryCache:
        """The summaries under the root. Raises DeploymentError, StoreConnectionError."""
        variables = self._reached.get()
        with self._lock:
            if self._summaries is None or self._summaries[0] != variables:
                self._summaries = (variables, SummaryCache(self._store(variables)))
            return self._summaries[1]

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process that opens the root. Raises StoreConnectionError."""
        return self._reached.get().over(os.environ)

    def page(self, pipeline: str) -> PipelinePage:
        """The answers about one pipeline. Raises DeploymentError, StoreConnectionError."""
        return self._page(self._reached.get(), pipeline)

    def _new_page(self, variables: StoreVariables, pipeline: str) -> PipelinePage:
        return PipelinePage(Catalog(self._store(variables), pipeline))

    def _store(self, variables: StoreVariables) -> ObjectStore:
        with reached_by(variables.over(os.environ)):
            return open_store(self.root.uri)


class OpenedRoots:
    """The roots that are served, as they are declared now."""

    def __init__(self, served: Callable[[], ServedRoots] = served_roots) -> None:
        self._served = served
        self._lock = threading.Lock()
        self._opened: dict[Root, OpenedRoot] = {}

    def named(self, name: str) -> OpenedRoot:
        """The root of that name. Raises UnknownRootError."""
        return self._of(self._served().named(name))

    def all(self) -> list[OpenedRoot]:
        """Every root."""
        return [self._of(root) for root in self._served().roots]

    def _of(self, root: Root) -> OpenedRoot:
        with self._lock:
            for before in [one for one in self._opened if one.name == root.name and one != root]:
                del self._opened[before]  # declared otherwise now
            return self._opened.setdefault(root, OpenedRoot(root))
