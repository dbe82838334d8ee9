"""Which executor a run takes: the one that it is asked for, else the pipeline's own. AUTO takes what fits the work.

How much work there is is known without reading data: files of input by their listing, state by the manifest.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from headrace.audit.range import audited_files, unpublished_range
from headrace.ext.executors import EXECUTORS
from headrace.installed import require
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.scheduling import AUTO, LOCAL, SPARK, ExecutorDecision
from headrace.read.snapshots.progress import progress_of, unread_files
from headrace.runs.reporting.results import Action
from headrace.sources.landing import ByInput, Landing
from headrace.sources.progress import PipelineProgress
from headrace.this_process import shown_size, size_in
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import Manifest, is_current
from headrace_snapshots.store import open_store

INPUT: Final = "HEADRACE_AUTO_INPUT"
STATE: Final = "HEADRACE_AUTO_STATE"


@dataclass(frozen=True)
class Bounds:
    """Up to how many bytes of new input, and of stored state, AUTO does without Spark."""

    input: int = 256 * 2**20
    state: int = 2**30

    @classmethod
    def stated(cls) -> "Bounds":
        """Reads the bounds from the environment. Raises SizeError."""
        given = {"input": size_in(INPUT), "state": size_in(STATE)}
        return cls(**{name: size for name, size in given.items() if size is not None})


@dataclass(frozen=True)
class WorkEstimate:
    """What a run has before it, in bytes: files that it is to read, state that it continues from."""

    input: int
    state: int = 0

    @classmethod
    def after(cls, head: Manifest | None, input_bytes: int) -> "WorkEstimate":
        """The work of continuing from ``head``."""
        if head is None:
            return cls(input_bytes)
        layers = [layer for name, table_layers in head.tables.items() if not is_current(name) for layer in table_layers]
        state = stored_bytes(file for layer in layers for file in layer.files)
        return cls(input_bytes, state)


def choose(
    pipeline: Pipeline, asked: str | None, work: Callable[[], WorkEstimate], reason: str = ""
) -> ExecutorDecision:
    """The executor of a run: the one that is ``asked`` for, with the caller's ``reason``, else (None) the pipeline's.

    ``work`` is called only if it counts. Raises SizeError.
    """
    executor = asked or pipeline.executor
    if executor == AUTO:
        return fitting(pipeline, work(), Bounds.stated())
    return ExecutorDecision(executor, reason or ("the pipeline's own" if asked is None else "asked for"))


def check_installed(pipeline: Pipeline, executor: str) -> None:
    """Raise NotInstalledError unless what a run of ``pipeline`` on ``executor`` needs is installed. AUTO needs nothing
    until it has chosen.
    """
    if executor != AUTO:
        EXECUTORS[executor].check_installed()
    if count := sum(map(len, pipeline.expected.values())):
        require("quality", f"the audit of pipeline {pipeline.name} (expectations: {count})")


def fitting(pipeline: Pipeline, work: WorkEstimate, bounds: Bounds) -> ExecutorDecision:
    """What AUTO takes for ``work`` of ``pipeline``."""
    if functions := pipeline.spark_functions:
        return ExecutorDecision(SPARK, f"auto: the pipeline names Spark code, {functions[0].name}")
    for size, bound, kind_of_bytes, variable in (
        (work.input, bounds.input, "new input", INPUT),
        (work.state, bounds.state, "state", STATE),
    ):
        if size > bound:
            return ExecutorDecision(
                SPARK, f"auto: {shown_size(size)} of {kind_of_bytes} are more than {shown_size(bound)} ({variable})"
            )
    return ExecutorDecision(
        LOCAL,
        f"auto: {shown_size(work.input)} of new input and {shown_size(work.state)} of state need no Spark, which is "
        f"for more than {shown_size(bounds.input)} and {shown_size(bounds.state)}",
    )


def work_of(
    action: Action, pipeline: Pipeline, root: str, *, branch: str, snapshot: str | None, full_sweep: bool
) -> WorkEstimate:
    """What a run of ``action`` has before it, as it stands now. ``snapshot`` is where a recovery goes back to, or a
    backfill that has not begun is forked.
    """
    store = open_store(root)
    catalog = Catalog(store, pipeline.name)
    head = catalog.head().refs.get(branch)
    match action:
        case "audit" if (unpublished := unpublished_range(catalog, branch)) is not None:
            return work_of_audit(catalog, unpublished.after, unpublished.until)
        case "recover" | "backfill":  # which sweep whatever was asked for
            return work_of_run(catalog, Landing(pipeline, store), snapshot or head, full_sweep=True)
        case _:
            return work_of_run(catalog, Landing(pipeline, store), head, full_sweep=full_sweep)


def work_of_run(catalog: Catalog, landing: Landing, head: str | None, *, full_sweep: bool) -> WorkEstimate:
    """What a run that continues from snapshot ``head`` has before it; from the newest below it that can be read, if it
    cannot.
    """
    manifest, progress = (None, PipelineProgress()) if head is None else _readable(catalog, head)
    landed = input_bytes(unread_files(catalog, landing, manifest, progress, full_sweep=full_sweep))
    return WorkEstimate.after(manifest, landed + input_bytes(landing.to_land(progress.offsets)))


def work_of_audit(catalog: Catalog, published: str | None, head: str) -> WorkEstimate:
    """What an audit of (``published``, ``head``] has before it: no state, but rows to look at."""
    manifest = catalog.manifest(head)
    files = audited_files(catalog, published, manifest).files
    return WorkEstimate(stored_bytes(file for view_files in files.values() for file in view_files))


def input_bytes(files: ByInput) -> int:
    """Their sizes, as they are stored."""
    return sum(file.size for landed in files.values() for file in landed)


def stored_bytes(files: Iterable[DataFile]) -> int:
    """Their sizes, as they are stored."""
    return sum(file.bytes for file in files)


def _readable(catalog: Catalog, snapshot: str) -> tuple[Manifest | None, PipelineProgress]:
    for manifest in catalog.readable(snapshot):
        with suppress(BrokenObjectError):
            return manifest, progress_of(catalog, manifest)
    return None, PipelineProgress()
