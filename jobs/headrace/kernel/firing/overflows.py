"""Results that their type does not hold: which window of which key it is, and what a person can do about it."""

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from headrace.errors import ValueOverflowError
from headrace.kernel.aggregates import Accumulator
from headrace.kernel.grouping import Ints
from headrace.model.time import Instant, render
from headrace.program import columns as c

Result = Callable[[Mapping[str, pa.Array]], pa.Array]
"""Makes a column of results of columns that have a row for each."""

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
    return located(f"aggregate {name!r}", accumulator.result, contents, rows, which)


def located(
    what: str, result: Result, columns: Mapping[str, pa.Array], rows: Mapping[str, pa.Array], which: Ints
) -> pa.Array:
    """``result`` of the ``columns`` of those windows. Raises ValueOverflowError as ``result_of`` does, of ``what``."""
    try:
        return result(columns)
    except ValueOverflowError:
        at = _first_overflow(result, columns, len(which))
    try:
        return result(_some(columns, at, 1))  # which says its own value
    except ValueOverflowError as error:
        place = _place(rows, int(which[at]))
        raise type(error)(
            f"{what} of {place}: {error}. Nothing of this epoch is committed: {WAYS_OUT}. A pipeline whose "
            "aggregates or filter change computes their history again with a backfill"
        ) from None


def _first_overflow(result: Result, columns: Mapping[str, pa.Array], length: int) -> int:
    """The position of the first of ``length`` results that does not fit, found by halving."""
    first = 0
    while length > 1:
        half = length // 2
        try:
            result(_some(columns, first, half))
        except ValueOverflowError:
            length = half
        else:
            first, length = first + half, length - half
    return first


def _some(columns: Mapping[str, pa.Array], first: int, length: int) -> dict[str, pa.Array]:
    taken = pa.array(range(first, first + length))
    return {name: values.take(taken) for name, values in columns.items()}


def _place(rows: Mapping[str, pa.Array], row: int) -> str:
    names: Sequence[str] = [name for name in rows if not name.startswith("_")]
    key = ", ".join(f"{name}={rows[name][row].as_py()!r}" for name in names)
    start, end = (render(Instant(rows[name][row].as_py())) for name in (c.WINDOW_START, c.WINDOW_END))
    return f"{f'key {key}' if key else 'all records'} in the window from {start} to {end}"
