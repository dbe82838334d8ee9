"""What the tasks of one pipeline share within a process: it compiled, and the stores that it reads and writes."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from headrace.distribute.chain import Chain, ChainState
from headrace.distribute.tasks.plan import EpochPlan
from headrace.kernel.stage import CompiledStage
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
    """A pipeline in one process. ``chains``: the aggregations of each output, compiled. ``cache`` holds rows of state;
    None: that of the process.
    """

    pipeline: Pipeline
    chains: tuple[Chain, ...]
    store: ObjectStore
    landing: Landing
    cache: RowCache | None = None

    @classmethod
    def of(
        cls, pipeline: Pipeline, store: ObjectStore, landing: Landing, cache: RowCache | None = None
    ) -> "TaskEnvironment":
        """``pipeline``, compiled."""
        return cls(pipeline, Chain.each_of(pipeline), store, landing, cache)

    @property
    def rows(self) -> RowCache:
        """The rows of state."""
        return default_cache() if self.cache is None else self.cache

    @property
    def firsts(self) -> tuple[CompiledStage, ...]:
        """The first stage of each chain, which takes the records."""
        return tuple(chain.stages[0] for chain in self.chains)

    @property
    def percentiles(self) -> frozenset[float]:
        """The percentile watermarks of inputs that triggers of some chain look at."""
        return frozenset(q for stage in self.firsts for q in stage.trigger.percentiles)

    @property
    def reads_in_turns(self) -> bool:
        """Whether records may come in another order than that of the tasks that read."""
        return any(input_.source.transform is not None for input_ in self.pipeline.inputs)

    @property
    def jobs(self) -> list[range]:
        """The stages of each job of an epoch; of several chains all are in one."""
        if len(self.chains) > 1:
            return [range(max(len(chain.stages) for chain in self.chains))]
        return self.chains[0].jobs()

    @property
    def tells_ids(self) -> bool:
        """Whether a level of tasks tells duplicates."""
        return self.pipeline.deduplicate is not None

    @property
    def levels(self) -> int:
        """How many levels of tasks acknowledge an epoch: those of each chain apart, what is before them once."""
        return len(self.jobs) + self.tells_ids + sum(len(chain.stages) for chain in self.chains)

    def chain_of(self, table: str) -> Chain:
        """The chain whose state is in ``table``."""
        return next(chain for chain in self.chains if table in chain.tables)

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
    """One task of an epoch: ``number`` is that of its share of the input, or of its part of ids, or of the keys of the
    chain with the number ``of_chain``.
    """

    plan: EpochPlan
    work: TaskEnvironment
    number: int
    of_chain: int = 0

    @property
    def chain(self) -> Chain:
        """The chain that it works for."""
        return self.work.chains[self.of_chain]

    @property
    def state(self) -> ChainState:
        """The state of its chain before the epoch."""
        return self.plan.states[self.of_chain]

    @property
    def parts(self) -> int:
        """How many parts the keys of its chain are in."""
        return self.plan.parts[self.of_chain]

    def for_each_chain(self) -> "tuple[EpochTask, ...]":
        """The task as it works for each chain."""
        return tuple(replace(self, of_chain=number) for number in range(len(self.work.chains)))

    def put(self, table: str, rows: pa.RecordBatch | None, *, keyed: bool = False) -> tuple[DataFile, ...]:
        """Store ``rows`` under names that no other run of the task uses; no file for no rows. Those that are ``keyed``
        as the first stage is are put in the order of their keys, once they are many.
        """
        first = self.chain.stages[0]
        hashed = first.hashes_of if keyed and rows is not None and rows.num_rows > CHUNK_ROWS else None
        name = file_name(self.plan.prefix, table, self.number)
        return put_rows(self.work.store, name, [] if rows is None else [rows], hashed)

    def putting(self, table: str) -> ParquetWriter:
        """To store panes of the last stage as they come."""
        hashed = self.chain.stages[-1].hashes_of
        return ParquetWriter(self.work.store, file_name(self.plan.prefix, table, self.number), hashed)

    def output_watermark(self, stage: int = 0) -> Instant:
        """The output watermark behind which elements of a stage give their panes no timestamp."""
        stamps = self.chain.stages[stage].stamps_elements
        return self.state.clocks[stage].output_watermark if stamps else MIN_INSTANT
