"""What a window holds, and what the combiners make of it.

The contents are the bag of values as they came, retracted ones with multiplicity -1; a combiner always reads the whole
bag. So nothing can depend on how values were split into accumulators, and uncombine (semantics 9.7) is subtraction.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.model.combiners import Aggregate, Combiner
from headrace.reference.evaluate import whole

Weighted = tuple[Any, int]
"""A value and how often it is there; negative if it was retracted before it came."""

Extract = Callable[["Contents"], tuple[Any, ...]]
"""Makes the values of a pane of a window's contents. Pure; called once per pane (semantics 8.1)."""


@dataclass
class Contents:
    """A bag of values in arrival order."""

    entries: list[Weighted] = field(default_factory=list)

    def add(self, value: Any, multiplicity: int = 1) -> None:
        """One more ``value``; -1 withdraws one."""
        self.entries.append((value, multiplicity))

    @property
    def net(self) -> tuple[Weighted, ...]:
        """Each distinct value once, in order of first arrival, without those that were wholly withdrawn."""
        totals: dict[Any, int] = {}
        for value, multiplicity in self.entries:
            totals[value] = totals.get(value, 0) + multiplicity
        return tuple((value, total) for value, total in totals.items() if total)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left, counting withdrawals."""
        return not self.net


def combine(combiner: Combiner, values: Sequence[Weighted]) -> Any:
    """``combiner`` over ``values``, NULLs left out; of nothing, its identity (0 for count and sum, else None).

    Raises IntegerOverflowError when an integer sum leaves 64 bits.
    """
    known = [(value, times) for value, times in values if value is not None]
    present = [value for value, times in known if times > 0]
    match combiner:
        case Combiner.COUNT:
            return sum(times for _, times in known)
        case Combiner.SUM:
            total = sum(value * times for value, times in known)
            return total if isinstance(total, float) else whole(total, "a sum")
        case Combiner.MEAN:
            number = sum(times for _, times in known)
            return sum(value * times for value, times in known) / number if number else None
        case Combiner.MIN:
            return min(present, default=None)
        case Combiner.MAX:
            return max(present, default=None)


def collect(contents: Contents) -> tuple[Any, ...]:
    """One pane value: the values themselves, as a tuple in arrival order (what a grouping without a combiner emits)."""
    return (tuple(value for value, times in contents.net for _ in range(times)),)


def extract_with(aggregates: Sequence[Aggregate]) -> Extract:
    """The pane values of ``aggregates``, in order; the values of the window are tuples of their inputs, in order."""

    def extract(contents: Contents) -> tuple[Any, ...]:
        bag = contents.net
        return tuple(
            combine(aggregate.combiner, [(value[i], times) for value, times in bag])
            for i, aggregate in enumerate(aggregates)
        )

    return extract
