"""What a manifest says of the last aggregation of the definition that made it: which of its windows have expired, and
whether they can change what others are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.model.accumulation import Accumulation
from headrace.model.time import GLOBAL_WINDOW_END, MAX_INSTANT, Duration, Instant
from headrace.read.snapshots.progress import StoredProgress
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.table_names import UNNAMED

OWN = "own"
"""What stands for the name of a class of the user's own in a definition."""


@dataclass(frozen=True)
class MergingWindows:
    """Windows that merge where they overlap; if they are ``touching``, already where one begins as another ends."""

    touching: bool


@dataclass(frozen=True)
class LastStage:
    """``lateness`` None: no window ever expires. ``own`` is the class of windows that are of the user's own;
    ``is_first``: it is the only one, and reads the input.
    """

    accumulation: Accumulation
    lateness: Duration | None
    merging: MergingWindows | None
    own: str | None
    table: str
    is_first: bool

    @classmethod
    def of(cls, manifest: Manifest) -> "LastStage | None":
        """None for a manifest from before there were definitions in them."""
        if not manifest.definition:
            return None
        stages = manifest.definition["stages"]
        where = _inner(stages[-1]["where"])
        merging = MergingWindows(bool(where.get("touching_merges", False))) if where.get("is") == "sessions" else None
        return cls(
            Accumulation(stages[-1]["how"]["accumulation"]),
            _lateness([stage["how"] for stage in stages]),
            merging,
            where.get(OWN),
            UNNAMED.state(len(stages) - 1),
            len(stages) == 1,
        )

    def expired_until(self, manifest: Manifest) -> Instant:
        """Windows that end no later than that have expired (semantics 5.2): no element can change them any more."""
        assert self.lateness is not None
        watermark = complete_until(manifest)
        return MAX_INSTANT if watermark >= GLOBAL_WINDOW_END else Instant(watermark - self.lateness)


def discards(manifest: Manifest) -> bool:
    """Whether each pane holds what came since the last one: then rows of ``current`` are not all that was given."""
    stage = LastStage.of(manifest)
    return stage is not None and stage.accumulation is Accumulation.DISCARDING


def takes_patches(manifest: Manifest) -> bool:
    """Whether rows of a snapshot of one output can be patched by a branch that began before another patch."""
    stage = LastStage.of(manifest)
    if stage is None or stage.own is not None or stage.merging is not None or stage.lateness is None:
        return False
    return stage.accumulation is not Accumulation.DISCARDING


def complete_until(manifest: Manifest) -> Instant:
    """Windows of the last aggregation that end no later than that are complete: its watermark has passed them."""
    progress = StoredProgress.of(manifest)
    outputs = progress.chain.output_watermarks
    above = len(outputs) - 2  # the last aggregation reads what the one above it gives
    return outputs[above] if above >= 0 else progress.watermark_of(progress.chain)


def _inner(where: Mapping[str, Any]) -> Mapping[str, Any]:
    """The windows themselves, where only the timestamps of their panes are moved."""
    return _inner(where["inner"]) if where.get("is") == "shifted output time" else where


def _lateness(hows: list[Mapping[str, Any]]) -> Duration | None:
    """The lateness of the last aggregation: downstream it never shrinks (5.2). Zero where none is written."""
    bounds = [how.get("allowed_lateness", 0) for how in hows]
    return None if None in bounds else Duration(max(bounds))
