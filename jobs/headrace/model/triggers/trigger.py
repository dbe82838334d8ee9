"""What all triggers share."""

from collections.abc import Collection

from headrace.model.suggestions import Suggesting


class Trigger(Suggesting):
    """A node of a trigger tree.

    >>> isinstance(hr.AfterCount(1), hr.Trigger)
    True
    """

    @property
    def children(self) -> tuple["Trigger", ...]:
        """Direct sub-triggers, in order."""
        return ()

    @property
    def may_finish(self) -> bool:
        """Whether this node can finish; a finished root closes its window and later elements are dropped."""
        return True

    @property
    def signals(self) -> Collection[str]:
        """Names of the signals that this node itself waits for (semantics 9.3)."""
        return ()

    @property
    def continuation(self) -> "Trigger":
        """The trigger that continues this one in an aggregation downstream (semantics 4.7)."""
        return self

    @property
    def waits_for_the_end(self) -> bool:
        """Whether it can be ready only once the watermark has passed the end of the window."""
        return False

    @property
    def may_finish_early(self) -> bool:
        """Whether it can finish before the watermark has passed the end of the window."""
        return self.may_finish
