"""What a process that computes epochs may take: its heap, rows in memory, tasks beside each other.

The allocators of a process that computes epochs: one heap for all, and what they keep for later given back.

How many tasks of an epoch run beside each other, if somebody has said so.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from headrace.errors import FixConfigError


class LargeEpochError(FixConfigError, code="config.large_epoch"):
    """An epoch has a column of more than 2 GB, which is as much as Arrow's strings and lists hold in one piece."""


@contextmanager
def columns_fit() -> Iterator[None]:
    """Raises LargeEpochError if a column outgrows Arrow's offsets of 32 bits."""
    try:
        yield
    except (pa.ArrowCapacityError, pa.ArrowInvalid) as error:
        if isinstance(error, pa.ArrowInvalid) and "overflow" not in str(error):
            raise
        raise LargeEpochError(
            f"a column of the epoch, of strings or lists, outgrows 2 GB ({error}): let an epoch take less input "
            "(--files-per-epoch, max_bytes of the source), or run the pipeline with --executor spark"
        ) from error


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


TASKS_VARIABLE = "HEADRACE_TASKS"


class TasksSettingError(FixConfigError, code="config.tasks"):
    """HEADRACE_TASKS is not a number of tasks."""


def stated_tasks() -> int | None:
    """What HEADRACE_TASKS says, None if it is not set. Raises TasksSettingError."""
    stated = os.environ.get(TASKS_VARIABLE)
    if not stated:
        return None
    if not stated.isdecimal() or int(stated) < 1:
        raise TasksSettingError(f"{TASKS_VARIABLE}={stated}: write a number, 1 or more")
    return int(stated)
