"""The application ``headrace``, how a function becomes one of its commands, and the arguments that several have."""

from collections.abc import Callable
from functools import wraps
from typing import Annotated, ParamSpec

import typer

from headrace.cli.output import Format, reported

P = ParamSpec("P")

app = typer.Typer(
    name="headrace",
    help="Pipelines in the terms of the Dataflow Model, as snapshots in an object store.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

PipelineArgument = Annotated[
    str, typer.Argument(metavar="PIPELINE", help="A registered name, or path/to/file.py[:name].", show_default=False)
]
SnapshotArgument = Annotated[
    str, typer.Argument(metavar="SNAPSHOT", help="A snapshot's id (see headrace log).", show_default=False)
]
Root = Annotated[
    str,
    typer.Option(
        help="URI of the deployment: file:///folder or s3://bucket/prefix.", envvar="HEADRACE_ROOT", show_default=False
    ),
]
Output = Annotated[Format, typer.Option("--format", help="Tables for people, or JSON for machines.")]
ViewOption = Annotated[str, typer.Option("--view", help="current, panes, late or rejected.")]
Branch = Annotated[str, typer.Option(help="published, main, or another branch or tag.")]


def command(function: Callable[P, None]) -> Callable[P, None]:
    """Register ``function`` as the command of its name, with errors reported in its ``output`` format."""

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        with reported(Format(str(kwargs["output"]))):
            function(*args, **kwargs)

    return app.command()(guarded)
