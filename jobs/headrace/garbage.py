"""How often a process looks for garbage in cycles: seldom if it does one thing and ends, and not while it imports."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_NEW_OBJECTS = 50_000


def collect_seldom() -> None:
    """Have Python look once in 50,000 new objects, in place of 700 to 2,000: a fifth of the CPU of a short run."""
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])


@contextmanager
def without_collection() -> Iterator[None]:
    """The garbage collector rests inside: what an import makes stays, and to look through it again and again takes a
    fifth of the time of a large one.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
