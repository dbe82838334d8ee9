"""What a test asks of whatever computes its epochs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from headrace.model.time import Instant
from headrace.model.triggers import Signal
from headrace.pipeline.pipeline import Pipeline
from headrace.testing.files import RecordsFile
from headrace.testing.results import PaneRow, Row


@dataclass(frozen=True)
class GivenEpoch:
    """One epoch, its times settled: ``watermarks`` by input are passed in it, whatever its records say."""

    number: int
    processing_time: Instant
    files: Mapping[str, RecordsFile]
    watermarks: Mapping[str, Instant]
    signals: tuple[Signal, ...]
    is_last: bool


@dataclass(frozen=True)
class StepOutput:
    """What an epoch gave: ``panes`` in order of emission within their window."""

    panes: list[PaneRow]
    late: list[Row]
    rejected: list[Row]
    watermark: Instant
    ahead: int


class Computes(Protocol):
    """An ``output`` of a pipeline between two epochs."""

    def __init__(self, pipeline: Pipeline, output: str) -> None: ...

    def compute(self, epoch: GivenEpoch) -> StepOutput:
        """The next epoch."""


LATE_COLUMNS = ("event_time", "window_start", "window_end", "reason", "input", "raw")
"""What a late row says beside its key. The reference knows neither ``input`` nor ``raw``."""

REJECTED_COLUMNS = ("input", "position", "reason", "raw")
"""What a dead letter says; a pane that a later aggregation cannot take has no position, and from the
reference no ``raw``."""
