"""Sinks: systems beside the root that follow what readers see.

What belongs here: the port of sinks, what a delivery hands to it, what it holds, and its errors.

To bring a sink, write a ``Sink``, an open target, and a ``SinkConnector`` that opens it. The ``Sink`` is what a
definition says: a frozen dataclass with a ``kind``. Declare the connector under the ``kind``::

    [project.entry-points."headrace.sinks"]
    dict = "my_package.dict_sink:DICT"

There are three kinds of targets. An ``OpenSink`` holds rows and can change them: ``apply``. An ``OpenChangeLog`` takes
records and changes none: ``append``. An ``OpenReceiver`` cannot take back, so it gets final rows alone: ``receive``.

**Order of calls**, for each delivery: ``SinkConnector.open``; ``held``; ``intervention``, if it holds anything;
``unknown_records`` for a log that holds nothing; then, only if it holds something else than what is published, one
``apply`` or ``append``; the end of the context. One thread calls. After ``SinkMovedError`` it begins again with
``open``, five times at most. An ``OpenReceiver`` is opened, and ``receive`` is called once, if any row has become
final.

**What is guaranteed.** ``before`` is what ``held`` said, ``after`` is what ``held`` must say from then on. Publishing,
releases, rollbacks, promotions and patches all come as one change. Each row of ``changes.removed()`` and
``changes.rows()`` comes once, in any order, in columns that go by their names. If ``changes.source`` is ``ALL_ROWS``,
they replace all that is there, and may have other columns. A delivery may die at any moment, and two may run at once.

**What a sink guarantees.** ``apply`` and ``append`` store the rows and ``after`` in one atomic step, or raise and
change nothing. They compare ``before`` inside of that step, and raise ``SinkMovedError`` if the target holds another.
What the target cannot hold is ``UndeliverableError``, before anything is written. No error has a secret: a password is
in ``connection.password``, and ``connection.without_secrets`` takes it out of what others say. What a sink raises
beside Headrace's errors becomes ``config.sink_failed``. ``headrace.testing.connectors`` has the tests of all that.

Example::

    from contextlib import contextmanager
    from dataclasses import dataclass
    from typing import ClassVar

    from headrace.ext.sinks import AppliedCounts, ChangeSource, Connection, OpenSink, Sink, SinkConnector
    from headrace.ext.sinks import SinkMovedError

    TARGETS = {}  # by name: what a target holds, and its rows


    @dataclass(frozen=True)
    class DictSink(Sink):
        kind: ClassVar[str] = "dict"


    class DictTable(OpenSink):
        def __init__(self, name):
            self.name = name

        def held(self):
            return TARGETS.get(self.name, (None, {}))[0]

        def apply(self, changes, before, after):
            if self.held() != before:
                raise SinkMovedError(f"{self.name} holds another snapshot than this delivery goes out from")
            old = TARGETS.get(self.name, (None, {}))[1]
            rows = {} if changes.source is ChangeSource.ALL_ROWS else dict(old)
            for identity in (row for batch in changes.removed() for row in batch.to_pylist()):
                del rows[tuple(identity.values())]
            written = [row for batch in changes.rows() for row in batch.to_pylist()]
            rows |= {tuple(row[name] for name in changes.identity): row for row in written}
            TARGETS[self.name] = (after, rows)  # one step: rows, and which snapshot they are
            return AppliedCounts(removed=len(old.keys() - rows.keys()), written=len(written))


    class DictConnector(SinkConnector):
        @contextmanager
        def open(self, sink, connection):
            yield DictTable(sink.name)


    DICT = DictConnector()

    with DICT.open(DictSink("sales", connection=""), Connection("", "")) as table:
        assert table.held() is None
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from headrace.connections import Connection, connection
from headrace.errors import FixConfigError, FixDataError, RetryError
from headrace.installed import EntryPointGroup
from headrace.model.expressions.data_types import ValueType
from headrace.pipeline.endpoints import Sink

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "EPOCH",
    "ID",
    "NUMBER",
    "RECORD_AT",
    "RECORD_MISREAD",
    "RECORD_PLACE",
    "SIGN",
    "AppliedCounts",
    "ChangeRecords",
    "ChangeSource",
    "Changes",
    "Connection",
    "FillReason",
    "FinalRows",
    "Intervention",
    "OpenChangeLog",
    "OpenReceiver",
    "OpenSink",
    "OpenTarget",
    "Sink",
    "SinkConnector",
    "SinkMovedError",
    "SinkRefusedError",
    "SinkState",
    "SinkUnreachableError",
    "StoredRecords",
    "UndeliverableError",
    "connection",
]

SIGN, EPOCH, NUMBER = "_sign", "_epoch", "_change"
"""Columns of records: 1 for a row that comes, -1 for one that is withdrawn; the epoch of a pane, NULL where no pane of
the line says so; the number of a record, which no other record of its target has: they count from 1 without a gap."""

ID: Final = "_id"
"""The column of what identifies a final row: the same each time that the row of this key and window comes."""


class SinkRefusedError(FixConfigError, code="config.sink_refused"):
    """The target does not let us do it: rights, a table of somebody else, a version that is too old."""


class SinkUnreachableError(RetryError, code="retry.sink_unreachable"):
    """The target does not answer, or broke off."""


class SinkMovedError(RetryError, code="retry.sink_moved"):
    """Another delivery has changed the target since this one looked, or may have: a delivery looks again."""


class UndeliverableError(FixDataError, code="data.undeliverable"):
    """A value that the target cannot hold. Nothing was delivered."""


class ChangeSource(StrEnum):
    """What changes are read from: the panes after an ancestor, the rows that differ, or all rows; all panes, of which
    each counts by itself; or rows that have become final.
    """

    PANES = "panes"
    DIFFERENCE = "difference"
    ALL_ROWS = "all_rows"
    ALL_PANES = "all_panes"
    FINAL_ROWS = "final_rows"


class FillReason(StrEnum):
    """Why a target gets all rows, or all panes, and not what lies between. It is the first time. Or what it held had
    another owner, has other columns, accumulates otherwise, has expired or was changed by others. Or a person wants it;
    or nothing is published, so that none are left.
    """

    FIRST = "first"
    OWNER = "owner"
    COLUMNS = "columns"
    ACCUMULATION = "accumulation"
    EXPIRED = "expired"
    CHANGED = "changed"
    REFILL = "refill"
    UNPUBLISHED = "unpublished"


@dataclass(frozen=True)
class Changes(ABC):
    """What makes rows of snapshot ``before`` rows of ``after`` (None: without a row). ``columns``: key, window and
    values with their types, in order; ``identity``: those that tell rows apart; ``begin``: the one that says when a row
    begins, for targets that are partitioned by time. A change of ``ALL_ROWS`` replaces all rows that there are, and has
    a ``reason``.

    ``source`` says what it is read from. It can be read as long as the call lasts that it was given to, in one thread,
    as often as need be.
    """

    source: ChangeSource
    before: str | None
    after: str | None
    columns: Mapping[str, ValueType]
    identity: Sequence[str]
    reason: FillReason | None = field(default=None, kw_only=True)
    begin: str = field(default="window_start", kw_only=True)

    @abstractmethod
    def removed(self) -> "Iterator[pa.RecordBatch]":
        """Read the identities of rows that are there no more.

        :returns: batches with the columns of ``identity``, none of them empty.
        :raises BrokenObjectError: a stored file is damaged or gone.
        """

    @abstractmethod
    def rows(self, ordered_by: Sequence[str] = ()) -> "Iterator[pa.RecordBatch]":
        """Read the rows that are new or have other values.

        :param ordered_by: names of columns by which rows are sorted; none: any order.
        :returns: batches with all ``columns``, none of them empty.
        :raises BrokenObjectError: a stored file is damaged or gone.
        """

    @abstractmethod
    def days(self) -> list[int | None]:
        """Tell on which days windows begin that change, for targets that are partitioned by time.

        :returns: days since 1970 in UTC, and None for windows without a beginning.
        :raises BrokenObjectError: a stored file is damaged or gone.
        """

    @abstractmethod
    def met_by(self, copied: "pa.Table") -> tuple[int, int]:
        """Count what changes of rows that the target has.

        :param copied: rows of the target, with the columns of ``identity``.
        :returns: how many of them change or go, and how many of these go.
        :raises BrokenObjectError: a stored file is damaged or gone.
        """

    @abstractmethod
    def untouched(self, copied: "pa.Table") -> "pa.Table":
        """Choose what stays of rows that the target has.

        :param copied: rows of the target, with the columns of ``identity`` and any others.
        :returns: those that neither change nor go, in order and as they are.
        :raises BrokenObjectError: a stored file is damaged or gone.
        """


@dataclass(frozen=True)
class ChangeRecords(ABC):
    """Records that lead from snapshot ``before`` to ``after``, numbered from ``first`` on. ``columns``: ``_change``,
    ``_sign``, ``_epoch``, then key, window and values, with their types.

    ``identity`` names the columns that records of one row have in common: key and window. For a row that is no result
    of an aggregation it names its id, or all of its columns. ``added`` rows come (sign 1), ``withdrawn`` go (sign -1).
    ``restarts``: the first record, of sign 0, says that all before it is void, since what it led to is not known any
    more; its other columns are NULL. ``reason``: why these are all rows, or all panes, if they are.

    ``source`` says what they are read from. They can be read as long as the call lasts that they were given to, in one
    thread.
    """

    source: ChangeSource
    before: str | None
    after: str | None
    columns: Mapping[str, ValueType]
    first: int
    restarts: bool
    added: int
    withdrawn: int
    reason: FillReason | None = field(default=None, kw_only=True)
    identity: Sequence[str] = field(default=(), kw_only=True)

    @property
    def number(self) -> int:
        """The number of records. It raises nothing.

        :returns: how many these are.
        """
        return self.restarts + self.added + self.withdrawn

    @abstractmethod
    def batches(self) -> "Iterator[pa.RecordBatch]":
        """Read all records in order, which is the same each time.

        :returns: batches with all ``columns``, none of them empty.
        :raises BrokenObjectError: a stored file is damaged or gone.
        """


@dataclass(frozen=True)
class FinalRows(ABC):
    """Rows that are final at snapshot ``after`` and were not, or were others, at ``before`` (None: the beginning).

    They are in order of the ends of their windows. ``columns``: ``_id``, key, window and values, with their types.
    ``number``: how many these are. ``connection`` is that of the sink.
    """

    sink: str
    before: str | None
    after: str
    columns: Mapping[str, ValueType]
    number: int
    connection: Connection | None

    @abstractmethod
    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Read each row as a dict.

        :returns: the rows in order.
        :raises BrokenObjectError: a stored file is damaged or gone.
        """

    def __len__(self) -> int:
        return self.number

    @abstractmethod
    def batches(self) -> "Iterator[pa.RecordBatch]":
        """Read the rows as Arrow batches.

        :returns: the rows in order.
        :raises BrokenObjectError: a stored file is damaged or gone.
        """


@dataclass(frozen=True)
class SinkState:
    """What a target says it holds: whose rows (``root``, ``pipeline``, ``output``), of which ``snapshot`` (None: of
    none), and their ``columns`` with their types in words. ``number``: of the last record of a target that only
    appends; None: it holds rows.

    ``identity`` tells the topic or table that was delivered to from another one of its name, ``at`` is when, in ISO
    8601; None if that is not known. What is held is the same whichever they are.
    """

    root: str
    pipeline: str
    output: str
    snapshot: str | None
    columns: Mapping[str, str]
    number: int | None = None
    identity: str | None = field(default=None, compare=False)
    at: str | None = field(default=None, compare=False)

    @property
    def owner(self) -> tuple[str, str, str]:
        """Say whose rows the target holds. It raises nothing.

        :returns: root, pipeline and output.
        """
        return self.root, self.pipeline, self.output

    def is_beside(self, other: "SinkState") -> bool:
        """Ask whether two targets hold rows of one pipeline, whichever its output. It raises nothing.

        :param other: what the other one holds.
        :returns: whether root and pipeline are the same.
        """
        return self.owner[:2] == other.owner[:2]


@dataclass(frozen=True)
class AppliedCounts:
    """How many rows were removed, and how many were written: new ones, or with other values."""

    removed: int
    written: int


RECORD_PLACE: Final = "_headrace_place"
"""The column of the part of a target in which a record stands, such as a partition, as a number."""

RECORD_AT: Final = "_headrace_at"
"""The column of where a record stands in its part: what is behind it has come later."""

RECORD_MISREAD: Final = "_headrace_misread"
"""The column of whether a record is none, or has a value that is none of its column's type."""


@dataclass(frozen=True)
class StoredRecords:
    """Records as a target that appends has them, ours and those of others, for checks.

    ``batches`` have the number of each record, its sign, and the columns that were asked for: of their types, or as
    text. They have RECORD_PLACE, RECORD_AT and RECORD_MISREAD, too, or the target has one part, which is in the order
    of numbers. ``begins``: the parts whose first records are gone, each with where it begins now. ``is_compacted``: of
    the records of a key perhaps only the newest is kept.
    """

    batches: "pa.RecordBatchReader"
    begins: Mapping[int, int] = field(default_factory=dict)
    is_compacted: bool = False


@dataclass(frozen=True)
class Intervention:
    """What somebody else has done to a target since it was delivered to: ``words`` that follow its name. ``is_mended``:
    the next delivery fills it again. Else the target has columns of others, whose values would go.
    """

    words: str
    is_mended: bool = True


class OpenTarget(ABC):
    """One target that is connected: an OpenSink, or an OpenChangeLog."""

    @abstractmethod
    def held(self) -> SinkState | None:
        """Ask the target what it holds.

        :returns: what the last ``apply`` or ``append`` was given as ``after``; None if there was none.
        :raises SinkUnreachableError: it does not answer.
        :raises SinkRefusedError: it may not be asked, or what is there is not ours.
        """

    def intervention(self, held: SinkState) -> Intervention | None:
        """Look for what somebody else has done to the target.

        :param held: what ``held()`` has just given.
        :returns: what was done; None, as by default, if nothing was that can be seen.
        :raises SinkUnreachableError: it does not answer.
        """
        del held
        return None


class OpenSink(OpenTarget):
    """A target that holds rows, which can be changed."""

    @abstractmethod
    def apply(self, changes: Changes, before: SinkState | None, after: SinkState) -> AppliedCounts:
        """Make rows of ``before`` rows of ``after``, and store which these are, in one atomic step.

        :param changes: the rows that go and come.
        :param before: what ``held()`` gave.
        :param after: what ``held()`` is to give from then on; ``replace(after, identity=...)`` may be stored.
        :returns: how many rows went and came.
        :raises SinkMovedError: the target does not hold ``before`` any more.
        :raises SinkRefusedError: rights or settings do not let it.
        :raises SinkUnreachableError: it does not answer, or broke off.
        :raises UndeliverableError: it cannot hold a value.
        """

    def rows(self, columns: Mapping[str, ValueType]) -> "AbstractContextManager[pa.RecordBatchReader] | None":
        """Read all rows that the target has, for checks (``headrace deliver --check``).

        :param columns: the columns that are wanted, with their types.
        :returns: a context that gives the rows, in columns of these types or as text; None, as by default, if the code
            of the sink does not read.
        :raises SinkUnreachableError: it does not answer.
        """
        del columns
        return None


class OpenChangeLog(OpenTarget):
    """A target that only takes further records: a table of changes, a topic."""

    @abstractmethod
    def append(self, records: ChangeRecords, before: SinkState | None, after: SinkState) -> None:
        """Append records in order, and store which state that leads to, in one atomic step.

        :param records: the records, with their numbers.
        :param before: what ``held()`` gave.
        :param after: what ``held()`` is to give from then on; its ``number`` is that of the last record.
        :raises SinkMovedError: the target does not hold ``before`` any more.
        :raises SinkRefusedError: rights or settings do not let it.
        :raises SinkUnreachableError: it does not answer, or broke off.
        :raises UndeliverableError: it cannot hold a value.
        """

    def unknown_records(self) -> int:
        """Count the records of a target that does not say what it holds: these are void then, and numbers go on behind
        them. It is asked where ``held()`` is None.

        :returns: how many it has at most; by default none.
        :raises SinkUnreachableError: it does not answer.
        """
        return 0

    def records(self, columns: Mapping[str, ValueType]) -> AbstractContextManager[StoredRecords] | None:
        """Read all records that the target has, for checks (``headrace deliver --check``).

        :param columns: the columns that are wanted, with their types.
        :returns: a context that gives the records; None, as by default, if the code of the sink does not read.
        :raises SinkUnreachableError: it does not answer.
        """
        del columns
        return None


class OpenReceiver(ABC):
    """A target that cannot take back, and gets final rows alone (mail, bills)."""

    @abstractmethod
    def receive(self, rows: FinalRows) -> None:
        """Take rows. If it raises, or the process dies, they come again, each with its ``_id``.

        :param rows: the rows that have become final.
        :raises SinkUnreachableError: it does not answer; any other exception is ``config.sink_failed``.
        """


class SinkConnector(ABC):
    """The code of a kind of sinks. One of another distribution is an entry point of ``headrace.sinks``."""

    @abstractmethod
    def open(self, sink: Sink, connection: Connection) -> AbstractContextManager[OpenTarget | OpenReceiver]:
        """Connect to the target of a sink.

        :param sink: what a definition says.
        :param connection: how it is reached; one without a name if the sink names none.
        :returns: a context that gives the target, and lets go of it at its end.
        :raises SinkUnreachableError: it does not answer.
        :raises SinkRefusedError: it does not let us in.
        """

    def read(
        self, table: str, columns: Sequence[str], connection: Connection
    ) -> "AbstractContextManager[pa.RecordBatchReader]":
        """Read any table, also of somebody else's, for comparisons. A kind that does not have it refuses.

        :param table: its name, as ``Sink.table_of_rows`` gives one.
        :param columns: the columns that are wanted.
        :param connection: how it is reached.
        :returns: a context that gives the rows; values of types that Arrow lacks are text.
        :raises SinkUnreachableError: it does not answer.
        :raises SinkRefusedError: it does not let us, or tables of this kind cannot be read.
        """
        raise SinkRefusedError(f"tables such as {table} of {connection} can be delivered to and not be compared")


SINKS: Final[EntryPointGroup[SinkConnector]] = EntryPointGroup("headrace.sinks", "kind of sink")
"""The code of sinks by their kind; it is imported when a delivery needs it."""
