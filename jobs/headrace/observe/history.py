"""What the manifests of a branch tell about its epochs: clocks, event times and counts, as plain values."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from headrace.model.time import Duration, Instant
from headrace.read.snapshots.progress import StoredProgress
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest


@dataclass(frozen=True)
class EpochFigures:
    """One epoch. Instants are microseconds UTC (``watermark`` may be -inf); the event times are those of the elements
    that it accepted (None: none); ``counts`` are the manifest's. ``behind`` counts elements by how far they lay behind
    the newest event time of their input in the files before their own; of epochs of before 0.2.0, in the epochs before.
    """

    epoch: int
    snapshot: str
    processing_time: Instant
    watermark: Instant
    min_event_time: Instant | None
    max_event_time: Instant | None
    counts: Mapping[str, int]
    behind: Mapping[Duration, int] = field(default_factory=dict)

    @classmethod
    def of(cls, manifest: Manifest) -> "EpochFigures":
        """The figures of ``manifest``. Raises BrokenObjectError."""
        progress = StoredProgress.of(manifest)
        behind = progress.behind if progress.behind_by_file is None else progress.behind_by_file
        return cls(
            epoch=manifest.epoch,
            snapshot=manifest.snapshot_id,
            processing_time=progress.processing_time,
            watermark=progress.watermark,
            min_event_time=progress.min_event_time,
            max_event_time=progress.max_event_time,
            counts=manifest.counts,
            behind={Duration(lag): count for lag, count in behind.items()},
        )


def history(catalog: Catalog, snapshot: str, limit: int) -> list[EpochFigures]:
    """The last ``limit`` epochs up to ``snapshot``, oldest first. One request per epoch."""
    newest_first = islice(catalog.ancestry(snapshot, until=None), limit)
    return [EpochFigures.of(manifest) for manifest in newest_first][::-1]


class Counted(Protocol):
    """An epoch with its counts by name: a manifest, or figures made of one."""

    @property
    def counts(self) -> Mapping[str, int]:
        """How many records, rows and files there were."""


def totals(epochs: Iterable[Counted]) -> dict[str, int]:
    """Counts summed over ``epochs``."""
    sums: dict[str, int] = {}
    for epoch in epochs:
        for name, count in epoch.counts.items():
            sums[name] = sums.get(name, 0) + count
    return sums


SUMMARY: Sequence[tuple[str, str]] = (
    ("records", "records read"),
    ("accepted", "elements accepted"),
    ("filtered", "filtered out"),
    ("rejected", "rejected (dead letters)"),
    ("late_dropped", "dropped as late"),
    ("closed_dropped", "dropped, window closed"),
    ("panes_early", "early panes"),
    ("panes_on_time", "on-time panes"),
    ("panes_late", "late panes"),
    ("retractions", "retractions"),
)
"""Counts that answer how late the data is, with words for people."""
