"""What goes wrong with a store in a test: by a plan of its own, at random, or one operation that is held in place."""

import random
import threading
from collections.abc import Callable, Collection

from headrace_snapshots.testing import Fault, FaultPlan, FaultyStore, HoldRequest, LandLate, Operation, disturb_stores

__all__ = [
    "Fault",
    "FaultPlan",
    "FaultyStore",
    "HoldRequest",
    "LandLate",
    "Operation",
    "disturb_stores",
    "hold_first",
    "seeded_plan",
]


def seeded_plan(seed: int, rate: float, kinds: Collection[str] = ("create",), in_a_row: int = 3) -> FaultPlan:
    """A plan that fails operations of ``kinds`` with probability ``rate``, at most ``in_a_row`` in succession."""
    source, lock = random.Random(seed), threading.Lock()
    row = 0

    def plan(operation: Operation) -> Fault | LandLate | None:
        nonlocal row
        if operation.kind not in kinds:
            return None
        with lock:
            row = row + 1 if row < in_a_row and source.random() < rate else 0
            faults = [*Fault, LandLate(source.randint(1, 4))] if operation.kind == "create" else [Fault.FAIL]
            return source.choice(faults) if row else None

    return plan


def hold_first(kind: str, part: str, wait: Callable[[], object]) -> FaultPlan:
    """A plan that holds the first operation of ``kind`` whose path contains ``part`` until ``wait`` returns."""
    lock = threading.Lock()
    is_held = False

    def plan(operation: Operation) -> HoldRequest | None:
        nonlocal is_held
        with lock:
            if is_held or operation.kind != kind or part not in operation.path:
                return None
            is_held = True
        return HoldRequest(wait)

    return plan
