"""What commands over a root have in common: the root and pipeline that their words name, and deliveries left to do."""

from headrace.cli.output import Format, print_notice
from headrace.errors import FixConfigError, HeadraceError
from headrace.pipeline.loading.registry import output_named, resolve_pipeline, resolve_to_run
from headrace.read.deployment import Deployment
from headrace.read.pipeline_reader import PipelineReader, check_root
from headrace.runs.client.handle import PipelineHandle
from headrace.runs.reporting.listener import Where
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store


class WholePipelineError(FixConfigError, code="config.whole_pipeline"):
    """A command about a whole pipeline was given one of its outputs."""


STARTED_BY = "cli"
"""How names of runs begin that the command line starts."""


def existing_root(root: str) -> str:
    """``root``. Raises MissingRootError if there is none: what is not there is not a pipeline without results."""
    check_root(open_store(root))
    return root


def handle_of(pipeline: str, root: str) -> PipelineHandle:
    """A pipeline under a root that exists: one with results there by its name, without its file. Raises
    MissingRootError, UnknownPipelineError; WholePipelineError if an output is named.
    """
    check_whole(pipeline)
    store = open_store(root)
    if pipeline in Deployment(store):
        return PipelineHandle(Catalog(store, pipeline), started_by=STARTED_BY)
    check_root(store)
    definition = resolve_pipeline(pipeline)
    return PipelineHandle(Catalog(store, definition.name), definition, started_by=STARTED_BY)


def check_whole(pipeline: str) -> None:
    """Raise WholePipelineError if ``pipeline`` names an output."""
    reference, output = output_named(pipeline)
    if output:
        raise WholePipelineError(f"{pipeline} names an output, and this command is about all: write {reference}")


def reader_of(pipeline: str, root: str) -> PipelineReader:
    """The results of a pipeline, or of the output that is named: ``shop.hourly``. Raises what ``handle_of`` raises,
    UnknownOutputError.
    """
    reference, output = output_named(pipeline)
    handle = handle_of(reference, root)
    return handle[output] if output else handle


def handle_and_output(pipeline: str, root: str) -> tuple[PipelineHandle, str | None]:
    """A pipeline as ``handle_of`` has it, and the output that is named with it; None: none is."""
    reference, output = output_named(pipeline)
    return handle_of(reference, root), output or None


def handle_to_run(pipeline: str, root: str, *, create: bool = False) -> PipelineHandle:
    """A pipeline by its definition, under a root that a run may make. Raises UnknownPipelineError, WholePipelineError
    and UpstreamCycleError.
    """
    check_whole(pipeline)
    definition = resolve_to_run(pipeline)
    return PipelineHandle(Catalog(open_store(root), definition.name), definition, create=create, started_by=STARTED_BY)


def say_what_is_due(handle: "PipelineHandle", reference: str, root: str, output: Format) -> None:
    """Tell what a command that moves what readers see leaves to do: the delivery to sinks. They hold what readers saw
    until somebody delivers; a DAG does so where there is Airflow.
    """
    try:
        definition = handle.definition()
    except HeadraceError:  # its file is broken, which is nothing to what was done
        return
    outputs = {} if definition is None else definition.by_output
    sinks = [sink.name for output_pipeline in outputs.values() for sink in output_pipeline.sinks]
    if sinks and output is not Format.JSON:
        sinks_text = f"sink {sinks[0]}" if len(sinks) == 1 else f"{len(sinks)} sinks"
        print_notice(f"to bring {sinks_text} to what readers see: {Where(reference, root).command('deliver')}")
