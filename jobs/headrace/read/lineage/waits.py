"""What is in flight between pipelines, who waits for whom, and an overview of several roots, each from one cut.

``find_waits`` tells stable properties of a consistent cut: once nothing is in flight, that stays true until input lands
or a person acts. The head of each pipeline is older than those of the pipelines that it reads, also of those of which
it has read nothing yet. So what these have published since would show as unread.

``lineage_overview`` has all pipelines of several roots for people: what cannot be read is told, and hides nothing.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any

from headrace.errors import HeadraceError
from headrace.model.time import NEVER, Instant, render
from headrace.pipeline.pipeline import Pipeline
from headrace.read.lineage import cut as lineage_cut
from headrace.read.lineage import lineage
from headrace.read.pending_work import WorkFinder, watched_inputs
from headrace.read.pipeline_reader import PIPELINES_AT_ONCE
from headrace.read.shown_values import JsonFields
from headrace.read.snapshots.progress import StoredProgress
from headrace.read.upstream import UpstreamPosition
from headrace.sources.progress import in_calendar
from headrace_snapshots.format.manifest import UNNAMED, Manifest
from headrace_snapshots.format.output_view import outputs_of
from headrace_snapshots.holds import holds_of
from headrace_snapshots.names import delivered_ref, delivery_of, is_delivery, published_ref
from headrace_snapshots.store import ObjectStore, do_all


class WaitKind(StrEnum):
    """What is waited for: a run that reads what another pipeline ``published``, or new ``files``; an audit that lets
    epochs through (``publish``); that somebody mends a ``parked`` output; a ``timer``; the end of a ``held`` backfill;
    a ``sink`` that is being handed rows; or only a ``watermark``, which more input brings.
    """

    PUBLISHED = "published"
    FILES = "files"
    PUBLISH = "publish"
    PARKED = "parked"
    TIMER = "timer"
    HELD = "held"
    SINK = "sink"
    WATERMARK = "watermark"

    @property
    def is_in_flight(self) -> bool:
        """Whether something is left to do without new input."""
        return self is not WaitKind.WATERMARK


@dataclass(frozen=True)
class Wait(JsonFields):
    """A ``pipeline`` waits ``on`` another one, or on itself, for what ``kind`` says; ``why`` is for people."""

    pipeline: lineage_cut.PlacedPipeline
    on: lineage_cut.PlacedPipeline
    kind: WaitKind
    why: str


@dataclass(frozen=True)
class DeploymentWaits(JsonFields):
    """All ``waits``, of readers after those of what they read. ``unlooked``: pipelines with input at which nobody
    looked, since they are not registered, or read what is not asked. ``searched`` says where readers were looked for.
    """

    waits: tuple[Wait, ...]
    unlooked: tuple[str, ...]
    searched: lineage_cut.KnownReaders

    @property
    def is_quiet(self) -> bool:
        """Whether no run would find work until input lands. Nobody knows that of a reader who cannot be seen."""
        return not self.searched.unseen and not any(wait.kind.is_in_flight for wait in self.waits)

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {"is_quiet": self.is_quiet, **super().to_json()}

    def rows(self) -> list[dict[str, Any]]:
        """Rows of a table: a wait each."""
        return [
            {
                "pipeline": str(wait.pipeline),
                "waits for": "itself" if wait.on == wait.pipeline else str(wait.on),
                "kind": str(wait.kind),
                "why": wait.why,
            }
            for wait in self.waits
        ]


def find_waits(
    store: ObjectStore,
    names: Iterable[str],
    definitions: Collection[Pipeline],
    now: Instant,
    roots: Iterable[str] = (),
) -> DeploymentWaits:
    """What pipelines wait for at the processing time ``now``. The pipelines are ``names`` under the root of ``store``,
    those that they read, and those that read them, also under other ``roots``. What they read, and which files, is what
    their ``definitions`` say, also of those that have not run yet and read pipelines beside them. Raises
    UpstreamCycleError, MissingRootError, BrokenObjectError.
    """
    stores = lineage_cut.RootStores(store)
    readers_found = lineage_cut.known_readers(store, lineage.with_defined_readers(names, definitions), roots)
    heads = lineage.heads_of(stores, readers_found.pipelines, lineage.as_defined(stores, definitions))
    definition_by_place = {lineage_cut.PlacedPipeline("", pipeline.name): pipeline for pipeline in definitions}
    waiting = [
        wait for place in [*heads][::-1] for wait in waits_of(stores, heads, place, definition_by_place.get(place), now)
    ]
    unread_inputs = [
        str(place) for place, head in heads.items() if _is_unlooked(stores, place, head, definition_by_place.get(place))
    ]
    return DeploymentWaits(tuple(waiting), tuple(unread_inputs), readers_found)


def waits_of(
    stores: lineage_cut.RootStores,
    heads: Mapping[lineage_cut.PlacedPipeline, lineage.PipelineHead],
    pipeline: lineage_cut.PlacedPipeline,
    definition: Pipeline | None,
    now: Instant,
) -> Iterator[Wait]:
    """What a pipeline of a cut waits for; files only by its ``definition``. Raises BrokenObjectError."""
    return _PipelineOfCut(stores, heads, pipeline, definition, now).all_waits()


def _is_unlooked(
    stores: lineage_cut.RootStores,
    place: lineage_cut.PlacedPipeline,
    head: lineage.PipelineHead,
    definition: Pipeline | None,
) -> bool:
    """Whether it has an input, neither another pipeline nor files of a known definition."""
    if definition is not None:
        return not {one.name for one in definition.inputs} <= {*head.consumed, *watched_inputs(definition)}
    if head.snapshot is None:
        return True
    inputs = stores.catalog(place).manifest(head.snapshot).progress.get("inputs", {})
    return not inputs.keys() <= head.consumed.keys()


@dataclass(frozen=True)
class _PipelineOfCut:
    """One pipeline of the cut, with its definition where that is known."""

    stores: lineage_cut.RootStores
    heads: Mapping[lineage_cut.PlacedPipeline, lineage.PipelineHead]
    pipeline: lineage_cut.PlacedPipeline
    definition: Pipeline | None
    now: Instant

    @property
    def head(self) -> lineage.PipelineHead:
        return self.heads[self.pipeline]

    def all_waits(self) -> Iterator[Wait]:
        yield from self._file_waits()
        for name, position in self.head.consumed.items():
            yield from self._unread_waits(name, position)
        if self.head.snapshot is None:
            return
        manifest = self.stores.catalog(self.pipeline).manifest(self.head.snapshot)
        progress = StoredProgress.from_manifest(manifest)
        yield from self._publish_waits(manifest)
        for output, clocks in progress.chains.items():
            if clocks.parked is not None:
                yield self._own_wait(
                    WaitKind.PARKED, f"output {output or self.pipeline.name} stands, {clocks.parked.describe()}"
                )
        if progress.held_to is not None:
            yield self._own_wait(WaitKind.HELD, f"its watermarks are held to where main was: {self._run}")
        if progress.due_time < NEVER:
            when = render(in_calendar(progress.due_time))
            is_due = progress.due_time <= self.now
            yield self._own_wait(
                WaitKind.TIMER, f"a timer is due since {when}: {self._run}" if is_due else f"for {when}"
            )
        yield from self._sink_waits()
        if progress.due_event < NEVER:
            yield self._watermark_wait(progress)

    def _own_wait(self, kind: WaitKind, why: str) -> Wait:
        return Wait(self.pipeline, self.pipeline, kind, why)

    @property
    def _run(self) -> str:
        if self.definition is not None and self.definition.schedule is None:
            return "it waits for a run, and has no schedule"
        return "it waits for its next run"

    def _file_waits(self) -> Iterator[Wait]:
        if self.definition is None:
            return
        store = self.stores.store_of(self.pipeline.root)
        work = WorkFinder(store, self.pipeline.name, watched_inputs(self.definition)).find_work(self.now)
        for name, unread in ({} if work is None else work.files).items():
            yield self._own_wait(WaitKind.FILES, f"{unread.files:,} files of input {name} are unread: {self._run}")
        if work is not None and work.problem is not None:
            yield self._own_wait(WaitKind.FILES, work.problem)

    def _unread_waits(self, name: str, position: UpstreamPosition) -> Iterator[Wait]:
        upstream = self.stores.place_pipeline(position.root, position.pipeline)
        published_id = self._published_snapshot(upstream, position.output)
        if published_id == position.snapshot:
            return
        epochs = "nothing is published any more" if published_id is None else f"up to {published_id} is published"
        yield self._own_wait(
            WaitKind.PUBLISHED,
            f"input {name} has read {position.name} up to {position.snapshot or 'its beginning'}, and {epochs}: "
            f"{self._run}",
        )

    def _published_snapshot(self, place: lineage_cut.PlacedPipeline, output: str) -> str | None:
        """What readers of an output see, at the moment of the cut."""
        return self.heads[place].refs.get(published_ref(output))

    def _publish_waits(self, manifest: Manifest) -> Iterator[Wait]:
        for output in outputs_of(manifest) or (UNNAMED.output,):
            published_id = self._published_snapshot(self.pipeline, output)
            if published_id == manifest.snapshot_id:
                continue
            published_text = "nothing is" if published_id is None else f"{published_id} is"
            name = f"{self.pipeline.name}.{output}" if output else self.pipeline.name
            yield self._own_wait(
                WaitKind.PUBLISH,
                f"readers of {name} see less than epoch {manifest.epoch} ({published_text} published): it waits for an "
                "audit that is good, or for headrace release",
            )

    def _sink_waits(self) -> Iterator[Wait]:
        refs = self.head.refs
        for ref in refs:
            if is_delivery(ref):
                output, sink = delivery_of(ref)
                delivery_ref = delivered_ref(output, sink)
                if ref != delivery_ref and refs.get(delivery_ref) != refs[ref]:
                    yield self._own_wait(
                        WaitKind.SINK, f"sink {sink} may have got rows of {refs[ref]}: headrace deliver"
                    )

    def _watermark_wait(self, progress: StoredProgress) -> Wait:
        watermark_text = render(in_calendar(progress.watermark))
        due = render(in_calendar(progress.due_event))
        lowest = min(self.head.consumed.values(), key=lambda one: one.watermark, default=None)
        is_held_by = lowest is not None and lowest.watermark <= progress.watermark
        awaited_pipeline = (
            self.stores.place_pipeline(lowest.root, lowest.pipeline)
            if lowest is not None and is_held_by
            else self.pipeline
        )
        holder_text = f"that of {lowest.name}" if lowest is not None and is_held_by else "that of its own input"
        return Wait(
            self.pipeline,
            awaited_pipeline,
            WaitKind.WATERMARK,
            f"open windows wait for {due}; the watermark is at {watermark_text}, {holder_text}",
        )


@dataclass(frozen=True)
class LineageOverview:
    """The ``heads`` of pipelines in one consistent cut, and how far each input that is another pipeline has come.
    ``waits`` are what is in flight in each pipeline, as far as its snapshots say. ``unseen``: inputs of which nobody
    can tell how far they have come; ``problems``: why pipelines, or their readers, cannot be looked at.
    """

    heads: Mapping[lineage_cut.PlacedPipeline, lineage.PipelineHead]
    readings: tuple[lineage.ReaderProgress, ...]
    waits: tuple[Wait, ...]
    unseen: tuple[lineage_cut.UnseenReader, ...]
    problems: Mapping[lineage_cut.PlacedPipeline, str]


def lineage_overview(
    stores: lineage_cut.KeptCatalogs, pipelines: Iterable[lineage_cut.PlacedPipeline], now: Instant
) -> LineageOverview:
    """The ``pipelines``, those that they read, and those that hold something of them, in however many steps. A head is
    read of each, once. Raises UpstreamCycleError.
    """
    look = _WaitsReader(stores)
    upstreams_held = look.held_upstreams(pipelines)
    read = partial(do_all, stores.own, look.read_head, at_once=PIPELINES_AT_ONCE)
    heads = lineage_cut.consistent_cut(
        lineage_cut.upstream_last(upstreams_held), read, look.upstream_pipelines, upstreams_held
    )  # readers come first: none is read again
    unseen = [*look.unseen_readers(upstreams_held, heads)]
    readings: list[lineage.ReaderProgress] = []
    waits: list[Wait] = []
    for place, head in heads.items():
        for name, position in head.consumed.items():
            upstream = stores.place_pipeline(position.root, position.pipeline)
            try:
                readings.append(look.reader_progress(place, name, position, heads[upstream]))
            except HeadraceError as error:
                unseen.append(
                    lineage_cut.UnseenReader(place, upstream, f"what is published of it is not known: {error}")
                )
        try:
            waits += waits_of(stores, heads, place, None, now)
        except HeadraceError as error:
            look.problems.setdefault(place, str(error))
    return LineageOverview(heads, tuple(readings), tuple(waits), tuple(unseen), look.problems)


@dataclass(frozen=True)
class _WaitsReader:
    """Reads pipelines one by one, and remembers what it could not read."""

    stores: lineage_cut.KeptCatalogs
    problems: dict[lineage_cut.PlacedPipeline, str] = field(default_factory=dict)

    def held_upstreams(
        self, pipelines: Iterable[lineage_cut.PlacedPipeline]
    ) -> dict[lineage_cut.PlacedPipeline, list[lineage_cut.PlacedPipeline]]:
        """The pipelines, and those that hold something of them; each with those of which it holds something."""
        upstreams: dict[lineage_cut.PlacedPipeline, list[lineage_cut.PlacedPipeline]] = {
            place: [] for place in pipelines
        }
        waiting = [*upstreams]
        while waiting:
            place = waiting.pop()
            for reader in self._pipelines_with_holds(place):
                if reader not in upstreams:
                    upstreams[reader] = []
                    waiting.append(reader)
                upstreams[reader].append(place)
        return upstreams

    def _pipelines_with_holds(self, place: lineage_cut.PlacedPipeline) -> list[lineage_cut.PlacedPipeline]:
        try:
            holds, damaged_holds = holds_of(self.stores.store_of(place.root), place.name)
        except HeadraceError as error:
            self.problems[place] = str(error)
            return []
        if damaged_holds:
            self.problems[place] = "; ".join(str(hold.wrong) for hold in damaged_holds)
        return [*dict.fromkeys(self.stores.place_pipeline(hold.root, hold.pipeline) for hold in holds)]

    def read_head(self, pipeline: lineage_cut.PlacedPipeline) -> lineage.PipelineHead:
        try:
            return lineage.head_of(self.stores, pipeline)
        except HeadraceError as error:
            self.problems[pipeline] = str(error)
            return lineage.PipelineHead(None, None, {})

    def upstream_pipelines(self, head: lineage.PipelineHead) -> list[lineage_cut.PlacedPipeline]:
        return [self.stores.place_pipeline(position.root, position.pipeline) for position in head.consumed.values()]

    def unseen_readers(
        self,
        upstreams_by_reader: Mapping[lineage_cut.PlacedPipeline, list[lineage_cut.PlacedPipeline]],
        heads: Mapping[lineage_cut.PlacedPipeline, lineage.PipelineHead],
    ) -> Iterator[lineage_cut.UnseenReader]:
        """Readers that hold something, and of which no snapshot can be read."""
        for reader, upstreams in upstreams_by_reader.items():
            if heads[reader].snapshot is None:
                why = self.problems.get(reader, "nothing of it is there")
                for upstream in upstreams:
                    yield lineage_cut.UnseenReader(reader, upstream, f"how far it has come is not known: {why}")

    def reader_progress(
        self, reader: lineage_cut.PlacedPipeline, name: str, position: UpstreamPosition, upstream: lineage.PipelineHead
    ) -> lineage.ReaderProgress:
        refs = upstream.refs if upstream.snapshot is not None else None
        return lineage.progress_of(self.stores, reader, name, position, refs)
