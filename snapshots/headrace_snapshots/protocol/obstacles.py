"""What stands against a move of a ref, as far as ancestry and expiry tell."""

from headrace_snapshots.protocol.moves import Facts, Head, Need, NeedKept, Refused
from headrace_snapshots.refs import MAIN


def unless(facts: Facts, ancestor: str, descendant: str, reason: str) -> Need | Refused | None:
    """Nothing if ``ancestor`` is one, a refusal if it is not, the question if that is unknown."""
    known = facts.get((ancestor, descendant))
    if known is None:
        return Need(ancestor, descendant)
    return None if known else Refused(reason)


def unless_ancestor(
    head: Head, to: str | None, current: str | None, branch: str, facts: Facts
) -> Need | NeedKept | Refused | None:
    """Nothing if ``to`` came before ``current``, the head of ``branch``, and is kept; None is before everything."""
    if to is None:
        return None
    reason = f"{to} is not an ancestor of {current}, the head of branch {branch}"
    if branch == MAIN and head.past.replaced:
        reason += ", nor of what main was before a promotion"
    reason += _expired(head)
    obstacle = Refused(reason) if current is None else unless(facts, to, current, reason)
    return obstacle or unless_kept(head, to, facts)


def unless_kept(head: Head, snapshot: str, facts: Facts) -> NeedKept | Refused | None:
    """Nothing if ``snapshot`` is kept for certain, as what has a ref is; else a refusal, or the question."""
    if head.horizon is None or snapshot in head.refs.values():
        return None
    known = facts.get((head.horizon.mark, snapshot))
    if known is None:
        return NeedKept(head.horizon.mark, snapshot)
    reason = (
        f"snapshot {snapshot} has expired, and what it names may be deleted at any time (if it was committed just "
        "while an expiry was at work, let that run again)"
    )
    return None if known else Refused(reason)


def _expired(head: Head) -> str:
    return "" if head.horizon is None else ", or has expired"
