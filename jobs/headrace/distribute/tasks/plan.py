"""What the tasks of one epoch are told."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.distribute.chain import ChainState
from headrace.distribute.epoch import Again
from headrace.distribute.records import MOST_OF_A_FILE, Piece, divided, in_arrival_order
from headrace.formats.file_format import WHOLE_FILE, Span
from headrace.model.time import MIN_INSTANT, Instant
from headrace.model.triggers import Signal
from headrace.pipeline.pipeline import Pipeline
from headrace.sources.landing import ByInput, Landing
from headrace.sources.progress import WatermarkHold
from headrace.sources.source_clock import SourceClock
from headrace.sources.validation import Apart
from headrace_snapshots.format.files import DataFile, Layer

Share = tuple[Piece, ...]
"""Some files of an epoch, or pieces of files, one after the other in the order of arrival."""

LEAST_OF_A_FILE = 2**22
"""A file is divided into pieces of so many bytes, or more."""

MOST_OF_A_SHARE = 2**24
"""Where tasks would have more bytes than that to read there are more of them, one after another: the memory of one does
not grow with the epoch.
"""


@dataclass(frozen=True)
class PaneFiles:
    """Files with panes of the chain of that number, which one task reads."""

    chain: int
    files: tuple[DataFile, ...]


@dataclass(frozen=True)
class EpochPlan:
    """One epoch, or a job of it. The ``clocks`` of inputs by name, the layers of remembered ``ids``, the ``states`` of
    the chains of aggregations and the ``watermark`` of the source are as the last epoch left them. The keys of each
    chain are in so many ``parts``, ids in ``id_parts``. Tasks store what they have to below ``prefix``. ``newest`` is
    the latest event time so far; ``hold`` has the watermarks that the epoch does not pass, None for no such limit;
    ``marks`` those that sources know of, by input and part of it. ``parked`` chains, by number, take no part;
    ``isolates``: others go on where one of them fails. ``again``: the epoch has been recorded, with its ids and dead
    letters. ``read_only`` chains are computed for those that read them, and have been stored before.

    The first job (``jobs``) reads the ``shares`` of the input; the one with the number ``job`` reads the ``elements``,
    which are panes, and the watermarks that come to the first of its stages of each chain are ``watermarks``.
    """

    prefix: str
    epoch: int
    processing_time: Instant
    shares: tuple[Share, ...]
    parts: tuple[int, ...]
    id_parts: int
    clocks: Mapping[str, SourceClock]
    ids: tuple[Layer, ...]
    states: tuple[ChainState, ...]
    watermark: Instant = MIN_INSTANT
    newest: Instant | None = None
    signals: tuple[Signal, ...] = ()
    is_last: bool = False
    hold: WatermarkHold | None = None
    marks: Mapping[str, Mapping[str, Instant]] = field(default_factory=dict)
    parked: frozenset[int] = frozenset()
    isolates: bool = False
    again: Again | None = None
    read_only: frozenset[int] = frozenset()
    job: int = 0
    watermarks: Mapping[int, Instant] = field(default_factory=dict)
    elements: tuple[PaneFiles, ...] = ()

    @property
    def apart(self) -> Apart:
        """Which chains do not take records, and whether one may fail alone."""
        return Apart(self.parked, self.isolates)

    @property
    def is_batch(self) -> bool:
        """Whether the epoch is all that there is."""
        return self.is_last and self.epoch == 0


def shares(pipeline: Pipeline, landing: Landing, files: ByInput, number: int) -> tuple[Share, ...]:
    """``files`` in shares of nearly the same size in bytes, an empty one if there are none: up to ``number``, which can
    be read at once, or more where there is much to read. A file has pieces for as many as read it at once.
    """
    whole_files = in_arrival_order(pipeline, files)
    total = sum(piece.file.size for piece in whole_files)
    least = LEAST_OF_A_FILE if total < number * MOST_OF_A_SHARE else 2 * MOST_OF_A_SHARE
    counts = [min(number, 1 + whole.file.size // least) for whole in whole_files]
    pieces = [piece for whole, of in zip(whole_files, counts, strict=True) for piece in divided(landing, whole, of)]
    number = max(number, total // MOST_OF_A_SHARE)
    by_share: dict[int, list[Piece]] = {}
    before = 0
    for piece in pieces:
        begin, end = piece.span.bounds(piece.file.size)
        middle = before + begin + end
        by_share.setdefault(min(middle * number // max(2 * total, 1), number - 1), []).append(piece)
        before += 2 * piece.file.size if piece.span.after == piece.span.of else 0
    return tuple(tuple(_joined(share)) for _, share in sorted(by_share.items())) or ((),)


def _joined(share: Sequence[Piece]) -> list[Piece]:
    """``share`` with neighbours in a file as one piece, where one is not too large."""
    joined: list[Piece] = []
    for piece in share:
        last = joined[-1] if joined else None
        if last is not None and last.file == piece.file and last.input == piece.input and _fits(last, piece):
            joined[-1] = replace(last, span=Span(last.span.first, piece.span.after, piece.span.of))
        else:
            joined.append(piece)
    return joined


def _fits(left: Piece, right: Piece) -> bool:
    begin, _ = left.span.bounds(left.file.size)
    _, end = right.span.bounds(right.file.size)
    return end - begin <= MOST_OF_A_FILE


def pane_shares(chain: int, files: Sequence[DataFile], number: int) -> list[PaneFiles]:
    """``files`` with panes of a ``chain`` in shares of nearly the same size: up to ``number``, or more where there is
    much to read.
    """
    total = sum(file.bytes for file in files)
    number = max(number, total // MOST_OF_A_SHARE)
    by_share: dict[int, list[DataFile]] = {}
    before = 0
    for file in files:
        middle = 2 * before + file.bytes
        by_share.setdefault(min(middle * number // max(2 * total, 1), number - 1), []).append(file)
        before += file.bytes
    return [PaneFiles(chain, tuple(share)) for _, share in sorted(by_share.items())]


def undivided(plan: EpochPlan) -> EpochPlan:
    """``plan`` with every file read as a whole, by who was to read its first piece."""
    whole_files = tuple(
        tuple(replace(piece, span=WHOLE_FILE) for piece in share if piece.span.first == 0) for share in plan.shares
    )
    return replace(plan, shares=whole_files)


def shared_out(parts: int, sizes: Sequence[int]) -> tuple[int, ...]:
    """``parts`` shared out among chains by the ``sizes`` of their tables: each has one at least."""
    total = sum(sizes)
    return tuple(max(1, -(-parts * size // total) if total else -(-parts // len(sizes))) for size in sizes)
