"""One entry of a catalog log: which refs it moved, and every ref and generation after it."""

from collections.abc import Mapping
from typing import Any, ClassVar, cast

from headrace_snapshots.format.codec import JSON, StoredObject
from headrace_snapshots.protocol import Append, Head, Horizon, Kind, Past
from headrace_snapshots.refs import MAIN, is_delivery, is_published, output_of


class Entry(StoredObject, frozen=True, omit_defaults=True):
    """Entry ``number``, written at ``at`` (ISO 8601, UTC). ``write_id`` tells its writer that it is its own.

    ``branch`` and ``generation``: whose move it was, None for tags and expiries. ``moves``: ref -> (before, after),
    None where there was or is no such ref. No entry below ``base`` is needed any more. ``message`` is for people;
    ``detail`` is the caller's. ``horizon``: what is kept, None if nothing ever expired. ``past``: what main had and has
    not any more; None in older entries, so of what was before them nothing is known.
    """

    KIND: ClassVar = "entry"

    number: int
    write_id: str
    at: str
    kind: Kind
    branch: str | None
    generation: int | None
    moves: Mapping[str, tuple[str | None, str | None]]
    refs: Mapping[str, str]
    generations: Mapping[str, int]
    base: int
    message: str
    detail: JSON
    past: Past | None = None
    horizon: Horizon | None = None

    @classmethod
    def of(cls, decided: Append, number: int, write_id: str, at: str, *, message: str, detail: JSON) -> "Entry":
        """Entry ``number``, as the protocol decided it."""
        return cls(number=number, write_id=write_id, at=at, message=message, detail=detail, **vars(decided))

    def to_json(self) -> JSON:
        """A JSON object; the inverse of ``from_json``. A horizon without ``seen`` is as those of before had it."""
        value = cast("dict[str, Any]", super().to_json())
        if self.horizon is not None and not self.horizon.seen:
            del value["horizon"]["seen"]
        return value

    @property
    def head(self) -> Head:
        """The head of the catalog when this is its last entry."""
        past = Past(since=self.number + 1) if self.past is None else self.past
        return Head(self.number, self.refs, self.generations, self.base, horizon=self.horizon, past=past)

    @property
    def refs_before(self) -> dict[str, str]:
        """Every ref before it moved some."""
        before = {**self.refs, **{ref: snapshot for ref, (snapshot, _) in self.moves.items()}}
        return {ref: snapshot for ref, snapshot in before.items() if snapshot is not None}

    def floor(self, branch: str) -> int:
        """The first epoch whose output the next snapshots of ``branch`` need to name."""
        return self.horizon.floor if self.horizon is not None and branch == MAIN else 0

    @property
    def format(self) -> int:
        """The second since there is expiry; the third where what readers see is told by output: an older version
        would find nothing published, and move nothing of it back; the fourth where rows were handed over that cannot be
        taken back: an older version would go below them.
        """
        refs = {*self.refs, *self.moves}
        if any(map(is_delivery, refs)):
            return 4
        if any(is_published(ref) and output_of(ref) for ref in refs) or (
            self.past is not None and any(promotion.outputs for promotion in self.past.replaced)
        ):
            return 3
        return 1 if self.horizon is None else 2
