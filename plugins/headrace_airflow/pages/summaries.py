"""The summaries of all pipelines under a root, kept in the API server for seconds.

One listing tells which have changed; only those are read again.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from headrace.runs.reporting.summary import PipelineSummary, summary_of
from headrace_snapshots.layout import SUMMARIES, summarized
from headrace_snapshots.store import ObjectInfo, ObjectNotFoundError, ObjectStore

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
        self._looked: float | None = None
        self._lock = threading.Lock()
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="summaries")
        self._renewal: Future[None] | None = None

    def read(self) -> CachedSummaries:
        """The summaries, at most OLDEST_SECONDS old. Raises what the store raises."""
        age = self._age()
        if age is None or age > OLDEST_SECONDS:
            self._renew(older_than=OLDEST_SECONDS)
        elif age > FRESH_SECONDS and (self._renewal is None or self._renewal.done()):
            self._renewal = self._beside.submit(self._renew, FRESH_SECONDS)
        age = self._age()
        assert age is not None
        return CachedSummaries(dict(self._summaries), age)

    def _age(self) -> float | None:
        return None if self._looked is None else self._now() - self._looked

    def _renew(self, older_than: float) -> None:
        with self._lock:
            age = self._age()
            if age is not None and age <= older_than:
                return  # somebody else was quicker
            looked = self._now()
            listed = {name: info for info in self._store.list(SUMMARIES) if (name := summarized(info.path))}
            changed = [info for name, info in listed.items() if self._etags.get(name) != info.etag]
            with ThreadPoolExecutor(_READERS) as readers:
                read = dict(zip(map(_name, changed), readers.map(self._read, changed), strict=True))
            kept = {name: summary for name, summary in self._summaries.items() if name in listed}
            self._summaries = kept | {name: summary for name, summary in read.items() if summary is not None}
            self._etags = {name: info.etag for name, info in listed.items()}
            self._looked = looked

    def _read(self, info: ObjectInfo) -> PipelineSummary | None:
        try:
            return summary_of(self._store.read(info.path))
        except ObjectNotFoundError:
            return None  # deleted since it was listed


def _name(info: ObjectInfo) -> str:
    name = summarized(info.path)
    assert name is not None
    return name
