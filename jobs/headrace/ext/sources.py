"""Sources: what records come from.

What belongs here: the port of sources, the values that cross it, and its errors.

To bring a source, write three small classes. A ``Source`` is what a definition says: a frozen dataclass with a
``kind``, a ``schema`` and whatever tells its data from others', without a secret. A ``SplitEnumerator`` finds what
there is to read, as splits. A ``SourceReader`` reads a split. A ``SourceConnector`` makes the latter two of the first;
declare it under the ``kind``::

    [project.entry-points."headrace.sources"]
    tides = "my_package.tides:TIDES"

A split is closed when it is planned: a day that is over, offsets from and to, a file with its ETag. The snapshot of the
epoch that reads it names it, so nothing is committed to the source.

**Order of calls.** ``open_for`` on the driver, in every task, and in a watcher; it makes no request. On the driver
then, in one thread: ``unread`` from the position of the newest snapshot; ``is_correction`` of what it gave, until an
epoch is full; ``taken`` for each split of the epoch. In tasks, many at once: ``is_divisible``, then ``read`` of each
split, whole or in spans; a task that failed reads again. On the driver: ``watermarks`` of each split, and ``after``,
whose position goes into the snapshot with the names of the splits. The next epoch takes what is left of ``unread``.
Before a replay, a recovery and a backfill ``missing`` is asked for every split that is to be read again.

A source that is not durable is landed first. ``unread`` is asked from the end of what was landed, and a claim of these
splits is put in the root. Then come ``connected`` and ``fetch`` of each; epochs read what was landed, by ``scanned``. A
``WritingReader`` writes first (``new_attempt``, ``write``), and a claim names its files.

**What is guaranteed.** A split that a snapshot names was read whole, and its records counted once, whatever was killed.
``read`` is asked only for splits that ``unread`` gave. A position comes back as it was given: it passes through JSON.

**What a source guarantees.** The same split gives the same records, in the same order with the same positions, each
time and in every process; its spans together give what the whole gives. From an older position ``unread`` gives the
same splits again, unless the connector says that it does not (``repeats``). ``headrace.testing.connectors`` has the
tests of all that.

Example::

    from dataclasses import dataclass
    from typing import Any, ClassVar

    import numpy as np
    import pyarrow as pa

    from headrace.ext.formats import WHOLE_FILE, RequiredColumns, read_json
    from headrace.ext.sources import OpenSource, Source, SourceConnector, SourcePosition, SourceReader, SourceSplit
    from headrace.ext.sources import SplitEnumerator

    LEVELS = {"2026-05-01": [212, 230], "2026-05-02": [301]}  # by day, each of which is over


    @dataclass(frozen=True)
    class Tides(Source):
        gauge: str
        schema: Any
        kind: ClassVar[str] = "tides"

        @property
        def place(self):
            return self.gauge


    class Days(SplitEnumerator):
        def unread(self, position, read=None):
            for day, levels in LEVELS.items():
                if day > position.mark:
                    yield SourceSplit(day, size=20 * len(levels), etag=str(len(levels)))

        def after(self, position, splits):
            return position.passed(splits[-1].path, splits) if splits else position

        def missing(self, splits):
            return [(split, "is gone") for split in splits if split.path not in LEVELS]

        def explain(self):
            return "no day is over"


    @dataclass(frozen=True)
    class Levels(SourceReader):
        source: Tides

        def read(self, split, span, required):
            messages = pa.array([b'{"level": %d}' % level for level in LEVELS[split.path]], pa.binary())
            return read_json(messages, np.arange(len(messages)), self.source.fields, required, split.path)


    class TidesConnector(SourceConnector):
        def open(self, source, root):
            return OpenSource(Days(), Levels(source))


    TIDES = TidesConnector()

    tides = TIDES.open(Tides("Cuxhaven", {"level": int}), root=None)
    first, *rest = tides.enumerator.unread(SourcePosition())
    position = tides.enumerator.after(SourcePosition(), [first])
    assert [*tides.enumerator.unread(position)] == rest
    assert tides.reader.read(first, WHOLE_FILE, RequiredColumns()).columns["level"].to_pylist() == [212, 230]
"""

import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from headrace.connections import Connection, connection
from headrace.errors import FixConfigError, FixDataError
from headrace.ext.stores import ObjectStore
from headrace.installed import EntryPointGroup
from headrace.model.time import Instant
from headrace.pipeline.endpoints import Input, Source

if TYPE_CHECKING:  # with Arrow, which planning does without
    import pyarrow as pa

    from headrace.formats.file_format import RequiredColumns, ScannedFiles, ScannedRecords, Span
    from headrace_snapshots.format.codec import Fields

__all__ = [
    "Connection",
    "FetchingReader",
    "Input",
    "Instant",
    "OpenSource",
    "Source",
    "SourceConnector",
    "SourcePosition",
    "SourceReader",
    "SourceSplit",
    "SplitEnumerator",
    "SplitGoneError",
    "UnknownPositionError",
    "WritingReader",
    "connection",
]

FILES: Final = "files"
"""The kind of files, whose position is a name, and is written as it was before there were other sources."""

NOTHING: Mapping[str, Instant] = {}

ENOUGH: Final = 1_000
"""So many unread splits are looked at: where that many are unread, more of them say nothing new."""


class UnknownPositionError(FixConfigError, code="config.unknown_position"):
    """A snapshot says how far an input was read in a form that its source does not know."""


class SplitGoneError(FixDataError, code="data.split_gone"):
    """A split that was planned, and perhaps read, cannot be read as it was."""

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
class SourcePosition:
    """How far a source has been read: its position in a snapshot.

    ``mark`` is text that the source alone reads; empty at the beginning. ``files`` and ``bytes``: the splits read since
    then. For files, the mark is the name after which listing starts. ``recent`` are the newest files read that sort
    after it, by name, at most ``look_back``. ``kind`` is that of the source, ``format`` that of its marks.
    """

    mark: str = ""
    recent: tuple[SourceSplit, ...] = ()
    files: int = 0
    bytes: int = 0
    kind: str = FILES
    format: int = 1

    def to_json(self) -> dict[str, Any]:
        """Give what a snapshot stores; a source has no need to call it. It raises nothing.

        :returns: JSON values, by the field of an input's progress that each is; ``recent`` gives only the number. The
            mark of sources other than files is a ``position``: an object, if the text is its JSON, else the text.
        """
        read = {"recent": len(self.recent), "files": self.files, "bytes": self.bytes}
        if self.kind == FILES:
            return {"offsets": {"mark": self.mark, **read}}
        position = {"kind": self.kind, "format": self.format, "at": _as_object(self.mark)}
        return {"offsets": {"mark": "", **read}, "position": position}

    @classmethod
    def from_json(cls, fields: "Fields", recent: Iterable[SourceSplit] = ()) -> "SourcePosition":
        """Read what a snapshot stores; a source has no need to call it.

        :param fields: what ``to_json`` gave.
        :param recent: the files after the mark.
        :returns: the position.
        :raises MalformedError: fields are missing, or something else.
        """
        offsets, position = fields.fields("offsets"), fields.optional_fields("position")
        read = (tuple(recent), offsets.integer("files"), offsets.integer("bytes"))
        if position is None:
            return cls(offsets.text("mark"), *read)
        stored_position = position.json("at")
        mark = stored_position if isinstance(stored_position, str) else _as_text(stored_position)
        return cls(mark, *read, position.text("kind"), position.integer("format"))

    def passed(self, mark: str, splits: Sequence[SourceSplit]) -> "SourcePosition":
        """Give the position that follows once splits have been read. It raises nothing.

        :param mark: the new mark, a text of the source's own.
        :param splits: what was read, which is counted.
        :returns: the position.
        """
        size = sum(split.size for split in splits)
        return SourcePosition(mark, (), self.files + len(splits), self.bytes + size, self.kind, self.format)


def _as_object(mark: str) -> Any:
    """The object whose text is ``mark``, if it comes back as that; else ``mark``."""
    if not mark.startswith("{"):
        return mark
    try:
        position = json.loads(mark)
        return position if _as_text(position) == mark else mark
    except ValueError:
        return mark


def _as_text(position: Any) -> str:
    return json.dumps(position, sort_keys=True, separators=(",", ":"))


class SplitEnumerator(ABC):
    """Finds what there is to read of one input. For the driver, one thread at a time."""

    counts: ClassVar[Literal["splits", "records"]] = "splits"
    """What ``count_unread`` counts."""

    def __init_subclass__(cls, **words: Any) -> None:
        super().__init_subclass__(**words)
        if "counts_again" in vars(cls):
            warnings.warn(
                f"{cls.__qualname__}.counts_again is called is_correction since 0.3; the old name goes with 0.4",
                DeprecationWarning,
                stacklevel=2,
            )
            cls.is_correction = vars(cls)["counts_again"]  # type: ignore[method-assign]

    @abstractmethod
    def unread(self, position: SourcePosition, read: Collection[str] | None = None) -> Iterator[SourceSplit]:
        """Find what there is to read after a position, up to now; what comes meanwhile is for the next run.

        :param position: where reading has come to; with an empty mark, the beginning.
        :param read: the paths of all splits that were ever read, if the caller wants such as ``position`` hides, too.
        :returns: closed splits, in order. They do not overlap, neither with each other nor with those before the
            position; after an older position the same splits come again, as long as their records are there.
        :raises RetryError: the source does not answer.
        """

    def count_unread(self, position: SourcePosition) -> int:
        """Count what comes after a position, for a watcher that asks again and again. Override it where a cheaper
        answer is at hand.

        :param position: where reading has come to.
        :returns: how many splits, or records as ``counts`` says; by default splits, at most ``ENOUGH``.
        :raises RetryError: the source does not answer.
        """
        return sum(1 for _ in islice(self.unread(position), ENOUGH))

    @abstractmethod
    def after(self, position: SourcePosition, splits: Sequence[SourceSplit]) -> SourcePosition:
        """Tell where reading has come to once splits have been read; no request. It raises nothing.

        :param position: where it had come to before.
        :param splits: the first of those that ``unread`` gave from there; none leave the position as it is.
        :returns: the new position, often made by ``position.passed``.
        """

    def is_same(self, was: SourceSplit, now: SourceSplit) -> bool:
        """Ask whether two splits of one name have the same records. It raises nothing.

        :param was: the split that was read.
        :param now: the split as it is.
        :returns: by default whether size and ETag are equal.
        """
        return (was.size, was.etag) == (now.size, now.etag)

    def taken(self, split: SourceSplit) -> SourceSplit:
        """Take a split in, before it is read for the first time.

        :param split: as ``unread`` gave it.
        :returns: the split with all that will tell whether it has changed; by default as it is.
        :raises FixDataError: it is gone since it was planned.
        """
        return split

    def taken_again(self, splits: Sequence[SourceSplit]) -> list[SourceSplit]:
        """Take splits of an epoch in once more, since one of them had changed before it was read for the first time.

        :param splits: as ``taken`` gave them.
        :returns: the splits as they are now, in the same order; by default as they were.
        :raises FixDataError: one is gone.
        """
        return list(splits)

    @abstractmethod
    def missing(self, splits: Iterable[SourceSplit]) -> Iterable[tuple[SourceSplit, str]]:
        """Find splits that could not be read again as they were; nothing is read.

        :param splits: those that a replay, a recovery or a backfill is about to read.
        :returns: those that are lost, each with words that follow its name: "is gone", "has changed".
        :raises RetryError: the source does not answer.
        """

    def newest(self, position: SourcePosition) -> Instant | None:
        """Tell when the newest of what is after a position came.

        :param position: where to look from.
        :returns: microseconds since 1970 UTC; None, as by default, if nothing is there or nobody can tell.
        :raises RetryError: the source does not answer.
        """
        return None

    def watermarks(self, split: SourceSplit) -> Mapping[str, Instant]:
        """Tell up to which event times parts of the input have come once a split is read; the same each time. It raises
        nothing.

        The watermark hears it as if a record of that part had said so, unless the event time is given another
        ``split=``. So a part that is read to its end, and a split without any record, can let it go on; and a part that
        has had no record yet holds it back from where this says ``MIN_INSTANT``.

        :param split: one that an epoch reads.
        :returns: event times by the value of the source's ``own_split``, "" where it has none; by default none.
        """
        del split
        return NOTHING

    def is_correction(self, split: SourceSplit) -> bool:
        """Ask whether a split retracts or repeats earlier records. It raises nothing.

        :param split: as ``unread`` gave it.
        :returns: True: the engine gives it an epoch of its own, and drops none of its records as late; by default
            False.
        """
        del split
        return False

    def is_lost(self, split: SourceSplit, unread: Mapping[str, SourceSplit]) -> bool:
        """Ask whether a reader that continues from a position before a split misses records of it. It raises nothing.

        :param split: the split that was read there.
        :param unread: what ``unread`` gives from that position, by path.
        :returns: by default whether it is not among them as it was.
        """
        now = unread.get(split.path)
        return now is None or not self.is_same(split, now)

    @abstractmethod
    def explain(self) -> str:
        """Say why an input that was never read has nothing to read. It raises nothing.

        :returns: a few words for a person: where it was looked for, what is there.
        """


class SourceReader(ABC):
    """Reads splits of one input. In each task of both executors, in many threads at once. It pickles."""

    @abstractmethod
    def read(self, split: SourceSplit, span: "Span", required: "RequiredColumns") -> "ScannedRecords":
        """Read the records in a part of a split: the same each time. A record that does not parse is one with a reason.

        :param split: one that ``unread`` gave, in this process or another, perhaps years ago.
        :param span: the part; whole, if ``is_divisible`` says no. All parts together give what the whole split gives,
            positions included.
        :param required: the columns that must be there, to be held with ``required.check`` against what is there.
        :returns: the records.
        :raises FixDataError: the split is gone or has changed (``SplitGoneError``).
        :raises UnreadableFileError: it cannot be read at all.
        :raises FileColumnsError: it lacks what is required.
        """

    def read_together(self, splits: "Sequence[SourceSplit]", required: "RequiredColumns") -> "ScannedFiles | None":
        """Read several small whole splits at once, if that takes less work than one after the other.

        :param splits: as ``read`` takes them.
        :param required: the columns that must be there, as ``read`` takes them.
        :returns: what ``read`` gives of each, and why it cannot; by default None: they are read one after the other.
        :raises FixDataError: a split is gone or has changed (``SplitGoneError``).
        """
        return None

    @property
    def rules(self) -> int:
        """The number of the rules by which it reads what was not read before. It raises nothing.

        :returns: a number that grows with each version of the reader that makes other records of a split; what was read
            by older rules is read by these again in a replay.
        """
        return 0

    def is_divisible(self, split: SourceSplit) -> bool:
        """Ask whether reading a span of a split takes less work than reading all of it. It raises nothing.

        :param split: the split.
        :returns: by default False: it is read whole.
        """
        return False


class FetchingReader(SourceReader):
    """A reader of what is fetched from elsewhere, which tells fetching apart from reading. What a source cannot give
    again is fetched once and landed, and read as often as need be.
    """

    @contextmanager
    def connected(self) -> "Iterator[FetchingReader]":
        """Connect, to fetch many splits in many threads.

        :returns: a context that gives a reader which is connected while it lasts; by default this one.
        :raises RetryError: the source does not answer.
        """
        yield self

    @abstractmethod
    def fetch(self, split: SourceSplit) -> "pa.Table":
        """Get the records of a split as they come, whatever a definition makes of them.

        :param split: one that was claimed.
        :returns: the records in order; at most some 100 MB.
        :raises SplitGoneError: they cannot be had any more; another FixDataError says why.
        :raises RetryError: the source does not answer.
        """

    @abstractmethod
    def scanned(self, fetched: "pa.Table", required: "RequiredColumns", path: str) -> "ScannedRecords":
        """Say what fetched records mean; it looks at nothing else.

        :param fetched: what ``fetch`` gave, as it was landed.
        :param required: the columns that must be there.
        :param path: the name of their split.
        :returns: the records.
        :raises FileColumnsError: they lack what is required.
        """

    def by_rules(self, rules: int | None) -> "FetchingReader":
        """Give the reader as it was with older rules. It raises nothing.

        :param rules: their number; None: those of today.
        :returns: the reader; by default this one.
        """
        return self

    def read(self, split: SourceSplit, span: "Span", required: "RequiredColumns") -> "ScannedRecords":
        """Fetch a split and say what it means.

        :param split: the split.
        :param span: the whole split: it is not divisible.
        :param required: the columns that must be there.
        :returns: the records.
        :raises SplitGoneError: it cannot be had any more.
        """
        assert span.is_whole, "it is not divisible"
        return self.by_rules(split.rules).scanned(self.fetch(split), required, split.path)


class WritingReader(SourceReader):
    """A reader of files that a job writes with records from elsewhere. Many files are written at once, nobody knows
    before how many, and another job may find other records. So they are claimed once they are there, and those of one
    job alone count.
    """

    @abstractmethod
    def new_attempt(self) -> str:
        """Name an attempt at writing. It raises nothing.

        :returns: a name that no other attempt has: 16 hexadecimal digits.
        """

    @abstractmethod
    def write(self, split: SourceSplit, folder: str) -> Sequence[SourceSplit]:
        """Write the records of a split as files.

        :param split: the split.
        :param folder: a folder of the root that nobody else has, with a slash at its end.
        :returns: the files, each a split that ``read`` reads, in order; none where there are no records.
        :raises RetryError: the source does not answer; what was written is left for others to remove.
        """


@dataclass(frozen=True)
class OpenSource:
    """What finds the splits of a source (``enumerator``), and what reads them (``reader``)."""

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
        """Open a source, on the driver and in every task; it makes no request.

        :param source: what a definition says, with the columns that are to be read.
        :param root: the store below which it lies, if it lies below a root.
        :returns: what finds its splits, and what reads them.
        :raises FixConfigError: something that it needs is not installed, or not said.
        """

    def open_for(self, pipeline: str, source: Source, root: ObjectStore) -> OpenSource:
        """Open a source whose errors name the pipeline; what Headrace calls.

        :param pipeline: the pipeline's name.
        :param source: as for ``open``.
        :param root: as for ``open``.
        :returns: by default what ``open`` gives.
        :raises FixConfigError: as ``open`` does.
        """
        del pipeline
        return self.open(source, root)

    @contextmanager
    def staying_connected(self) -> Iterator[None]:
        """Let connections stay, for all threads of this process, as long as a run or one task lasts; it connects
        nothing itself. It raises nothing.

        :returns: a context, at whose end they are closed; by default nothing stays.
        """
        yield


SOURCES: Final[EntryPointGroup[SourceConnector]] = EntryPointGroup("headrace.sources", "kind of source")
"""The code of sources by their kind; it is imported when a run, or what asks how far one has come, needs it."""
