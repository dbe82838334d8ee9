"""What the API server keeps of the roots that it shows: stores, summaries, and the newest catalogs.

``SummaryCache`` keeps the summaries of all pipelines under a root for seconds. One listing tells which have changed;
only those are read again.
"""

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from headrace.errors import RetryError
from headrace.ext.stores import reached_by
from headrace.runs.reporting.summary import PipelineSummary, summary_of
from headrace_airflow.connection import KeptVariables, StoreVariables
from headrace_airflow.pages.answers import PipelinePage
from headrace_airflow.roots import Root, ServedRoots, place_of, served_roots
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.names import SUMMARIES, summarized_pipeline
from headrace_snapshots.store import ObjectInfo, ObjectNotFoundError, ObjectStore, open_store

FRESH_SECONDS = 4.0
"""Up to this age an answer is given as it is; from then on it is renewed beside the answer."""

OLDEST_SECONDS = 10.0
"""No answer is older: beyond that the asker waits."""

_READERS = 16


@dataclass(frozen=True)
class CachedSummaries:
    """Summaries by pipeline, as they were ``age`` seconds ago."""

    summaries: dict[str, PipelineSummary]
    age: float


class SummaryCache:
    """Answers from memory, and looks into ``store`` again where that is too old. Usable from many threads."""

    def __init__(self, store: ObjectStore, now: Callable[[], float] = time.monotonic) -> None:
        self._store, self._now = store, now
        self._etags: dict[str, str] = {}
        self._summaries: dict[str, PipelineSummary] = {}
        self._look_time: float | None = None
        self._lock = threading.Lock()
        self._summary_thread = ThreadPoolExecutor(1, thread_name_prefix="summaries")
        self._renewal: Future[None] | None = None

    def read(self) -> CachedSummaries:
        """The summaries, at most OLDEST_SECONDS old. Raises what the store raises."""
        age = self._age()
        if age is None or age > OLDEST_SECONDS:
            self._renew_summaries(older_than=OLDEST_SECONDS)
        elif age > FRESH_SECONDS and (self._renewal is None or self._renewal.done()):
            self._renewal = self._summary_thread.submit(self._renew_summaries, FRESH_SECONDS)
        age = self._age()
        assert age is not None
        return CachedSummaries(dict(self._summaries), age)

    def _age(self) -> float | None:
        return None if self._look_time is None else self._now() - self._look_time

    def _renew_summaries(self, older_than: float) -> None:
        with self._lock:
            age = self._age()
            if age is not None and age <= older_than:
                return  # somebody else was quicker
            # before the listing, since what it shows may be as old as that
            look_time = self._now()
            infos_by_name = {
                name: info for info in self._store.list(SUMMARIES) if (name := summarized_pipeline(info.path))
            }
            changed_infos = [info for name, info in infos_by_name.items() if self._etags.get(name) != info.etag]
            with ThreadPoolExecutor(_READERS) as readers:
                read = dict(
                    zip(map(_pipeline_name, changed_infos), readers.map(self._read_summary, changed_infos), strict=True)
                )
            kept_summaries = {name: summary for name, summary in self._summaries.items() if name in infos_by_name}
            self._summaries = kept_summaries | {name: summary for name, summary in read.items() if summary is not None}
            self._etags = {name: info.etag for name, info in infos_by_name.items()}
            self._look_time = look_time

    def _read_summary(self, info: ObjectInfo) -> PipelineSummary | None:
        try:
            return summary_of(self._store.read(info.path))
        except ObjectNotFoundError:
            return None  # deleted since it was listed


def _pipeline_name(info: ObjectInfo) -> str:
    name = summarized_pipeline(info.path)
    assert name is not None
    return name


_PIPELINES_KEPT: Final = 32
"""Pipelines of a root whose manifests stay in memory."""


_PATIENT_SECONDS: Final = 2.0
"""So long a list of all roots waits for one that has always answered."""


class RootSilentError(RetryError, code="retry.root_silent"):
    """The store of a root has not answered in time."""


@dataclass(frozen=True)
class RootSummaries:
    """The summaries under roots, and why those of others are missing, by their names."""

    read: list[tuple[Root, CachedSummaries]]
    problems: dict[str, BaseException]

    @property
    def by_place(self) -> dict[tuple[str, str], PipelineSummary]:
        """Every summary by the names of its root and its pipeline."""
        return {(root.name, name): one for root, own in self.read for name, one in own.summaries.items()}


class OpenedRoot:
    """What is kept of one root. Opened at first use."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self._kept_variables = KeptVariables(root)
        self._lock, self._lock_reading = threading.Lock(), threading.Lock()
        self._summaries: tuple[StoreVariables, SummaryCache] | None = None
        self._page = lru_cache(_PIPELINES_KEPT)(self._new_page)
        self._store = lru_cache(1)(self._new_store)
        self._reading_thread = ThreadPoolExecutor(1, thread_name_prefix="root")
        self._reading: Future[CachedSummaries] | None = None
        self.problem: BaseException | None = None

    @property
    def summaries(self) -> SummaryCache:
        """The summaries under the root. Raises DeploymentError, StoreConnectionError."""
        variables = self._kept_variables.get()
        with self._lock:
            if self._summaries is None or self._summaries[0] != variables:
                self._summaries = (variables, SummaryCache(self._store(variables)))
            return self._summaries[1]

    def read_beside(self) -> Future[CachedSummaries]:
        """The summaries, read in a thread that may be at it already; ``problem`` is why the last reading failed."""
        with self._lock_reading:
            if self._reading is not None and self._reading.done():
                self.problem = self._reading.exception()
            if self._reading is None or self._reading.done():
                self._reading = self._reading_thread.submit(self._read_summaries)
            return self._reading

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process that opens the root. Raises StoreConnectionError."""
        return self._kept_variables.get().apply_to(os.environ)

    @property
    def store(self) -> ObjectStore:
        """The store of the root. Raises DeploymentError, StoreConnectionError."""
        return self._store(self._kept_variables.get())

    def page(self, pipeline: str) -> PipelinePage:
        """The answers about one pipeline. Raises DeploymentError, StoreConnectionError."""
        return self._page(self._kept_variables.get(), pipeline)

    def _read_summaries(self) -> CachedSummaries:
        return self.summaries.read()

    def _new_page(self, variables: StoreVariables, pipeline: str) -> PipelinePage:
        return PipelinePage(Catalog(self._store(variables), pipeline))

    def _new_store(self, variables: StoreVariables) -> ObjectStore:
        with reached_by(variables.apply_to(os.environ)):
            return open_store(self.root.uri)


class OpenedRoots:
    """The roots that are served, as they are declared now."""

    def __init__(self, find_served: Callable[[], ServedRoots] = served_roots) -> None:
        self._find_served = find_served
        self._lock = threading.Lock()
        self._opened_roots: dict[Root, OpenedRoot] = {}

    def root_named(self, name: str) -> OpenedRoot:
        """The root of that name. Raises UnknownRootError."""
        return self._open_root(self._find_served().root_named(name))

    def all_roots(self) -> list[OpenedRoot]:
        return [self._open_root(root) for root in self._find_served().roots]

    def root_at(self, uri: str) -> OpenedRoot | None:
        """The root at a URI; None: none of them is there, or several, in services that a URI does not tell apart."""
        roots_at_uri = [
            one for one in self.all_roots() if one.root.location and place_of(one.root.location) == place_of(uri)
        ]
        return roots_at_uri[0] if len(roots_at_uri) == 1 else None

    def summaries(self) -> RootSummaries:
        """The summaries under all roots. Raises what is wrong if there is only one root; each of several has a problem
        of its own, and nobody waits again for one that did not answer the last time.
        """
        open_roots = self.all_roots()
        if len(open_roots) == 1:
            return RootSummaries([(open_roots[0].root, open_roots[0].summaries.read())], {})
        reading = [(one, one.read_beside()) for one in open_roots]
        wait([future for one, future in reading if one.problem is None], _PATIENT_SECONDS)
        read: list[tuple[Root, CachedSummaries]] = []
        problems: dict[str, BaseException] = {}
        for one, future in reading:
            if not future.done():
                one.problem = one.problem or RootSilentError(f"{one.root.uri} has not answered: ask again in a while")
                problems[one.root.name] = one.problem
            elif (error := future.exception()) is not None:
                problems[one.root.name] = error
            else:
                read.append((one.root, future.result()))
        return RootSummaries(read, problems)

    def _open_root(self, root: Root) -> OpenedRoot:
        with self._lock:
            if root not in self._opened_roots:
                others = {one: opened_root for one, opened_root in self._opened_roots.items() if one.name != root.name}
                self._opened_roots = {**others, root: OpenedRoot(root)}
            return self._opened_roots[root]
