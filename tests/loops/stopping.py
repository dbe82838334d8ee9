"""Runs that end in the middle."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from headrace.errors import RetryError
from headrace_snapshots.testing import Fault, Operation, disturb_stores


@contextmanager
def stopped_after(writes: int) -> Iterator[None]:
    """The store of a run in the block takes so many ``writes`` and no more, if it needs more."""
    left = writes

    def fail(operation: Operation) -> Fault | None:
        nonlocal left
        if operation.kind in ("put", "create"):
            left -= 1
        return Fault.FAIL if left < 0 else None

    with disturb_stores(fail), suppress(RetryError):
        yield
