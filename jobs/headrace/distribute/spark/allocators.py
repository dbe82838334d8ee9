"""Memory that the allocators of a worker keep for later, given back: the next task may run in another worker."""

import ctypes

import pyarrow as pa


def give_back() -> None:
    """Let the system have what Arrow and the C library hold and nobody uses. Takes milliseconds."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc alone has it
    if trim is not None:
        trim(0)
