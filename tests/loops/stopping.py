"""Runs that end in the middle."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from headrace.errors import RetryError
from headrace.runs import process as processing
from headrace_snapshots.store import open_store
from headrace_snapshots.testing import Fault, FaultyStore, Operation


@contextmanager
def stopped_after(writes: int) -> Iterator[None]:
    """The store of a run in the block takes so many ``writes`` and no more, if it needs more."""
    left = writes

    def fail(operation: Operation) -> Fault | None:
        nonlocal left
        if operation.kind in ("put", "create"):
            left -= 1
        return Fault.FAIL if left < 0 else None

    with pytest.MonkeyPatch.context() as patch, suppress(RetryError):
        patch.setattr(processing, "open_store", lambda uri: FaultyStore(open_store(uri), fail))
        yield
