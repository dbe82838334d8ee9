"""What the records of an epoch say beside what is aggregated of them: to the watermarks of their inputs, and to the
budgets of dead letters. Shares of an epoch say it one by one, and together what the whole would say.

What an epoch's records tell of the splits of their input (semantics 9.2, 12.11, 12.14).

Where the clocks of the inputs go in an epoch, by what records said. A pipeline has them once.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.distribute.file_times import Files, FileTimes, joined_files, lags_of
from headrace.distribute.records import Lacks, Records
from headrace.kernel.elements import takes_part
from headrace.kernel.grouping import Ints, taken
from headrace.model.time import MAX_INSTANT, MIN_INSTANT, Instant
from headrace.model.watermarks import LAG_BUCKETS, BoundedOutOfOrderness, SplitFacts, SplitStrategy
from headrace.pipeline.pipeline import Pipeline
from headrace.program import columns as c
from headrace.sources import source_clock as sources
from headrace.sources.landing import SHOWN, ByInput, Landing, check_budgets
from headrace.sources.newest_event_time import newest_of
from headrace.sources.progress import Ahead, InputProgress, Lacking, Rejects, WatermarkHold, later_of
from headrace.sources.source_clock import SourceClock, slowest_of


@dataclass(frozen=True)
class SplitStats:
    """Facts by split. ``ahead``: how many records lay too far ahead of processing time to say anything, the first of
    which is the row ``first_ahead``.
    """

    splits: Mapping[str, SplitFacts] = field(default_factory=dict)
    ahead: int = 0
    first_ahead: int | None = None


def split_facts(
    clock: SourceClock,
    columns: Mapping[str, pa.Array],
    rows: Ints,
    processing_time: Instant,
    wanted: Iterable[float],
) -> SplitStats:
    """What those ``rows`` of judged records, all accepted and of the input of ``clock``, say at ``processing_time``;
    ``wanted`` are the percentile watermarks that triggers look at.
    """
    strategy = clock.event_time.watermark
    if not isinstance(strategy, SplitStrategy):
        return SplitStats()
    marks, named = (taken(columns[name], rows) for name in (c.MARK, c.SPLIT))
    is_ahead = pc.greater(marks, int(clock.event_time.latest(processing_time))).fill_null(False)
    ahead = np.flatnonzero(is_ahead.to_numpy(zero_copy_only=False))
    if len(ahead):
        marks, named = marks.filter(pc.invert(is_ahead)), named.filter(pc.invert(is_ahead))
    counts_lags = isinstance(strategy, BoundedOutOfOrderness) and bool(list(wanted)) and bool(clock.splits)
    facts: dict[str, SplitFacts] = {}
    split = named.indices.to_numpy()
    for number, name in enumerate(named.dictionary.to_pylist()):
        here = split == number
        if not here.any():
            continue
        own = marks if here.all() else marks.filter(pa.array(here))
        latest = pc.max(own).as_py()
        known = clock.splits.get(name)
        lags: dict[int, int] = {}
        if counts_lags and isinstance(strategy, BoundedOutOfOrderness) and known is not None and known.mark is not None:
            lags = _lags(strategy, int(known.mark), own.drop_null().to_numpy())
        facts[name] = SplitFacts(None if latest is None else Instant(latest), lags)
    return SplitStats(facts, len(ahead), int(rows[ahead[0]]) if len(ahead) else None)


def _lags(strategy: BoundedOutOfOrderness, mark: int, marks: NDArray[np.int64]) -> dict[int, int]:
    """How many records are how far behind the mark that the epoch before left (``lag_bucket``)."""
    lag, bound = mark - marks, int(strategy.bound)
    bucket = np.where(lag >= bound, LAG_BUCKETS, lag * LAG_BUCKETS // max(bound, 1))
    bucket = np.where(lag <= 0, 0, bucket)
    values, counts = np.unique(bucket, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


@dataclass(frozen=True)
class InputObservations:
    """What records say, by input. ``ahead``: of inputs with records that were too far ahead of processing time to say
    anything. ``rejected`` counts dead letters, of which ``sample`` shows the first where their number is limited;
    ``records`` is how many were read.

    ``newest`` is the latest event time of elements that was not too far ahead, ``newest_read`` that of all records;
    ``lags`` counts the elements by how far they lay behind the newest of the epochs before (``lags_of``), and ``files``
    says how their event times lie in each file. ``lacks``: what files lack (of a file in pieces, what all do).
    """

    facts: Mapping[str, Mapping[str, SplitFacts]] = field(default_factory=dict)
    ahead: tuple[Ahead, ...] = ()
    rejected: Mapping[str, int] = field(default_factory=dict)
    sample: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    newest: Instant | None = None
    newest_read: Instant | None = None
    lags: Mapping[int, int] = field(default_factory=dict)
    lacks: Lacks = field(default_factory=dict)
    files: Files = field(default_factory=dict)
    records: Mapping[str, int] = field(default_factory=dict)

    def and_known(self, marks: Mapping[str, Mapping[str, Instant]]) -> "InputObservations":
        """The same beside what sources know of parts of inputs: a mark of each, by input."""
        if not marks:
            return self
        known = {
            name: {part: SplitFacts(None if mark == MIN_INSTANT else mark) for part, mark in parts.items()}
            for name, parts in marks.items()
        }
        return combined((self, InputObservations(known)))

    @property
    def rejects(self) -> tuple[Rejects, ...]:
        """Dead letters and records of each input of which something was read."""
        return tuple(Rejects(name, self.rejected.get(name, 0), count) for name, count in sorted(self.records.items()))

    @property
    def lacking(self) -> tuple[Lacking, ...]:
        """Columns that no record of some file has, with the first such file in the order of names."""
        lacking: dict[tuple[str, str], Lacking] = {}
        for name, files in self.lacks.items():
            for path, columns in sorted(files.items()):
                for column, near in columns.items():
                    first = lacking.get((name, column), Lacking(name, column, 0, path, near))
                    lacking[name, column] = replace(first, files=first.files + 1)
        return tuple(lacking.values())


@dataclass(frozen=True)
class ObservationContext:
    """What the records of an epoch are held against: the ``clocks`` and the ``newest`` event time that the last epoch
    left, processing time, and the percentile watermarks that triggers look at.
    """

    clocks: Mapping[str, SourceClock]
    processing_time: Instant
    percentiles: frozenset[float] = frozenset()
    newest: Instant | None = None


def observe(pipeline: Pipeline, records: Records, context: ObservationContext) -> InputObservations:
    """What ``records`` say."""
    clocks, processing_time = context.clocks, context.processing_time
    percentiles = tuple(context.percentiles)
    facts: dict[str, Mapping[str, SplitFacts]] = {}
    ahead: list[Ahead] = []
    accepted = ~records.is_rejected
    for name in (input_.name for input_ in pipeline.inputs):
        rows = np.flatnonzero(records.of_input(name) & accepted)
        if len(rows):
            stats = split_facts(clocks[name], records.columns, rows, processing_time, percentiles)
            facts[name] = stats.splits
            ahead += _ahead(name, records, stats)
    limited = {input_.name for input_ in pipeline.inputs if input_.source.max_rejected is not None}
    rejected: dict[str, int] = {}
    sample: dict[str, tuple[str, ...]] = {}
    read = {input_.name: int(records.of_input(input_.name).sum()) for input_ in pipeline.inputs}
    if not accepted.all():
        for name in sorted(read):
            rows = np.flatnonzero(records.of_input(name) & ~accepted)
            rejected[name] = len(rows)
            if name in limited:
                sample[name] = _shown(records, rows[:SHOWN])
    files = _times_by_file(pipeline, records, context)
    return InputObservations(
        facts,
        tuple(ahead),
        rejected,
        sample,
        newest=_newest_in(files),
        newest_read=_newest_read(pipeline, records, context),
        lags=_behind_epochs(records, context),
        lacks=records.lacks,
        files=files,
        records={name: count for name, count in read.items() if count},
    )


def _newest_read(pipeline: Pipeline, records: Records, context: ObservationContext) -> Instant | None:
    newest = None
    for input_ in pipeline.inputs:
        times = taken(records.columns[c.EVENT_TIME], np.flatnonzero(records.of_input(input_.name)))
        newest = later_of(newest, newest_of(input_, times, context.processing_time))
    return newest


def _times_by_file(pipeline: Pipeline, records: Records, context: ObservationContext) -> Files:
    latest = {input_.name: input_.event_time.latest(context.processing_time) for input_ in pipeline.inputs}
    elements = np.flatnonzero(takes_part(records.columns))
    times = taken(records.columns[c.EVENT_TIME], elements).to_numpy()
    files: dict[str, dict[str, FileTimes]] = {}
    for name, path, rows in records.by_file(elements):
        here = FileTimes.of(times[rows], latest[name])
        of_input = files.setdefault(name, {})
        of_input[path] = of_input[path].and_more(here) if path in of_input else here
    return files


def _newest_in(files: Files) -> Instant | None:
    newest = None
    for of_input in files.values():
        for times in of_input.values():
            newest = later_of(newest, times.newest)
    return newest


def _behind_epochs(records: Records, context: ObservationContext) -> dict[int, int]:
    """How many elements lie how far behind the newest of the epochs before."""
    if context.newest is None:
        return {}
    times = taken(records.columns[c.EVENT_TIME], np.flatnonzero(takes_part(records.columns))).to_numpy()
    late_times = times[times < int(context.newest)]
    values, numbers = np.unique(lags_of(int(context.newest) - late_times), return_counts=True)
    lags = dict(zip(values.tolist(), numbers.tolist(), strict=True))
    if len(late_times) < len(times):
        lags[0] = lags.get(0, 0) + len(times) - len(late_times)
    return lags


def combined(shares: Iterable[InputObservations]) -> InputObservations:
    """What the shares of an epoch, in their order, say together."""
    shares = tuple(shares)
    facts: dict[str, dict[str, SplitFacts]] = {}
    ahead: dict[str, Ahead] = {}
    rejected: dict[str, int] = {}
    records: dict[str, int] = {}
    sample: dict[str, tuple[str, ...]] = {}
    newest: Instant | None = None
    newest_read: Instant | None = None
    lags: dict[int, int] = {}
    lacks: dict[str, dict[str, Mapping[str, str | None]]] = {}
    for share in shares:
        newest, newest_read = later_of(newest, share.newest), later_of(newest_read, share.newest_read)
        for lag, number in share.lags.items():
            lags[lag] = lags.get(lag, 0) + number
        for name, splits in share.facts.items():
            joined = facts.setdefault(name, {})
            for split, fact in splits.items():
                joined[split] = _joined(joined[split], fact) if split in joined else fact
        for name, files in share.lacks.items():
            lacking_files = lacks.setdefault(name, {})
            for path, columns in files.items():
                before = lacking_files.get(path, columns)  # of another piece of the file
                lacking_files[path] = {column: near for column, near in before.items() if column in columns}
        for input_ahead in share.ahead:
            first = ahead.get(input_ahead.input)
            ahead[input_ahead.input] = input_ahead if first is None else first.and_more(input_ahead.records)
        for name, count in share.rejected.items():
            rejected[name] = rejected.get(name, 0) + count
            sample[name] = (*sample.get(name, ()), *share.sample.get(name, ()))[:SHOWN]
        for name, count in share.records.items():
            records[name] = records.get(name, 0) + count
    times = joined_files(share.files for share in shares)
    return InputObservations(
        facts, tuple(ahead.values()), rejected, sample, newest, newest_read, lags, lacks, times, records
    )


def check(pipeline: Pipeline, epoch: int, observations: InputObservations) -> None:
    """Raises DeadLetterBudgetError if more records were rejected than a source allows."""
    check_budgets(pipeline, epoch, observations.rejected, observations.sample)


def _joined(left: SplitFacts, right: SplitFacts) -> SplitFacts:
    marks = [mark for mark in (left.mark, right.mark) if mark is not None]
    buckets = sorted({*left.lags, *right.lags})
    return SplitFacts(
        max(marks, default=None), {bucket: left.lags.get(bucket, 0) + right.lags.get(bucket, 0) for bucket in buckets}
    )


def _ahead(name: str, records: Records, facts: SplitStats) -> list[Ahead]:
    """Names the first of the records that are ahead, if there are any."""
    if facts.first_ahead is None:
        return []
    row = np.array([facts.first_ahead])
    origin = {field: values[0].as_py() for field, values in records.of(row).items()}
    at = Instant(records.columns[c.MARK][facts.first_ahead].as_py())
    return [Ahead(name, facts.ahead, origin["file"], origin["position"], at)]


def _shown(records: Records, rows: Ints) -> tuple[str, ...]:
    origins = records.of(rows)
    reasons = records.columns[c.REJECT].take(pa.array(rows)).to_pylist()
    places = zip(origins["file"].to_pylist(), origins["position"].to_pylist(), reasons, strict=True)
    return tuple(f"{file} record {position}: {reason}" for file, position, reason in places)


@dataclass(frozen=True)
class WatermarkUpdate:
    """The clocks of the inputs after an epoch, and ``combined`` as one; the ``hold`` that they do not pass."""

    inputs: Mapping[str, SourceClock]
    combined: sources.SourceWatermarks
    is_last: bool = False
    hold: WatermarkHold | None = None

    @property
    def watermark(self) -> Instant:
        """The watermark of the source: +inf after the last epoch."""
        if self.is_last:
            return MAX_INSTANT
        # beyond all inputs' holds: main may have been where none of its inputs was idle, or all
        return self.combined.watermark if self.hold is None else min(self.combined.watermark, self.hold.watermark)


def watermark_update(
    clocks: Mapping[str, SourceClock],
    observations: InputObservations,
    now: Instant,
    percentiles: tuple[float, ...],
    *,
    is_last: bool,
    hold: WatermarkHold | None = None,
) -> WatermarkUpdate:
    """The ``clocks`` of all inputs after an epoch at ``now`` whose records say ``observations``, and that is held to
    ``hold``.
    """
    after = {
        name: clock.after(
            observations.facts.get(name, {}), now, percentiles, None if hold is None else hold.of_input(name)
        )
        for name, clock in clocks.items()
    }
    return WatermarkUpdate(after, slowest_of(after, now, percentiles), is_last, hold)


def source_clocks(pipeline: Pipeline, inputs: Mapping[str, InputProgress]) -> dict[str, SourceClock]:
    """The clocks of inputs that have come as far as ``inputs`` say."""
    return {input_.name: SourceClock.of(input_.event_time, inputs[input_.name]) for input_ in pipeline.inputs}


def inputs_after(
    landing: Landing, inputs: Mapping[str, InputProgress], files: ByInput, clocks: WatermarkUpdate
) -> dict[str, InputProgress]:
    """How far ``inputs`` have come after an epoch that read ``files`` and moved their clocks."""
    progress = {}
    for name in landing.enumerators:
        clock = clocks.inputs[name]
        offsets = landing.after(name, inputs[name].offsets, files.get(name, ()))
        progress[name] = InputProgress(offsets, clock.splits, clock.watermark, clock.percentiles)
    return progress
