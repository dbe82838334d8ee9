"""How late data was, as ``headrace plot`` tells it, from manifests and from the files of late rows: quantiles from
which to choose a bound of out-of-orderness and an allowed lateness.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import accumulate

import pyarrow as pa

from headrace.model.accumulation import WINDOW_END
from headrace.model.time import UNITS, Duration, Instant, is_finite
from headrace.observe.history import EpochFigures
from headrace.read.views.row_files import tables
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.table_names import UNNAMED

SHARES = (50, 90, 99, 100)
"""Quantiles, in percent."""

BEHIND, TOO_LATE = "behind", "too_late"
WORDS = {
    BEHIND: "older than the newest in files before theirs: {share} % of elements by at most (bound)",
    TOO_LATE: "late after the end of their window: {share} % of late rows by at most (allowed lateness)",
}
"""What the quantiles are of, for people, and what they help to choose."""

Lateness = Mapping[str, Mapping[int, Duration]]
"""By what they are of: quantiles by percent."""

_COLUMNS = pa.schema([("epoch", pa.int64()), (WINDOW_END, pa.timestamp("us", "UTC"))])


def lateness(catalog: Catalog, head: Manifest | None, epochs: Sequence[EpochFigures]) -> Lateness:
    """Quantiles over ``epochs``, which end with ``head``. Raises BrokenObjectError."""
    late: Mapping[Duration, int] = (
        {} if head is None or not epochs else too_late(epochs, _late_rows(catalog, head, epochs[0].epoch))
    )
    return {BEHIND: quantiles(behind(epochs)), TOO_LATE: quantiles(late)}


def seconds(summary: Lateness) -> dict[str, dict[str, float]]:
    """The quantiles for machines."""
    return {
        of: {f"{share}%": value / UNITS["seconds"] for share, value in values.items()} for of, values in summary.items()
    }


def told(summary: Lateness) -> dict[str, str]:
    """The quantiles for people."""
    return {
        WORDS[of].format(share=share): str(timedelta(microseconds=value))
        for of, values in summary.items()
        for share, value in values.items()
    }


def behind(epochs: Iterable[EpochFigures]) -> Mapping[Duration, int]:
    """How many elements of ``epochs`` lay how far behind the newest event time of their input in the files before their
    own (rounded up; those of its first file do not count). A bound of so much makes none of them late, however small
    epochs are. Epochs of before 0.2.0 say it of the epochs before their own.
    """
    counts: Counter[Duration] = Counter()
    for epoch in epochs:
        counts.update(epoch.behind)
    return counts


def too_late(epochs: Iterable[EpochFigures], rows: Iterable[tuple[int, Instant]]) -> Mapping[Duration, int]:
    """How many late rows there are (each its epoch, the last moment of its window) by how far the watermark had passed
    its window. An allowed lateness of so much would have kept it.
    """
    watermarks = {epoch.epoch: epoch.watermark for epoch in epochs}
    stood = ((watermarks.get(epoch - 1), last) for epoch, last in rows)
    return Counter(
        Duration(watermark - last) for watermark, last in stood if watermark is not None and is_finite(watermark)
    )


def quantiles(values: Mapping[Duration, int]) -> Mapping[int, Duration]:
    """The least of ``values``, which are counted, that so many percent of them do not exceed, for each of SHARES;
    nothing of no values.
    """
    ordered = sorted(values)
    reached = list(accumulate(values[value] for value in ordered))
    return {share: ordered[bisect_left(reached, reached[-1] * share / 100)] for share in SHARES} if ordered else {}


def _late_rows(catalog: Catalog, head: Manifest, since: int) -> Iterator[tuple[int, Instant]]:
    """Epoch, and last moment of the window, of the late rows that epochs after ``since`` dropped."""
    records = catalog.files(head.logs[UNNAMED.late], since_epoch=since)
    files = [file for record in records for file in record.files if isinstance(file, DataFile)]
    for table in tables(catalog.store, files, _COLUMNS):
        ends = table.column(WINDOW_END).cast(pa.int64()).to_pylist()
        for epoch, end in zip(table.column("epoch").to_pylist(), ends, strict=True):
            if end is not None:  # NULL: it was in no window any more
                yield epoch, Instant(end - 1)
