"""What a rollback of main moves: main itself, and what readers of each output see.

Readers go where they could have been: to the newest snapshot at or before the target that was published, or that a
person has released. The target itself may be one that no audit passed, or that no audit saw alone, as an epoch in the
middle of a run. Outputs are called in the target what they are called there, and readers go with the name.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from headrace_snapshots.protocol.appends import append_after
from headrace_snapshots.protocol.deliveries import with_renamed_deliveries
from headrace_snapshots.protocol.moves import (
    Append,
    Decision,
    Facts,
    Head,
    Kind,
    Need,
    NeedKept,
    NeedNames,
    NeedSeen,
    Rollback,
    Unseen,
    comes_before,
)
from headrace_snapshots.protocol.obstacles import unless_ancestor, unless_kept
from headrace_snapshots.refs import MAIN, is_delivery, is_published, output_of, published_ref

Question = Need | NeedKept | NeedNames | NeedSeen


def fenced_by_rollback(head: Head, branch: str) -> list[str]:
    """The branches whose writers a rollback of ``branch`` fences: all where entries of the log are lost."""
    return [branch] if head.is_whole else [*head.generations]


def rollback_of_main(head: Head, intent: Rollback, facts: Facts) -> Decision:
    """What may follow for ``intent``, as far as readers and promotions are concerned."""
    to, current, undone = intent.to, head.refs.get(MAIN), _undone(head, intent.to, facts)
    if isinstance(undone, Need):
        return undone
    if undone == len(head.past.replaced) and (obstacle := unless_ancestor(head, to, current, MAIN, facts)):
        return obstacle
    if to is not None and (obstacle := unless_kept(head, to, facts)):
        return obstacle
    shown = {} if to is None else _shown_after(head, intent, to, undone, facts)
    if not isinstance(shown, Mapping):
        return shown
    moves: dict[str, str | None] = {MAIN: to}
    for ref in dict.fromkeys((*filter(is_published, head.refs), *shown)):
        snapshot = shown.get(ref)
        if snapshot is not None and (obstacle := unless_kept(head, snapshot, facts)):
            return obstacle
        if snapshot != head.refs.get(ref):
            moves[ref] = snapshot
    append = append_after(head, Kind.ROLLBACK, MAIN, moves, fences=fenced_by_rollback(head, MAIN))
    return replace(append, past=head.past.rolled_back(current, to, undone))


def with_former_deliveries(head: Head, decided: Decision, intent: Rollback) -> Decision:
    """What was ``decided``, and what was handed over of outputs goes with the names that they have in the target."""
    current = head.refs.get(MAIN)
    if not isinstance(decided, Append) or intent.to is None or current is None or not any(map(is_delivery, head.refs)):
        return decided
    if current not in intent.called:
        return NeedNames(current)
    called = intent.called[current] or {}
    renamed = {
        published_ref(output): [published_ref(now)]
        for output, now in called.items()
        if now is not None and now != output
    }
    return with_renamed_deliveries(head, decided, renamed)


def _undone(head: Head, to: str | None, facts: Facts) -> int | Need:
    """The number of the oldest promotion that main takes back by going to ``to``: what it replaced is, or comes after,
    ``to``. That of the next promotion if there is none.
    """
    for number, promotion in enumerate(head.past.replaced):
        is_behind = to is None or comes_before(to, promotion.main, facts)
        if isinstance(is_behind, Need):
            return replace(is_behind, or_broken=True)
        if is_behind:
            return number
    return len(head.past.replaced)


def _shown_after(
    head: Head, intent: Rollback, to: str, undone: int, facts: Facts
) -> Mapping[str, str | None] | Question | Unseen:
    """What readers of each output of ``to`` see after main has gone there, by ref. What they see now, or saw before the
    promotions that are taken back, if that is not newer than ``to``; else the newest before ``to`` that they could see.
    """
    replaced = head.past.replaced[undone:][:1]
    main, published = head.refs.get(MAIN), {ref: shown for ref, shown in head.refs.items() if is_published(ref)}
    for promotion in replaced:
        main, published = promotion.main, promotion.published_refs
    if main is not None and main not in intent.called:
        return NeedNames(main)
    called = None if main is None else intent.called[main]
    after: dict[str, str | None] = {}
    unseen: list[str] = []
    for output, now in _names(published) if called is None else called.items():
        shown = None if now is None else published.get(published_ref(now))
        is_newer = shown is not None and shown != to and comes_before(to, shown, facts)
        if isinstance(is_newer, Need):
            return is_newer
        if is_newer or now is None:
            if output not in intent.seen:
                return NeedSeen(output, main)
            shown = intent.seen[output]
            unseen += [output] if shown is None and is_newer else []
        after[published_ref(output)] = shown
    return Unseen(tuple(unseen), to) if unseen else after


def _names(published: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """All that is published, where nobody can tell what the target has: each is called what it is called."""
    return ((output, output) for output in map(output_of, published))
