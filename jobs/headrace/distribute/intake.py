"""What the records of an epoch say beside what is aggregated of them: to the watermarks of their inputs, and to the
budgets of dead letters. Shares of an epoch say it one by one, and together what the whole would say.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headrace.distribute.records import Records
from headrace.kernel.groups import Ints
from headrace.model.time import Instant
from headrace.model.watermarks import SplitFacts
from headrace.pipeline.graph import Pipeline
from headrace.program import columns as c
from headrace.sources.budgets import SHOWN, check_budgets
from headrace.sources.clock import SourceClock
from headrace.sources.facts import Facts, split_facts
from headrace.sources.progress import Ahead


@dataclass(frozen=True)
class Said:
    """What records say, by input. ``ahead``: of inputs with records that were too far ahead of processing time to say
    anything. ``rejected`` counts dead letters where their number is limited, of which ``sample`` shows the first.
    """

    facts: Mapping[str, Mapping[str, SplitFacts]] = field(default_factory=dict)
    ahead: tuple[Ahead, ...] = ()
    rejected: Mapping[str, int] = field(default_factory=dict)
    sample: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def said(
    pipeline: Pipeline,
    records: Records,
    clocks: Mapping[str, SourceClock],
    processing_time: Instant,
    percentiles: Iterable[float],
) -> Said:
    """What ``records`` say at ``processing_time`` to the ``clocks`` that the last epoch left; ``percentiles`` are those
    that triggers look at.
    """
    wanted = tuple(percentiles)
    facts: dict[str, Mapping[str, SplitFacts]] = {}
    ahead: list[Ahead] = []
    inputs = records.inputs()
    for given in pipeline.inputs:
        own = np.flatnonzero((inputs == given.name) & ~records.is_rejected)
        if len(own):
            found = split_facts(clocks[given.name], records.columns, own, processing_time, wanted)
            facts[given.name] = found.splits
            ahead += _ahead(given.name, records, found)
    limited = {given.name for given in pipeline.inputs if given.source.max_rejected is not None}
    rejected: dict[str, int] = {}
    sample: dict[str, tuple[str, ...]] = {}
    if limited and records.is_rejected.any():
        dead = np.flatnonzero(records.is_rejected)
        for name in sorted(limited):
            own = dead[inputs[dead] == name]
            rejected[name], sample[name] = len(own), _shown(records, own[:SHOWN])
    return Said(facts, tuple(ahead), rejected, sample)


def together(shares: Iterable[Said]) -> Said:
    """What the shares of an epoch, in their order, say together."""
    facts: dict[str, dict[str, SplitFacts]] = {}
    ahead: dict[str, Ahead] = {}
    rejected: dict[str, int] = {}
    sample: dict[str, tuple[str, ...]] = {}
    for share in shares:
        for name, splits in share.facts.items():
            known = facts.setdefault(name, {})
            for split, fact in splits.items():
                known[split] = _joined(known[split], fact) if split in known else fact
        for each in share.ahead:
            first = ahead.get(each.input, each)
            count = each.records if first is each else first.records + each.records
            ahead[each.input] = Ahead(first.input, count, first.file, first.position, first.at)
        for name, count in share.rejected.items():
            rejected[name] = rejected.get(name, 0) + count
            sample[name] = (*sample.get(name, ()), *share.sample[name])[:SHOWN]
    return Said(facts, tuple(ahead.values()), rejected, sample)


def check(pipeline: Pipeline, epoch: int, found: Said) -> None:
    """Raises DeadLetterBudgetError if more records were rejected than a source allows."""
    check_budgets(pipeline, epoch, found.rejected, found.sample)


def _joined(left: SplitFacts, right: SplitFacts) -> SplitFacts:
    marks = [mark for mark in (left.mark, right.mark) if mark is not None]
    buckets = sorted({*left.lags, *right.lags})
    return SplitFacts(
        max(marks, default=None), {bucket: left.lags.get(bucket, 0) + right.lags.get(bucket, 0) for bucket in buckets}
    )


def _ahead(name: str, records: Records, facts: Facts) -> list[Ahead]:
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
