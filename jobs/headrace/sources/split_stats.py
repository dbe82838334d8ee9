"""What an epoch's records tell of the splits of their input (semantics 9.2, 12.11, 12.14)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.kernel.grouping import Ints, taken
from headrace.model.time import Instant
from headrace.model.watermarks import LAG_BUCKETS, BoundedOutOfOrderness, SplitFacts, SplitStrategy
from headrace.program import columns as c
from headrace.sources.source_clock import SourceClock


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
