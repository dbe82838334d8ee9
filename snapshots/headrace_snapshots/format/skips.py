"""Skip pointers: the few ancestors that a manifest names beside its parent, so that any other one is found in a number
of requests that grows with the logarithm of the epochs to it.

They are the roots of the trees of a skew-binary random-access list (Myers, *An applicative random-access stack*, 1983):
each skips a whole tree, and the two newest trees become one whenever they are equally large. So a manifest names at
most log2(epochs) + 1 of them, and the parent's say what a new snapshot's are.
"""

from collections.abc import Sequence

from headrace_snapshots.format.record import JsonRecord


class Skip(JsonRecord, frozen=True):
    """An ancestor of a snapshot, and its epoch."""

    snapshot_id: str
    epoch: int


def skips_after(parent: Skip, skips: Sequence[Skip]) -> tuple[Skip, ...]:
    """The skips of a child of ``parent``, whose own are ``skips``; newest first.

    A parent that was written before there were skips has none: those of its descendants end at it.
    """
    if len(skips) > 1 and parent.epoch - skips[0].epoch == skips[0].epoch - skips[1].epoch:
        return tuple(skips[1:])
    return (parent, *skips)
