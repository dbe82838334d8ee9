"""What was handed over to sinks that cannot take back, where main goes elsewhere or an output gets another name."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headrace_snapshots.protocol.appends import append_after
from headrace_snapshots.protocol.moves import (
    Append,
    BeginDelivery,
    Conflict,
    Decision,
    EndDelivery,
    Facts,
    Head,
    Kind,
    Need,
    Refused,
    comes_before,
)
from headrace_snapshots.refs import delivered_ref, delivering_ref, delivery_of, is_delivery, output_of, published_ref


def begin_delivery(head: Head, intent: BeginDelivery, facts: Facts) -> Decision:
    """What may follow for ``intent``."""
    shown = head.refs.get(published_ref(intent.output))
    if shown != intent.snapshot:
        return Conflict(f"readers see {shown}, not {intent.snapshot} any more")
    return append_after(head, Kind.DELIVERING, None, {delivering_ref(intent.output, intent.sink): intent.snapshot})


def end_delivery(head: Head, intent: EndDelivery, facts: Facts) -> Decision:
    """What may follow for ``intent``."""
    at = head.refs.get(delivering_ref(intent.output, intent.sink))
    if at != intent.snapshot:
        return Conflict(f"sink {intent.sink} is being delivered up to {at}, not up to {intent.snapshot} any more")
    return append_after(head, Kind.DELIVERED, None, {delivered_ref(intent.output, intent.sink): intent.snapshot})


def with_deliveries(head: Head, decided: Decision, main: str | None, give_up: bool, facts: Facts) -> Decision:
    """What was ``decided`` where main goes to ``main``, if that has all that was handed over. Else it is refused,
    unless it is given up: then rows were handed over up to ``main``, or none were, if that is of another line.
    """
    moves: dict[str, tuple[str, str | None]] = {}
    for ref, snapshot in sorted(head.refs.items()):
        if not is_delivery(ref) or not isinstance(decided, Append):
            continue
        is_kept = False if main is None else comes_before(snapshot, main, facts)
        is_older = is_kept is False and main is not None and give_up and comes_before(main, snapshot, facts)
        for known in (is_kept, is_older):
            if isinstance(known, Need):
                return replace(known, or_broken=True)
        if not is_kept and not give_up:
            return Refused(
                f"rows up to {snapshot} were handed over to sink {delivery_of(ref)[1]}, which cannot take them back, "
                f"and {main or 'the beginning'} does not have them: --give-up-delivered goes there all the same"
            )
        if not is_kept:
            moves[ref] = (snapshot, main if is_older else None)
    if not moves or not isinstance(decided, Append):
        return decided
    refs = {**decided.refs, **{ref: to for ref, (_, to) in moves.items()}}
    there = {ref: snapshot for ref, snapshot in refs.items() if snapshot is not None}
    return replace(decided, moves={**decided.moves, **moves}, refs=there)


def renamed_deliveries(refs: Mapping[str, str], former: str, output: str) -> dict[str, str | None]:
    """Moves that give what was handed over of the output ``former`` to ``output``, as it is called now."""
    moves: dict[str, str | None] = {}
    for ref, snapshot in refs.items():
        if is_delivery(ref) and delivery_of(ref)[0] == former:
            sink = delivery_of(ref)[1]
            new = delivering_ref if ref == delivering_ref(former, sink) else delivered_ref
            moves |= {new(output, sink): snapshot, ref: None}
    return moves


def with_renamed_deliveries(head: Head, decided: Decision, renamed: Mapping[str, Sequence[str]]) -> Decision:
    """What was ``decided``, and what was handed over of outputs that had other names goes with them. ``renamed``: refs
    of what readers see of outputs, and what each was called before.
    """
    if not isinstance(decided, Append):
        return decided
    goes = [
        move
        for ref, before in renamed.items()
        for former in before
        for move in renamed_deliveries(decided.refs, output_of(former), output_of(ref)).items()
    ]
    left, given = (dict(move for move in goes if (move[1] is None) == is_left) for is_left in (True, False))
    refs: dict[str, str | None] = {**decided.refs, **left, **given}  # two outputs may have swapped their names
    moves = {ref: (head.refs.get(ref), to) for ref, to in refs.items() if to != decided.refs.get(ref)}
    there = {ref: snapshot for ref, snapshot in refs.items() if snapshot is not None}
    return replace(decided, moves={**decided.moves, **moves}, refs=there)
