"""Computing one output again in a branch: all that main has recorded, epoch by epoch, as it was recorded.

The branch is a replay of main (``backfill/replay``) that leaves out the outputs which are not needed. So each of its
epochs is that of main with the same number: the same files, processing time and signals. Records are still judged for
all outputs, since what some output takes moves the watermark, and its id is remembered.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from headrace.pipeline.pipeline import Pipeline
from headrace.read.snapshots.epoch_history import ExpiredError
from headrace.runs.adopting.errors import NotAdoptableError
from headrace.runs.adopting.plan import check_before
from headrace.runs.adopting.scope import AdoptedOutputs
from headrace.runs.modes import Mode
from headrace.runs.options import RunOptions, RunOptionsError
from headrace.runs.process import process
from headrace.runs.reporting.listener import Watched
from headrace.runs.reporting.results import RunResult
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.refs import MAIN


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
        check_before(pipeline, catalog.manifest(head.refs[MAIN]), scope, head)
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
