"""What a task of the barrier protocol is told (events), and what its driver does then (effects)."""

from typing import Final, NamedTuple

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
