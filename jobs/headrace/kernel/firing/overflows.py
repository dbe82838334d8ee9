"""Results that their type does not hold: which window of which key it is, and what a person can do about it."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from headrace.errors import ValueOverflowError
from headrace.kernel.aggregates import Accumulator
from headrace.kernel.grouping import Ints
from headrace.model.time import Instant, render
from headrace.program import columns as c

WAYS_OUT = (
    "give it a wider type (a sum of integers as .cast(Decimal), any as .cast(float), which rounds), filter such "
    "records out, or correct them"
)


def result_of(
    name: str, accumulator: Accumulator, contents: Mapping[str, pa.Array], rows: Mapping[str, pa.Array], which: Ints
) -> pa.Array:
    """The aggregate ``name`` of the windows of ``rows`` that ``which`` names, whose ``contents`` these are.

    Raises ValueOverflowError, saying of which key and window, for the first result that its type does not hold.
    """
    try:
        return accumulator.result(contents)
    except ValueOverflowError:
        at = _first_overflow(accumulator, contents, len(which))
    try:
        return accumulator.result(_some(contents, at, 1))  # which says its own value
    except ValueOverflowError as error:
        place = _place(rows, int(which[at]))
        raise type(error)(
            f"aggregate {name!r} of {place}: {error}. Nothing of this epoch is committed: {WAYS_OUT}. A pipeline whose "
            "aggregates or filter change computes their history again with a backfill"
        ) from None


def _first_overflow(accumulator: Accumulator, contents: Mapping[str, pa.Array], length: int) -> int:
    """The position of the first of ``length`` results that does not fit, found by halving."""
    first = 0
    while length > 1:
        half = length // 2
        try:
            accumulator.result(_some(contents, first, half))
        except ValueOverflowError:
            length = half
        else:
            first, length = first + half, length - half
    return first


def _some(contents: Mapping[str, pa.Array], first: int, length: int) -> dict[str, pa.Array]:
    taken = pa.array(range(first, first + length))
    return {name: values.take(taken) for name, values in contents.items()}


def _place(rows: Mapping[str, pa.Array], row: int) -> str:
    names: Sequence[str] = [name for name in rows if not name.startswith("_")]
    key = ", ".join(f"{name}={rows[name][row].as_py()!r}" for name in names)
    start, end = (render(Instant(rows[name][row].as_py())) for name in (c.WINDOW_START, c.WINDOW_END))
    return f"{f'key {key}' if key else 'all records'} in the window from {start} to {end}"
