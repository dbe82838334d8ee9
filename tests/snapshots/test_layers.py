"""The merge policy: few layers, and every row rewritten only a logarithmic number of times."""

import math

from hypothesis import example, given
from hypothesis import strategies as st

from headrace_snapshots.format.files import FANOUT, plan_merge
from tests.reference.strategies import examples

SIZES = st.integers(0, 8) | st.integers(0, 100_000) | st.sampled_from([16**k + d for k in range(6) for d in (-1, 0, 1)])


def simulate(arrivals: list[int]) -> tuple[int, int]:
    """(most layers after any append, most rewrites of any row) when no row replaces another."""
    layers: list[tuple[int, int]] = []
    most = rewrites = 0
    for rows in arrivals:
        layers.append((rows, 0))
        start = plan_merge([r for r, _ in layers])
        if start is not None:
            merged_layers = layers[start:]
            layers = [*layers[:start], (sum(r for r, _ in merged_layers), max(n for _, n in merged_layers) + 1)]
        most, rewrites = max(most, len(layers)), max(rewrites, *(n for _, n in layers))
    return most, rewrites


def bound(total: int) -> float:
    return FANOUT.value * (math.log(max(total, 1), FANOUT.value) + 2)


@examples(300)
@given(st.lists(SIZES, max_size=400))
@example([1] * 400)
@example([7, 9] * 200)
@example([1] * 15 + [31] + [1] * 15 + [251] + [1] * 15 + [31] + [1] * 15 + [100_000] + [1] * 200)
@example([16**k for k in range(6)] * 40)
@example([16**k for k in reversed(range(6))] * 40)
@example(([16**4] + [1] * 15) * 40)
def test_layers_and_rewrites_grow_with_the_logarithm(arrivals: list[int]) -> None:
    layers, rewrites = simulate(arrivals)
    assert layers <= bound(sum(arrivals))
    assert rewrites <= bound(sum(arrivals))


@given(st.lists(SIZES, max_size=60), st.data())
def test_layers_stay_few_when_merging_removes_rows(arrivals: list[int], data: st.DataObject) -> None:
    layers: list[int] = []
    for rows in arrivals:
        layers.append(rows)
        start = plan_merge(layers)
        if start is not None:
            layers[start:] = [data.draw(st.integers(0, sum(layers[start:])))]
        assert len(layers) <= bound(sum(arrivals))


def test_small_lists_are_left_alone_and_steady_streams_merge_in_sixteens() -> None:
    assert plan_merge([]) is None
    assert plan_merge([5] * 15) is None
    assert plan_merge([5] * 16) == 0
    assert plan_merge([1000, *[5] * 16]) == 1
    assert plan_merge([1000, *[5] * 15, 1000]) == 0  # small ones shut in between large ones
    assert plan_merge([*[256] * 15, *[16] * 15, *[1] * 16]) == 0  # one cascade, one rewrite
    assert simulate([100] * 4096)[1] == 3
