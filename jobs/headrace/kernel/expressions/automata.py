"""Automata that walk over lists of codes, all rows at once."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from headrace.kernel.grouping import Groups, Ints, of_lists

_SHORT = 64


def walked(states: pa.Array, codes: pa.Array, moves: Ints) -> pa.Array:
    """Where automata are that were at ``states`` and saw the lists ``codes``; ``moves[state, code]`` says where a code
    leads.
    """
    items, groups = of_lists(codes)
    symbols = items.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return pa.array(_walk(states.to_numpy().copy(), symbols, groups, moves))


def _walk(at: Ints, symbols: Ints, groups: Groups, moves: Ints) -> Ints:
    """One code of every list after another; of long lists whole pieces, of which is known where each state leads."""
    longest = int(groups.sizes.max(initial=0))
    if longest <= _SHORT:
        return _steps(at, groups, lambda states, items: moves[states, symbols[items]])
    piece = int(np.sqrt(longest))
    pieces, numbers = _cut(groups, piece)
    every = np.tile(np.arange(len(moves), dtype=np.int64), (len(pieces), 1))
    leads = _steps(every, pieces, lambda states, items: moves[states, symbols[items][:, None]])
    return _steps(at, numbers, lambda states, items: leads[items, states])


def _cut(groups: Groups, size: int) -> tuple[Groups, Groups]:
    """The groups cut into pieces of at most ``size`` items, and which pieces are whose."""
    counts = -(-groups.sizes // size)
    numbers = Groups(np.append(0, np.cumsum(counts)))
    place = np.arange(numbers.offsets[-1], dtype=np.int64) - np.repeat(numbers.offsets[:-1], counts)
    starts = np.repeat(groups.offsets[:-1], counts) + place * size
    return Groups(np.append(starts, groups.offsets[-1])), numbers


def _steps(at: Ints, groups: Groups, step: Callable[[Ints, Ints], Ints]) -> Ints:
    """``at``, an entry for each group, after a step with each of its items in turn."""
    longest_first = np.argsort(-groups.sizes, kind="stable")
    sizes, starts, at = groups.sizes[longest_first], groups.offsets[:-1][longest_first], at[longest_first]
    for i in range(int(sizes.max(initial=0))):
        rows = int(np.searchsorted(-sizes, -i, side="left"))
        at[:rows] = step(at[:rows], starts[:rows] + i)
    states = np.empty_like(at)
    states[longest_first] = at
    return states
