"""What a task of the barrier protocol is told, what its driver does then, and tables of transitions.

What a transition table is: rows of (state, event, condition) and (next state, actions), read from the top.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, NamedTuple, TypeVar

from headrace.errors import GiveUpError

ORDER: Final = -1
"""The input on which the coordinator's orders come."""


class SnapshotId(NamedTuple):
    """Snapshots in their order: those of a newer generation of coordinators come later."""

    generation: int
    number: int


# Events: what a task is told.


class Barrier(NamedTuple):
    """``snapshot``'s barrier came on ``channel``; from the coordinator (its order to begin) on ORDER."""

    channel: int
    snapshot: SnapshotId


class Record(NamedTuple):
    """A record came on ``channel``."""

    channel: int


class Abandon(NamedTuple):
    """The coordinator gave ``snapshot`` up."""

    snapshot: SnapshotId


class Resume(NamedTuple):
    """The coordinator has ``snapshot``: a task that stopped for it goes on."""

    snapshot: SnapshotId


TaskEvent = Barrier | Record | Abandon | Resume


# Effects: what its driver does, in this order.


class TakeState(NamedTuple):
    """Keep the task's state as it is now as its part of ``snapshot``."""

    snapshot: SnapshotId


class Forward(NamedTuple):
    """Send ``snapshot``'s barrier on all outputs, after all that was sent."""

    snapshot: SnapshotId


class Block(NamedTuple):
    """Give the task nothing more from ``channel``."""

    channel: int


class Unblock(NamedTuple):
    """Go on with ``channel``, first with what waited."""

    channel: int


class Log(NamedTuple):
    """Keep the record at hand with the part of ``snapshot``."""

    snapshot: SnapshotId


class Deliver(NamedTuple):
    """Process the record at hand."""


class Hold(NamedTuple):
    """Keep the record or barrier at hand until Release; then the task receives it again, in the order of its
    channel.
    """


class Release(NamedTuple):
    """Go on with what was held."""


class Acknowledge(NamedTuple):
    """The part of ``snapshot`` is whole: store it, then tell the coordinator."""

    snapshot: SnapshotId


class Decline(NamedTuple):
    """Tell the coordinator that this task will never have its part of ``snapshot``."""

    snapshot: SnapshotId


class Discard(NamedTuple):
    """Forget the part of ``snapshot``."""

    snapshot: SnapshotId


TaskEffect = TakeState | Forward | Block | Unblock | Log | Deliver | Hold | Release | Acknowledge | Decline | Discard


Context = TypeVar("Context")
Effect = TypeVar("Effect")


class ProtocolError(GiveUpError, code="give_up.protocol"):
    """The driver of a role told it something that cannot happen: a mistake in the driver."""


@dataclass(frozen=True)
class Row(Generic[Context, Effect]):
    """In one of ``states``, on ``event``, ``when`` (None: always): go to ``then`` (None: stay) and do what ``do`` says.

    Conditions and actions are called by the names of their functions wherever the table is shown.
    """

    states: tuple[StrEnum, ...]
    event: StrEnum
    when: Callable[[Context], bool] | None
    then: StrEnum | None
    do: tuple[Callable[[Context], Sequence[Effect]], ...] = ()


class Table(Generic[Context, Effect]):
    """Rows by state and event. The first whose condition holds decides."""

    def __init__(self, rows: Sequence[Row[Context, Effect]]) -> None:
        self.rows = tuple(rows)
        self._found: Mapping[tuple[StrEnum, StrEnum], list[Row[Context, Effect]]] = {
            (state, event): [row for row in rows if state in row.states and row.event == event]
            for state in {state for row in rows for state in row.states}
            for event in {row.event for row in rows}
        }

    def step(self, state: StrEnum, event: StrEnum, context: Context) -> tuple[StrEnum, list[Effect]]:
        """The next state, and the effects in order. Raises ProtocolError where no row fits."""
        for row in self._found.get((state, event), ()):
            if row.when is None or row.when(context):
                effects: list[Effect] = []
                for action in row.do:
                    effects += action(context)
                return row.then or state, effects
        raise ProtocolError(f"nothing is said about {event.value!r} in state {state.value!r}")
