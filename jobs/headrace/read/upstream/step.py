"""A step of a reader along its upstream, from one published snapshot to another, as a split whose name says all."""

import re
from dataclasses import dataclass
from enum import StrEnum

from headrace.ext.sources import SourceSplit
from headrace_snapshots.refs import NOTHING, SNAPSHOT


class StepKind(StrEnum):
    """What a step reads: the ``rows`` that readers see, to begin with; the ``panes`` between two snapshots of one
    line; the same ``again``, while the upstream is behind what was consumed of it, or patched rows of windows that had
    expired; the ``difference`` between snapshots of two lines.
    """

    ROWS = "rows"
    PANES = "panes"
    AGAIN = "again"
    DIFFERENCE = "difference"

    @property
    def counts_again(self) -> bool:
        """Whether it takes back, or repeats, what was counted before."""
        return self in (StepKind.AGAIN, StepKind.DIFFERENCE)


_KINDS = "|".join(StepKind)
_NAME = re.compile(
    rf"(?P<upstream>[^/]+)/(?P<epoch>\d{{8,}})-(?P<kind>{_KINDS})-(?P<begin>{SNAPSHOT}|{NOTHING})--(?P<end>{SNAPSHOT}|{NOTHING})"
)


@dataclass(frozen=True)
class UpstreamStep:
    """The step of ``kind`` from snapshot ``begin`` to ``end``, which is of ``epoch``; None: the beginning, where
    nothing is published.
    """

    upstream: str
    kind: StepKind
    begin: str | None
    end: str | None
    epoch: int

    def to_split(self, size: int, fingerprint: str) -> SourceSplit:
        """The split that has its name; ``fingerprint`` is that of the upstream at its end."""
        name = f"{max(self.epoch, 0):08d}-{self.kind}-{self.begin or NOTHING}--{self.end or NOTHING}"
        return SourceSplit(f"{self.upstream}/{name}", size, fingerprint)

    @classmethod
    def of(cls, split: SourceSplit) -> "UpstreamStep":
        """What a split stands for. Raises ValueError."""
        match = _NAME.fullmatch(split.path)
        if match is None:
            raise ValueError(f"{split.path!r} names no step along an upstream")
        begin, end = (None if match[side] == NOTHING else match[side] for side in ("begin", "end"))
        epoch = int(match["epoch"]) if end is not None else -1
        return cls(match["upstream"], StepKind(match["kind"]), begin, end, epoch)
