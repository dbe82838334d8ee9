"""The next entry of a log, as far as the protocol decides it."""

from collections.abc import Mapping
from dataclasses import replace

from headrace_snapshots.protocol.moves import Append, Head, Horizon, Kind
from headrace_snapshots.refs import MAIN


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
        _horizon(head, kind, moves),
        head.past,
    )


def _horizon(head: Head, kind: Kind, moves: Mapping[str, str | None]) -> Horizon | None:
    """The horizon of the head. Its floor is 0 once main moves to another line of descent, which has other epochs."""
    if head.horizon is None or kind is Kind.COMMIT or MAIN not in moves:
        return head.horizon
    return replace(head.horizon, floor=0)
