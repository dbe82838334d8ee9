"""Merges of layers beside the epochs (``merge``), one at a time."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from headrace.distribute.tasks.background.merge import MergePlan, Tables, mergings
from headrace.distribute.tasks.background.thread import Beside, Stop
from headrace.distribute.tasks.shuffle.exchange import ReceivedMessage
from headrace.distribute.tasks.task_results import Merged, UpstreamResults, summed
from headrace.model.time import Instant
from headrace_snapshots.format.files import Layer
from headrace_snapshots.format.layers import FANOUT

MOST_LAYERS = 4 * FANOUT
"""Epochs wait for a merge where a table has more layers."""


class Merger(Protocol):
    """Where the tasks of a merge run."""

    @property
    def is_elsewhere(self) -> bool:
        """Whether they run in other processes, whose requests only they count."""

    def tasks(self, size: int) -> int:
        """How many tasks share work on so many bytes."""

    def merge(self, plan: MergePlan, stop: Stop) -> Sequence[ReceivedMessage]:
        """What they say. Raises an error soon after ``stop`` was set."""


class Merges:
    """What is merged between two restores."""

    def __init__(self, runner: Merger) -> None:
        self._runner = runner
        self._beside = Beside[tuple[MergePlan, Sequence[ReceivedMessage]]]("merge")
        self._requests: dict[str, int] = {}

    def begin(self, prefix: str, tables: Tables, watermark: Instant) -> None:
        """Begin what is to be merged of ``tables``, into files below ``prefix``, unless a merge is running."""
        planned = {} if self._beside.is_running else mergings(tables)
        if not planned:
            return
        files = [file for merging in planned.values() for layer in merging.layers for file in layer.files]
        parts = self._runner.tasks(sum(file.bytes for file in files))
        plan = MergePlan(prefix, parts, watermark, planned)
        self._beside.begin(lambda stop: (plan, self._runner.merge(plan, stop)))

    def adopted(self, tables: Tables, *, wait: bool) -> dict[str, tuple[Layer, ...]]:
        """``tables`` with what was merged meanwhile. ``wait``: until the merge that is running, if one is, is done.
        Raises the error that ended a merge.
        """
        wait = wait or any(len(layers) > MOST_LAYERS for layers in tables.values())
        if not (self._beside.is_done or (wait and self._beside.is_running)):
            return dict(tables)
        plan, messages = self._beside.result()
        merge = UpstreamResults.of(messages)
        if merge.error is not None:
            raise merge.error.error()
        if self._runner.is_elsewhere:
            self._requests = summed([self._requests, *(result.requests for result in merge.results)])
        outputs = (result.output for result in merge.results)
        return plan.replaced(tables, [output for output in outputs if isinstance(output, Merged)])

    def close(self) -> None:
        """End the merge that is running, if one is, and wait until it writes nothing more."""
        self._beside.close()

    def requests(self) -> Mapping[str, int]:
        """Storage requests of the merges adopted since the last call, without those that an epoch has counted."""
        requests, self._requests = self._requests, {}
        return requests
