"""Programs of a process of their own that kill themselves: after so many writes to their store."""

import os
import signal
from collections.abc import Callable

from headrace_snapshots.store import ObjectStore, open_store
from headrace_snapshots.testing import FaultyStore, Operation


def deadly(writes: int) -> Callable[[str], ObjectStore]:
    """Opens stores that kill the process once they have taken so many ``writes`` together."""
    left = writes

    def die(operation: Operation) -> None:
        nonlocal left
        if operation.kind in ("put", "create"):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return lambda uri: FaultyStore(open_store(uri), die)
