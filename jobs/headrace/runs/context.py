"""What a run works with, and what both its plan and its performance ask of that. Nothing here writes to a store."""

from collections.abc import Callable, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime

from headrace.ext.sources import SourcePosition
from headrace.model.triggers import Signal
from headrace.pipeline.executors import AUTO, ExecutorDecision
from headrace.pipeline.identity.fingerprint import definition
from headrace.pipeline.pipeline import Pipeline
from headrace.read.definition_plan import under_new_names
from headrace.read.snapshots.logged_names import NamesSeen
from headrace.read.snapshots.progress import StoredProgress, progress_of, unread_files
from headrace.runs.continuation import check_code, check_continues
from headrace.runs.executors.choice import WorkEstimate, check_installed, choose
from headrace.runs.options import RunOptions
from headrace.runs.reporting.listener import Watched
from headrace.sources.landing import ByInput, Landing
from headrace.sources.landing_places import PlaceError
from headrace.sources.progress import PipelineProgress
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.layout import AGAIN
from headrace_snapshots.refs import MAIN
from headrace_snapshots.store import ObjectStore


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
    listener: Watched
    now: Callable[[], datetime]
    warnings: list[str] = field(default_factory=list)
    names: NamesSeen = field(default_factory=NamesSeen)

    @classmethod
    def of(
        cls,
        pipeline: Pipeline,
        options: RunOptions,
        store: ObjectStore,
        listener: Watched,
        now: Callable[[], datetime],
    ) -> "RunContext":
        """A run of ``pipeline`` on what ``store`` has of it."""
        return cls(pipeline, options, store, Landing(pipeline, store), Catalog(store, pipeline.name), listener, now)

    @property
    def run_id(self) -> str:
        """The name of the run."""
        return self.options.run_id

    def note(self, text: str) -> None:
        """Tell a line to a person who watches the run."""
        self.listener.noted(text)

    def warn(self, warning: str) -> None:
        """Tell ``warning`` now, and again in the result, once however often it comes."""
        if warning not in self.warnings:
            self.warnings.append(warning)
            self.listener.warned(warning)

    def checked(self, manifest: Manifest) -> Manifest:
        """``manifest``, if the run can continue from it, with outputs by their new names. Raises ChangedPipelineError;
        if strict, ChangedCodeError.
        """
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
        return PipelineProgress() if manifest is None else progress_of(self.catalog, manifest)

    def check_landed(self) -> None:
        """Raise PlaceError if main's records of an input were landed from another source: numbers of one are not those
        of the other, and records of both would be one input.
        """
        main = self.catalog.head().refs.get(MAIN) if self.landing.landers else None
        if main is None:
            return
        before, now = (
            {given["name"]: (given.get("kind"), given["path"]) for given in defined["inputs"]}
            for defined in (self.catalog.manifest(main).definition, definition(self.pipeline))
        )
        for name in self.landing.landers:
            if before.get(name, now[name]) != now[name]:
                raise PlaceError(
                    f"input {name} of {self.pipeline.name} was landed from {before[name][1]} and is {now[name][1]} "
                    "now: records of both would be mixed. Give the pipeline another name, or take the change back"
                )

    def new_files(self, manifest: Manifest | None, *, full_sweep: bool) -> ByInput:
        """What has landed and was not read by ``manifest`` or before; ``full_sweep``: also where nobody looks any
        more.
        """
        progress, on_unknown = self.progress(manifest), self._warn_of_landed_again
        files = unread_files(
            self.catalog,
            self.landing,
            manifest,
            progress,
            full_sweep=full_sweep,
            on_unknown=on_unknown,
            seen=self.names,
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
            if early := enumerator.early(progress.offsets.get(name, SourcePosition()), files.get(name, ())):
                many = "1 file" if len(early) == 1 else f"{len(early):,} files"
                self.warn(
                    f'input {name}: names="ordered" says that each file sorts after those before it, and {many} that '
                    f"no run had read, such as {early[0].path}, sort before one that was read. Where more than "
                    "look_back sort behind such a file, only a full sweep reads it: the first run of a day, or one "
                    "with --full-sweep. Leave names= out, and each run looks at all names"
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
            f"{files} of records that landed again, such as {min(paths)}, are not read: the snapshots that dropped "
            "the records have expired, so Headrace cannot tell whether the records count already. If not, give the "
            f"files names that do not begin with {AGAIN}; if so, remove the files"
        )

    def new_signals(self, manifest: Manifest | None) -> tuple[Signal, ...]:
        """The signals to take after ``manifest``: none if an attempt before this one has committed them."""
        request = None if manifest is None else StoredProgress.of(manifest).signals_of
        return self.options.signals if request is None or request != self.options.request else ()

    def decide(self, work: Callable[[], WorkEstimate]) -> ExecutorDecision:
        """The executor to take for ``work``, which is estimated only if it counts; one that AUTO took is told.

        Raises NotInstalledError, SizeError.
        """
        decision = choose(self.pipeline, self.options.executor, work, self.options.reason)
        check_installed(self.pipeline, decision.name)
        if (self.options.executor or self.pipeline.executor) == AUTO:
            self.listener.noted(f"executor {decision.name}: {decision.reason}")
        return decision
