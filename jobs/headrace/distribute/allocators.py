"""The allocators of a process that computes epochs: one heap for all, and what they keep for later given back."""

import ctypes

import pyarrow as pa

_ARENAS = -8
"""M_ARENA_MAX of ``mallopt``."""


def share_one_heap() -> None:
    """Let Arrow allocate where numpy does, and all threads from the same heap: what one frees another one takes. With a
    heap each, a process takes as much as all of them had at their worst moments together.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc alone has it
    if mallopt is not None:
        mallopt(_ARENAS, 1)


def give_back() -> None:
    """Let the system have what Arrow and the C library hold and nobody uses. Takes milliseconds."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc alone has it
    if trim is not None:
        trim(0)
