"""XXH64 (https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md) with seed 0 over rows of 64-bit words, all at once."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headrace.kernel.grouping import Groups, Ints

Words = NDArray[np.uint64]

_P1 = np.uint64(11400714785074694791)
_P2 = np.uint64(14029467366897019727)
_P3 = np.uint64(1609587929392839161)
_P4 = np.uint64(9650029242287828579)
_P5 = np.uint64(2870177450012600261)
_START = (6983438078262162902, 14029467366897019727, 0, 7046029288634856825)  # P1 + P2, P2, 0 and -P1
_STRIPE = len(_START)


def of_columns(words: Sequence[Words]) -> Words:
    """The hash of each row of ``words``; of those of one row it has as many as the others have rows."""
    whole = len(words) - len(words) % _STRIPE
    lanes = [np.array([start], np.uint64) for start in _START]
    for i in range(0, whole, _STRIPE):
        lanes = [_round(lane, word) for lane, word in zip(lanes, words[i:], strict=False)]
    hashed = (_converged(lanes) if whole else np.array([_P5])) + np.uint64(8 * len(words))
    for word in words[whole:]:
        hashed = _remaining(hashed, word)
    return _avalanche(hashed)


def of_lists(words: Words, rows: Groups) -> Words:
    """The hash of the words of each of the ``rows``, which stand in order, rows of one word or more."""
    longest_first = np.argsort(-rows.sizes, kind="stable")
    starts, sizes = rows.offsets[:-1][longest_first], rows.sizes[longest_first]
    stripes = sizes // _STRIPE
    lanes = [np.full(len(sizes), start, np.uint64) for start in _START]
    for i in range(int(stripes.max(initial=0))):
        active = _reaching(stripes, i)
        at = starts[:active] + i * _STRIPE
        for k, lane in enumerate(lanes):
            lane[:active] = _round(lane[:active], words[at + k])
    hashed = np.where(stripes > 0, _converged(lanes), _P5) + (8 * sizes).astype(np.uint64)
    for i in range(_STRIPE - 1):
        rest = np.flatnonzero(sizes % _STRIPE > i)
        hashed[rest] = _remaining(hashed[rest], words[starts[rest] + stripes[rest] * _STRIPE + i])
    result = np.empty_like(hashed)
    result[longest_first] = _avalanche(hashed)
    return result


def _reaching(stripes: Ints, i: int) -> int:
    return int(np.searchsorted(-stripes, -i, side="left"))


def _turned(value: Words, by: int) -> Words:
    return (value << np.uint64(by)) | (value >> np.uint64(64 - by))


def _round(lane: Words, word: Words) -> Words:
    return _turned(lane + word * _P2, 31) * _P1


def _converged(lanes: Sequence[Words]) -> Words:
    hashed = sum((_turned(lane, by) for lane, by in zip(lanes[1:], (7, 12, 18), strict=True)), _turned(lanes[0], 1))
    for lane in lanes:
        hashed = (hashed ^ _alone(lane)) * _P1 + _P4
    return hashed


def _alone(word: Words) -> Words:
    return _turned(word * _P2, 31) * _P1


def _remaining(hashed: Words, word: Words) -> Words:
    return _turned(hashed ^ _alone(word), 27) * _P1 + _P4


def _avalanche(hashed: Words) -> Words:
    hashed = (hashed ^ (hashed >> np.uint64(33))) * _P2
    hashed = (hashed ^ (hashed >> np.uint64(29))) * _P3
    return hashed ^ (hashed >> np.uint64(32))
