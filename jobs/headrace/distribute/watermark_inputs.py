"""What the records of an epoch say to the watermarks of their inputs, and how far elements lie behind.

Shares of an epoch say it one by one, and together they say what the whole would say (semantics 9.2, 12.11, 12.14). That
holds for the splits of an input, and for the budgets of dead letters. A pipeline has its clocks once.

An element lies behind the newest event time of the files before its own, as if each file was an epoch. So it does not
matter which epochs, shares and executors read the files. What is before a file, other tasks read. So a task tells how
the event times of each of its files lie, in at most MOST_BINS bins, and the driver counts. A bin is a power of two
microseconds wide, and bins are aligned at 0. So bins of a file's pieces, made as wide as the whole needs, are those of
the file.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.distribute.records import Lacks, Records
from headrace.kernel.columns import Ints, arrow_scalar, as_numpy, take_rows
from headrace.kernel.delta import takes_part
from headrace.model.event_time import LAG_BUCKETS, BoundedOutOfOrderness, SplitFacts, SplitStrategy
from headrace.model.time import MAX_INSTANT, MIN_INSTANT, Instant
from headrace.pipeline.pipeline import Pipeline
from headrace.program import columns as c
from headrace.sources import source_clock as sources
from headrace.sources.landing import SHOWN_LETTERS, ByInput, Landing
from headrace.sources.progress import InputProgress, Lacking, RecordsAhead, Rejects, WatermarkHold, later_of
from headrace.sources.source_clock import SourceClock, slowest_of
from headrace.sources.validation import newest_of

K = TypeVar("K")

MOST_BINS = 32
"""How many bins of a file have elements, at most: they are as narrow as that lets them be. One far away takes one."""

_FIRST_BITS, _FURTHER_BITS = 12, 7
"""Event times are sorted into so many bins at first (a power of two), and each of few into so many more."""


class FileTimes(msgspec.Struct, frozen=True):
    """How the event times of a file's elements lie, or of some of them. They are in bins of ``2**width`` microseconds;
    empty bins are left out. ``begins`` has the earliest event time in each (as bytes of 64-bit integers), ``numbers``
    how many there are. ``newest`` is the latest that was not too far ahead of the clock.
    """

    width: int
    begins: bytes
    numbers: bytes
    newest: Instant | None

    @classmethod
    def from_times(cls, times: Ints, latest: Instant) -> "FileTimes":
        """Makes bins of ``times``, of which there are some. Times after ``latest`` are too far ahead."""
        counted_times = times if times.max() <= int(latest) else times[times <= int(latest)]
        return _merge_bins(*_bin_times(times), newest=Instant(int(counted_times.max())) if len(counted_times) else None)

    def and_more(self, more: "FileTimes") -> "FileTimes":
        """These, and those of ``more`` elements of the file."""
        begins = np.concatenate((self.begin, more.begin))
        numbers = np.concatenate((self.number, more.number))
        order = np.argsort(begins, kind="stable")
        width = max(self.width, more.width)
        return _merge_bins(width, begins[order], numbers[order], later_of(self.newest, more.newest))

    @property
    def begin(self) -> Ints:
        """The earliest event time in each bin, ascending."""
        return np.frombuffer(self.begins, np.int64)

    @property
    def number(self) -> Ints:
        """How many elements each bin has."""
        return np.frombuffer(self.numbers, np.int64)


def _bin_times(times: Ints) -> tuple[int, Ints, Ints]:
    """Bins of ``times``, more than MOST_BINS or of one microsecond: their width, the earliest time in each and how many
    it has. Wide ones are divided until they are enough; then few events far away cost nothing.
    """
    first, last = int(times.min()), int(times.max())
    width = max(0, (last - first).bit_length() - _FIRST_BITS)
    place = (times >> width) - (first >> width)
    numbers = np.bincount(place)
    while width and np.count_nonzero(numbers) <= MOST_BINS:
        # bins without times get no number, so a few times far away do not make the counts long
        bits = min(width, _FURTHER_BITS)
        width -= bits
        place = (np.cumsum(numbers > 0) - 1)[place] << bits | (times >> width & (1 << bits) - 1)
        numbers = np.bincount(place)
    begins = np.full(len(numbers), last)
    np.minimum.at(begins, place, times)
    is_occupied = numbers > 0
    return width, begins[is_occupied], numbers[is_occupied]


def _merge_bins(width: int, times: Ints, numbers: Ints, newest: Instant | None) -> FileTimes:
    """Bins of ``times``, which ascend and of which each stands for some elements: as wide as they have to be, and at
    least of ``width``. Two neighbours are in one bin if no bit above its width differs.
    """
    differ = (times[1:] ^ times[:-1]).view(np.uint64)
    if len(differ) >= MOST_BINS:  # so many of them must not be apart
        width = max(width, int(np.partition(differ, -MOST_BINS)[-MOST_BINS]).bit_length())
    first = np.flatnonzero(np.concatenate(([True], differ >> np.uint64(width) > 0)))
    begins, sums = times[first].astype(np.int64), np.add.reduceat(numbers, first)
    return FileTimes(width, begins.tobytes(), sums.astype(np.int64).tobytes(), newest)


TimesByFile = Mapping[str, Mapping[str, FileTimes]]
"""By input, and by the path of a file in it."""


def joined_files(shares: Iterable[TimesByFile]) -> TimesByFile:
    """What ``shares`` of an epoch say together."""
    files_by_input: dict[str, dict[str, FileTimes]] = {}
    for share in shares:
        for name, files in share.items():
            of_input = files_by_input.setdefault(name, {})
            for path, times in files.items():
                of_input[path] = of_input[path].and_more(times) if path in of_input else times
    return files_by_input


def count_behind(files: TimesByFile, newest: Mapping[str, Instant]) -> tuple[dict[str, Instant], dict[int, int]]:
    """The newest event time of each input after ``files``, given the ``newest`` before them; and how many elements lay
    how far behind it when their file's turn came, in the order of names. Elements of an input's first file do not
    count.
    """
    newest_after, counts = dict(newest), dict[int, int]()
    for name, of_input in files.items():
        times_in_order = [of_input[path] for path in sorted(of_input)]
        begin = int(newest.get(name, MIN_INSTANT))
        own = [begin, *(begin if times.newest is None else int(times.newest) for times in times_in_order)]
        newest_so_far = np.maximum.accumulate(np.array(own, np.int64))
        if newest_so_far[-1] > int(MIN_INSTANT):
            newest_after[name] = Instant(int(newest_so_far[-1]))
        newest_before = np.repeat(newest_so_far[:-1], [len(times.begin) for times in times_in_order])
        is_counted = newest_before > int(MIN_INSTANT)
        lags = newest_before[is_counted] - np.concatenate([times.begin for times in times_in_order])[is_counted]
        numbers = np.concatenate([times.number for times in times_in_order])[is_counted]
        values, place = np.unique(lags_of(lags), return_inverse=True)
        sums = np.zeros(len(values), np.int64)
        np.add.at(sums, place, numbers)
        for lag, number in zip(values.tolist(), sums.tolist(), strict=True):
            counts[lag] = counts.get(lag, 0) + number
    return newest_after, counts


def lags_of(distances: Ints) -> Ints:
    """How far elements lie behind, in granules rounded up to two digits, to be counted; 0 if they do not."""
    distances = np.maximum(distances, 0)
    digits = np.floor(np.log10(np.maximum(distances, 1))).astype(np.int64)
    unit = 10 ** np.maximum(digits - 1, 0)
    rounded_lags: Ints = -(-distances // unit) * unit
    return rounded_lags


class SplitStats(msgspec.Struct, frozen=True):
    """Facts by split. ``ahead``: how many records lay too far ahead to say anything, first the row ``first_ahead``."""

    splits: Mapping[str, SplitFacts] = msgspec.field(default_factory=dict)
    ahead: int = 0
    first_ahead: int | None = None


def split_facts(
    clock: SourceClock,
    columns: Mapping[str, pa.Array],
    rows: Ints,
    processing_time: Instant,
    percentiles: Iterable[float],
) -> SplitStats:
    """What those ``rows`` of judged records, all accepted and of the input of ``clock``, say at ``processing_time``;
    ``percentiles`` are the percentile watermarks that triggers look at.
    """
    strategy = clock.event_time.watermark
    if not isinstance(strategy, SplitStrategy):
        return SplitStats()
    marks, split_names = (take_rows(columns[name], rows) for name in (c.MARK, c.SPLIT))
    is_ahead = pc.greater(marks, arrow_scalar(int(clock.event_time.latest_watermark(processing_time)))).fill_null(False)
    rows_ahead = np.flatnonzero(as_numpy(is_ahead))
    if len(rows_ahead):
        marks, split_names = marks.filter(pc.invert(is_ahead)), split_names.filter(pc.invert(is_ahead))
    strategy_of_lags = strategy if isinstance(strategy, BoundedOutOfOrderness) and list(percentiles) else None
    facts: dict[str, SplitFacts] = {}
    split = as_numpy(split_names.indices)
    for number, name in enumerate(split_names.dictionary.to_pylist()):
        is_of_split = split == number
        if not is_of_split.any():
            continue
        own = marks if is_of_split.all() else marks.filter(pa.array(is_of_split))
        latest = pc.max(own).as_py()
        known_split = clock.splits.get(name)
        lags: dict[int, int] = {}
        if strategy_of_lags is not None and known_split is not None and known_split.mark is not None:
            lags = _lag_counts(strategy_of_lags, int(known_split.mark), as_numpy(own.drop_null()))
        facts[name] = SplitFacts(None if latest is None else Instant(latest), lags)
    return SplitStats(facts, len(rows_ahead), int(rows[rows_ahead[0]]) if len(rows_ahead) else None)


def _lag_counts(strategy: BoundedOutOfOrderness, mark: int, marks: NDArray[np.int64]) -> dict[int, int]:
    """How many records are how far behind the mark that the epoch before left, by bucket: 0 of those at it
    or ahead of it."""
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
    ``lags`` counts the elements by how far they lay behind the newest of the epochs before (``lags_of``). ``files``
    says how their event times lie in each file. ``lacks``: what files lack (of a file in pieces, what all do).
    """

    facts: Mapping[str, Mapping[str, SplitFacts]] = field(default_factory=dict)
    ahead: tuple[RecordsAhead, ...] = ()
    rejected: Mapping[str, int] = field(default_factory=dict)
    sample: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    newest: Instant | None = None
    newest_read: Instant | None = None
    lags: Mapping[int, int] = field(default_factory=dict)
    lacks: Lacks = field(default_factory=dict)
    files: TimesByFile = field(default_factory=dict)
    records: Mapping[str, int] = field(default_factory=dict)

    def and_known(self, marks: Mapping[str, Mapping[str, Instant]]) -> "InputObservations":
        """The same beside what sources know of parts of inputs: a mark of each, by input."""
        if not marks:
            return self
        known_marks = {
            name: {part: SplitFacts(None if mark == MIN_INSTANT else mark) for part, mark in parts.items()}
            for name, parts in marks.items()
        }
        return combine_observations((self, InputObservations(known_marks)))

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
                for column, nearest_name in columns.items():
                    first = lacking.get((name, column), Lacking(name, column, 0, path, nearest_name))
                    lacking[name, column] = replace(first, files=first.files + 1)
        return tuple(lacking.values())


class ObservationContext(msgspec.Struct, frozen=True):
    """What the records of an epoch are compared with. The last epoch left the ``clocks`` and the ``newest`` event time.
    The others are processing time, and the percentile watermarks that triggers look at.
    """

    clocks: Mapping[str, SourceClock]
    processing_time: Instant
    percentiles: frozenset[float] = frozenset()
    newest: Instant | None = None


def observe_records(pipeline: Pipeline, records: Records, context: ObservationContext) -> InputObservations:
    clocks, processing_time = context.clocks, context.processing_time
    percentiles = tuple(context.percentiles)
    facts: dict[str, Mapping[str, SplitFacts]] = {}
    ahead_records: list[RecordsAhead] = []
    is_accepted = ~records.is_rejected
    for name in (input_.name for input_ in pipeline.inputs):
        rows = np.flatnonzero(records.of_input(name) & is_accepted)
        if len(rows):
            stats = split_facts(clocks[name], records.columns, rows, processing_time, percentiles)
            facts[name] = stats.splits
            ahead_records += _ahead_records(name, records, stats)
    limited_inputs = {input_.name for input_ in pipeline.inputs if input_.source.max_rejected is not None}
    rejected_counts: dict[str, int] = {}
    sample: dict[str, tuple[str, ...]] = {}
    read = {input_.name: int(records.of_input(input_.name).sum()) for input_ in pipeline.inputs}
    if not is_accepted.all():
        for name in sorted(read):
            rows = np.flatnonzero(records.of_input(name) & ~is_accepted)
            rejected_counts[name] = len(rows)
            if name in limited_inputs:
                sample[name] = _describe_rejections(records, rows[:SHOWN_LETTERS])
    files = _times_by_file(pipeline, records, context)
    return InputObservations(
        facts,
        tuple(ahead_records),
        rejected_counts,
        sample,
        newest=reduce(later_of, (times.newest for of_input in files.values() for times in of_input.values()), None),
        newest_read=_newest_read(pipeline, records, context),
        lags=_behind_epochs(records, context),
        lacks=records.lacks,
        files=files,
        records={name: count for name, count in read.items() if count},
    )


def _newest_read(pipeline: Pipeline, records: Records, context: ObservationContext) -> Instant | None:
    newest = None
    for input_ in pipeline.inputs:
        times = take_rows(records.columns[c.EVENT_TIME], np.flatnonzero(records.of_input(input_.name)))
        newest = later_of(newest, newest_of(input_, times, context.processing_time))
    return newest


def _times_by_file(pipeline: Pipeline, records: Records, context: ObservationContext) -> TimesByFile:
    latest = {input_.name: input_.event_time.latest_watermark(context.processing_time) for input_ in pipeline.inputs}
    elements = np.flatnonzero(takes_part(records.columns))
    times = as_numpy(take_rows(records.columns[c.EVENT_TIME], elements))
    files: dict[str, dict[str, FileTimes]] = {}
    parts = [*records.by_file(elements)]
    for (name, path, _), part_times in zip(parts, times_of_parts(times, parts, latest), strict=True):
        of_input = files.setdefault(name, {})
        of_input[path] = of_input[path].and_more(part_times) if path in of_input else part_times
    return files


def times_of_parts(
    times: Ints, parts: Sequence[tuple[str, str, slice]], latest: Mapping[str, Instant]
) -> Iterator[FileTimes]:
    """How the ``times`` of each of the ``parts`` lie. Parts of small files are sorted at once: up to as many elements
    as there may be bins are told apart to the microsecond.
    """
    begins = np.array([rows.start for _, _, rows in parts], np.int64)
    sizes = np.array([rows.stop for _, _, rows in parts], np.int64) - begins
    small = np.flatnonzero(sizes <= MOST_BINS)
    own = times[np.repeat(sizes <= MOST_BINS, sizes)]
    part = np.repeat(np.arange(len(small)), sizes[small])
    order = np.lexsort((own, part))
    own, part = own[order], part[order]
    is_first = np.ones(len(own), np.bool_)
    is_first[1:] = (own[1:] != own[:-1]) | (part[1:] != part[:-1])
    first = np.flatnonzero(is_first)
    numbers = np.diff(first, append=len(own))
    bins = np.searchsorted(part[first], np.arange(len(small) + 1)).tolist()
    begin_bytes, number_bytes = own[first].astype(np.int64).tobytes(), numbers.astype(np.int64).tobytes()
    limits = np.array([int(latest[parts[place][0]]) for place in small.tolist()], np.int64)
    counted_times = np.where(own <= limits[part], own, int(MIN_INSTANT)) if len(own) else own
    newest = counted_times
    if len(small):
        newest = np.maximum.reduceat(counted_times, np.searchsorted(part, np.arange(len(small))))
    of_small = iter(zip(bins, bins[1:], newest.tolist(), strict=False))
    for (name, _, rows), size in zip(parts, sizes.tolist(), strict=True):
        if size > MOST_BINS:
            yield FileTimes.from_times(times[rows], latest[name])
            continue
        begin, end, latest_own = next(of_small)
        part_slice = slice(8 * begin, 8 * end)
        is_none = latest_own == int(MIN_INSTANT)
        yield FileTimes(0, begin_bytes[part_slice], number_bytes[part_slice], None if is_none else Instant(latest_own))


def _behind_epochs(records: Records, context: ObservationContext) -> dict[int, int]:
    """How many elements lie how far behind the newest of the epochs before."""
    if context.newest is None:
        return {}
    times = as_numpy(take_rows(records.columns[c.EVENT_TIME], np.flatnonzero(takes_part(records.columns))))
    late_times = times[times < int(context.newest)]
    values, numbers = np.unique(lags_of(int(context.newest) - late_times), return_counts=True)
    lags = dict(zip(values.tolist(), numbers.tolist(), strict=True))
    if len(late_times) < len(times):
        lags[0] = lags.get(0, 0) + len(times) - len(late_times)
    return lags


def sum_counts(counts: Iterable[Mapping[K, int]]) -> dict[K, int]:
    """Counts by kind, added up."""
    totals: Counter[K] = Counter()
    for count in counts:
        totals.update(count)
    return dict(totals)


def combine_observations(shares: Iterable[InputObservations]) -> InputObservations:
    """What the shares of an epoch, in their order, say together."""
    shares = tuple(shares)
    facts: dict[str, dict[str, SplitFacts]] = {}
    ahead_by_input: dict[str, RecordsAhead] = {}
    sample: dict[str, tuple[str, ...]] = {}
    lacks: dict[str, dict[str, Mapping[str, str | None]]] = {}
    for share in shares:
        for name, splits in share.facts.items():
            facts_by_split = facts.setdefault(name, {})
            for split, fact in splits.items():
                facts_by_split[split] = _join_facts(facts_by_split[split], fact) if split in facts_by_split else fact
        for name, files in share.lacks.items():
            lacking_files = lacks.setdefault(name, {})
            for path, columns in files.items():
                old_columns = lacking_files.get(path, columns)  # of another piece of the file
                lacking_files[path] = {
                    column: nearest_name for column, nearest_name in old_columns.items() if column in columns
                }
        for input_ahead in share.ahead:
            first = ahead_by_input.get(input_ahead.input)
            ahead_by_input[input_ahead.input] = input_ahead if first is None else first.and_more(input_ahead.records)
        for name in share.rejected:
            sample[name] = (*sample.get(name, ()), *share.sample.get(name, ()))[:SHOWN_LETTERS]
    return InputObservations(
        facts,
        tuple(ahead_by_input.values()),
        sum_counts(share.rejected for share in shares),
        sample,
        reduce(later_of, (share.newest for share in shares), None),
        reduce(later_of, (share.newest_read for share in shares), None),
        sum_counts(share.lags for share in shares),
        lacks,
        joined_files(share.files for share in shares),
        sum_counts(share.records for share in shares),
    )


def _join_facts(left: SplitFacts, right: SplitFacts) -> SplitFacts:
    return SplitFacts(later_of(left.mark, right.mark), dict(sorted(sum_counts((left.lags, right.lags)).items())))


def _ahead_records(name: str, records: Records, facts: SplitStats) -> list[RecordsAhead]:
    """Names the first of the records that are ahead, if there are any."""
    if facts.first_ahead is None:
        return []
    row = np.array([facts.first_ahead])
    origin = {field: values[0].as_py() for field, values in records.origins(row).items()}
    event_time = Instant(records.columns[c.MARK][facts.first_ahead].as_py())
    return [RecordsAhead(name, facts.ahead, origin["file"], origin["position"], event_time)]


def _describe_rejections(records: Records, rows: Ints) -> tuple[str, ...]:
    origins = records.origins(rows)
    reasons = records.columns[c.REJECT].take(pa.array(rows)).to_pylist()
    places = zip(origins["file"].to_pylist(), origins["position"].to_pylist(), reasons, strict=True)
    return tuple(f"{file} record {position}: {reason}" for file, position, reason in places)


class WatermarkUpdate(msgspec.Struct, frozen=True):
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
    """The ``clocks`` after an epoch at ``now`` whose records say ``observations``, and that is held to ``hold``."""
    clocks_after = {
        name: clock.after_epoch(
            observations.facts.get(name, {}), now, percentiles, None if hold is None else hold.of_input(name)
        )
        for name, clock in clocks.items()
    }
    return WatermarkUpdate(clocks_after, slowest_of(clocks_after, now, percentiles), is_last, hold)


def source_clocks(pipeline: Pipeline, inputs: Mapping[str, InputProgress]) -> dict[str, SourceClock]:
    """The clocks of inputs that have come as far as ``inputs`` say."""
    return {
        input_.name: SourceClock.from_progress(input_.event_time, inputs[input_.name]) for input_ in pipeline.inputs
    }


def inputs_after(
    landing: Landing, inputs: Mapping[str, InputProgress], files: ByInput, clocks: WatermarkUpdate
) -> dict[str, InputProgress]:
    """How far ``inputs`` have come after an epoch that read ``files`` and moved their clocks."""
    progress = {}
    for name in landing.enumerators:
        clock = clocks.inputs[name]
        offsets = landing.position_after(name, inputs[name].offsets, files.get(name, ()))
        progress[name] = InputProgress(offsets, clock.splits, clock.watermark, clock.percentiles)
    return progress
