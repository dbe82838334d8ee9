"""How late the data of some epochs was, from manifests and files of late rows: ``headrace plot``.

Quantiles are there to choose from them a bound of out-of-orderness and an allowed lateness.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.installed import require_extra
from headrace.model.accumulation import WINDOW_END
from headrace.model.time import UNITS, Duration, Instant, is_finite
from headrace.read.snapshots.epoch_history import EpochFigures, last_epoch_figures, summed_counts
from headrace.read.snapshots.snapshot_refs import At, snapshot_at
from headrace.read.views.row_files import read_tables
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import UNNAMED, Manifest
from headrace_snapshots.format.output_view import seen_by

SHARES = (50, 90, 99, 100)
"""Quantiles, in percent."""

BEHIND_NEWEST, TOO_LATE = "behind", "too_late"
WORDS = {
    BEHIND_NEWEST: "older than the newest in files before theirs: {share} % of elements by at most (bound)",
    TOO_LATE: "late after the end of their window: {share} % of late rows by at most (allowed lateness)",
}
"""What the quantiles are of, for people, and what they help to choose."""

Lateness = Mapping[str, Mapping[int, Duration]]
"""By what they are of: quantiles by percent."""

_PANE_END_COLUMNS = pa.schema([("epoch", pa.int64()), (WINDOW_END, pa.timestamp("us", "UTC"))])


def lateness_quantiles(catalog: Catalog, head: Manifest | None, epochs: Sequence[EpochFigures]) -> Lateness:
    """Quantiles over ``epochs``, which end with ``head``. Raises BrokenObjectError."""
    late: Mapping[Duration, int] = (
        {} if head is None or not epochs else too_late(epochs, _late_rows(catalog, head, epochs[0].epoch))
    )
    return {BEHIND_NEWEST: quantiles_of_counts(count_by_lag(epochs)), TOO_LATE: quantiles_of_counts(late)}


def quantile_seconds(summary: Lateness) -> dict[str, dict[str, float]]:
    """The quantiles for machines."""
    return {
        kind: {f"{share}%": value / UNITS["seconds"] for share, value in values.items()}
        for kind, values in summary.items()
    }


def quantile_texts(summary: Lateness) -> dict[str, str]:
    """The quantiles for people."""
    return {
        WORDS[kind].format(share=share): str(timedelta(microseconds=value))
        for kind, values in summary.items()
        for share, value in values.items()
    }


def count_by_lag(epochs: Iterable[EpochFigures]) -> Mapping[Duration, int]:
    """How many elements of ``epochs`` lay how far behind the newest event time of their input in the files before their
    own (rounded up; elements of its first file do not count). A bound of so much makes none of them late, however small
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
    watermarks_and_ends = ((watermarks.get(epoch - 1), last) for epoch, last in rows)
    return Counter(
        Duration(watermark - last)
        for watermark, last in watermarks_and_ends
        if watermark is not None and is_finite(watermark)
    )


def quantiles_of_counts(values: Mapping[Duration, int]) -> Mapping[int, Duration]:
    """For each of SHARES the least of counted ``values`` that so many percent do not exceed; none without values."""
    values_in_order = sorted(values)
    running_counts = list(accumulate(values[value] for value in values_in_order))
    return (
        {share: values_in_order[bisect_left(running_counts, running_counts[-1] * share / 100)] for share in SHARES}
        if values_in_order
        else {}
    )


def _late_rows(catalog: Catalog, head: Manifest, since_epoch: int) -> Iterator[tuple[int, Instant]]:
    """Epoch, and last moment of the window, of the late rows that epochs after ``since_epoch`` dropped."""
    records = catalog.file_records(head.logs[UNNAMED.late], since_epoch=since_epoch)
    files = [file for record in records for file in record.files if isinstance(file, DataFile)]
    for table in read_tables(catalog.store, files, _PANE_END_COLUMNS):
        ends = table.column(WINDOW_END).cast(pa.int64()).to_pylist()
        for epoch, end in zip(table.column("epoch").to_pylist(), ends, strict=True):
            if end is not None:  # NULL: it was in no window any more
                yield epoch, Instant(end - 1)


@dataclass(frozen=True)
class LatenessPlot:
    """How late the data of ``epochs`` epochs was: their counts together, and quantiles of ``lateness``. ``picture`` is
    the file that it was drawn into, None for none.
    """

    pipeline: str
    epochs: int
    counts: Mapping[str, int]
    lateness: Lateness
    picture: str | None

    def to_json(self) -> dict[str, Any]:
        """A JSON value; quantiles are in seconds."""
        return {
            "epochs": self.epochs,
            "counts": dict(self.counts),
            "lateness_seconds": quantile_seconds(self.lateness),
            "picture": self.picture,
        }


def plot_lateness(catalog: Catalog, ref: At, epochs: int, path: Path | None) -> LatenessPlot:
    """Sum up the newest ``epochs`` of the snapshot that ``ref`` means, and draw them into ``path`` unless that is None.

    Raises NotInstalledError if a picture is asked for and cannot be drawn, and what snapshot_at raises.
    """
    if path is not None:
        require_extra("plots", "a picture")
    head = snapshot_at(catalog, ref).manifest
    if head is not None:
        seen_by(head, UNNAMED.output)  # which says what to name where there are several outputs
    figures = [] if head is None else last_epoch_figures(catalog, head.snapshot_id, epochs)
    if path is not None:
        from headrace.observe.picture import draw_epochs

        draw_epochs(figures, f"{catalog.pipeline} at {ref}: event time, processing time, watermark", path)
    late = lateness_quantiles(catalog, head, figures)
    return LatenessPlot(
        catalog.pipeline, len(figures), summed_counts(figures), late, None if path is None else str(path)
    )
