"""What a run works with, its epochs one after the other, and how it follows the pipelines that it reads.

``RunContext`` is what both the plan of a run and its performance need. It writes nothing to a store.

``commit_epochs`` is the loop that computes and commits epochs. Each is worked out once the one before it is computed.
New input comes in micro-batches, or in batch mode as one epoch. A backfill and a replay read what was read before again
as it was (``backfill/replay``).

``check_circles`` asks whether a pipeline reads itself, also by way of others of which it has read nothing yet.

``check_counted`` stops a run where what an upstream computes again would not count here as it did the first time. Where
an upstream goes back, what it had given is withdrawn here, and what it gives instead is counted. That is right as long
as the windows are open into which both fall. A window that has expired keeps its row for good. Then the epoch is not
committed, and a person goes back to a snapshot of the reader from before.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from headrace.distribute.epoch import ComputedEpoch
from headrace.errors import HeadraceError, RestoreError
from headrace.ext.executors import Engine
from headrace.ext.sources import SourcePosition, SourceSplit
from headrace.model.time import parse_duration, render, to_instant
from headrace.model.triggers import Signal
from headrace.pipeline.identity import recorded_definition
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.scheduling import AUTO, ExecutorDecision
from headrace.pipeline.sources import UpstreamSource, upstream_sources
from headrace.pipeline.validation import check_no_circle
from headrace.read.definition_plan import under_new_names
from headrace.read.snapshots.epoch_history import RecordedEpoch
from headrace.read.snapshots.progress import StoredProgress, progress_of, unread_files
from headrace.read.snapshots.read_names import NamesSeen
from headrace.runs.commits import Committer
from headrace.runs.executors.choice import WorkEstimate, check_installed, choose, input_bytes
from headrace.runs.options import RunOptions
from headrace.runs.reporting.listener import GuardedListener
from headrace.runs.restore import check_code, check_continues
from headrace.sources.landing import ByInput, Landing, PlaceError, count_files
from headrace.sources.progress import PipelineProgress, WatermarkHold
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.names import AGAIN_PREFIX, MAIN
from headrace_snapshots.store import ObjectStore

if TYPE_CHECKING:
    from headrace.read.lineage.cut import PlacedPipeline, RootStores
    from headrace.read.upstream import ReadPipeline, UpstreamPosition
    from headrace.sources.landed.files import LandedPortions

_CLOCKS_APART = parse_duration("5m")
"""By how much clocks of machines may differ without a warning."""


@dataclass(frozen=True)
class RunContext:
    """One run's pipeline and options, its store, its processing-time clock ``now``, and who listens to it.

    ``warnings``: what was told so far that a person should know, each once. ``names``: what was seen of known names.
    """

    pipeline: Pipeline
    options: RunOptions
    store: ObjectStore
    landing: Landing
    catalog: Catalog
    listener: GuardedListener
    now: Callable[[], datetime]
    warnings: list[str] = field(default_factory=list)
    names: NamesSeen = field(default_factory=NamesSeen)
    _last_progress: list[tuple[Manifest, PipelineProgress]] = field(default_factory=list, repr=False, compare=False)

    @classmethod
    def from_options(
        cls,
        pipeline: Pipeline,
        options: RunOptions,
        store: ObjectStore,
        listener: GuardedListener,
        now: Callable[[], datetime],
    ) -> "RunContext":
        """A run of ``pipeline`` on what ``store`` has of it."""
        catalog = Catalog(store, pipeline.name, looks_once=True)
        return cls(pipeline, options, store, Landing(pipeline, store), catalog, listener, now)

    @property
    def run_id(self) -> str:
        return self.options.run_id

    def note(self, text: str) -> None:
        """Tell a line to a person who watches the run."""
        self.listener.noted(text)

    def warn(self, warning: str) -> None:
        """Tell ``warning`` now, and again in the result, once however often it comes."""
        if warning not in self.warnings:
            self.warnings.append(warning)
            self.listener.warned(warning)

    def checked_manifest(self, manifest: Manifest) -> Manifest:
        """``manifest`` with today's output names. Raises ChangedPipelineError; if strict, ChangedCodeError."""
        manifest = under_new_names(self.pipeline, manifest)
        allow, parks = self.options.allow_new_aggregates, self.options.parks
        check_continues(self.pipeline, manifest, allow_new_aggregates=allow, parks=parks)
        self.check_code(manifest)
        return manifest

    def check_code(self, manifest: Manifest) -> None:
        """Warn of own code that has changed since ``manifest``. Raises ChangedCodeError if the run is strict."""
        if (warning := check_code(self.pipeline, manifest, strict=self.options.strict)) is not None:
            self.warn(warning)

    def progress(self, manifest: Manifest | None) -> PipelineProgress:
        """How far ``manifest`` has come; None: nowhere. Raises BrokenObjectError."""
        if manifest is None:
            return PipelineProgress()
        for known_manifest, progress in self._last_progress:
            if known_manifest is manifest:
                return progress
        # it names up to a thousand files, and a run asks several times for that of its head
        progress = progress_of(self.catalog, manifest)
        self._last_progress[:] = [(manifest, progress)]
        return progress

    def check_landed(self) -> None:
        """Raise PlaceError if main's records of an input were landed from another source. Numbers of one source are not
        those of the other, and records of both would be one input.
        """
        main = self.catalog.head().refs.get(MAIN) if self.landing.landers else None
        if main is None:
            return
        recorded_places, now = (
            {
                input_fields["name"]: (input_fields.get("kind"), input_fields["path"])
                for input_fields in definition["inputs"]
            }
            for definition in (self.catalog.manifest(main).definition, recorded_definition(self.pipeline))
        )
        for name in self.landing.landers:
            if recorded_places.get(name, now[name]) != now[name]:
                raise PlaceError(
                    f"input {name} of {self.pipeline.name} was landed from {recorded_places[name][1]} and is "
                    f"{now[name][1]} "
                    "now: records of both would be mixed. Give the pipeline another name, or take the change back"
                )

    def new_files(self, manifest: Manifest | None, *, full_sweep: bool) -> ByInput:
        """What landed and ``manifest`` and older have not read; ``full_sweep``: also where nobody looks any more."""
        progress, on_unknown = self.progress(manifest), self._warn_of_landed_again
        files = unread_files(
            self.catalog,
            self.landing,
            manifest,
            progress,
            full_sweep=full_sweep,
            on_unknown=on_unknown,
            names_seen=self.names,
        )
        self.warn_of_expired(files, progress)
        self._warn_of_order(files, progress)
        return files

    def sweep_is_due(self, manifest: Manifest | None) -> bool:
        """Whether names of an input are said to ascend, and no epoch of this day (UTC) came up to ``manifest``."""
        if manifest is None or not any(enumerator.is_ordered for enumerator in self.landing.files.values()):
            return False
        return datetime.fromisoformat(manifest.created_at).date() < self.now().astimezone(UTC).date()

    def _warn_of_order(self, files: ByInput, progress: PipelineProgress) -> None:
        """Name files that land behind others although their names sort before those."""
        for name, enumerator in self.landing.files.items():
            if early := enumerator.early_files(progress.offsets.get(name, SourcePosition()), files.get(name, ())):
                many = "1 file" if len(early) == 1 else f"{len(early):,} files"
                self.warn(
                    f'input {name}: names="ordered" says that each file sorts after those before it. {many} that no '
                    f"run had read, such as {early[0].path}, sort before one that was read. Where more than "
                    "look_back sort behind such a file, only a full sweep reads it: the first run of a day, or one "
                    "with --full-sweep. Leave names= out, and each run looks at all names"
                )

    def warn_of_clock(self, manifest: Manifest | None) -> None:
        """Say that ``manifest``, from which the run continues, has a clock that is ahead of this machine's."""
        if manifest is None:
            return
        clock, now = StoredProgress.from_manifest(manifest).processing_time, to_instant(self.now())
        if clock - now > _CLOCKS_APART:
            name = self.pipeline.name
            arrives = any(input_.event_time.expr is None for input_ in self.pipeline.inputs)
            other_way = "" if arrives else f" `headrace backfill {name} --promote` puts it right, too."
            self.warn(
                f"an earlier run left the clock of branch {self.options.branch} at {render(clock)}, and this machine "
                f"says {render(now)}. Clocks never go back: until then nothing happens by processing time (triggers, "
                "idle=). If the clock of that run was wrong, go back to a snapshot from before, and run: "
                f"`headrace rollback {name} --to SNAPSHOT` (`headrace log {name}`).{other_way}"
            )

    def warn_of_expired(self, files: ByInput, progress: PipelineProgress) -> None:
        """Say of which inputs ``files``, read after ``progress``, are not all that was ever landed."""
        for name, first in self.landing.expired_before(files, progress.offsets).items():
            self.warn(
                f"input {name} is read from {first.path} on: what was landed before that has expired, with the "
                "snapshots that had read it, and results lack it"
            )

    def _warn_of_landed_again(self, paths: Set[str]) -> None:
        """Name files of which nobody knows whether they are input."""
        files = "1 file" if len(paths) == 1 else f"{len(paths):,} files"
        self.warn(
            f"{files} of records that landed again, such as {min(paths)}, are not read. The snapshots that dropped "
            "the records have expired, so Headrace cannot tell whether the records count already. If not, give the "
            f"files names that do not begin with {AGAIN_PREFIX}; if so, remove the files"
        )

    def new_signals(self, manifest: Manifest | None) -> tuple[Signal, ...]:
        """The signals to take after ``manifest``: none if an attempt before this one has committed them."""
        request = None if manifest is None else StoredProgress.from_manifest(manifest).signals_of
        return self.options.signals if request is None or request != self.options.request else ()

    @property
    def is_auto(self) -> bool:
        """Whether nobody has named an executor, so that AUTO takes one."""
        return (self.options.executor or self.pipeline.executor) == AUTO

    def choose_executor(self, work: Callable[[], WorkEstimate]) -> ExecutorDecision:
        """The executor to take for ``work``, which is estimated only if it counts; one that AUTO took is told.

        Raises NotInstalledError, SizeError.
        """
        decision = choose(self.pipeline, self.options.executor, work, self.options.reason)
        check_installed(self.pipeline, decision.name)
        if self.is_auto:
            self.note(f"executor {decision.name}: {decision.reason}")
        return decision


class PlannedEpoch(msgspec.Struct, frozen=True):
    """An epoch that a run is to compute. ``wait_for_merges``: no other may follow soon, so it leaves no merge running.
    ``is_recorded``: its files are to be as they were recorded; one that has changed is an error.
    """

    epoch: RecordedEpoch
    wait_for_merges: bool
    is_recorded: bool = False


def commit_epochs(
    committer: Committer,
    epochs: Iterable[PlannedEpoch],
    *,
    isolates: bool = False,
    check: Callable[[Engine], None] = lambda engine: None,
    accept: Callable[[ComputedEpoch], None] = lambda epoch_result: None,
) -> None:
    """Compute ``epochs`` one after the other, and have each committed beside the next. Returns when all are.
    ``isolates``: an output that fails is parked. Before each epoch ``check`` raises if it may not be computed, and
    after it ``accept`` if it may not be committed; what was computed before is committed then.
    """
    for planned_epoch in epochs:
        try:
            check(committer.engine)
        except HeadraceError:
            committer.drain()
            raise
        epoch = planned_epoch.epoch
        committer.expect_epoch(input_bytes(epoch.files))
        epoch_result = committer.engine.compute(
            epoch.files,
            epoch.processing_time,
            is_last=epoch.is_last,
            signals=epoch.signals,
            wait_for_merges=planned_epoch.wait_for_merges,
            hold=epoch.held_to,
            recorded=planned_epoch.is_recorded,
            isolates=isolates,
        )
        try:
            accept(epoch_result)
        except HeadraceError:
            committer.drain()
            raise
        committer.submit(epoch_result)
    committer.drain()


def micro_batches(
    engine: Engine,
    files: ByInput,
    options: RunOptions,
    now: Callable[[], datetime],
    *,
    epochs_done: int = 0,
    signals: tuple[Signal, ...] = (),
    hold: WatermarkHold | None = None,
    is_due: bool = False,
    portions: "LandedPortions | None" = None,
    on_planned: Callable[[int], None] = lambda files: None,
) -> Iterator[PlannedEpoch]:
    """``files`` in epochs of bounded size, under the clock ``now``, until nothing is new or due. ``epochs_done``:
    epochs that count towards the limit of the options already. The first epoch hears ``signals``; none passes ``hold``.
    ``is_due``: there is one in any case. What is left of ``portions`` lands once an input has nothing else to read;
    ``on_planned`` is told of how many files that are.
    """
    limit = options.max_epochs
    left = {} if portions is None else portions.left
    while limit is None or epochs_done < limit:
        if portions is not None:
            more = _next_portions(engine, files, portions)
            files = {**files, **more}
            if more:
                on_planned(count_files(more))
        clock = to_instant(now())
        batch, files = engine.landing.next_epoch(files, options.files_per_epoch, options.bytes_per_epoch)
        if not batch and not signals and not is_due and not engine.progress.is_due(clock, hold):
            return
        epochs_done += 1
        yield PlannedEpoch(
            RecordedEpoch(batch, clock, signals, held_to=hold), not (files or left) or epochs_done == limit
        )
        signals, is_due = (), False


def _next_portions(engine: Engine, files: ByInput, portions: "LandedPortions") -> ByInput:
    """The next portion of inputs of which no ``files`` are left."""
    more: dict[str, Sequence[SourceSplit]] = {}
    while read := [name for name in portions.left if name not in files and name not in more]:
        portions.land_next(read)
        for name in read:
            if splits := engine.landing.unread_splits(name, engine.progress.offsets.get(name, SourcePosition())):
                more[name] = splits
    return more


def plan_batch(
    engine: Engine, files: ByInput, now: Callable[[], datetime], signals: tuple[Signal, ...]
) -> Iterator[PlannedEpoch]:
    """All of ``files`` as one epoch that ends the input."""
    clock = to_instant(now())
    yield PlannedEpoch(
        RecordedEpoch(engine.landing.take_files(files), clock, signals, is_last=True), wait_for_merges=True
    )


def check_circles(run: RunContext, head: Manifest | None) -> None:
    """Raise UpstreamCycleError if a pipeline that this one is to read reads this one. Only pipelines count of which the
    branch's ``head`` has consumed nothing yet, whether or not they have published. The newest snapshots of main say
    what they read. One that has no snapshot, or cannot be looked at, is found by a later run.
    """
    if not upstream_sources(run.pipeline.inputs):
        return
    from headrace.read.lineage.cut import PlacedPipeline, RootStores, positions_of

    stores = RootStores(run.store)
    own = PlacedPipeline("", run.pipeline.name)

    def upstream_pipelines(placed_pipeline: PlacedPipeline) -> list[PlacedPipeline]:
        if placed_pipeline == own:
            read = [one for one in positions_of(stores, own, head, run.pipeline).values() if one.snapshot is None]
        else:
            read = _of_main(stores, placed_pipeline)
        return [stores.place_pipeline(one.root, one.pipeline) for one in read]

    check_no_circle(own, upstream_pipelines)


def _of_main(stores: "RootStores", placed_pipeline: "PlacedPipeline") -> "list[UpstreamPosition]":
    from headrace.read.lineage.cut import positions_of

    try:
        catalog = stores.catalog(placed_pipeline)
        snapshot = catalog.head().refs.get(MAIN)
        manifest = None if snapshot is None else catalog.manifest(snapshot)
        return [*positions_of(stores, placed_pipeline, manifest).values()]
    except HeadraceError:  # who reads it says what is wrong with it
        return []


_DROPS = ("late_dropped", "late_panes_dropped", "closed_dropped", "retractions_dropped")


class UpstreamMovedError(RestoreError, code="restore.upstream_moved"):
    """A pipeline that is read has gone back, and what it takes back lies in windows that have expired here."""


def check_counted(run: RunContext, computed_epoch: ComputedEpoch) -> None:
    """Raise UpstreamMovedError if an epoch that takes back, or repeats, what was counted has dropped any of it."""
    counted_again = run.landing.counting_again(computed_epoch.files)
    if not counted_again:
        return
    counts = computed_epoch.counts
    number_dropped = sum(counts[name] for name in _DROPS)
    if not number_dropped:
        return
    name, split = next(iter(counted_again.items()))
    source = next(input_.source for input_ in run.pipeline.inputs if input_.name == name)
    assert isinstance(source, UpstreamSource), "no other source says so"
    elements = "1 element" if number_dropped == 1 else f"{number_dropped:,} elements"
    raise UpstreamMovedError(
        f"{run.pipeline.name}: {source} has changed what was read of it ({split.path}), and {elements} of that would "
        f"be dropped, since their windows have expired here. Nothing of it is committed. {_way_out(run, name, source)}"
    )


def _way_out(run: RunContext, name: str, source: UpstreamSource) -> str:
    from headrace.read.upstream import ReadPipeline

    reader = run.pipeline.name
    backfill_hint = f"compute {reader} again from what is published now: `headrace backfill {reader} --promote`"
    head = run.catalog.head().refs.get(run.options.branch)
    fits = None if head is None else newest_fitting(run.catalog, head, name, ReadPipeline(source, run.store))
    if fits is None:
        return f"No snapshot of {reader} is from before: {backfill_hint}"
    return (
        f"Go back to snapshot {fits} of {reader}, the newest that has read nothing of what is changed, and read on "
        f"from there: `headrace recover {reader} {fits}`; or {backfill_hint}"
    )


def newest_fitting(catalog: Catalog, head: str, name: str, upstream: "ReadPipeline") -> str | None:
    """The newest snapshot in the line of ``head`` whose input ``name`` has consumed only what is still part of
    ``upstream`` as published now. None if there is none.
    """
    published_id = upstream.published_snapshot()
    for snapshot, position in _consumed_before(catalog, head, name):
        if (
            position is not None
            and published_id is not None
            and _is_plain_continuation(upstream, position, published_id)
        ):
            return snapshot
    return None


def _consumed_before(catalog: Catalog, head: str, name: str) -> "Iterator[tuple[str, UpstreamPosition | None]]":
    from headrace.read.upstream import upstreams_of

    for manifest in catalog.readable_manifests(head):
        yield manifest.snapshot_id, upstreams_of(manifest, catalog.store.uri).get(name)


def _is_plain_continuation(upstream: "ReadPipeline", position: "UpstreamPosition", published_id: str) -> bool:
    """Whether a reader at ``position`` only reads on: nothing is taken back, and nothing patched behind its back."""
    from headrace.read.upstream import GONE_ERRORS

    if position.is_behind or position.snapshot is None:
        return False
    with suppress(*GONE_ERRORS):
        begin, end = upstream.manifest(position.snapshot), upstream.manifest(published_id)
        is_patched = end.patch is not None and end.patch.epoch > begin.epoch
        return not is_patched and upstream.is_line(begin, end)
    return False
