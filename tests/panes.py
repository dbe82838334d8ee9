"""Panes of two executors beside each other."""

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from headrace_lab.reference.elements import Pane


def by_window(panes: Iterable[Pane]) -> dict[Any, list[Pane]]:
    """Panes of each (key, window) in order: retractions are ordered only within their own window."""
    panes_by_window = defaultdict(list)
    for pane in panes:
        panes_by_window[pane.key, pane.window].append(pane)
    return dict(panes_by_window)


def same(left: Any, right: Any, tolerance: float = 1e-9) -> bool:
    """Floats to a relative error (near 0 an absolute one of ``tolerance``), the rest exactly (semantics 12.4)."""
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return math.isclose(left, right, rel_tol=1e-9, abs_tol=tolerance)
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(same(a, b, tolerance) for a, b in zip(left, right, strict=True))
    return bool(left == right)
