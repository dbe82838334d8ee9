"""Which outputs a branch computes that is to be adopted for one of them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from headrace_snapshots.format.output_view import UnknownOutputError


@dataclass(frozen=True)
class AdoptedOutputs:
    """``adopted``: an ``output``, and those that are computed of it, whose panes change with its own. ``read``: others
    whose panes these need. ``others``: all else.
    """

    output: str
    adopted: tuple[str, ...]
    read: tuple[str, ...]
    others: tuple[str, ...]

    @classmethod
    def of(cls, pipeline: str, upstream: Mapping[str, Sequence[str]], output: str) -> Self:
        """For an ``output`` of ``pipeline``, whose outputs are computed of those in ``upstream`` (none: of records).
        Raises UnknownOutputError.
        """
        if output not in upstream:
            has = f"it has {', '.join(sorted(upstream))}" if upstream else "it has one output, which has no name"
            raise UnknownOutputError(f"pipeline {pipeline} has no output {output!r}: {has}")
        below = {name: [reader for reader, above in upstream.items() if name in above] for name in upstream}
        adopted = _reached({output}, below)
        needed = _reached(adopted, upstream)
        rest = needed - adopted, upstream.keys() - needed
        return cls(output, *(tuple(sorted(names)) for names in (adopted, *rest)))


def _reached(names: Collection[str], edges: Mapping[str, Iterable[str]]) -> set[str]:
    """The ``names``, and all that they lead to."""
    reached, waiting = {*names}, [*names]
    while waiting:
        further = {*edges.get(waiting.pop(), ())} - reached
        reached |= further
        waiting += further
    return reached
