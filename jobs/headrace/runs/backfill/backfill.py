"""Backfill: replay input into a branch, of all outputs or of one, and audit that.

``prepared_output`` computes one output again: all that main has recorded, epoch by epoch, as it was recorded. The
branch is a replay of main (``backfill/replay``) that leaves out the outputs which are not needed. So each of its epochs
is that of main with the same number: the same files, processing time and signals. Records are still judged for all
outputs, since what some output takes moves the watermark, and its id is remembered.

``backfill`` computes with the pipeline as it is now. The branch begins with nothing, or for a range of event time with
the newest snapshot that has read nothing as new (``backfill/branches``). From there on everything is read again, as far
as main has come and what has landed since: later results may depend on it. Main goes on undisturbed until the branch is
promoted.
"""

from dataclasses import replace
from functools import partial

from headrace.pipeline.identity import recorded_definition
from headrace.pipeline.output import list_upstream
from headrace.pipeline.pipeline import Pipeline
from headrace.read.pipeline_reader import check_root
from headrace.read.snapshots.epoch_history import ExpiredError
from headrace.read.snapshots.progress import progress_of, unread_files
from headrace.runs.backfill.branches import ForkPoint, fork_point
from headrace.runs.epochs import RunContext
from headrace.runs.executors.choice import check_installed
from headrace.runs.option_kinds import RunOptionsError
from headrace.runs.options import Mode, RunOptions
from headrace.runs.plan import ContinueBranch, ForkBranch, PreparedRun, RunStage, plan_from, plan_run
from headrace.runs.publishing.adoption import AdoptedOutputs, NotAdoptableError
from headrace.runs.publishing.adoption import check_before as check_adoption_before
from headrace.runs.publishing.audits import files_main_read, files_read, inputs_of_main, lacking_paths
from headrace.runs.publishing.patch import check_before as check_patch
from headrace.runs.publishing.promotion import check_before as check_promotion_before
from headrace.runs.restore import InputGoneError, name_some
from headrace.sources.file_planning import root_exists
from headrace.sources.landed.files import landed_as
from headrace.sources.landing import Landing, check_places
from headrace.sources.progress import PipelineProgress
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.names import MAIN
from headrace_snapshots.protocol.moves import Head
from headrace_snapshots.store import open_store


def prepared_output(run: RunContext) -> PreparedRun:
    """A run that computes the output of its options in their branch, with what is computed of it, as far as main has
    come; or goes on with that branch.

    Raises UnknownOutputError, NotAdoptableError before anything moves; then what ``process`` raises.
    """
    pipeline, options, catalog = run.pipeline, run.options, run.catalog
    assert options.output is not None
    upstream = {name: list_upstream(output) for name, output in pipeline.outputs.items()}
    scope = AdoptedOutputs.from_upstream(pipeline.name, upstream, options.output)
    if options.span is not None or options.files_per_epoch is not None or options.bytes_per_epoch is not None:
        raise RunOptionsError(
            f"output {options.output} of {pipeline.name} is computed again in the epochs that main recorded, all of "
            "them. Leave out ranges and limits of epochs, or backfill all outputs (`headrace backfill "
            f"{pipeline.name}`)"
        )
    head = catalog.head()
    if MAIN not in head.refs:
        raise RunOptionsError(
            f"main of {pipeline.name} has read nothing yet: `headrace run {pipeline.name}` computes all outputs"
        )
    if options.promotes:
        check_adoption_before(pipeline, catalog.manifest(head.refs[MAIN]), scope, head)
    outputs_text = f"{', '.join(scope.adopted)}" + (f" (of {', '.join(scope.read)})" if scope.read else "")
    run.listener.noted(f"branch {options.branch} computes {outputs_text} in the epochs of main")
    options = replace(options, mode=Mode.REPLAY, from_branch=MAIN, without=scope.others, output=None, promotes=False)
    return PreparedRun(replace(run, options=options), partial(_plan_single_output, output=scope.output), "backfill")


def _plan_single_output(run: RunContext, output: str) -> tuple[RunStage, ...]:
    try:
        return plan_run(run)
    except ExpiredError as error:
        raise NotAdoptableError(
            f"output {output} of {run.pipeline.name} cannot be computed alone: epochs of main have expired, and nobody "
            f"knows their clocks any more. `headrace backfill {run.pipeline.name} --promote` computes all outputs "
            "again, of all input that is still there"
        ) from error


_FILES_PER_EPOCH = 10_000
"""Large epochs: how many bytes are in one is for the pipeline's source to say."""


def branch_of(options: RunOptions) -> str:
    """The branch that a backfill fills: the one asked for, or one named after the run."""
    return f"backfill-{options.run_id}" if options.branch == MAIN else options.branch


def has_input(pipeline: Pipeline, root: str) -> bool:
    """Whether a backfill would find anything: main has read something, or something has landed."""
    store = open_store(root)
    if not root_exists(store):
        return False
    catalog = Catalog(store, pipeline.name)
    if catalog.head().refs.get(MAIN) is not None:
        return True
    landing = Landing(pipeline, store)
    return bool(unread_files(catalog, landing, None, PipelineProgress(), full_sweep=True) or landing.to_land({}))


def prepared_backfill(run: RunContext) -> PreparedRun:
    """A backfill, before it is planned. It forks a branch (or goes on with it), reads all input there that it has not,
    and audits what is new. It publishes nothing.
    ``options.output``: only that output is computed, in the epochs of main; or if it ``patches``, like all of them.

    Before anything moves, it raises MissingRootError if there is no such root, and InputGoneError if input that main
    has read is gone. It also raises RunOptionsError for a range that the branch does not begin with, and every reason
    against the promotion that ``options`` ask for. Performed, it raises what a run of ``process`` raises.
    """
    pipeline, options = run.pipeline, replace(run.options, branch=branch_of(run.options), publish=False)
    run = replace(run, options=options)
    check_installed(pipeline, options.executor or pipeline.executor)  # before anything moves
    check_root(run.store)  # a fork would make it
    check_places(pipeline, run.store, is_first=run.catalog.head().entry < 0)
    if options.patches:
        check_patch(run.catalog, pipeline, options.output or "")
        options = replace(options, without=_not_needed(pipeline, options.output))
    elif options.output is not None:
        return prepared_output(run)
    # What a full sweep has found for main meanwhile is below the mark of the branch.
    files = options.files_per_epoch or _FILES_PER_EPOCH
    options = replace(options, full_sweep=True, files_per_epoch=files)
    options = replace(options, as_read_by=run.catalog.head().refs.get(MAIN))
    return PreparedRun(replace(run, options=options), plan_backfill, "backfill")


def plan_backfill(run: RunContext) -> tuple[RunStage, ...]:
    """The stages of a backfill: a branch is forked, unless there is one, and reads what it has not read. Raises what
    stands against it, and against the promotion that is asked for.
    """
    catalog, options = run.catalog, run.options
    point = fork_point(catalog, run.pipeline, options.span, options.without)
    now = catalog.head()
    if options.branch not in now.generations:
        run.listener.noted(str(point))
    if options.promotes:
        check_promotion_before(catalog, options.branch, point.manifest)
    if options.branch not in now.generations:
        _check_input(run, point.manifest)
        return (ForkBranch(options.branch, point), *plan_from(run, point.snapshot))
    head = now.refs.get(options.branch)
    begin_id = _begun_with(catalog, now, head, point, options)
    _check_input(run, None if head is None else catalog.manifest(head))
    return (ContinueBranch(options.branch, begin_id), *plan_from(run, head))


def _not_needed(pipeline: Pipeline, output: str | None) -> tuple[str, ...]:
    """The outputs that an ``output`` does not read."""
    if output is None:
        return ()
    return AdoptedOutputs.from_upstream(
        pipeline.name, {name: list_upstream(own) for name, own in pipeline.outputs.items()}, output
    ).others


def _begun_with(catalog: Catalog, now: Head, head: str | None, point: ForkPoint, options: RunOptions) -> str | None:
    """The snapshot with which the branch at ``head`` began. Raises RunOptionsError unless it is ``point`` or older."""
    published_id = catalog.published_by_all(now.refs)
    common = None if head is None or published_id is None else catalog.common_ancestor(published_id, head)
    begin_id, begun_at = (None, -1) if common is None else (common.snapshot_id, common.epoch)
    if options.span is not None and begun_at > (-1 if point.manifest is None else point.manifest.epoch):
        name, branch = catalog.pipeline, options.branch
        raise RunOptionsError(
            f"branch {branch} of {name} has begun with snapshot {begin_id} (epoch {begun_at}), which has some of the "
            f"range already; {point}. Name another branch, or `headrace drop {name} {branch}`"
        )
    return begin_id


def _check_input(run: RunContext, begin: Manifest | None) -> None:
    """Raise InputGoneError if main has read files that are not there to be read again behind ``begin``."""
    catalog, landing = run.catalog, run.landing
    main = catalog.head().refs.get(MAIN)
    if main is None:
        return
    progress = PipelineProgress() if begin is None else progress_of(catalog, begin)
    unread = unread_files(catalog, landing, begin, progress, full_sweep=True)
    main_read, branch_read = files_main_read(catalog, main, begin), files_read(catalog, begin)
    names = filter(landing.is_repeatable, landing.enumerators)
    missing: list[str] = []
    for name, former in inputs_of_main(catalog, main, recorded_definition(run.pipeline), names).items():
        main_files = main_read[former.name]
        split_by_path = {landed_as(catalog.pipeline, split): split for split in unread.get(name, ())}
        branch_files = branch_read[name] | split_by_path.keys()
        missing += lacking_paths(catalog.pipeline, branch_files, main_files, has_moved=former.has_moved)
        missing += landing.lost_paths(name, [split for path, split in split_by_path.items() if path in main_files])
    if missing:
        begin_text = "the beginning" if begin is None else f"snapshot {begin.snapshot_id} (epoch {begin.epoch})"
        raise InputGoneError(
            f"a backfill of {catalog.pipeline} from {begin_text} on reads all that main has read since, and "
            f"{len(missing)} files are gone: {name_some(missing)}. Put them back; or backfill "
            "a later range (--from), which needs only what was read after its fork. If at least as many other files "
            "have their records now, move those to a folder of their own, and let the definition name it"
        )
