"""The application ``headrace``, how a function becomes one of its commands, and the arguments that several have."""

from collections.abc import Callable
from functools import wraps
from typing import Annotated, ParamSpec

import typer
from typer.core import TyperGroup

from headrace.cli.completion import complete_at, complete_droppable, complete_pipeline, complete_snapshot
from headrace.cli.exit_codes import listed
from headrace.cli.output import Format, reported
from headrace.pipeline.executors import Executor

P = ParamSpec("P")


class _ByName(TyperGroup):
    """Lists its commands by name, whichever module they are in."""

    def list_commands(self, ctx: object) -> list[str]:
        return sorted(self.commands)


app = typer.Typer(
    name="headrace",
    cls=_ByName,
    help="Pipelines in the terms of the Dataflow Model, as snapshots in an object store.",
    epilog="\b\nExit codes:\n" + "\n".join(f"  {code:>3}  {words}" for code, words in listed()),
    no_args_is_help=True,
    rich_markup_mode=None,  # Rich would take longer to import than all the rest
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 120, "help_option_names": ["--help", "-h"]},
)

PipelineArgument = Annotated[
    str,
    typer.Argument(
        metavar="PIPELINE",
        help="A registered name, or path/to/file.py[:name].",
        show_default=False,
        autocompletion=complete_pipeline,
    ),
]
SnapshotArgument = Annotated[
    str,
    typer.Argument(
        metavar="SNAPSHOT",
        help="A snapshot's id (see headrace log), a branch or a tag.",
        show_default=False,
        autocompletion=complete_snapshot,
    ),
]
Root = Annotated[
    str,
    typer.Option(
        help="URI of the deployment: file:///folder or s3://bucket/prefix.", envvar="HEADRACE_ROOT", show_default=False
    ),
]
Output = Annotated[Format, typer.Option("--format", help="Tables for people, or JSON for machines.")]
ViewOption = Annotated[str, typer.Option("--view", help="current, panes, late, rejected, or state (open windows).")]
StageOption = Annotated[
    int | None,
    typer.Option(
        min=1, help="Of a chain of aggregations the one of that number; by default the last.", show_default=False
    ),
]
At = Annotated[
    str,
    typer.Option(
        help="A branch, a tag, a snapshot's id, or a time: what readers saw then, like 2026-01-01T00:00:00Z.",
        autocompletion=complete_at,
    ),
]
RefArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="A branch or a tag.", show_default=False, autocompletion=complete_droppable),
]
ExecutorOption = Annotated[
    Executor | None,
    typer.Option(
        help="Where epochs are computed: as Spark jobs, in this process without a JVM, or wherever they fit; "
        "by default as the pipeline says."
    ),
]
FilesPerEpoch = Annotated[int | None, typer.Option(min=1, help="Files in one epoch, at most.")]
BytesPerEpoch = Annotated[int | None, typer.Option(min=1, help="Bytes in one epoch, at most.")]


def command(example: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Register the function as the command of its name; errors are reported in its ``output`` format, and its help
    ends with ``example``.
    """

    def register(function: Callable[P, None]) -> Callable[P, None]:
        @wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
            with reported(Format(str(kwargs["output"]))):
                function(*args, **kwargs)

        sentence = (function.__doc__ or "").partition(". ")[0].partition("\n")[0].rstrip(".") + "."
        return app.command(short_help=sentence, epilog=f"\b\nExample:\n  {example}")(guarded)

    return register
