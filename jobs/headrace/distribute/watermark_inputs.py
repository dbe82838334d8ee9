"""What the records of an epoch say beside what is aggregated of them: to the watermarks of their inputs, and to the
budgets of dead letters. Shares of an epoch say it one by one, and together what the whole would say.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from headrace.distribute.records import Lacks, Records
from headrace.kernel.elements import takes_part
from headrace.kernel.grouping import Ints, taken
from headrace.model.time import MIN_INSTANT, Instant
from headrace.model.watermarks import SplitFacts
from headrace.pipeline.pipeline import Pipeline
from headrace.program import columns as c
from headrace.sources.error_budgets import SHOWN, check_budgets
from headrace.sources.newest_event_time import newest_of
from headrace.sources.progress import Ahead, Lacking, later_of
from headrace.sources.source_clock import SourceClock
from headrace.sources.split_stats import SplitStats, split_facts


@dataclass(frozen=True)
class InputObservations:
    """What records say, by input. ``ahead``: of inputs with records that were too far ahead of processing time to say
    anything. ``rejected`` counts dead letters where their number is limited, of which ``sample`` shows the first.

    ``newest`` is the latest event time of elements that was not too far ahead, ``newest_read`` that of all records;
    ``behind`` counts the elements by how far they lay behind the newest of the epochs before (``lags``). ``lacks``:
    what files lack (of a file in pieces, what all do).
    """

    facts: Mapping[str, Mapping[str, SplitFacts]] = field(default_factory=dict)
    ahead: tuple[Ahead, ...] = ()
    rejected: Mapping[str, int] = field(default_factory=dict)
    sample: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    newest: Instant | None = None
    newest_read: Instant | None = None
    behind: Mapping[int, int] = field(default_factory=dict)
    lacks: Lacks = field(default_factory=dict)

    @property
    def lacking(self) -> tuple[Lacking, ...]:
        """Columns that no record of some file has, with the first such file in the order of names."""
        found: dict[tuple[str, str], Lacking] = {}
        for name, files in self.lacks.items():
            for path, columns in sorted(files.items()):
                for column, near in columns.items():
                    first = found.get((name, column), Lacking(name, column, 0, path, near))
                    found[name, column] = replace(first, files=first.files + 1)
        return tuple(found.values())


@dataclass(frozen=True)
class ObservationContext:
    """What an epoch's records are told against: the ``clocks`` and the ``newest`` event time that the last epoch left,
    processing time, and the percentile watermarks that triggers look at.
    """

    clocks: Mapping[str, SourceClock]
    processing_time: Instant
    percentiles: frozenset[float] = frozenset()
    newest: Instant | None = None


def said(pipeline: Pipeline, records: Records, heard: ObservationContext) -> InputObservations:
    """What ``records`` say."""
    clocks, processing_time = heard.clocks, heard.processing_time
    wanted = tuple(heard.percentiles)
    facts: dict[str, Mapping[str, SplitFacts]] = {}
    ahead: list[Ahead] = []
    accepted = ~records.is_rejected
    for given in pipeline.inputs:
        own = np.flatnonzero(records.of_input(given.name) & accepted)
        if len(own):
            found = split_facts(clocks[given.name], records.columns, own, processing_time, wanted)
            facts[given.name] = found.splits
            ahead += _ahead(given.name, records, found)
    limited = {given.name for given in pipeline.inputs if given.source.max_rejected is not None}
    rejected: dict[str, int] = {}
    sample: dict[str, tuple[str, ...]] = {}
    if limited and not accepted.all():
        for name in sorted(limited):
            own = np.flatnonzero(records.of_input(name) & ~accepted)
            rejected[name], sample[name] = len(own), _shown(records, own[:SHOWN])
    newest, behind = _lateness(pipeline, records, heard)
    return InputObservations(
        facts, tuple(ahead), rejected, sample, newest, _newest_read(pipeline, records, heard), behind, records.lacks
    )


def _newest_read(pipeline: Pipeline, records: Records, heard: ObservationContext) -> Instant | None:
    found = None
    for given in pipeline.inputs:
        times = taken(records.columns[c.EVENT_TIME], np.flatnonzero(records.of_input(given.name)))
        found = later_of(found, newest_of(given, times, heard.processing_time))
    return found


def _lateness(pipeline: Pipeline, records: Records, heard: ObservationContext) -> tuple[Instant | None, dict[int, int]]:
    here = np.flatnonzero(takes_part(records.columns))
    times = taken(records.columns[c.EVENT_TIME], here).to_numpy()
    newest = None
    for given in pipeline.inputs:
        own = times if len(pipeline.inputs) == 1 else times[records.of_input(given.name)[here]]
        latest = int(given.event_time.latest(heard.processing_time))
        if len(own) and int(own.max()) > latest:
            own = own[own <= latest]
        if len(own):
            newest = Instant(max(int(own.max()), int(newest) if newest is not None else int(MIN_INSTANT)))
    if heard.newest is None or not len(times):
        return newest, {}
    behind = times[times < int(heard.newest)]
    values, numbers = np.unique(lags(int(heard.newest) - behind), return_counts=True)
    found = dict(zip(values.tolist(), numbers.tolist(), strict=True))
    if len(behind) < len(times):
        found[0] = found.get(0, 0) + len(times) - len(behind)
    return newest, found


def lags(behind: Ints) -> Ints:
    """How far elements lie ``behind``, in granules rounded up to two digits, so that they can be counted; 0 if they do
    not.
    """
    behind = np.maximum(behind, 0)
    digits = np.floor(np.log10(np.maximum(behind, 1))).astype(np.int64)
    unit = 10 ** np.maximum(digits - 1, 0)
    found: Ints = -(-behind // unit) * unit
    return found


def together(shares: Iterable[InputObservations]) -> InputObservations:
    """What the shares of an epoch, in their order, say together."""
    facts: dict[str, dict[str, SplitFacts]] = {}
    ahead: dict[str, Ahead] = {}
    rejected: dict[str, int] = {}
    sample: dict[str, tuple[str, ...]] = {}
    newest: Instant | None = None
    newest_read: Instant | None = None
    behind: dict[int, int] = {}
    lacks: dict[str, dict[str, Mapping[str, str | None]]] = {}
    for share in shares:
        newest, newest_read = later_of(newest, share.newest), later_of(newest_read, share.newest_read)
        for lag, number in share.behind.items():
            behind[lag] = behind.get(lag, 0) + number
        for name, splits in share.facts.items():
            known = facts.setdefault(name, {})
            for split, fact in splits.items():
                known[split] = _joined(known[split], fact) if split in known else fact
        for name, files in share.lacks.items():
            known_files = lacks.setdefault(name, {})
            for path, columns in files.items():
                before = known_files.get(path, columns)  # of another piece of the file
                known_files[path] = {column: near for column, near in before.items() if column in columns}
        for each in share.ahead:
            first = ahead.get(each.input)
            ahead[each.input] = each if first is None else first.and_more(each.records)
        for name, count in share.rejected.items():
            rejected[name] = rejected.get(name, 0) + count
            sample[name] = (*sample.get(name, ()), *share.sample[name])[:SHOWN]
    return InputObservations(facts, tuple(ahead.values()), rejected, sample, newest, newest_read, behind, lacks)


def check(pipeline: Pipeline, epoch: int, found: InputObservations) -> None:
    """Raises DeadLetterBudgetError if more records were rejected than a source allows."""
    check_budgets(pipeline, epoch, found.rejected, found.sample)


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
    found = {field: values[0].as_py() for field, values in records.of(row).items()}
    at = Instant(records.columns[c.MARK][facts.first_ahead].as_py())
    return [Ahead(name, facts.ahead, found["file"], found["position"], at)]


def _shown(records: Records, rows: Ints) -> tuple[str, ...]:
    found = records.of(rows)
    reasons = records.columns[c.REJECT].take(pa.array(rows)).to_pylist()
    places = zip(found["file"].to_pylist(), found["position"].to_pylist(), reasons, strict=True)
    return tuple(f"{file} record {position}: {reason}" for file, position, reason in places)
