"""What main had and has not any more: where a rollback may return to over a promotion, and what never comes back.

Main leaves a line of snapshots in two ways. A promotion puts another line in its place: what main was is *replaced*,
and a rollback may return to it, or to what came before it. A rollback leaves what came after its target: that is
*given up*, and so is every line that was replaced since main had been at the target. Both are told by the newest
snapshot of the line alone, since ids are never used again, as names of branches are.
"""

from collections.abc import Iterable
from dataclasses import dataclass

RETURNS = 100
"""Promotions that may be taken back: so many expiry keeps by default, and entries of the log stay small."""


@dataclass(frozen=True)
class Replaced:
    """What ``main`` and ``published`` were when entry ``entry`` made snapshot ``by`` of another branch main."""

    entry: int
    main: str
    published: str | None
    by: str


@dataclass(frozen=True)
class Past:
    """``replaced``: by promotions that stand, oldest first. ``given_up``: newest snapshots of lines that main had and
    has not any more. ``since``: the entry from which on this is known; older logs do not tell.
    """

    since: int = 0
    replaced: tuple[Replaced, ...] = ()
    given_up: tuple[str, ...] = ()

    @property
    def heads(self) -> tuple[str, ...]:
        """The newest snapshots of all lines that main has left."""
        return (*self.given_up, *(promotion.main for promotion in self.replaced))

    def promoted(self, replaced: Replaced) -> "Past":
        """After a promotion. Of more than RETURNS the oldest cannot be taken back any more."""
        stand = (*self.replaced, replaced)
        return self._leaving(stand[-RETURNS:], (promotion.main for promotion in stand[:-RETURNS]))

    def rolled_back(self, current: str | None, to: str | None, undone: int) -> "Past":
        """After a rollback of main from ``current`` to ``to`` (None: its beginning), which takes back the promotions
        from number ``undone`` on.
        """
        left = (current, *(promotion.main for promotion in self.replaced[undone:]))
        return self._leaving(self.replaced[:undone], (head for head in left if head is not None and head != to))

    def _leaving(self, replaced: tuple[Replaced, ...], given_up: Iterable[str]) -> "Past":
        return Past(self.since, replaced, tuple(dict.fromkeys((*self.given_up, *given_up))))
