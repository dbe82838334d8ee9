"""What the tasks of one pipeline share within a process: it compiled, and the stores that it reads and writes."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from headrace.distribute.chain import Chain
from headrace.distribute.tasks.plan import EpochPlan
from headrace.model.time import MIN_INSTANT, Instant
from headrace.pipeline.pipeline import Pipeline
from headrace.sources.landing import Landing
from headrace.state.datafiles.cache import RowCache, default_cache
from headrace.state.datafiles.chunks import CHUNK_ROWS
from headrace.state.datafiles.files import ParquetWriter, put_rows
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.table_names import file_stem
from headrace_snapshots.store import ObjectStore


@dataclass(frozen=True)
class TaskEnvironment:
    """A pipeline in one process. ``chain``: its aggregations, compiled. ``cache`` holds rows of state; None: that of
    the process.
    """

    pipeline: Pipeline
    chain: Chain
    store: ObjectStore
    landing: Landing
    cache: RowCache | None = None

    @classmethod
    def of(
        cls, pipeline: Pipeline, store: ObjectStore, landing: Landing, cache: RowCache | None = None
    ) -> "TaskEnvironment":
        """``pipeline``, compiled."""
        return cls(pipeline, Chain.of(pipeline), store, landing, cache)

    @property
    def rows(self) -> RowCache:
        """The rows of state."""
        return default_cache() if self.cache is None else self.cache

    @property
    def arrives_in_turns(self) -> bool:
        """Whether the order of arrival counts in the first stage, and is not that of the tasks that read."""
        has_user_code = any(input_.source.transform is not None for input_ in self.pipeline.inputs)
        return self.chain.stages[0].is_ordered and has_user_code

    def requests(self) -> dict[str, int]:
        """All requests so far, of every store."""
        stores = {id(store): store for store in (self.store, *(p.store for p in self.landing.places.values()))}
        counts = [store.requests.snapshot() for store in stores.values()]
        return {kind: sum(count.get(kind, 0) for count in counts) for kind in counts[0]}

    def requests_since(self, before: Mapping[str, int]) -> dict[str, int]:
        """Storage requests by kind since ``before``."""
        return {kind: count - before.get(kind, 0) for kind, count in self.requests().items()}


def file_name(prefix: str, table: str, task: int) -> str:
    """A name for files that no other run of a task uses."""
    return f"{prefix}/{file_stem(table)}-{task:05}-{uuid.uuid4().hex[:12]}"


@dataclass(frozen=True)
class EpochTask:
    """One task of an epoch: ``number`` is that of its share of the input, or of its part of ids or keys."""

    plan: EpochPlan
    work: TaskEnvironment
    number: int

    def put(self, table: str, rows: pa.RecordBatch | None, *, keyed: bool = False) -> tuple[DataFile, ...]:
        """Store ``rows`` under names that no other run of the task uses; no file for no rows. Those that are ``keyed``
        as the first stage is are put in the order of their keys, once they are many.
        """
        first = self.work.chain.stages[0]
        hashed = first.hashes_of if keyed and rows is not None and rows.num_rows > CHUNK_ROWS else None
        name = file_name(self.plan.prefix, table, self.number)
        return put_rows(self.work.store, name, [] if rows is None else [rows], hashed)

    def putting(self, table: str) -> ParquetWriter:
        """To store panes of the last stage as they come."""
        hashed = self.work.chain.stages[-1].hashes_of
        return ParquetWriter(self.work.store, file_name(self.plan.prefix, table, self.number), hashed)

    def output_watermark(self, stage: int = 0) -> Instant:
        """The output watermark behind which elements of a stage give their panes no timestamp."""
        stamps = self.work.chain.stages[stage].stamps_elements
        return self.plan.state.clocks[stage].output_watermark if stamps else MIN_INSTANT
