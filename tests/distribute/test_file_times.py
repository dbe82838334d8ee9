"""How the event times of files lie, in few bins: pieces of a file say together exactly what the file says."""

from collections import Counter
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.distribute.watermark_inputs import MOST_BINS, FileTimes, count_behind, joined_files, lags_of
from headrace.model.time import UNITS, Instant
from tests.reference.strategies import examples

LATEST = Instant(2**51)
NOON = 1_767_268_800_000_000
_SPREAD = st.sampled_from([3, UNITS["seconds"], UNITS["hours"], UNITS["days"], 2**45])
FILE = _SPREAD.flatmap(lambda spread: st.lists(st.integers(NOON - spread, NOON + spread), min_size=1, max_size=200))
"""Event times of a file: of one moment, of an hour, of years."""
STRAGGLERS = st.lists(st.sampled_from([-(2**50), -1, 0, NOON - 2**40, 2**51 + 1]), max_size=3)
CUTS = st.lists(st.integers(0, 5), min_size=203, max_size=203)


def times_of(times: list[int]) -> FileTimes:
    return FileTimes.from_times(np.array(times, np.int64), LATEST)


@examples(60)
@given(FILE, STRAGGLERS, CUTS, st.randoms(use_true_random=False))
def test_pieces_say_together_what_the_file_says(
    regular: list[int], stragglers: list[int], cuts: list[int], any_order: Random
) -> None:
    times = regular + stragglers
    any_order.shuffle(times)
    by_piece: dict[int, list[int]] = {}
    for time, piece in zip(times, cuts, strict=False):
        by_piece.setdefault(piece, []).append(time)
    shares = [{"source": {"f": times_of(piece)}} for piece in by_piece.values()]
    whole = times_of(times)
    assert joined_files(shares) == {"source": {"f": whole}}
    assert len(whole.begin) <= MOST_BINS
    assert whole.number.sum() == len(times)
    assert whole.newest == max((time for time in times if time <= LATEST), default=None)
    bins = Counter(time >> whole.width for time in times)
    assert [(begin >> whole.width, number) for begin, number in zip(whole.begin, whole.number, strict=True)] == sorted(
        bins.items()
    )
    if whole.width:
        narrower = {time >> (whole.width - 1) for time in times}
        assert len(narrower) > MOST_BINS, "the bins are as narrow as they can be"


@examples(60)
@given(FILE, FILE)
def test_lags_are_never_too_small_and_too_large_by_less_than_a_bin(earlier_times: list[int], times: list[int]) -> None:
    first, second = times_of(earlier_times), times_of(times)
    _, counts = count_behind({"source": {"a": first, "b": second}}, {})
    latest_time = max(earlier_times)
    exact = sorted(max(0, latest_time - time) for time in times)
    elements = sorted(Counter(counts).elements())
    assert len(elements) == len(exact), "the first file stands behind nothing"
    for lag, upper in zip(exact, elements, strict=True):
        assert lag <= upper <= int(lags_of(np.array([lag + 2**second.width]))[0])


@examples(60)
@given(st.lists(FILE, min_size=1, max_size=8), st.lists(st.booleans(), min_size=8, max_size=8))
def test_epochs_count_what_one_epoch_counts(files: list[list[int]], ends: list[bool]) -> None:
    times_by_path = {f"{number:02}": times_of(times) for number, times in enumerate(files)}
    newest, counts = count_behind({"source": times_by_path}, {})
    epochs: list[dict[str, FileTimes]] = [{}]
    for (path, times), ends_here in zip(times_by_path.items(), ends, strict=False):
        epochs[-1][path] = times
        if ends_here:
            epochs.append({})
    so_far: dict[str, Instant] = {}
    summed_counts: Counter[int] = Counter()
    for epoch in filter(None, epochs):
        so_far, own = count_behind({"source": epoch}, so_far)
        summed_counts.update(own)
    assert (so_far, summed_counts) == (newest, Counter(counts))


def test_what_is_too_far_ahead_makes_nothing_late() -> None:
    files = {"a": times_of([NOON]), "b": times_of([2**51 + 1]), "c": times_of([NOON - 60])}
    assert count_behind({"source": files}, {}) == ({"source": NOON}, {0: 1, 60: 1})
    assert count_behind({"source": {"b": times_of([2**51 + 1])}}, {}) == ({}, {})


def test_inputs_are_behind_their_own() -> None:
    files = {
        "left": {"a": times_of([NOON]), "b": times_of([NOON - 7])},
        "right": {"a": times_of([NOON - 60]), "b": times_of([NOON - 61])},
    }
    assert count_behind(files, {}) == ({"left": NOON, "right": NOON - 60}, {7: 1, 1: 1})
