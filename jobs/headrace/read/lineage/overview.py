"""All pipelines of several roots in one consistent cut, for people who look at them: what cannot be read is told, and
hides nothing else.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from headrace.errors import HeadraceError
from headrace.model.time import Instant
from headrace.read.lineage.cut import consistent_cut, upstream_last
from headrace.read.lineage.lineage import PipelineHead, ReaderProgress, head_of, progress_of
from headrace.read.lineage.placed import KeptCatalogs, PlacedPipeline
from headrace.read.lineage.readers import UnseenReader
from headrace.read.lineage.waits import Wait, waits_of
from headrace.read.upstream.position import UpstreamPosition
from headrace_snapshots.gc.holds import holds_of


@dataclass(frozen=True)
class LineageOverview:
    """The ``heads`` of pipelines in one consistent cut, how far each input that is another pipeline has come, and what
    is in flight in each pipeline as far as its snapshots say. ``unseen``: inputs of which nobody can tell how far they
    have come; ``problems``: why pipelines, or their readers, cannot be looked at.
    """

    heads: Mapping[PlacedPipeline, PipelineHead]
    readings: tuple[ReaderProgress, ...]
    waits: tuple[Wait, ...]
    unseen: tuple[UnseenReader, ...]
    problems: Mapping[PlacedPipeline, str]


def overview(stores: KeptCatalogs, pipelines: Iterable[PlacedPipeline], now: Instant) -> LineageOverview:
    """The ``pipelines``, those that they read, and those that hold something of them, in however many steps. A head is
    read of each, once. Raises UpstreamCycleError.
    """
    look = _Look(stores)
    held = look.held(pipelines)
    heads = consistent_cut(upstream_last(held), look.head, look.upstreams)  # readers come first: none is read again
    unseen = [*look.silent(held, heads)]
    readings: list[ReaderProgress] = []
    waits: list[Wait] = []
    for at, head in heads.items():
        for name, position in head.consumed.items():
            upstream = stores.placed(position.root, position.pipeline)
            try:
                readings.append(look.progress(at, name, position, heads[upstream]))
            except HeadraceError as error:
                unseen.append(UnseenReader(at, upstream, f"what is published of it is not known: {error}"))
        try:
            waits += waits_of(stores, heads, at, None, now)
        except HeadraceError as error:
            look.problems.setdefault(at, str(error))
    return LineageOverview(heads, tuple(readings), tuple(waits), tuple(unseen), look.problems)


@dataclass(frozen=True)
class _Look:
    """Reads pipelines one by one, and remembers what it could not read."""

    stores: KeptCatalogs
    problems: dict[PlacedPipeline, str] = field(default_factory=dict)

    def held(self, pipelines: Iterable[PlacedPipeline]) -> dict[PlacedPipeline, list[PlacedPipeline]]:
        """The pipelines, and those that hold something of them; each with those of which it holds something."""
        held: dict[PlacedPipeline, list[PlacedPipeline]] = {at: [] for at in pipelines}
        waiting = [*held]
        while waiting:
            at = waiting.pop()
            for reader in self._holders(at):
                if reader not in held:
                    held[reader] = []
                    waiting.append(reader)
                held[reader].append(at)
        return held

    def _holders(self, at: PlacedPipeline) -> list[PlacedPipeline]:
        try:
            held, damaged = holds_of(self.stores.of(at.root), at.name)
        except HeadraceError as error:
            self.problems[at] = str(error)
            return []
        if damaged:
            self.problems[at] = "; ".join(str(hold.wrong) for hold in damaged)
        return [*dict.fromkeys(self.stores.placed(hold.root, hold.pipeline) for hold in held)]

    def head(self, at: PlacedPipeline) -> PipelineHead:
        try:
            return head_of(self.stores, at)
        except HeadraceError as error:
            self.problems[at] = str(error)
            return PipelineHead(None, None, {})

    def upstreams(self, head: PipelineHead) -> list[PlacedPipeline]:
        return [self.stores.placed(position.root, position.pipeline) for position in head.consumed.values()]

    def silent(
        self, held: Mapping[PlacedPipeline, list[PlacedPipeline]], heads: Mapping[PlacedPipeline, PipelineHead]
    ) -> Iterator[UnseenReader]:
        """Readers that hold something, and of which no snapshot can be read."""
        for reader, upstreams in held.items():
            if heads[reader].snapshot is None:
                why = self.problems.get(reader, "nothing of it is there")
                for upstream in upstreams:
                    yield UnseenReader(reader, upstream, f"how far it has come is not known: {why}")

    def progress(
        self, reader: PlacedPipeline, name: str, position: UpstreamPosition, upstream: PipelineHead
    ) -> ReaderProgress:
        refs = upstream.refs if upstream.snapshot is not None else None
        return progress_of(self.stores, reader, name, position, refs)
