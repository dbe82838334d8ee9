"""What a catalog's log is asked to append and what the protocol answers: words, and what all answers have in common.

``Past`` is what main had and has not any more: where a rollback may return to over a promotion, and what never comes
back. Main leaves a line of snapshots in two ways. A promotion puts another line in its place. What main was is
*replaced*, and a rollback may return to it, or to what came before it. A rollback leaves what came after its target.
This is *given up*, and so is every line that was replaced since main had been at the target. Both are told by the
newest snapshot of the line alone, since ids are never used again, as names of branches are.

``append_after`` is the next entry of a log, as far as the protocol decides it. ``refuse_unless_ancestor`` and
``unless_kept`` say what stands against a move of a ref, as far as ancestry and expiry tell.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import msgspec

from headrace_snapshots.names import MAIN, PUBLISHED, published_of, published_ref

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
    def from_refs(cls, entry: int, refs: Mapping[str, str], main: str, by_snapshot: str) -> "Replaced":
        """What is replaced of ``refs``, by entry ``entry``."""
        outputs = {output: snapshot for output, snapshot in published_of(refs).items() if output}
        return cls(entry, main, refs.get(PUBLISHED), by_snapshot, outputs)

    @property
    def published_refs(self) -> dict[str, str]:
        """What readers saw, by ref."""
        unnamed_ref = {} if self.published is None else {PUBLISHED: self.published}
        return unnamed_ref | {published_ref(output): snapshot for output, snapshot in self.outputs.items()}


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

    def with_promotion(self, replaced_refs: Replaced) -> "Past":
        """After a promotion. The oldest of more than RETURNS cannot be taken back any more."""
        stand = (*self.replaced, replaced_refs)
        return self._with_given_up(stand[-RETURNS:], (promotion.main for promotion in stand[:-RETURNS]))

    def rolled_back(self, current: str | None, target_id: str | None, undone: int) -> "Past":
        """After a rollback of main from ``current`` to ``target_id`` (None: its beginning), which takes back the
        promotions from number ``undone`` on.
        """
        left = (current, *(promotion.main for promotion in self.replaced[undone:]))
        return self._with_given_up(
            self.replaced[:undone], (head for head in left if head is not None and head != target_id)
        )

    def _with_given_up(self, replacements: tuple[Replaced, ...], given_up: Iterable[str]) -> "Past":
        return Past(self.since, replacements, tuple(dict.fromkeys((*self.given_up, *given_up))))


class Kind(StrEnum):
    """What an entry did."""

    INIT = "init"
    CLAIM = "claim"
    COMMIT = "commit"
    PUBLISH = "publish"
    ROLLBACK = "rollback"
    RELEASE = "release"
    FORK = "fork"
    PROMOTE = "promote"
    TAG = "tag"
    DROP = "drop"
    EXPIRE = "expire"
    DELIVERING = "delivering"
    DELIVERED = "delivered"


@dataclass(frozen=True)
class Horizon:
    """What is kept, as the newest expiry says.

    ``mark`` names the list of what is to be deleted. Entries below ``folded`` are deleted. ``floor``: the first epoch
    of main whose output main's later snapshots need to name. ``grafts``: where a line of descent continues from a kept
    snapshot whose parent is not kept; None: it begins there. ``seen``: kept snapshots that readers could see, or that a
    person has released, as the entries said that are deleted; by the ref of the output, as that was called then.
    """

    mark: str
    folded: int = 0
    floor: int = 0
    grafts: Mapping[str, str | None] = field(default_factory=dict)
    seen: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Head:
    """The state of a catalog after entry number ``entry`` (-1: none yet). A branch without a snapshot has no ref.

    No entry below ``base`` is needed. ``is_whole``: if not, entries are lost, and refs and generations are those of the
    newest entry that can be read. ``past``: what main had and has not any more.
    """

    entry: int = -1
    refs: Mapping[str, str] = field(default_factory=dict)
    generations: Mapping[str, int] = field(default_factory=dict)
    base: int = 0
    is_whole: bool = True
    horizon: Horizon | None = None
    past: Past = field(default_factory=Past)


# Intents: what somebody wants to append.


class Init(msgspec.Struct, frozen=True):
    """Begin the log, with an empty main."""


class ClaimBranch(msgspec.Struct, frozen=True):
    """Become the only writer of ``branch``; makes it when there is none."""

    branch: str


class Commit(msgspec.Struct, frozen=True):
    """Move ``branch`` from ``parent`` to ``snapshot``, as the writer of ``generation``. ``renamed``: refs of what
    readers see of outputs, and what each was called before, newest first.
    """

    branch: str
    generation: int
    parent: str | None
    snapshot: str
    renamed: Mapping[str, Sequence[str]] = msgspec.field(default_factory=dict)


class Publish(msgspec.Struct, frozen=True):
    """Move what readers see of outputs forward: each ref in ``snapshots`` to its snapshot, or to nothing (None) if the
    output is gone. ``expected``: where refs were when this was decided, also of outputs that do not move. ``kind`` is
    PUBLISH or RELEASE, which moves nothing of what is newer already.
    """

    snapshots: Mapping[str, str | None]
    expected: Mapping[str, str | None]
    kind: Kind = Kind.PUBLISH


@dataclass(frozen=True)
class Rollback:
    """Move ``branch`` back to ``to`` (None: before its first snapshot) and fence its writer.

    ``generation``: of the writer who wants it; None for anybody from outside. ``give_up_delivered``: also below what
    sinks have got that cannot take back. Answers to what was asked: ``called`` (NeedNames), by snapshot; ``seen``
    (NeedSeen), by output of ``to``.
    """

    branch: str
    to: str | None
    generation: int | None = None
    give_up_delivered: bool = False
    called: Mapping[str, Mapping[str, str | None] | None] = field(default_factory=dict)
    seen: Mapping[str, str | None] = field(default_factory=dict)


class Fork(msgspec.Struct, frozen=True):
    """Make ``branch``, at ``snapshot`` or empty."""

    branch: str
    snapshot: str | None


class Promote(msgspec.Struct, frozen=True):
    """Let main, and what readers see of each output, be ``branch``, which ends; fences the writers of both.

    ``expected``: the snapshot at which it was found that the branch may; None: whatever it is at. ``outputs`` are those
    of its snapshot: "" is the one without a name. ``renamed``: refs of what readers see of those that had other names,
    and what each was called before. ``give_up_delivered``: also if the branch does not have what sinks have got that
    cannot take back.
    """

    branch: str
    expected_main: str | None
    expected: str | None = None
    outputs: Collection[str] = ("",)
    renamed: Mapping[str, Sequence[str]] = msgspec.field(default_factory=dict)
    give_up_delivered: bool = False


class Tag(msgspec.Struct, frozen=True):
    """Keep ``snapshot`` under ``tags/name``."""

    name: str
    snapshot: str


class Drop(msgspec.Struct, frozen=True):
    """Remove a tag (``tags/name``) or a branch; fences the branch's writer. ``expected``: the entry at which it was
    found that nobody needs it; None for people, who say so.
    """

    ref: str
    expected: int | None = None


class Expire(msgspec.Struct, frozen=True):
    """Keep what ``horizon`` says, found at entry ``expected``. Ends ``tags``, fences the ``idle`` branches.

    ``past``: what is left of main's; None: all of it.
    """

    expected: int
    horizon: Horizon
    tags: Collection[str] = ()
    idle: Collection[str] = ()
    past: Past | None = None


class BeginDelivery(msgspec.Struct, frozen=True):
    """Let rows up to ``snapshot``, which readers of ``output`` see, go to a ``sink`` that cannot take them back."""

    output: str
    sink: str
    snapshot: str


class EndDelivery(msgspec.Struct, frozen=True):
    """Say that all rows up to ``snapshot``, where the delivery began, were handed over."""

    output: str
    sink: str
    snapshot: str


Intent = (
    Init
    | ClaimBranch
    | Commit
    | Publish
    | Rollback
    | Fork
    | Promote
    | Tag
    | Drop
    | Expire
    | BeginDelivery
    | EndDelivery
)


# Decisions: what may follow the head.


@dataclass(frozen=True)
class Append:
    """The next entry, as far as the protocol decides it."""

    kind: Kind
    branch: str | None
    generation: int | None
    moves: Mapping[str, tuple[str | None, str | None]]
    refs: Mapping[str, str]
    generations: Mapping[str, int]
    base: int
    horizon: Horizon | None
    past: Past


@dataclass(frozen=True)
class Need:
    """Ask again with ``facts[(ancestor, descendant)]``: whether the first is the second or an ancestor of it.

    ``or_broken``: no, too, where objects that would tell are broken or gone.
    """

    ancestor: str
    descendant: str
    or_broken: bool = False


class NeedKept(msgspec.Struct, frozen=True):
    """Ask again with ``facts[(mark, snapshot)]``: whether the snapshot is there, and not in the mark."""

    mark: str
    snapshot: str


class NeedNames(msgspec.Struct, frozen=True):
    """Ask again with ``called[snapshot]`` of the rollback: what each output of its target is called in ``snapshot``,
    which has come from it; an output that is gone there has None; all is None if nobody can tell.
    """

    snapshot: str


class NeedSeen(msgspec.Struct, frozen=True):
    """Ask again with ``seen[output]`` of the rollback: the newest snapshot at or before its target that readers of an
    ``output`` could see. One that a person released counts, too, when main continued to ``main``. None if none is kept.
    """

    output: str
    main: str | None


class Fenced(msgspec.Struct, frozen=True):
    """Somebody else has the branch since entry ``by`` (None: the branch is gone, or its ref was moved)."""

    branch: str
    by: int | None
    reason: str


class Conflict(msgspec.Struct, frozen=True):
    """The ref was moved meanwhile: look again, then decide again."""

    reason: str


class Refused(msgspec.Struct, frozen=True):
    """Not possible in this state, and waiting will not change it."""

    reason: str


class Unseen(msgspec.Struct, frozen=True):
    """Readers of ``outputs`` would be left with nothing: they could see no snapshot at or before ``to``."""

    outputs: tuple[str, ...]
    to: str


Decision = Append | Need | NeedKept | NeedNames | NeedSeen | Fenced | Conflict | Refused | Unseen
Facts = Mapping[tuple[str, str], bool]


def comes_before(ancestor: str, descendant: str, facts: Facts) -> bool | Need:
    """Whether ``ancestor`` is ``descendant`` or came before it; the question if nobody knows yet."""
    answer = ancestor == descendant or facts.get((ancestor, descendant))
    return Need(ancestor, descendant) if answer is None else answer


def append_after(
    head: Head,
    kind: Kind,
    branch: str | None,
    moves: Mapping[str, str | None] | None = None,
    *,
    fences: list[str] | None = None,
    ends: str = "",
) -> Append:
    """The entry that moves refs, gives ``fences`` its own number as generation, and ends the branch ``ends``."""
    moves = moves or {}
    refs = {ref: snapshot for ref, snapshot in {**head.refs, **moves}.items() if snapshot is not None}
    generations = {**head.generations, **dict.fromkeys(fences or [], head.entry + 1)}
    generations.pop(ends, None)
    return Append(
        kind,
        branch,
        generations.get(branch) if branch is not None else None,
        {ref: (head.refs.get(ref), snapshot) for ref, snapshot in moves.items()},
        refs,
        generations,
        head.base if head.is_whole else head.entry + 1,
        _next_horizon(head, kind, moves),
        head.past,
    )


def _next_horizon(head: Head, kind: Kind, moves: Mapping[str, str | None]) -> Horizon | None:
    """The horizon of the head. Its floor is 0 once main moves to another line of descent, which has other epochs."""
    if head.horizon is None or kind is Kind.COMMIT or MAIN not in moves:
        return head.horizon
    return replace(head.horizon, floor=0)


def refuse_unless_ancestor(facts: Facts, ancestor: str, descendant: str, reason: str) -> Need | Refused | None:
    """Nothing if ``ancestor`` is one, a refusal if it is not, the question if that is unknown."""
    answer = facts.get((ancestor, descendant))
    if answer is None:
        return Need(ancestor, descendant)
    return None if answer else Refused(reason)


def unless_ancestor(
    head: Head, target_id: str | None, current: str | None, branch: str, facts: Facts
) -> Need | NeedKept | Refused | None:
    """Nothing if ``target_id`` (None: the beginning) came before ``current``, the head of ``branch``, and is kept."""
    if target_id is None:
        return None
    reason = f"{target_id} is not an ancestor of {current}, the head of branch {branch}"
    if branch == MAIN and head.past.replaced:
        reason += ", nor of what main was before a promotion"
    reason += "" if head.horizon is None else ", or has expired"
    obstacle = Refused(reason) if current is None else refuse_unless_ancestor(facts, target_id, current, reason)
    return obstacle or unless_kept(head, target_id, facts)


def unless_kept(head: Head, snapshot: str, facts: Facts) -> NeedKept | Refused | None:
    """Nothing if ``snapshot`` is kept for certain, as what has a ref is; else a refusal, or the question."""
    if head.horizon is None or snapshot in head.refs.values():
        return None
    answer = facts.get((head.horizon.mark, snapshot))
    if answer is None:
        return NeedKept(head.horizon.mark, snapshot)
    reason = (
        f"snapshot {snapshot} has expired, and what it names may be deleted at any time. (If it was committed just "
        "while an expiry was at work, let that run again)"
    )
    return None if answer else Refused(reason)
