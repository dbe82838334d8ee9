"""The port of sources: what Headrace asks of whatever records come from, and no more. Files are the first that keep it.

A run plans splits on its driver (``SplitEnumerator``), without a JVM. A split is closed when it is planned: a file with
its ETag, offsets from and to, rows of a range. The snapshot of the epoch that reads it names it. Tasks of both
executors read it (``SourceReader``), and so does a replay, years later: reading looks at nothing but the split, and
gives the same records each time. So positions are in Headrace's own snapshots, and nothing is committed to the source.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from headrace.errors import FixConfigError, FixDataError
from headrace.model.time import Instant
from headrace.pipeline.sources import Source
from headrace_snapshots.format.codec import Fields
from headrace_snapshots.store import ObjectStore

if TYPE_CHECKING:  # with Arrow, which planning does without
    import pyarrow as pa

    from headrace.sources.formats.scan import Scanned
    from headrace.sources.formats.spans import Span
    from headrace.sources.required_columns import Required


FILES: Final = "files"
"""The kind of files, whose position is a name, and is written as it was before there were other sources."""

NOTHING: Mapping[str, Instant] = {}


class UnknownPositionError(FixConfigError):
    """A snapshot says how far an input was read in a form that its source does not know."""

    code = "config.unknown_position"


class SplitGoneError(FixDataError):
    """A split that was planned, and perhaps read, cannot be read as it was."""

    code = "data.split_gone"

    def __init__(
        self, path: str, how: str, way_on: str = "Put it back as it was; or continue from a snapshot before it"
    ) -> None:
        super().__init__(f"{path}, which was planned to be read, {how}. {way_on}")


@dataclass(frozen=True)
class SourceSplit:
    """A part of an input that is read as a whole, or in spans: ``path`` is its name, for good, which dead letters show;
    its ``size`` in bytes, or about that, cuts epochs; ``etag`` tells it from another of that name.

    A landed file has its path in the source's store, its size and its ETag when it was listed. ``digest``: that of its
    content when it was taken in, where the store gives one. ``rules``: the number of those by which its records were
    read when it was recorded; None: by those of today.
    """

    path: str
    size: int
    etag: str
    digest: str | None = None
    rules: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Offsets:
    """How far a source has been read: its position in a snapshot.

    ``mark`` is text that the source alone reads; empty at the beginning. ``files`` and ``bytes``: the splits read since
    then. Of files the mark is the name after which listing starts, and ``recent`` are the newest files read, by name,
    at most ``look_back``, which sort after it. ``kind`` is that of the source, ``format`` that of its marks.
    """

    mark: str = ""
    recent: tuple[SourceSplit, ...] = ()
    files: int = 0
    bytes: int = 0
    kind: str = FILES
    format: int = 1

    def to_json(self) -> dict[str, Any]:
        """JSON values, by the field of an input's progress that each is; of ``recent`` only the number. Of sources
        other than files the mark is a ``position``: an object, if the text is what JSON of it is, else the text.
        """
        read = {"recent": len(self.recent), "files": self.files, "bytes": self.bytes}
        if self.kind == FILES:
            return {"offsets": {"mark": self.mark, **read}}
        position = {"kind": self.kind, "format": self.format, "at": _as_object(self.mark)}
        return {"offsets": {"mark": "", **read}, "position": position}

    @classmethod
    def from_json(cls, fields: Fields, recent: Iterable[SourceSplit] = ()) -> "Offsets":
        """The inverse of ``to_json``, given the files after the mark. Raises MalformedError."""
        offsets, position = fields.fields("offsets"), fields.optional_fields("position")
        read = (tuple(recent), offsets.integer("files"), offsets.integer("bytes"))
        if position is None:
            return cls(offsets.text("mark"), *read)
        at = position.json("at")
        mark = at if isinstance(at, str) else _as_text(at)
        return cls(mark, *read, position.text("kind"), position.integer("format"))

    def passed(self, mark: str, splits: Sequence[SourceSplit]) -> "Offsets":
        """The position at ``mark``, once ``splits`` have been read."""
        size = sum(split.size for split in splits)
        return Offsets(mark, (), self.files + len(splits), self.bytes + size, self.kind, self.format)


def _as_object(mark: str) -> Any:
    """The object whose text is ``mark``, if it comes back as that; else ``mark``."""
    if not mark.startswith("{"):
        return mark
    try:
        at = json.loads(mark)
        return at if _as_text(at) == mark else mark
    except ValueError:
        return mark


def _as_text(at: Any) -> str:
    return json.dumps(at, sort_keys=True, separators=(",", ":"))


ENOUGH: Final = 1_000
"""So many unread splits are looked at: where that many are unread, more of them say nothing new."""


class SplitEnumerator(ABC):
    """Finds what there is to read of one input. For the driver, one thread at a time."""

    counts: ClassVar[Literal["splits", "records"]] = "splits"
    """What ``count_unread`` counts."""

    @abstractmethod
    def unread(self, position: Offsets, read: Collection[str] | None = None) -> Iterator[SourceSplit]:
        """Closed splits after ``position``, in order, which ends: what comes meanwhile is for the next run.

        They do not overlap, neither with each other nor with those before the position; after an older position the
        same splits come again, as long as their records are there. ``read`` names all splits that were ever read, if
        the caller wants such as ``position`` hides, too.
        """

    @abstractmethod
    def after(self, position: Offsets, splits: Sequence[SourceSplit]) -> Offsets:
        """The position once ``splits``, the first of those unread, have been read; no request."""

    def is_same(self, was: SourceSplit, now: SourceSplit) -> bool:
        """Whether two splits of one name have the same records."""
        return (was.size, was.etag) == (now.size, now.etag)

    def taken(self, split: SourceSplit) -> SourceSplit:
        """``split`` with all that will tell whether it has changed, before it is read for the first time."""
        return split

    def taken_again(self, splits: Sequence[SourceSplit]) -> list[SourceSplit]:
        """``splits`` as they are now, if one had changed before it was read for the first time."""
        return list(splits)

    def count_unread(self, position: Offsets) -> int:
        """How much comes after ``position``, for a watcher that asks again and again: splits, at most ``ENOUGH``.
        Override it where a cheaper answer is at hand. Raises what ``unread`` raises.
        """
        return sum(1 for _ in islice(self.unread(position), ENOUGH))

    @abstractmethod
    def missing(self, splits: Iterable[SourceSplit]) -> Iterator[tuple[SourceSplit, str]]:
        """Name the ``splits`` that could not be read again as they were, each with why: "is gone", "has changed"."""

    def newest(self, position: Offsets) -> Instant | None:
        """When the newest of what is after ``position`` came; None if nothing is, or nobody can tell."""
        return None

    def watermarks(self, split: SourceSplit) -> Mapping[str, Instant]:
        """Event times up to which parts of the input have come once ``split`` is read, as the source knows: by the
        value of its ``own_split``, "" where it has none. It says the same of a split each time.

        The watermark hears it as if a record of that part had said so, unless the event time is given another
        ``split=``. So a part that is read to its end, and a split without any record, can let it go on; and a part that
        has had no record yet holds it back from where this says ``MIN_INSTANT``.
        """
        del split
        return NOTHING

    def counts_again(self, split: SourceSplit) -> bool:
        """Whether records of ``split`` take back, or repeat, what was counted before: it is an epoch of its own, and
        none of them may be dropped as late.
        """
        del split
        return False

    def is_lost(self, split: SourceSplit, unread: Mapping[str, SourceSplit]) -> bool:
        """Whether a reader that continues from a position before ``split``, and finds ``unread`` there, by path, misses
        records of it.
        """
        now = unread.get(split.path)
        return now is None or not self.is_same(split, now)

    @abstractmethod
    def explain(self) -> str:
        """Why an input that was never read has nothing to read, in words: where it was looked for, what is there."""


class SourceReader(ABC):
    """Reads splits of one input. In each task of both executors, in many threads at once."""

    @abstractmethod
    def read(self, split: SourceSplit, span: "Span", required: "Required") -> "Scanned":
        """The records in a ``span`` of ``split``: the same each time. Spans together give what the whole split gives,
        positions included.

        A record that does not parse is one with a reason. Raises FixDataError for a split that is gone or has changed,
        UnreadableFileError for one that cannot be read at all, FileColumnsError where it lacks what is ``required``.
        """

    @property
    def rules(self) -> int:
        """The number of the rules by which it reads what was not read before. It grows with a version of the reader
        that makes other records of a split; what was read by older rules is read by these again in a replay.
        """
        return 0

    def is_divisible(self, split: SourceSplit) -> bool:
        """Whether reading a span of ``split`` takes less work than reading all of it; if not, it is read whole."""
        return False


class FetchingReader(SourceReader):
    """A reader of what is fetched from elsewhere, which tells fetching apart from reading: what a source cannot give
    again is fetched once and landed (``sources.landed``), and read as often as need be.
    """

    @contextmanager
    def connected(self) -> "Iterator[FetchingReader]":
        """A reader that is connected as long as this lasts, to fetch many splits in many threads."""
        yield self

    @abstractmethod
    def fetch(self, split: SourceSplit) -> "pa.Table":
        """The records of ``split`` as they come, in order, whatever a definition makes of them; at most some 100 MB.

        Raises SplitGoneError where they cannot be had any more, or another FixDataError that says why.
        """

    @abstractmethod
    def scanned(self, fetched: "pa.Table", required: "Required", path: str) -> "Scanned":
        """What records mean that were ``fetched``, if they are the split called ``path``; looks at nothing else."""

    def by_rules(self, rules: int | None) -> "FetchingReader":
        """The reader as it was with an older number of ``rules``; None: as it is."""
        return self

    def read(self, split: SourceSplit, span: "Span", required: "Required") -> "Scanned":
        """What ``split`` has now."""
        assert span.is_whole, "it is not divisible"
        return self.by_rules(split.rules).scanned(self.fetch(split), required, split.path)


class WritingReader(SourceReader):
    """A reader of files that a job writes of what comes from elsewhere, many at once: nobody knows before how many, and
    another job may find other records. So they are claimed once they are there, and those of one job alone count.
    """

    @abstractmethod
    def new_attempt(self) -> str:
        """A name that no other attempt at writing has: 16 hexadecimal digits."""

    @abstractmethod
    def write(self, split: SourceSplit, folder: str) -> Sequence[SourceSplit]:
        """Write the records of ``split`` as files in a ``folder`` of the root that nobody else has (a slash is at its
        end). Each is a split then, in order, which ``read`` reads; none where there are no records.
        """


@dataclass(frozen=True)
class OpenSource:
    """What finds the splits of a source, and what reads them."""

    enumerator: SplitEnumerator
    reader: SourceReader


class SourceConnector(ABC):
    """The code of a kind of sources. One of another distribution is an entry point of ``headrace.sources``.

    ``format``: that of its marks, which manifests say; it reads older ones, too. ``repeats``: whether splits that were
    read come again after an older position; if not, what a branch has read cannot be compared by their names.
    """

    format: ClassVar[int] = 1
    repeats: ClassVar[bool] = True

    @abstractmethod
    def open(self, source: Source, root: ObjectStore) -> OpenSource:
        """Open ``source``, which if it lies below a root lies below ``root``. On the driver and in every task; makes no
        request.
        """

    def open_for(self, pipeline: str, source: Source, root: ObjectStore) -> OpenSource:
        """``open`` for a ``pipeline``, for a source whose errors name it."""
        del pipeline
        return self.open(source, root)

    @contextmanager
    def staying_connected(self) -> Iterator[None]:
        """While this lasts, which is as long as a run or one task, what its sources connect to may stay connected in
        this process, for all threads; it is closed then. Connects nothing itself.
        """
        yield
