"""Sizes in bytes as people write them (``512m``, ``4g``) and as they are told."""

import os
import re

from headrace.errors import FixConfigError

_SIZE = re.compile(r"([0-9]{1,18})([kmgt]?)b?", re.IGNORECASE)
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


class SizeError(FixConfigError, code="config.size"):
    """A setting that should be a size and is not one."""


def size_in(variable: str) -> int | None:
    """The size in bytes that an environment variable states; None if it states none. Raises SizeError."""
    stated = os.environ.get(variable, "")
    if not stated:
        return None
    written = _SIZE.fullmatch(stated.strip())
    if written is None:
        raise SizeError(f"{variable}={stated}: write a number of bytes, or one with k, m, g or t, such as 512m")
    return int(written[1]) * _UNITS[written[2].lower()]


def shown(size: int) -> str:
    """``3 bytes``, ``1.5 MB``, ``256 MB``; of a unit 1,024 make the next."""
    if size < 2**10:
        return f"{size} bytes"
    unit, name = next((2**shift, name) for shift, name in ((30, "GB"), (20, "MB"), (10, "KB")) if size >= 2**shift)
    return f"{size / unit:,.3g} {name}" if size < 1000 * unit else f"{size // unit:,} {name}"
