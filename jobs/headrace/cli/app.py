"""The application ``headrace``, how a function becomes one of its commands, and the arguments that several have."""

from collections.abc import Callable
from functools import wraps
from inspect import cleandoc
from typing import Annotated, ParamSpec

import click

from headrace import __version__
from headrace.cli.command_group import MORE_COMMANDS, CommandGroup
from headrace.cli.completion import (
    complete_at,
    complete_droppable,
    complete_pipeline,
    complete_snapshot,
    show_completion,
)
from headrace.cli.display.output import Format, reported
from headrace.cli.exit_codes import listed
from headrace.cli.parameters import Argument, Option, parameters
from headrace.pipeline.executors import AUTO, EXECUTORS

P = ParamSpec("P")


def _version() -> click.Option:
    def show(ctx: click.Context, _param: click.Parameter, is_asked: bool) -> None:
        if is_asked:
            click.echo(f"headrace {__version__}")
            ctx.exit()

    return click.Option(
        ["--version"], is_flag=True, is_eager=True, expose_value=False, callback=show, help="Print the version."
    )


app = CommandGroup(
    name="headrace",
    params=[_version(), show_completion("headrace")],
    help="Pipelines in the terms of the Dataflow Model, as snapshots in an object store.",
    epilog="\b\nExit codes:\n"
    + "\n".join(f"  {code:>3}  {words}" for code, words in listed())
    + f"\n\n{MORE_COMMANDS}",
    no_args_is_help=True,
    context_settings={"max_content_width": 120, "help_option_names": ["--help", "-h"]},
)

PipelineArgument = Annotated[
    str,
    Argument(
        metavar="PIPELINE",
        help="A registered name, or path/to/file.py[:name].",
        complete=complete_pipeline,
    ),
]
SnapshotArgument = Annotated[
    str,
    Argument(
        metavar="SNAPSHOT",
        help="A snapshot's id (see headrace log), a branch or a tag.",
        complete=complete_snapshot,
    ),
]
Root = Annotated[
    str,
    Option(help="URI of the deployment: file:///folder or s3://bucket/prefix.", envvar="HEADRACE_ROOT"),
]
Output = Annotated[Format, Option(name="--format", help="Tables for people, or JSON for machines.")]
ViewOption = Annotated[str, Option(name="--view", help="current, panes, late, rejected, or state (open windows).")]
StageOption = Annotated[
    int | None,
    Option(min=1, help="The number of an aggregation in the chain; by default the last."),
]
At = Annotated[
    str,
    Option(
        help="A branch, a tag, a snapshot's id, or a time: what readers saw then, like 2026-01-01T00:00:00Z.",
        complete=complete_at,
    ),
]
RefArgument = Annotated[
    str,
    Argument(metavar="NAME", help="A branch or a tag.", complete=complete_droppable),
]
ExecutorOption = Annotated[
    str | None,
    Option(
        words=(*EXECUTORS.built_in, AUTO),
        group=EXECUTORS,
        help="Where epochs are computed: as Spark jobs, in this process without a JVM, or wherever they fit; "
        "by default as the pipeline says.",
    ),
]
FilesPerEpoch = Annotated[int | None, Option(min=1, help="Files in one epoch, at most.")]
BytesPerEpoch = Annotated[int | None, Option(min=1, help="Bytes in one epoch, at most.")]
ReaderRoots = Annotated[
    list[str] | None,
    Option(
        metavar="URI",
        help="Another root to look for readers in, as HEADRACE_READER_ROOTS names some. Repeatable.",
    ),
]

GiveUpDelivered = Annotated[
    bool, Option(help="Go also without rows that were handed over to a sink which cannot take them back.")
]


def command(example: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Register the function as the command of its name; errors are reported in its ``output`` format, and its help
    ends with ``example``.
    """

    def register(function: Callable[P, None]) -> Callable[P, None]:
        guarded = _guarded(function)
        app.add_command(_click_command(function, guarded, example))
        return guarded

    return register


def separate_command(example: str) -> Callable[[Callable[P, None]], click.Command]:
    """Make a command of the function as ``command`` does, for a package that adds it (headrace.cli.command_group)."""
    return lambda function: _click_command(function, _guarded(function), example)


def _guarded(function: Callable[P, None]) -> Callable[P, None]:
    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        with reported(Format(str(kwargs["output"]))):
            function(*args, **kwargs)

    return guarded


def _click_command(function: Callable[P, None], callback: Callable[P, None], example: str) -> click.Command:
    text = cleandoc(function.__doc__ or "")
    return click.Command(
        function.__name__.replace("_", "-"),
        callback=callback,
        params=[*parameters(function)],
        help=text,
        short_help=text.partition(". ")[0].partition("\n")[0].rstrip(".") + ".",
        epilog=f"\b\nExample:\n  {example}",
    )
