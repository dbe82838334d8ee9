"""What the tasks of one epoch are told."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.distribute.clocks import StageClocks
from headrace.distribute.records import in_arrival_order
from headrace.model.time import Instant
from headrace.model.triggers import Signal
from headrace.pipeline.graph import Pipeline
from headrace.sources.clock import SourceClock
from headrace.sources.landing import ByInput
from headrace.sources.planning import InputFile
from headrace_snapshots.format.files import DataFile, Layer

if TYPE_CHECKING:
    from headrace.distribute.tasks.found import Passed

Share = tuple[tuple[str, InputFile], ...]
"""Some files of an epoch, with the names of their inputs, one behind the other in the order of arrival."""


@dataclass(frozen=True)
class Where:
    """Where tasks find their pipeline, which is pickled once for all epochs, and the store that they read and write.
    ``environment``: variables that processes on other machines lack, such as the keys of that store.
    """

    pipeline: bytes
    root: str
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class EpochPlan:
    """One epoch. ``clocks`` (of inputs by name) and ``stages`` are as the last epoch left them, ``tables`` the layers
    that it left. Tasks store what they have to below ``prefix``. ``merges``: of some tables the number of the layer
    from which on all become one. ``newest`` is the latest event time so far.

    An epoch is one job, unless panes go through a user's own code: then each stage that they come to begins another,
    with ``first_stage``, what the stage ``above`` passed on, and its panes, the ``elements``.
    """

    where: Where
    prefix: str
    epoch: int
    processing_time: Instant
    shares: tuple[Share, ...]
    parts: int
    clocks: Mapping[str, SourceClock]
    stages: tuple[StageClocks, ...]
    tables: Mapping[str, Sequence[Layer]]
    merges: Mapping[str, int] = field(default_factory=dict)
    newest: Instant | None = None
    signals: tuple[Signal, ...] = ()
    is_last: bool = False
    first_stage: int = 0
    above: "tuple[Passed, ...]" = ()
    elements: tuple[DataFile, ...] = ()

    @property
    def is_batch(self) -> bool:
        """Whether the epoch is all that there is."""
        return self.is_last and self.epoch == 0


def shares(pipeline: Pipeline, files: ByInput, number: int) -> tuple[Share, ...]:
    """``files`` in up to ``number`` shares of nearly the same size in bytes, an empty one if there are none."""
    ordered = in_arrival_order(pipeline, files)
    total = sum(file.size for _, file in ordered)
    found: list[list[tuple[str, InputFile]]] = [[]]
    taken = 0
    for each in ordered:
        if found[-1] and taken >= total * len(found) / number:
            found.append([])
        found[-1].append(each)
        taken += each[1].size
    return tuple(tuple(share) for share in found)
