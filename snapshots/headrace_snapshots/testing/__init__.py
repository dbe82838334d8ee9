"""For users' own tests: a store with faults on purpose, Hypothesis strategies, and the invariants of a catalog."""

from headrace_snapshots.testing.faults import (
    Fault,
    FaultyStore,
    HoldRequest,
    LandLate,
    Operation,
    Plan,
    hold_first,
    seeded,
)
from headrace_snapshots.testing.invariants import check_catalog, violations

__all__ = [
    "Fault",
    "FaultyStore",
    "HoldRequest",
    "LandLate",
    "Operation",
    "Plan",
    "check_catalog",
    "hold_first",
    "seeded",
    "violations",
]
