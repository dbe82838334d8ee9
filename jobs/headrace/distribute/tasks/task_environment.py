"""What the tasks of one pipeline share within a process: it compiled, and the stores that it reads and writes."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from headrace.distribute.chain import Chain, ChainState, Job, jobs_of, upstream_of
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

    @cached_property
    def readers(self) -> tuple[int, ...]:
        """The numbers of the chains that take records; others take panes of these."""
        return tuple(number for number, chain in enumerate(self.chains) if not chain.upstream)

    @property
    def firsts(self) -> tuple[CompiledStage, ...]:
        """The stage of each chain that takes records for which they are judged."""
        return tuple(self.chains[number].of_records for number in self.readers)

    @property
    def percentiles(self) -> frozenset[float]:
        """The percentile watermarks of inputs that triggers of some chain look at."""
        firsts = (self.chains[number].stages[0] for number in self.readers)
        return frozenset(q for stage in firsts for q in stage.trigger.percentiles)

    @property
    def reads_in_turns(self) -> bool:
        """Whether records may come in another order than that of the tasks that read."""
        return any(input_.source.transform is not None for input_ in self.pipeline.inputs)

    @cached_property
    def jobs(self) -> tuple[Job, ...]:
        """The jobs of an epoch."""
        return jobs_of(self.chains)

    @cached_property
    def handed_on_in_order(self) -> frozenset[int]:
        """The numbers of the chains whose panes another one reads for whom the order counts in which they come."""
        ordered = [chain for chain in self.chains if chain.stages[0].is_ordered]
        return frozenset(above for chain in ordered for above in upstream_of(self.chains, chain))

    @property
    def tells_ids(self) -> bool:
        """Whether a level of tasks tells duplicates."""
        return self.pipeline.deduplicate is not None

    @property
    def levels(self) -> int:
        """How many levels of tasks acknowledge an epoch: those of each chain apart, what is before them once."""
        loops = sum(chain.loop is not None for chain in self.chains)
        return len(self.jobs) + self.tells_ids + loops + sum(len(chain.stages) for chain in self.chains)

    def number_of(self, output: str) -> int:
        """The number of the chain of an ``output``."""
        return [chain.names.output for chain in self.chains].index(output)

    def chain_of(self, table: str) -> Chain:
        """The chain whose state is in ``table``."""
        return next(chain for chain in self.chains if table in chain.all_tables)

    def requests(self) -> dict[str, int]:
        """All requests so far, of every store."""
        stores = {id(store): store for store in (self.store, *self.landing.stores)}
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

    @property
    def job(self) -> Job:
        """The job that it belongs to, without chains that are parked."""
        return self.work.jobs[self.plan.job].without(self.plan.parked)

    def for_each_reader(self) -> "tuple[EpochTask, ...]":
        """The task as it works for each chain that takes records and is not parked."""
        return tuple(self.for_chain(number) for number in self.work.readers if number not in self.plan.parked)

    def for_chain(self, number: int) -> "EpochTask":
        """The task as it works for the chain of that number."""
        return replace(self, of_chain=number)

    def put(self, table: str, rows: pa.RecordBatch | None, *, keyed: bool = False) -> tuple[DataFile, ...]:
        """Store ``rows`` under names that no other run of the task uses; no file for no rows. Those that are ``keyed``
        as records are, are put in the order of their keys, once they are many.
        """
        first = self.chain.of_records
        hashed = first.record_hashes_of if keyed and rows is not None and rows.num_rows > CHUNK_ROWS else None
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
