"""Splits that were claimed as ranges and are read where they are: of sources that keep their records and cut them
elsewhere each time, and files that a job has written. So an older position gives the same splits again, as files do.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from headrace.ext.sources import SourcePosition, SourceReader, SourceSplit, SplitEnumerator
from headrace.model.time import Instant
from headrace.sources.landed.ranges import LandedRange, LandingPlace
from headrace_snapshots.format.files import InputFile
from headrace_snapshots.layout import landed_file

if TYPE_CHECKING:  # with Arrow, which planning does without
    from headrace.formats.required import RequiredColumns
    from headrace.formats.scan import ScannedRecords, Span

_READERS: Final = 16
_MARK: Final = "#"
"""Between the ETag of a split and the place of its file, if it were landed."""


@dataclass(frozen=True)
class ClaimedEnumerator(SplitEnumerator):
    """Gives the splits of a ``source`` that were claimed at a ``place``; the position is where the last one would have
    been landed, so ``land`` of a source may change.
    """

    place: LandingPlace
    source: SplitEnumerator

    def unread(self, position: SourcePosition, read: Collection[str] | None = None) -> Iterator[SourceSplit]:
        """Claimed splits behind the position. None is a straggler. Raises SplitGoneError if claims of them are gone."""
        known = self.place.file(position.mark)
        numbers = self.place.claims_behind(known)
        with ThreadPoolExecutor(_READERS, thread_name_prefix="claims") as pool:
            for claimed in pool.map(self.place.claimed, numbers):
                begin = known.number + 1 if known and known.range == claimed.number else 0
                yield from (self._placed(claimed, number) for number in range(begin, len(claimed.splits)))

    def _placed(self, claimed: LandedRange, number: int) -> SourceSplit:
        split = claimed.splits[number]
        return replace(split, etag=f"{split.etag}{_MARK}{self.place.path(claimed, number)}")

    def after(self, position: SourcePosition, splits: Sequence[SourceSplit]) -> SourcePosition:
        """Behind the last of them."""
        return position.passed(splits[-1].etag.partition(_MARK)[2], splits) if splits else position

    def missing(self, splits: Iterable[SourceSplit]) -> Iterator[tuple[SourceSplit, str]]:
        """What the source misses."""
        claimed = {split.path: split for split in splits}
        for split, how in self.source.missing([unplaced(split) for split in claimed.values()]):
            yield claimed[split.path], how

    def newest(self, position: SourcePosition) -> Instant | None:
        """When the newest range was claimed, also of those that were read."""
        return self.place.newest_at(position.mark)

    def watermarks(self, split: SourceSplit) -> Mapping[str, Instant]:
        """What the source knows."""
        return self.source.watermarks(unplaced(split))

    def is_correction(self, split: SourceSplit) -> bool:
        """What the source says."""
        return self.source.is_correction(unplaced(split))

    def explain(self) -> str:
        """What the source says."""
        return self.source.explain()


@dataclass(frozen=True)
class ClaimedReader(SourceReader):
    """Reads what was claimed where it is."""

    source: SourceReader

    def read(self, split: SourceSplit, span: "Span", required: "RequiredColumns") -> "ScannedRecords":
        """What the source reads."""
        return self.source.read(unplaced(split), span, required)

    @property
    def rules(self) -> int:
        """What the source has."""
        return self.source.rules

    def is_divisible(self, split: SourceSplit) -> bool:
        """Whether the source can read it in pieces."""
        return self.source.is_divisible(unplaced(split))


def unplaced(split: SourceSplit) -> SourceSplit:
    """``split`` as its source planned it."""
    return replace(split, etag=split.etag.partition(_MARK)[0])


def landed_as(pipeline: str, split: SourceSplit | InputFile) -> str:
    """The path of a split; of one that was claimed and not landed, that which its file would have."""
    place = split.etag.rpartition(_MARK)[2]
    return split.path if landed_file(pipeline, place) is None else place
