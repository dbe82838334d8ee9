"""How late data was, as ``headrace plot`` tells it: from manifests, and from the files of late rows."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

import pyarrow as pa

from headrace.entrypoints.reading import tables
from headrace.model.expr import UNITS
from headrace.model.panes import WINDOW_END
from headrace.model.time import Duration, Instant, instant
from headrace.observe.history import EpochFigures
from headrace.observe.lateness import behind, quantiles, too_late
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import Manifest

BEHIND, TOO_LATE = "behind", "too_late"
WORDS = {
    BEHIND: "behind the newest before, {share} % of elements at most (bound)",
    TOO_LATE: "behind the window, {share} % of late rows at most (allowed lateness)",
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


def seconds(found: Lateness) -> dict[str, dict[str, float]]:
    """The quantiles for machines."""
    return {
        of: {f"{share}%": value / UNITS["seconds"] for share, value in values.items()} for of, values in found.items()
    }


def told(found: Lateness) -> dict[str, str]:
    """The quantiles for people."""
    return {
        WORDS[of].format(share=share): str(timedelta(microseconds=value))
        for of, values in found.items()
        for share, value in values.items()
    }


def _late_rows(catalog: Catalog, head: Manifest, since: int) -> Iterator[tuple[int, Instant]]:
    """Epoch, and last moment of the window, of the late rows that epochs behind ``since`` dropped."""
    records = catalog.files(head.logs["late"], since_epoch=since)
    files = [file for record in records for file in record.files if isinstance(file, DataFile)]
    for table in tables(catalog.store, files, _COLUMNS):
        for row in table.to_pylist():
            if row[WINDOW_END] is not None:  # NULL: it was in no window any more
                yield row["epoch"], Instant(instant(row[WINDOW_END]) - 1)
