"""What a kind of sink does: say what it holds, and take a change in one atomic step, or what happened as records.

The target itself stores which snapshot it holds, with its rows and in the same step. So it is never unknown what a
delivery has to change, and a delivery that went out from another snapshot is refused by the target.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.connections import Connection, failure, hide_secrets
from headrace.errors import FixConfigError, FixDataError, HeadraceError, RetryError
from headrace.model.expressions.value_types import ValueType
from headrace.pipeline.sinks import Sink
from headrace.read.diff.change_records import ChangeRecords
from headrace.read.diff.changes import Changes
from headrace.read.diff.final_rows import FinalRows
from headrace.read.diff.stored_records import StoredRecords

if TYPE_CHECKING:
    import pyarrow as pa


class SinkRefusedError(FixConfigError):
    """The target does not let us do it: rights, a table of somebody else, a version that is too old."""

    code = "config.sink_refused"


class SinkTakenError(FixConfigError):
    """The target holds rows of another root, pipeline or output."""

    code = "config.sink_taken"


class SinkUnreachableError(RetryError):
    """The target does not answer, or broke off."""

    code = "retry.sink_unreachable"


class SinkMovedError(RetryError):
    """Another delivery has changed the target since this one looked."""

    code = "retry.sink_moved"


class SinkFailedError(FixConfigError):
    """The code of a sink, or the client that it uses, raised something that it has no word for."""

    code = "config.sink_failed"


class UndeliverableError(FixDataError):
    """A value that the target cannot hold. Nothing was delivered."""

    code = "data.undeliverable"


@dataclass(frozen=True)
class Held:
    """What a target says it holds: whose rows, of which snapshot (None: of none), and their columns with their types
    in words. ``number``: of the last record of a target that only appends; None: it holds rows.

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
        """Whose rows it holds."""
        return self.root, self.pipeline, self.output

    def is_beside(self, other: "Held") -> bool:
        """Whether both are of one pipeline, whichever its output."""
        return self.owner[:2] == other.owner[:2]


@dataclass(frozen=True)
class Applied:
    """How many rows were removed, and how many were written: new ones, or with other values."""

    removed: int
    written: int


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
    def held(self) -> Held | None:
        """What it holds; None if it has never been delivered to."""

    def intervention(self, held: Held) -> Intervention | None:
        """What somebody else has done to it since what it holds was ``held``; None if nothing was done that can be
        seen. It is asked after ``held()``.
        """
        del held
        return None


class OpenSink(OpenTarget):
    """A target that holds rows, which can be changed."""

    @abstractmethod
    def apply(self, changes: Changes, before: Held | None, after: Held) -> Applied:
        """Make rows of ``before`` rows of ``after``, and store which these are, in one atomic step.

        Raises SinkMovedError unless it holds ``before``; SinkRefusedError, SinkUnreachableError, UndeliverableError.
        """

    def rows(self, columns: Mapping[str, ValueType]) -> "AbstractContextManager[pa.RecordBatchReader] | None":
        """All rows that it has, in these ``columns``, for checks: of their types, or as text. None if its code does not
        read.
        """
        del columns
        return None


class OpenChangeLog(OpenTarget):
    """A target that only takes further records: a table of changes, a topic."""

    @abstractmethod
    def append(self, records: ChangeRecords, before: Held | None, after: Held) -> None:
        """Append ``records`` in order, and store which state that leads to, in one atomic step.

        Raises SinkMovedError unless it holds ``before``; SinkRefusedError, SinkUnreachableError, UndeliverableError.
        """

    def unknown_records(self) -> int:
        """How many records it has at most, where it does not say what it holds: these are void then, and numbers go on
        behind them. It is asked where ``held()`` is None.
        """
        return 0

    def records(self, columns: Mapping[str, ValueType]) -> AbstractContextManager[StoredRecords] | None:
        """All records that it has, with these ``columns``, for checks. None if its code does not read."""
        del columns
        return None


class OpenReceiver(ABC):
    """A target that cannot take back, and gets final rows alone (mail, bills)."""

    @abstractmethod
    def receive(self, rows: FinalRows) -> None:
        """Take ``rows``. If it raises, or the process dies, they come again, each with its ``_id``."""


class SinkKind(ABC):
    """A kind of sink, as an entry point of the group ``headrace.sinks`` gives it."""

    @abstractmethod
    def open(self, sink: Sink, connection: Connection) -> AbstractContextManager[OpenTarget | OpenReceiver]:
        """Connect to the target. Raises SinkUnreachableError, SinkRefusedError."""

    def read(
        self, table: str, columns: Sequence[str], connection: Connection
    ) -> "AbstractContextManager[pa.RecordBatchReader]":
        """The rows of any ``table``, also of somebody else's, in ``columns``, for comparisons; values of types that
        Arrow lacks are text. Raises SinkUnreachableError, SinkRefusedError. A kind that does not have it refuses.
        """
        raise SinkRefusedError(f"tables such as {table} of {connection} can be delivered to and not be compared")


@contextmanager
def named_failures(sink: Sink, connection: Connection) -> Iterator[None]:
    """Inside, what the code of ``sink`` raises beside Headrace's errors becomes SinkFailedError; none has a secret."""
    try:
        yield
    except HeadraceError as error:
        hide_secrets(error, connection)
        raise
    except Exception as error:
        of = f" of {connection}" if sink.connection else ""
        # without what was caught: it may quote a secret
        raise SinkFailedError(
            f"sink {sink.name} ({sink.kind}{of}) failed: {failure(error, connection)}. It holds what its last whole "
            "delivery left, if it takes changes in one step. Code of a sink says SinkUnreachableError of what passes, "
            "which is tried again"
        ) from None


def check_columns(table: str, wanted: Sequence[str], there: Iterable[str]) -> None:
    """Raise SinkRefusedError for the first of the ``wanted`` columns that a ``table`` does not have."""
    known = [*there]
    for name in wanted:
        if name not in known:
            raise SinkRefusedError(
                f"table {table} has no column {name!r}; it has {', '.join(known)}. Say what it is called "
                f"(--column {name}=THEIRS), or leave it out (--without {name})"
            )
