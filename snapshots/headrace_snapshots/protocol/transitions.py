"""Which entry may follow which: the catalog's protocol as a pure table, without I/O, clock or ids.

Theory of operation: a catalog is a log of entries. Entry n is created by one conditional put, so it
exists once and for all. A writer reads the last entry (the *head*: every ref and every generation), asks ``decide``
what may follow, and tries to create the next number. If somebody else was faster, the decision is void: read the new
head and decide again. So every decision was made on exactly the head that it follows, and the log alone orders all
writers. Nothing else changes what anyone can see.

* A *ref* names a snapshot: a branch (``main`` and others), ``published`` (what readers of main see), or ``tags/...``.
* Every branch has a *generation*: the number of the entry that last claimed it or took it from its writer. Such entries
  are init, claim, rollback, fork, and for main a promotion. Numbers only grow and no two entries share one. So an old
  writer is recognised even after its branch was dropped and made again under the same name.
* A *commit* follows only if its generation is the branch's and its parent is what the branch's ref names. Both are read
  from the head that the entry follows. So a writer that was stopped for an hour and continued cannot commit once
  anybody claimed the branch.
* ``published`` moves forward along main (publish, release), or to a branch that becomes main (promote). It goes back
  together with main in one entry (rollback below it). So ``published`` is always main's head or an ancestor of it.
  Where outputs have names, each has a ``published/...`` of its own, and what is said of ``published`` holds of each.
  The commit that gives an output another name gives its ref that name, too: readers see what they saw. One entry moves
  all that may move, as its writer found at exactly the refs that it expects.
* A rollback goes to an ancestor of the branch's head. Main may also return to what it was before a promotion, or to
  what came before that (``past``); then ``published`` is what readers saw then.
* ``published`` goes back only to where it has been, or where a person's release lets it go. That is the newest such
  snapshot at or before the target, which may be older than that; without one the rollback is refused
  (``rollback_of_main``). So a release of what is older than ``published`` moves nothing, and such a rollback may
  follow.
* Rows that were handed over to a sink which cannot take back stay handed over. So an entry says first up to where they
  may be (*delivering*), at exactly what readers see. A second one says that they all were (*delivered*). From the first
  one on main goes nowhere without that snapshot, neither by a rollback nor by a promotion, unless a person gives it up.
* Names of branches are used again, ids of snapshots never. So a promotion says which snapshot it is about.
* Entries are needed from the *base* on: those below it may be missing. When entries above it are lost, nothing may
  follow but a rollback, which is a person's decision. It continues from the newest entry that can be read, becomes the
  new base, and fences every writer. Nobody knows any more who had claimed what.
* An *expiry* says what is kept from then on (the *horizon*). It raises the base, below which entries are deleted, and
  names a mark, which says what will be deleted. What is marked never gets a ref again. A tag, a fork and a rollback ask
  under the mark of the very head that they follow whether the snapshot is kept. Every entry holds all refs and
  generations, so each is a checkpoint of the log, and the newest is the one that counts. A writer that was stopped
  while the log was folded may create a number again that was deleted. It finds the newest entry then: if its base is
  above that number, the entry is void, for all readers begin at the base; and the writer decides again. A writer that
  stood still after its entry was stored finds the same. So it asks first whether that head shows the effect of its
  entry (``catalog.has_taken_effect``). A commit counts if its branch leads to its snapshot, since no other entry ever
  names that. A rollback, a publish and the rest have nothing left to do if the head shows their effect.

To the protocol a snapshot is an opaque name. Where a rule depends on ancestry, which is a fact about immutable
manifests, it returns ``Need``. The caller finds out and asks again with the fact.

``with_deliveries`` and its neighbours are about rows that were handed over to sinks that cannot take back. They serve
where main goes elsewhere, or an output gets another name.

``rollback_of_main`` moves main itself, and what readers of each output see. Readers go where they could have been: to
the newest snapshot at or before the target that was published, or that a person has released. The target itself may be
one that no audit passed, or that no audit saw alone, as an epoch in the middle of a run. Outputs are called in the
target what they are called there, and readers go with the name.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headrace_snapshots.names import (
    MAIN,
    PUBLISHED,
    TAGS,
    delivered_ref,
    delivering_ref,
    delivery_of,
    is_delivery,
    is_published,
    output_of,
    published_ref,
    why_not,
)
from headrace_snapshots.protocol import moves


def begin_delivery(head: moves.Head, intent: moves.BeginDelivery, facts: moves.Facts) -> moves.Decision:
    published_id = head.refs.get(published_ref(intent.output))
    if published_id != intent.snapshot:
        return moves.Conflict(f"readers see {published_id}, not {intent.snapshot} any more")
    return moves.append_after(
        head,
        moves.Kind.DELIVERING,
        None,
        {delivering_ref(intent.output, intent.sink): intent.snapshot},
    )


def end_delivery(head: moves.Head, intent: moves.EndDelivery, facts: moves.Facts) -> moves.Decision:
    delivering_id = head.refs.get(delivering_ref(intent.output, intent.sink))
    if delivering_id != intent.snapshot:
        return moves.Conflict(
            f"sink {intent.sink} is being delivered up to {delivering_id}, not up to {intent.snapshot} any more"
        )
    return moves.append_after(
        head,
        moves.Kind.DELIVERED,
        None,
        {delivered_ref(intent.output, intent.sink): intent.snapshot},
    )


def with_deliveries(
    head: moves.Head,
    decision: moves.Decision,
    main: str | None,
    give_up: bool,
    facts: moves.Facts,
) -> moves.Decision:
    """What was ``decision`` where main goes to ``main``, if that has all that was handed over. Else it is refused,
    unless it is given up. Then rows were handed over up to ``main``, or none were, if that is of another line.
    """
    ref_moves: dict[str, tuple[str, str | None]] = {}
    for ref, snapshot in sorted(head.refs.items()):
        if not is_delivery(ref) or not isinstance(decision, moves.Append):
            continue
        is_kept = False if main is None else moves.comes_before(snapshot, main, facts)
        is_older = is_kept is False and main is not None and give_up and moves.comes_before(main, snapshot, facts)
        for answer in (is_kept, is_older):
            if isinstance(answer, moves.Need):
                return replace(answer, or_broken=True)
        if not is_kept and not give_up:
            return moves.Refused(
                f"rows up to {snapshot} were handed over to sink {delivery_of(ref)[1]}, which cannot take them back, "
                f"and {main or 'the beginning'} does not have them. --give-up-delivered goes there all the same"
            )
        if not is_kept:
            ref_moves[ref] = (snapshot, main if is_older else None)
    if not ref_moves or not isinstance(decision, moves.Append):
        return decision
    refs = {**decision.refs, **{ref: new_id for ref, (_, new_id) in ref_moves.items()}}
    existing_refs = {ref: snapshot for ref, snapshot in refs.items() if snapshot is not None}
    return replace(decision, moves={**decision.moves, **ref_moves}, refs=existing_refs)


def renamed_deliveries(refs: Mapping[str, str], former: str, output: str) -> dict[str, str | None]:
    """Moves that give what was handed over of the output ``former`` to ``output``, as it is called now."""
    ref_moves: dict[str, str | None] = {}
    for ref, snapshot in refs.items():
        if is_delivery(ref) and delivery_of(ref)[0] == former:
            sink = delivery_of(ref)[1]
            new = delivering_ref if ref == delivering_ref(former, sink) else delivered_ref
            ref_moves |= {new(output, sink): snapshot, ref: None}
    return ref_moves


def with_renamed_deliveries(
    head: moves.Head, decision: moves.Decision, former_refs_by_ref: Mapping[str, Sequence[str]]
) -> moves.Decision:
    """What was ``decision``, and what was handed over of outputs that had other names goes with them.
    ``former_refs_by_ref``: refs of what readers see of outputs, and what each was called before.
    """
    if not isinstance(decision, moves.Append):
        return decision
    goes = [
        move
        for ref, former_refs in former_refs_by_ref.items()
        for former in former_refs
        for move in renamed_deliveries(decision.refs, output_of(former), output_of(ref)).items()
    ]
    left, new_refs = (dict(move for move in goes if (move[1] is None) == is_left) for is_left in (True, False))
    refs: dict[str, str | None] = {**decision.refs, **left, **new_refs}  # two outputs may have swapped their names
    ref_moves = {ref: (head.refs.get(ref), new_id) for ref, new_id in refs.items() if new_id != decision.refs.get(ref)}
    existing_refs = {ref: snapshot for ref, snapshot in refs.items() if snapshot is not None}
    return replace(decision, moves={**decision.moves, **ref_moves}, refs=existing_refs)


Question = moves.Need | moves.NeedKept | moves.NeedNames | moves.NeedSeen


def fenced_by_rollback(head: moves.Head, branch: str) -> list[str]:
    """The branches whose writers a rollback of ``branch`` fences: all where entries of the log are lost."""
    return [branch] if head.is_whole else [*head.generations]


def rollback_of_main(head: moves.Head, intent: moves.Rollback, facts: moves.Facts) -> moves.Decision:
    """What may follow for ``intent``, as far as readers and promotions are concerned."""
    target_id, current, undone = intent.to, head.refs.get(MAIN), _oldest_undone(head, intent.to, facts)
    if isinstance(undone, moves.Need):
        return undone
    if undone == len(head.past.replaced) and (obstacle := moves.unless_ancestor(head, target_id, current, MAIN, facts)):
        return obstacle
    if target_id is not None and (obstacle := moves.unless_kept(head, target_id, facts)):
        return obstacle
    published_after = {} if target_id is None else _shown_after(head, intent, target_id, undone, facts)
    if not isinstance(published_after, Mapping):
        return published_after
    ref_moves: dict[str, str | None] = {MAIN: target_id}
    for ref in dict.fromkeys((*filter(is_published, head.refs), *published_after)):
        snapshot = published_after.get(ref)
        if snapshot is not None and (obstacle := moves.unless_kept(head, snapshot, facts)):
            return obstacle
        if snapshot != head.refs.get(ref):
            ref_moves[ref] = snapshot
    append = moves.append_after(head, moves.Kind.ROLLBACK, MAIN, ref_moves, fences=fenced_by_rollback(head, MAIN))
    return replace(append, past=head.past.rolled_back(current, target_id, undone))


def with_former_deliveries(head: moves.Head, decision: moves.Decision, intent: moves.Rollback) -> moves.Decision:
    """What was ``decision``, and what was handed over of outputs goes with the names that they have in the target."""
    current = head.refs.get(MAIN)
    if (
        not isinstance(decision, moves.Append)
        or intent.to is None
        or current is None
        or not any(map(is_delivery, head.refs))
    ):
        return decision
    if current not in intent.called:
        return moves.NeedNames(current)
    names_now = intent.called[current] or {}
    renames = {
        published_ref(output): [published_ref(now)]
        for output, now in names_now.items()
        if now is not None and now != output
    }
    return with_renamed_deliveries(head, decision, renames)


def _oldest_undone(head: moves.Head, target_id: str | None, facts: moves.Facts) -> int | moves.Need:
    """The number of the oldest promotion that main takes back by going to ``target_id``: what it replaced is, or
    comes after, ``target_id``. That of the next promotion if there is none.
    """
    for number, promotion in enumerate(head.past.replaced):
        is_behind = target_id is None or moves.comes_before(target_id, promotion.main, facts)
        if isinstance(is_behind, moves.Need):
            return replace(is_behind, or_broken=True)
        if is_behind:
            return number
    return len(head.past.replaced)


def _shown_after(
    head: moves.Head, intent: moves.Rollback, target_id: str, undone: int, facts: moves.Facts
) -> Mapping[str, str | None] | Question | moves.Unseen:
    """What readers of each output of ``target_id`` see after main has gone there, by ref. What they see now, or saw
    before the promotions that are taken back, if that is not newer than ``target_id``; else the newest before
    ``target_id`` that they could see.
    """
    undone_promotions = head.past.replaced[undone:][:1]
    main, published_refs = (
        head.refs.get(MAIN),
        {ref: published_id for ref, published_id in head.refs.items() if is_published(ref)},
    )
    for promotion in undone_promotions:
        main, published_refs = promotion.main, promotion.published_refs
    if main is not None and main not in intent.called:
        return moves.NeedNames(main)
    names_now = None if main is None else intent.called[main]
    refs_after: dict[str, str | None] = {}
    unseen: list[str] = []
    for output, now in _unchanged_names(published_refs) if names_now is None else names_now.items():
        published_id = None if now is None else published_refs.get(published_ref(now))
        is_newer = (
            published_id is not None
            and published_id != target_id
            and moves.comes_before(target_id, published_id, facts)
        )
        if isinstance(is_newer, moves.Need):
            return is_newer
        if is_newer or now is None:
            if output not in intent.seen:
                return moves.NeedSeen(output, main)
            published_id = intent.seen[output]
            unseen += [output] if published_id is None and is_newer else []
        refs_after[published_ref(output)] = published_id
    return moves.Unseen(tuple(unseen), target_id) if unseen else refs_after


def _unchanged_names(published_refs: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """All that is published, where nobody can tell what the target has: each is called what it is called."""
    return ((output, output) for output in map(output_of, published_refs))


def decide(head: moves.Head, intent: moves.Intent, facts: moves.Facts) -> moves.Decision:
    """What may follow ``head`` for ``intent``, given the ``facts`` about ancestry known so far."""
    if (head.entry < 0) != isinstance(intent, moves.Init):
        return moves.Refused("the catalog has no entry yet" if head.entry < 0 else "the catalog has begun already")
    if not head.is_whole and not isinstance(intent, moves.Rollback):
        return moves.Refused("entries of its log are lost: only a rollback may follow")
    return _RULES[type(intent)](head, intent, facts)


def _decide_init(head: moves.Head, intent: moves.Init, facts: moves.Facts) -> moves.Decision:
    return moves.append_after(head, moves.Kind.INIT, MAIN, fences=[MAIN])


def _decide_claim(head: moves.Head, intent: moves.ClaimBranch, facts: moves.Facts) -> moves.Decision:
    is_new = intent.branch not in head.generations
    return (_bad_branch(head, intent.branch) if is_new else None) or moves.append_after(
        head, moves.Kind.CLAIM, intent.branch, fences=[intent.branch]
    )


def _decide_commit(head: moves.Head, intent: moves.Commit, facts: moves.Facts) -> moves.Decision:
    branch, generation = intent.branch, head.generations.get(intent.branch)
    if generation is None:
        return moves.Fenced(branch, None, f"branch {branch} is gone")
    if generation != intent.generation:
        return _fenced_by_newer(branch, generation, intent.generation)
    if head.refs.get(branch) != intent.parent:
        return moves.Fenced(
            branch, None, f"branch {branch} is at {head.refs.get(branch)}, not at {intent.parent} any more"
        )
    renames = _moves_for_renames(head, intent.renamed) if branch == MAIN else {}
    return moves.append_after(head, moves.Kind.COMMIT, branch, {branch: intent.snapshot, **renames})


def _moves_for_renames(head: moves.Head, renames: Mapping[str, Sequence[str]]) -> dict[str, str | None]:
    """Moves that give what readers see of an output under its former name the ref of its new one."""
    ref_moves: dict[str, str | None] = {}
    for ref, former_refs in renames.items():
        former = next((old for old in former_refs if old in head.refs), None)
        if ref not in head.refs and former is not None:
            ref_moves |= {ref: head.refs[former], former: None}
            ref_moves |= renamed_deliveries(head.refs, output_of(former), output_of(ref))
    return ref_moves


def _decide_publish(head: moves.Head, intent: moves.Publish, facts: moves.Facts) -> moves.Decision:
    main = head.refs.get(MAIN)
    for ref, expected in intent.expected.items():
        if head.refs.get(ref) != expected:
            return moves.Conflict(f"{ref} is at {head.refs.get(ref)}, not at {expected} any more")
    if main is None:
        return moves.Refused("main has no snapshot")
    ref_moves: dict[str, str | None] = {}
    for ref, snapshot in intent.snapshots.items():
        published_id = head.refs.get(ref)
        is_older = intent.kind is moves.Kind.RELEASE and _is_older(snapshot, published_id, facts)
        if isinstance(is_older, moves.Need):
            return is_older
        if is_older:
            continue  # readers stay; a rollback may take them there from now on
        if snapshot is not None and (obstacle := _not_forward(ref, snapshot, main, published_id, facts)):
            return obstacle
        ref_moves[ref] = snapshot
    return moves.append_after(head, intent.kind, MAIN, ref_moves)


def _is_older(snapshot: str | None, published_id: str | None, facts: moves.Facts) -> bool | moves.Need:
    """Whether ``published_id`` came after ``snapshot``."""
    if snapshot is None or published_id is None or snapshot == published_id:
        return False
    return moves.comes_before(snapshot, published_id, facts)


def _not_forward(
    ref: str, snapshot: str, main: str, published_id: str | None, facts: moves.Facts
) -> moves.Need | moves.Refused | None:
    """Nothing if ``snapshot`` is on the line of ``main``, and after ``published_id``, at which ``ref`` is."""
    if snapshot == published_id:
        return moves.Refused(f"{snapshot} is {_state_of(ref)} already")
    obstacle = moves.refuse_unless_ancestor(facts, snapshot, main, f"{snapshot} is not on main, whose head is {main}")
    if obstacle is None and published_id is not None:
        reason = f"{snapshot} is older than {published_id}, which is {_state_of(ref)}: that would be a rollback"
        obstacle = moves.refuse_unless_ancestor(facts, published_id, snapshot, reason)
    return obstacle


def _state_of(ref: str) -> str:
    return PUBLISHED if ref == PUBLISHED else f"{PUBLISHED} of {output_of(ref)}"


def _decide_rollback(head: moves.Head, intent: moves.Rollback, facts: moves.Facts) -> moves.Decision:
    branch, target_id, current = intent.branch, intent.to, head.refs.get(intent.branch)
    if branch not in head.generations:
        return moves.Refused(f"there is no branch {branch}; there are {', '.join(sorted(head.generations))}")
    generation = head.generations[branch]
    if intent.generation is not None and generation != intent.generation:
        return _fenced_by_newer(branch, generation, intent.generation)
    if head.is_whole and (current == target_id or current is None):
        place = "its beginning" if current is None else current
        is_elsewhere = current != target_id
        reason = f", and nothing is before that: it cannot go to {target_id}" if is_elsewhere else " already"
        return moves.Refused(f"branch {branch} is at {place}{reason}")
    if branch != MAIN:
        if obstacle := moves.unless_ancestor(head, target_id, current, branch, facts):
            return obstacle
        return moves.append_after(
            head, moves.Kind.ROLLBACK, branch, {branch: target_id}, fences=fenced_by_rollback(head, branch)
        )
    decision = with_deliveries(head, rollback_of_main(head, intent, facts), target_id, intent.give_up_delivered, facts)
    return with_former_deliveries(head, decision, intent)


def _decide_fork(head: moves.Head, intent: moves.Fork, facts: moves.Facts) -> moves.Decision:
    if intent.branch in head.generations:
        return moves.Refused(f"there is a branch {intent.branch} already: drop it first, or choose another name")
    ref_moves = {} if intent.snapshot is None else {intent.branch: intent.snapshot}
    if intent.snapshot is not None and (obstacle := moves.unless_kept(head, intent.snapshot, facts)):
        return obstacle
    return _bad_branch(head, intent.branch) or moves.append_after(
        head, moves.Kind.FORK, intent.branch, ref_moves, fences=[intent.branch]
    )


def _decide_promote(head: moves.Head, intent: moves.Promote, facts: moves.Facts) -> moves.Decision:
    branch, snapshot = intent.branch, head.refs.get(intent.branch)
    if branch not in head.generations or snapshot is None or branch == MAIN:
        return moves.Refused(f"there is no branch {branch} with a snapshot beside main")
    if head.refs.get(MAIN) != intent.expected_main:
        return moves.Conflict(f"main is at {head.refs.get(MAIN)}, not at {intent.expected_main} any more")
    if intent.expected not in {None, snapshot}:
        return moves.Conflict(f"branch {branch} is at {snapshot}, not at {intent.expected} any more")
    published_moves = {published_ref(output): snapshot for output in intent.outputs}
    removals = {ref: None for ref in head.refs if is_published(ref) and ref not in published_moves}
    ref_moves = {MAIN: snapshot, **published_moves, **removals, branch: None}
    append = moves.append_after(head, moves.Kind.PROMOTE, MAIN, ref_moves, fences=[MAIN], ends=branch)
    if (main := head.refs.get(MAIN)) is not None:
        append = replace(
            append,
            past=head.past.with_promotion(moves.Replaced.from_refs(head.entry + 1, head.refs, main, snapshot)),
        )
    decision = with_deliveries(head, append, snapshot, intent.give_up_delivered, facts)
    return with_renamed_deliveries(head, decision, intent.renamed)


def _decide_tag(head: moves.Head, intent: moves.Tag, facts: moves.Facts) -> moves.Decision:
    ref = TAGS + intent.name
    if ref in head.refs:
        return moves.Refused(f"there is a tag {intent.name} already, at {head.refs[ref]}: drop it first")
    if intent.name in head.generations:
        return moves.Refused(f"there is a branch {intent.name}, so {intent.name} would name two: choose another name")
    if obstacle := moves.unless_kept(head, intent.snapshot, facts):
        return obstacle
    return _bad_name(intent.name) or moves.append_after(head, moves.Kind.TAG, None, {ref: intent.snapshot})


def _decide_drop(head: moves.Head, intent: moves.Drop, facts: moves.Facts) -> moves.Decision:
    ref = intent.ref
    if intent.expected is not None and head.entry != intent.expected:
        return _conflict_with_head(head, intent.expected, f"which was read to see that nobody needs {ref}")
    if ref == MAIN or is_published(ref):
        return moves.Refused(f"{ref} cannot be dropped; roll main back instead")
    if ref not in head.refs and ref not in head.generations:
        others = sorted(name for name in {*head.refs, *head.generations} - {MAIN} if not is_published(name))
        return moves.Refused(
            f"there is no branch or tag {ref}; those that can be dropped: {', '.join(others) or 'none'}"
        )
    ref_moves = {ref: None} if ref in head.refs else {}
    return moves.append_after(head, moves.Kind.DROP, ref if ref in head.generations else None, ref_moves, ends=ref)


def _decide_expire(head: moves.Head, intent: moves.Expire, facts: moves.Facts) -> moves.Decision:
    if head.entry != intent.expected:
        return _conflict_with_head(head, intent.expected, "which was read to see what is kept")
    append = moves.append_after(head, moves.Kind.EXPIRE, None, dict.fromkeys(intent.tags), fences=[*intent.idle])
    past = head.past if intent.past is None else intent.past
    return replace(append, base=max(append.base, intent.horizon.folded), horizon=intent.horizon, past=past)


_RULES: Mapping[type, Callable[[moves.Head, Any, moves.Facts], moves.Decision]] = {
    moves.Init: _decide_init,
    moves.ClaimBranch: _decide_claim,
    moves.Commit: _decide_commit,
    moves.Publish: _decide_publish,
    moves.Rollback: _decide_rollback,
    moves.Fork: _decide_fork,
    moves.Promote: _decide_promote,
    moves.Tag: _decide_tag,
    moves.Drop: _decide_drop,
    moves.Expire: _decide_expire,
    moves.BeginDelivery: begin_delivery,
    moves.EndDelivery: end_delivery,
}


def _conflict_with_head(head: moves.Head, expected: int, at_which: str) -> moves.Conflict:
    return moves.Conflict(f"entry {head.entry} has followed entry {expected}, {at_which}")


def _fenced_by_newer(branch: str, generation: int, mine: int) -> moves.Fenced:
    return moves.Fenced(branch, generation, f"branch {branch} has generation {generation}, not {mine} any more")


def _bad_branch(head: moves.Head, name: str) -> moves.Refused | None:
    if TAGS + name in head.refs:
        return moves.Refused(f"there is a tag {name}, so {name} would name two: choose another name")
    return _bad_name(name)


def _bad_name(name: str) -> moves.Refused | None:
    reason = why_not(name)
    return None if reason is None else moves.Refused(f"{name!r} cannot name a branch or tag: {reason}")
