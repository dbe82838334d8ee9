"""``headrace plot``: how late the data of some epochs was, and the picture of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.extras import require
from headrace.observe.history import history, totals
from headrace.observe.lateness import Lateness, lateness, seconds
from headrace.read.snapshots.snapshot_refs import At, snapshot_at
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.output_view import seen_by
from headrace_snapshots.format.table_names import UNNAMED


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
            "lateness_seconds": seconds(self.lateness),
            "picture": self.picture,
        }


def plot(catalog: Catalog, at: At, epochs: int, out: Path | None) -> LatenessPlot:
    """Sum up the newest ``epochs`` of the snapshot that ``at`` means, and draw them into ``out`` unless that is None.

    Raises NotInstalledError if a picture is asked for and cannot be drawn, and what snapshot_at raises.
    """
    if out is not None:
        require("plots", "a picture")
    head = snapshot_at(catalog, at).manifest
    if head is not None:
        seen_by(head, UNNAMED.output)  # which says what to name where there are several outputs
    figures = [] if head is None else history(catalog, head.snapshot_id, epochs)
    if out is not None:
        from headrace.observe.picture import draw

        draw(figures, f"{catalog.pipeline} at {at}: event time, processing time, watermark", out)
    late = lateness(catalog, head, figures)
    return LatenessPlot(catalog.pipeline, len(figures), totals(figures), late, None if out is None else str(out))
