"""Simulated time: what is to happen when, in an order that depends on nothing else."""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any


class Timeline:
    """A heap of calls. Calls at one time come in the order in which they were planned.

    What is planned as ``control`` outlives ``drop_data``.
    """

    def __init__(self) -> None:
        self.now = 0
        self._heap: list[tuple[int, int, bool, Callable[..., None], tuple[Any, ...]]] = []
        self._planned_count = 0

    def call_after(self, delay: int, function: Callable[..., None], *arguments: Any, control: bool = False) -> None:
        """Call ``function`` so many microseconds from now."""
        self._planned_count += 1
        heappush(self._heap, (self.now + delay, self._planned_count, control, function, arguments))

    def run(self) -> None:
        """Until nothing is planned any more."""
        while self._heap:
            self.now, _, _, function, arguments = heappop(self._heap)
            function(*arguments)

    def drop_data(self) -> None:
        """Forget what is under way in channels and tasks."""
        self._heap = [event for event in self._heap if event[2]]
        heapify(self._heap)
