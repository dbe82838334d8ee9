"""Backfill: replay input into a branch, of all outputs or of one, and audit that.

Computing one output again in a branch: all that main has recorded, epoch by epoch, as it was recorded.

The branch is a replay of main (``backfill/replay``) that leaves out the outputs which are not needed. So each of its
epochs is that of main with the same number: the same files, processing time and signals. Records are still judged for
all outputs, since what some output takes moves the watermark, and its id is remembered.

Backfill: replay input into a branch with the pipeline as it is now, and audit that.

The branch begins with nothing, or for a range of event time with the newest snapshot that has read nothing as new
(``forking``). From there on everything is read again, as far as main has come and what has landed since: later results
may depend on it. Main goes on undisturbed until the branch is promoted.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from headrace.model.windows import Window
from headrace.pipeline.pipeline import Pipeline
from headrace.read.roots import check_root
from headrace.read.snapshots.epoch_history import ExpiredError
from headrace.read.snapshots.progress import progress_of, unread_files
from headrace.runs.adopting.plan import AdoptedOutputs, NotAdoptableError
from headrace.runs.adopting.plan import check_before as check_adoption_before
from headrace.runs.backfill.fork_point import ForkPoint, fork_point
from headrace.runs.executors.choice import check_installed
from headrace.runs.modes import Mode
from headrace.runs.option_kinds import RunOptionsError
from headrace.runs.options import RunOptions
from headrace.runs.patching.plan import check_before as check_patch
from headrace.runs.process import process
from headrace.runs.publishing.promotion import check_before as check_promotion_before
from headrace.runs.publishing.promotion_checks import files_main_read, files_read, lacking
from headrace.runs.reporting.listener import Listener, Watched, watched
from headrace.runs.reporting.results import RunResult
from headrace.runs.restore import InputGoneError
from headrace.sources.input_diagnostics import exists
from headrace.sources.landed.files import landed_as
from headrace.sources.landing import Landing, check_places
from headrace.sources.progress import PipelineProgress
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import RefusedError
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.refs import MAIN
from headrace_snapshots.store import open_store


def compute_output(
    pipeline: Pipeline,
    root: str,
    options: RunOptions,
    catalog: Catalog,
    listener: Watched,
    *,
    spark: Any = None,
    now: Callable[[], datetime] | None = None,
) -> RunResult:
    """Compute ``options.output`` in the branch of ``options``, with what is computed of it, as far as main has come;
    or go on with that branch.

    Raises UnknownOutputError, NotAdoptableError before anything moves; then what ``process`` raises.
    """
    assert options.output is not None
    upstream = {name: output.of for name, output in pipeline.outputs.items()}
    scope = AdoptedOutputs.of(pipeline.name, upstream, options.output)
    if options.span is not None or options.files_per_epoch is not None or options.bytes_per_epoch is not None:
        raise RunOptionsError(
            f"output {options.output} of {pipeline.name} is computed again in the epochs that main recorded, all of "
            "them: leave out ranges and limits of epochs, or backfill all outputs (`headrace backfill "
            f"{pipeline.name}`)"
        )
    head = catalog.head()
    if MAIN not in head.refs:
        raise RunOptionsError(
            f"main of {pipeline.name} has read nothing yet: `headrace run {pipeline.name}` computes all outputs"
        )
    if options.promotes:
        check_adoption_before(pipeline, catalog.manifest(head.refs[MAIN]), scope, head)
    of = f"{', '.join(scope.adopted)}" + (f" (of {', '.join(scope.read)})" if scope.read else "")
    listener.noted(f"branch {options.branch} computes {of} in the epochs of main")
    options = replace(
        options,
        mode=Mode.REPLAY,
        from_branch=MAIN,
        publish=False,
        without=scope.others,
        output=None,
        promotes=False,
    )
    try:
        return process(pipeline, root, options, listener=listener, spark=spark, now=now)
    except ExpiredError as error:
        raise NotAdoptableError(
            f"output {scope.output} of {pipeline.name} cannot be computed alone: epochs of main have "
            f"expired, and nobody knows their clocks any more. `headrace backfill {pipeline.name} --promote` computes "
            "all outputs again, of all input that is still there"
        ) from error


_FILES_PER_EPOCH = 10_000
"""Large epochs: how many bytes are in one is for the pipeline's source to say."""
_NAMED = 3


def branch_of(options: RunOptions) -> str:
    """The branch that a backfill fills: the one asked for, or one named after the run."""
    return f"backfill-{options.run_id}" if options.branch == MAIN else options.branch


def has_input(pipeline: Pipeline, root: str) -> bool:
    """Whether a backfill would find anything: main has read something, or something has landed."""
    store = open_store(root)
    if not exists(store):
        return False
    catalog = Catalog(store, pipeline.name)
    if catalog.head().refs.get(MAIN) is not None:
        return True
    landing = Landing(pipeline, store)
    return bool(unread_files(catalog, landing, None, PipelineProgress(), full_sweep=True) or landing.to_land({}))


def backfill(
    pipeline: Pipeline,
    root: str,
    options: RunOptions,
    *,
    listener: Listener | None = None,
    spark: Any = None,
    now: Callable[[], datetime] | None = None,
) -> RunResult:
    """Fork a branch (or go on with it), read all input there that it has not, audit what is new. Publishes nothing.
    ``options.output``: only that output is computed, in the epochs of main; or if it ``patches``, like all of them.

    Before anything moves, it raises MissingRootError if there is no such root, and InputGoneError if input that main
    has read is gone. It also raises RunOptionsError for a range that the branch does not begin with, and every reason
    against the promotion that ``options`` ask for. Later it raises what ``process`` raises.
    """
    branch = branch_of(options)
    listener = watched(listener)
    check_installed(pipeline, options.executor or pipeline.executor)  # before anything moves
    store = open_store(root)
    check_root(store)  # a fork would make it
    catalog = Catalog(store, pipeline.name)
    check_places(pipeline, store, is_first=catalog.head().entry < 0)
    if options.patches:
        check_patch(catalog, pipeline, options.output or "")
        options = replace(options, without=_not_needed(pipeline, options.output))
    elif options.output is not None:
        options = replace(options, branch=branch)
        result = compute_output(pipeline, root, options, catalog, listener, spark=spark, now=now)
        return replace(result, action="backfill")
    begun = _begun(catalog, pipeline, options, branch, listener)
    # What a full sweep has found for main meanwhile is below the mark of the branch.
    files = options.files_per_epoch or _FILES_PER_EPOCH
    options = replace(options, branch=branch, publish=False, full_sweep=True, files_per_epoch=files)
    options = replace(options, as_read_by=catalog.head().refs.get(MAIN))
    result = process(pipeline, root, options, listener=listener, spark=spark, now=now)
    return replace(result, action="backfill", forked_from=begun)


def _not_needed(pipeline: Pipeline, output: str | None) -> tuple[str, ...]:
    """The outputs that an ``output`` does not read."""
    if output is None:
        return ()
    return AdoptedOutputs.of(pipeline.name, {name: own.of for name, own in pipeline.outputs.items()}, output).others


def _begun(catalog: Catalog, pipeline: Pipeline, options: RunOptions, branch: str, listener: Listener) -> str | None:
    """The snapshot that ``branch`` has begun with; it is forked if there is none yet. Moves nothing if it raises."""
    landing = Landing(pipeline, catalog.store)
    # Ends: another turn means that an expiry has marked the snapshot that was chosen.
    while True:
        point = fork_point(catalog, pipeline, options.span, options.without)
        if branch not in catalog.head().generations:
            listener.noted(str(point))
        if options.promotes:
            check_promotion_before(catalog, branch, point.manifest)
        try:
            return _begin(catalog, landing, branch, point, options.span)
        except RefusedError:
            if point.snapshot is None or catalog.is_kept(point.snapshot):
                raise


def _begin(catalog: Catalog, landing: Landing, branch: str, point: ForkPoint, span: Window | None) -> str | None:
    """Fork ``branch`` at ``point``, unless there is one that has begun there or before; the snapshot that it has begun
    with. Moves nothing if it raises.
    """
    now = catalog.head()
    if branch not in now.generations:
        _check_input(catalog, landing, point.manifest)
        catalog.fork(branch, point.snapshot)
        return point.snapshot
    head = now.refs.get(branch)
    seen = catalog.published_by_all(now.refs)
    common = None if head is None or seen is None else catalog.common_ancestor(seen, head)
    after, begun_at = (None, -1) if common is None else (common.snapshot_id, common.epoch)
    if span is not None and begun_at > (-1 if point.manifest is None else point.manifest.epoch):
        raise RunOptionsError(
            f"branch {branch} of {catalog.pipeline} has begun with snapshot {after} (epoch {begun_at}), which has some "
            f"of the range already; {point}. Name another branch, or `headrace drop {catalog.pipeline} {branch}`"
        )
    _check_input(catalog, landing, None if head is None else catalog.manifest(head))
    return after


def _check_input(catalog: Catalog, landing: Landing, begin: Manifest | None) -> None:
    """Raise InputGoneError if main has read files that are not there to be read again behind ``begin``."""
    main = catalog.head().refs.get(MAIN)
    if main is None:
        return
    progress = PipelineProgress() if begin is None else progress_of(catalog, begin)
    listed = unread_files(catalog, landing, begin, progress, full_sweep=True)
    main_read, branch_read = files_main_read(catalog, main, begin), files_read(catalog, begin)
    missing: list[str] = []
    for name in filter(landing.repeats, landing.enumerators):
        there = {landed_as(catalog.pipeline, split): split for split in listed.get(name, ())}
        missing += lacking(catalog.pipeline, branch_read[name] | there.keys(), main_read[name])
        missing += landing.lost(name, [split for path, split in there.items() if path in main_read[name]])
    if missing:
        begin_text = "the beginning" if begin is None else f"snapshot {begin.snapshot_id} (epoch {begin.epoch})"
        more = f", and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        raise InputGoneError(
            f"a backfill of {catalog.pipeline} from {begin_text} on reads all that main has read since, and "
            f"{len(missing)} files are gone: {', '.join(missing[:_NAMED])}{more}. Put them back; or backfill a later "
            "range (--from), which needs only what was read after its fork"
        )
