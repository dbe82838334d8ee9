"""What the tasks of one epoch are told."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.distribute.chain import ChainState
from headrace.distribute.records import MOST_OF_A_FILE, Piece, divided, in_arrival_order
from headrace.model.time import Instant
from headrace.model.triggers import Signal
from headrace.pipeline.pipeline import Pipeline
from headrace.sources.formats.spans import WHOLE_FILE, Span
from headrace.sources.landing import ByInput
from headrace.sources.progress import WatermarkHold
from headrace.sources.source_clock import SourceClock
from headrace_snapshots.format.files import DataFile, Layer

if TYPE_CHECKING:
    from headrace.distribute.tasks.task_results import TaskResult

Share = tuple[Piece, ...]
"""Some files of an epoch, or pieces of files, one after the other in the order of arrival."""

LEAST_OF_A_FILE = 2**22
"""A file is divided into pieces of so many bytes, or more."""

MOST_OF_A_SHARE = 2**24
"""Where tasks would have more bytes than that to read there are more of them, one after another: the memory of one does
not grow with the epoch.
"""


@dataclass(frozen=True)
class EpochPlan:
    """One epoch. The ``clocks`` of inputs by name, the layers of remembered ``ids`` and the ``state`` of the chain of
    aggregations are as the last epoch left them. Tasks store what they have to below ``prefix``. ``newest`` is the
    latest event time so far; ``hold`` has the watermarks that the epoch does not pass, None for no such limit.

    An epoch is one job, unless panes go through a user's own code: then each stage that they come to begins another,
    with ``first_stage``, what the stage ``above`` passed on, and its panes, the ``elements``.
    """

    prefix: str
    epoch: int
    processing_time: Instant
    shares: tuple[Share, ...]
    parts: int
    clocks: Mapping[str, SourceClock]
    ids: tuple[Layer, ...]
    state: ChainState
    newest: Instant | None = None
    signals: tuple[Signal, ...] = ()
    is_last: bool = False
    hold: WatermarkHold | None = None
    first_stage: int = 0
    above: "tuple[TaskResult, ...]" = ()
    elements: tuple[DataFile, ...] = ()

    @property
    def is_batch(self) -> bool:
        """Whether the epoch is all that there is."""
        return self.is_last and self.epoch == 0


def shares(pipeline: Pipeline, files: ByInput, number: int) -> tuple[Share, ...]:
    """``files`` in shares of nearly the same size in bytes, an empty one if there are none: up to ``number``, which can
    be read at once, or more where there is much to read. A file has pieces for as many as read it at once.
    """
    whole = in_arrival_order(pipeline, files)
    total = sum(each.file.size for each in whole)
    least = LEAST_OF_A_FILE if total < number * MOST_OF_A_SHARE else 2 * MOST_OF_A_SHARE
    pieces = [piece for each in whole for piece in divided(pipeline, each, min(number, 1 + each.file.size // least))]
    number = max(number, total // MOST_OF_A_SHARE)
    found: dict[int, list[Piece]] = {}
    before = 0
    for each in pieces:
        begin, end = each.span.bounds(each.file.size)
        middle = before + begin + end
        found.setdefault(min(middle * number // max(2 * total, 1), number - 1), []).append(each)
        before += 2 * each.file.size if each.span.after == each.span.of else 0
    return tuple(tuple(_joined(share)) for _, share in sorted(found.items())) or ((),)


def _joined(share: Sequence[Piece]) -> list[Piece]:
    """``share`` with neighbours in a file as one piece, where one is not too large."""
    found: list[Piece] = []
    for each in share:
        last = found[-1] if found else None
        if last is not None and last.file == each.file and last.input == each.input and _fits(last, each):
            found[-1] = replace(last, span=Span(last.span.first, each.span.after, each.span.of))
        else:
            found.append(each)
    return found


def _fits(left: Piece, right: Piece) -> bool:
    begin, _ = left.span.bounds(left.file.size)
    _, end = right.span.bounds(right.file.size)
    return end - begin <= MOST_OF_A_FILE


def undivided(plan: EpochPlan) -> EpochPlan:
    """``plan`` with every file read as a whole, by who was to read its first piece."""
    whole = tuple(
        tuple(replace(each, span=WHOLE_FILE) for each in share if each.span.first == 0) for share in plan.shares
    )
    return replace(plan, shares=whole)
