"""Floats rounded to digits of decimals, as Python rounds them."""

import numpy as np
import pyarrow as pa

_WHOLE = 2.0**52
"""From here on every float is a whole number."""


def round_to(values: pa.Array, digits: int) -> pa.Array:
    """The nearest numbers with ``digits`` (at most 22) after the point; of what a double exactly is, half to even.

    A product with a power of ten is off by less than a part in 2^52. Where it is further than that from the middle
    between two whole numbers the nearest of them is the right one, and a quotient of two exact numbers is the double
    nearest to the decimal that is meant. Elsewhere Python is asked.
    """
    numbers = values.fill_null(0.0).to_numpy(zero_copy_only=False)
    power = 10.0**digits
    with np.errstate(all="ignore"):
        scaled = numbers * power
        rounded = np.rint(scaled) / power
        from_middle = np.abs(np.abs(scaled - np.trunc(scaled)) - 0.5)
        is_sure = (np.abs(scaled) < _WHOLE) & (from_middle > np.abs(scaled) * 2.0**-52)
        is_fraction = np.abs(numbers) < _WHOLE
    rounded = np.where(is_fraction, rounded, numbers)
    for place in np.flatnonzero(is_fraction & ~is_sure):
        rounded[place] = round(float(numbers[place]), digits)
    return pa.array(rounded, mask=values.is_null().to_numpy(zero_copy_only=False))
