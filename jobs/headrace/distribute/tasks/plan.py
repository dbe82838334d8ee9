"""What the tasks of one epoch are told: their parts and levels, and what those of one pipeline share in a process.

A level of stages has tasks for the parts of the keys of each chain that has such a stage, chain after chain. People who
watch a run are told in words what a level does, and where in it the epoch is. The tasks of one pipeline share it
compiled, and the stores that it reads and writes.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
import pyarrow as pa

from headrace.distribute.chain import Chain, ChainState, Job, jobs_of, upstream_of
from headrace.distribute.epoch import RecomputedEpoch
from headrace.distribute.records import MOST_OF_A_FILE, Piece, divide_file, in_arrival_order
from headrace.formats.file_format import WHOLE_FILE, Span
from headrace.kernel.stage import CompiledStage
from headrace.model.time import MIN_INSTANT, Instant
from headrace.model.triggers import Signal
from headrace.pipeline.endpoints import SparkFunction
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.scheduling import LevelProgress
from headrace.sources.landing import ByInput, Landing
from headrace.sources.progress import WatermarkHold
from headrace.sources.source_clock import SourceClock
from headrace.sources.validation import ParkedChains
from headrace.state.chunks import CHUNK_ROWS
from headrace.state.file_cache import RowCache, default_cache
from headrace.state.files import ParquetWriter, put_rows
from headrace.this_process import Size
from headrace_snapshots.format.files import DataFile, Layer
from headrace_snapshots.format.manifest import file_stem
from headrace_snapshots.store import ObjectStore

if TYPE_CHECKING:
    from headrace.kernel.joins.sides import CompiledJoins

TaskShare = tuple[Piece, ...]
"""Some files of an epoch, or pieces of files, one after the other in the order of arrival."""

LEAST_OF_A_FILE: Final = Size(2**22)
"""A file is divided into pieces of so many bytes, or more."""

MOST_OF_A_SHARE: Final = Size(2**24)
"""The most bytes that a task reads. Larger inputs have more tasks in turn, so that memory does not grow with them."""

MOST_OF_A_PART: Final = Size(2**25)
"""A part of the keys or ids is that of so many bytes of input, up to ``MOST_PARTS``, to bound its task's memory too."""

MOST_PARTS: Final = 2**8
"""In more parts, what tasks say to each other would be many small things."""

JOIN_PART_BYTES: Final = Size(2**23)
"""A part of a join gets so many bytes of input at least, where there are more parts than run at once."""


class PaneFiles(msgspec.Struct, frozen=True):
    """Files with panes of the chain of that number, which one task reads."""

    chain: int
    files: tuple[DataFile, ...]


@dataclass(frozen=True)
class EpochPlan:
    """One epoch, or a job of it. Four fields are as the last epoch left them. ``clocks`` are those of inputs by name,
    ``ids`` the layers of remembered ids. ``states`` are those of the chains of aggregations, and ``watermark`` is that
    of the source. The keys of each chain are in so many ``parts``, ids in ``id_parts``. Tasks store what they have to
    below ``prefix``. ``newest`` is the latest event time so far; ``hold`` has the watermarks that the epoch does not
    pass, None for no such limit; ``marks`` those that sources know of, by input and part of it. ``parked_numbers``
    chains, by number, take no part; ``isolates``: others go on where one of them fails. ``recomputed_epoch``: the epoch
    has been recorded, with its ids and dead letters. ``read_only`` chains are computed for those that read them, and
    have been stored before.

    The first job (``jobs``) reads the ``shares`` of the input; a later one, with the number ``job``, reads the
    ``elements``, which are panes. ``watermarks`` are those that come to the first of its stages, or joins, by chain.
    """

    prefix: str
    epoch: int
    processing_time: Instant
    shares: tuple[TaskShare, ...]
    parts: tuple[int, ...]
    id_parts: int
    clocks: Mapping[str, SourceClock]
    ids: tuple[Layer, ...]
    states: tuple[ChainState, ...]
    watermark: Instant = MIN_INSTANT
    newest: Instant | None = None
    signals: tuple[Signal, ...] = ()
    is_last: bool = False
    hold: WatermarkHold | None = None
    marks: Mapping[str, Mapping[str, Instant]] = field(default_factory=dict)
    parked_numbers: frozenset[int] = frozenset()
    isolates: bool = False
    recomputed_epoch: RecomputedEpoch | None = None
    read_only: frozenset[int] = frozenset()
    job: int = 0
    watermarks: Mapping[int, Instant] = field(default_factory=dict)
    elements: tuple[PaneFiles, ...] = ()

    @property
    def parked_chains(self) -> ParkedChains:
        """Which chains do not take records, and whether one may fail alone."""
        return ParkedChains(self.parked_numbers, self.isolates)

    @property
    def is_batch(self) -> bool:
        """Whether the epoch is all that there is."""
        return self.is_last and self.epoch == 0


def divide_into_shares(pipeline: Pipeline, landing: Landing, files: ByInput, number: int) -> tuple[TaskShare, ...]:
    """``files`` in shares of nearly the same size in bytes; one empty share if there are no files. There are up to
    ``number`` shares, which can be read at once, or more where there is much to read. A file has pieces for as many as
    read it at once.
    """
    whole_files = in_arrival_order(pipeline, files)
    total = sum(piece.file.size for piece in whole_files)
    least = LEAST_OF_A_FILE.value if total < number * MOST_OF_A_SHARE.value else 2 * MOST_OF_A_SHARE.value
    counts = [min(number, 1 + whole.file.size // least) for whole in whole_files]
    pieces = [
        piece
        for whole, number_of_pieces in zip(whole_files, counts, strict=True)
        for piece in divide_file(landing, whole, number_of_pieces)
    ]
    number = max(number, total // MOST_OF_A_SHARE.value)
    by_share: dict[int, list[Piece]] = {}
    bytes_before = 0
    for piece in pieces:
        begin, end = piece.span.bounds(piece.file.size)
        # all is doubled, so that middles are whole numbers: a piece is of the share in which its middle lies
        middle = bytes_before + begin + end
        by_share.setdefault(min(middle * number // max(2 * total, 1), number - 1), []).append(piece)
        bytes_before += 2 * piece.file.size if piece.span.after == piece.span.of else 0
    return tuple(tuple(_join_neighbours(share)) for _, share in sorted(by_share.items())) or ((),)


def count_parts(tasks: int, size: int) -> int:
    """In how many parts the keys or ids are in an epoch over ``size`` bytes: ``tasks``, or more where that is much."""
    return max(tasks, min(size // MOST_OF_A_PART.value, MOST_PARTS))


def _join_neighbours(share: Sequence[Piece]) -> list[Piece]:
    """``share`` with neighbours in a file as one piece, where one is not too large."""
    joined_pieces: list[Piece] = []
    for piece in share:
        last = joined_pieces[-1] if joined_pieces else None
        if last is not None and last.file == piece.file and last.input == piece.input and _fits_one_piece(last, piece):
            joined_pieces[-1] = replace(last, span=Span(last.span.first, piece.span.after, piece.span.of))
        else:
            joined_pieces.append(piece)
    return joined_pieces


def _fits_one_piece(left: Piece, right: Piece) -> bool:
    begin, _ = left.span.bounds(left.file.size)
    _, end = right.span.bounds(right.file.size)
    return end - begin <= MOST_OF_A_FILE


def pane_shares(chain: int, files: Sequence[DataFile], number: int) -> list[PaneFiles]:
    """``files`` of a ``chain`` in shares of about one size: up to ``number``, or more where there is much to read."""
    total = sum(file.bytes for file in files)
    number = max(number, total // MOST_OF_A_SHARE.value)
    by_share: dict[int, list[DataFile]] = {}
    bytes_before = 0
    for file in files:
        middle = 2 * bytes_before + file.bytes
        by_share.setdefault(min(middle * number // max(2 * total, 1), number - 1), []).append(file)
        bytes_before += file.bytes
    return [PaneFiles(chain, tuple(share)) for _, share in sorted(by_share.items())]


def with_whole_files(plan: EpochPlan) -> EpochPlan:
    """``plan`` with every file read as a whole, by who was to read its first piece."""
    whole_files = tuple(
        tuple(replace(piece, span=WHOLE_FILE) for piece in share if piece.span.first == 0) for share in plan.shares
    )
    return replace(plan, shares=whole_files)


def shared_out(parts: int, sizes: Sequence[int]) -> tuple[int, ...]:
    """``parts`` shared out among chains by the ``sizes`` of their tables: each has one at least."""
    total = sum(sizes)
    return tuple(max(1, -(-parts * size // total) if total else -(-parts // len(sizes))) for size in sizes)


def divide_for_joins(chains: Sequence[Chain], parts: Sequence[int], size: int) -> tuple[int, ...]:
    """``parts`` of each of the ``chains``, and more where a chain joins: one for each ``JOIN_PART_BYTES`` of an input
    of ``size`` bytes. A part holds all of its rows. One with a key that many rows share is computed beside several
    others.
    """
    return tuple(
        number if chain.joins is None else max(number, min(number + size // JOIN_PART_BYTES.value, MOST_PARTS))
        for chain, number in zip(chains, parts, strict=True)
    )


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
    def from_pipeline(
        cls, pipeline: Pipeline, store: ObjectStore, landing: Landing, cache: RowCache | None = None
    ) -> "TaskEnvironment":
        return cls(pipeline, Chain.each_of(pipeline), store, landing, cache)

    @property
    def rows(self) -> RowCache:
        return default_cache() if self.cache is None else self.cache

    @cached_property
    def readers(self) -> tuple[int, ...]:
        """The numbers of the chains that take records; others take panes of these."""
        return tuple(number for number, chain in enumerate(self.chains) if not chain.upstream)

    @property
    def firsts(self) -> "tuple[CompiledStage | CompiledJoins, ...]":
        """For what records are judged in each chain that takes them."""
        return tuple(self.chains[number].judging for number in self.readers)

    @property
    def percentiles(self) -> frozenset[float]:
        """The percentile watermarks of inputs that triggers of some chain look at."""
        firsts = (self.chains[number].stages[0] for number in self.readers)
        return frozenset(q for stage in firsts for q in stage.trigger.percentiles)

    @property
    def reads_in_turns(self) -> bool:
        """Whether records may come in another order than that of the tasks that read."""
        return any(isinstance(input_.source.transform, SparkFunction) for input_ in self.pipeline.inputs)

    @property
    def has_items(self) -> bool:
        """Whether several records may be at one place."""
        return any(input_.source.is_flat_mapped for input_ in self.pipeline.inputs)

    @cached_property
    def jobs(self) -> tuple[Job, ...]:
        return jobs_of(self.chains)

    @cached_property
    def handed_on_in_order(self) -> frozenset[int]:
        """The numbers of the chains whose panes another one reads for whom the order counts in which they come."""
        ordered_chains = [chain for chain in self.chains if chain.joins is None and chain.stages[0].is_ordered]
        return frozenset(
            upstream_number for chain in ordered_chains for upstream_number in upstream_of(self.chains, chain)
        )

    @property
    def tells_ids(self) -> bool:
        """Whether a level of tasks tells duplicates."""
        return self.pipeline.deduplicate is not None

    @property
    def levels(self) -> int:
        """How many levels of tasks acknowledge an epoch: those of each chain apart, what is before them once."""
        loops = sum(chain.loop is not None for chain in self.chains)
        steps = sum(chain.steps + len(chain.sides) for chain in self.chains)
        return len(self.jobs) + self.tells_ids + loops + steps

    def number_of(self, output: str) -> int:
        return [chain.names.output for chain in self.chains].index(output)

    def chain_of(self, table: str) -> Chain:
        """The chain whose state is in ``table``."""
        return next(chain for chain in self.chains if table in chain.all_tables)

    def request_counts(self) -> dict[str, int]:
        """All requests so far, of every store."""
        # the root may hold input, too, and counts once
        stores = {id(store): store for store in (self.store, *self.landing.stores)}
        counts = [store.requests.snapshot() for store in stores.values()]
        return {kind: sum(count.get(kind, 0) for count in counts) for kind in counts[0]}

    def requests_since(self, earlier_counts: Mapping[str, int]) -> dict[str, int]:
        """Storage requests by kind since ``earlier_counts``."""
        return {kind: count - earlier_counts.get(kind, 0) for kind, count in self.request_counts().items()}


def file_name(prefix: str, table: str, task: int) -> str:
    """A name for files that no other run of a task uses."""
    return f"{prefix}/{file_stem(table)}-{task:05}-{uuid.uuid4().hex[:12]}"


@dataclass(frozen=True)
class EpochTask:
    """One task of an epoch. ``number`` is that of its share of the input, of its part of ids, or of its part of the
    keys of chain number ``of_chain``.
    """

    plan: EpochPlan
    work: TaskEnvironment
    number: int
    of_chain: int = 0

    @property
    def chain(self) -> Chain:
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
    def watermark_before(self) -> Instant:
        """The watermark that came to its chain before: the source's, or the least output watermark of what it reads."""
        numbers = upstream_of(self.work.chains, self.chain)
        outputs = (self.plan.states[number].clocks[-1].output_watermark for number in numbers)
        return min(outputs, default=self.plan.watermark)

    @property
    def job(self) -> Job:
        """The job that it belongs to, without chains that are parked."""
        return self.work.jobs[self.plan.job].without_chains(self.plan.parked_numbers)

    def for_each_reader(self) -> "tuple[EpochTask, ...]":
        """The task as it works for each chain that takes records and is not parked."""
        return tuple(self.for_chain(number) for number in self.work.readers if number not in self.plan.parked_numbers)

    def for_chain(self, number: int) -> "EpochTask":
        return replace(self, of_chain=number)

    def store_rows(
        self, table: str, rows: pa.RecordBatch | None, *, in_key_order: bool = False
    ) -> tuple[DataFile, ...]:
        """Store ``rows`` under names that no other run of the task uses; no file for no rows. ``in_key_order``: they
        are put in the order of their keys, as records are, once they are many.
        """
        first = self.chain.of_records
        hashes_of_rows = (
            first.record_hashes_of if in_key_order and rows is not None and rows.num_rows > CHUNK_ROWS.value else None
        )
        name = file_name(self.plan.prefix, table, self.number)
        return put_rows(self.work.store, name, [] if rows is None else [rows], hashes_of_rows)

    def pane_writer(self, table: str, *, in_key_order: bool = True) -> ParquetWriter:
        """To store rows as they come; ``in_key_order``: they are panes of the last stage in the order of keys."""
        hashes_of_rows = self.chain.stages[-1].hashes_of if in_key_order else None
        return ParquetWriter(self.work.store, file_name(self.plan.prefix, table, self.number), hashes_of_rows)

    def output_watermark(self, stage: int = 0) -> Instant:
        """The output watermark behind which elements of a stage give their panes no timestamp."""
        stamps = self.chain.stages[stage].stamps_elements
        return self.state.clocks[stage].output_watermark if stamps else MIN_INSTANT


T = TypeVar("T")


class ChainPart(msgspec.Struct, frozen=True):
    """A ``part`` of the keys of the chain with that number."""

    chain: int
    part: int


def job_of(work: TaskEnvironment, plan: EpochPlan) -> Job:
    """The job of ``plan``, without chains that are parked."""
    return work.jobs[plan.job].without_chains(plan.parked_numbers)


def through_spark(work: TaskEnvironment, plan: EpochPlan) -> list[int]:
    """The numbers of the chains that begin the job of ``plan`` with panes of their own, from a user's own code."""
    return [number for number, own in job_of(work, plan).stages.items() if own.start > 0]


def panes_of_outputs(work: TaskEnvironment, plan: EpochPlan) -> list[PaneFiles]:
    """The panes of outputs, as they were stored, that the job of ``plan`` reads: the first of its elements."""
    own = through_spark(work, plan)
    return [panes for panes in plan.elements if panes.chain not in own]


def tasks_of_first_level(work: TaskEnvironment, plan: EpochPlan) -> int:
    """How many tasks the first level of the job of ``plan`` has, at least: a user's own code may make more."""
    if not plan.job:
        return len(plan.shares)
    return max(1, len(panes_of_outputs(work, plan)))


def parts_of(plan: EpochPlan, job: Job, step: int) -> list[ChainPart]:
    """The tasks of a ``step`` of a job, in the order of their numbers."""
    return [ChainPart(chain, part) for chain in job.chains_at(step) for part in range(parts_at(plan, job, step, chain))]


def parts_at(plan: EpochPlan, job: Job, step: int, chain: int) -> int:
    """How many parts a ``chain`` has at a step of a job: its loop is in one."""
    return 1 if job.is_loop(chain, step) else plan.parts[chain]


def of_chain(plan: EpochPlan, job: Job, step: int, chain: int, level: Sequence[T]) -> tuple[T, ...]:
    """What tasks of the ``level`` of a step said for that ``chain``."""
    own = zip(parts_of(plan, job, step), level, strict=False)
    return tuple(result for part, result in own if part.chain == chain)


def address_bundles(plan: EpochPlan, job: Job, step: int, chain: int, bundles: Mapping[int, T]) -> dict[int, T]:
    """``bundles`` for parts of the keys of a ``chain``, by the numbers of the tasks of a step."""
    parts_before = sum(own.chain < chain for own in parts_of(plan, job, step))
    return {parts_before + part: rows for part, rows in bundles.items()}


_MOST_NAMED: Final = 3
"""So many outputs that have a stage at the same level are named."""


def level_names(work: TaskEnvironment, plan: EpochPlan) -> list[str]:
    """What each level of the job of ``plan`` does, the first one first."""
    job = job_of(work, plan)
    return [*_above_stages(work, plan), *(_step_name(work, job, step) for step in range(job.steps))]


def progress_at(work: TaskEnvironment, plan: EpochPlan, level: int, tasks_done: int, tasks: int) -> LevelProgress:
    """Where the epoch of ``plan`` is if its job is at ``level``, counted from 0."""
    names = level_names(work, plan)
    counts = [_level_count(work, replace(plan, job=number)) for number in range(len(work.jobs))]
    levels_before = sum(counts[: plan.job])
    return LevelProgress(plan.epoch, levels_before + level + 1, sum(counts), names[level], tasks_done, tasks)


def _level_count(work: TaskEnvironment, plan: EpochPlan) -> int:
    """How many levels the job of ``plan`` has; a later one without any stage is left out."""
    return 0 if plan.job and not job_of(work, plan).stages else len(level_names(work, plan))


def _above_stages(work: TaskEnvironment, plan: EpochPlan) -> Iterator[str]:
    yield "reading panes" if plan.job else "reading input"
    if plan.job == 0 and work.tells_ids:
        yield "telling duplicates"


def _step_name(work: TaskEnvironment, job: Job, step: int) -> str:
    numbers = job.chains_at(step)
    outputs = [work.chains[number].names.output for number in numbers]
    if len(numbers) > 1:
        more = f" and {len(outputs) - _MOST_NAMED} more" if len(outputs) > _MOST_NAMED else ""
        return f"stages of outputs {', '.join(outputs[:_MOST_NAMED])}{more}"
    (number,), (output,) = numbers, outputs
    stage, of_output = job.stage_at(number, step), f" of output {output}" if output else ""
    if job.is_loop(number, step):
        return f"rounds of the loop{of_output}"
    if stage < 0:
        sides = work.chains[number].sides
        return f"join {len(sides) + stage + 1} of {len(sides)}{of_output}"
    return f"stage {stage + 1} of {len(work.chains[number].stages)}{of_output}"
