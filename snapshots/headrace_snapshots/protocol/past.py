"""What main had and has not any more: where a rollback may return to over a promotion, and what never comes back.

Main leaves a line of snapshots in two ways. A promotion puts another line in its place: what main was is *replaced*,
and a rollback may return to it, or to what came before it. A rollback leaves what came after its target: that is
*given up*, and so is every line that was replaced since main had been at the target. Both are told by the newest
snapshot of the line alone, since ids are never used again, as names of branches are.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from headrace_snapshots.refs import PUBLISHED, published_of, published_ref

RETURNS = 100
"""Promotions that may be taken back: so many expiry keeps by default, and entries of the log stay small."""


class Replaced(msgspec.Struct, frozen=True, omit_defaults=True):
    """What ``main`` and ``published`` were when entry ``entry`` made snapshot ``by`` of another branch main.

    ``outputs``: what readers saw of each output that had a name; entries do not have it where none had.
    """

    entry: int
    main: str
    published: str | None
    by: str
    outputs: Mapping[str, str] = {}

    @classmethod
    def at(cls, entry: int, refs: Mapping[str, str], main: str, by: str) -> "Replaced":
        """What is replaced of ``refs``, by entry ``entry``."""
        outputs = {output: snapshot for output, snapshot in published_of(refs).items() if output}
        return cls(entry, main, refs.get(PUBLISHED), by, outputs)

    @property
    def published_refs(self) -> dict[str, str]:
        """What readers saw, by ref."""
        unnamed = {} if self.published is None else {PUBLISHED: self.published}
        return unnamed | {published_ref(output): snapshot for output, snapshot in self.outputs.items()}


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
