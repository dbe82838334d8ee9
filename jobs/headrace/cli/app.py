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
from headrace.cli.parameters import Argument, Option, parameters, run_options

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


def command(
    example: str, *, options: str = "", before: str = "output"
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register the function as the command of its name; errors are reported in its ``output`` format, and its help
    ends with ``example``. ``options``: it takes what ``COMMANDS`` of ``headrace.runs.options`` says of a command of
    that name, as keywords; help has them ``before`` another of its options.
    """

    def register(function: Callable[P, None]) -> Callable[P, None]:
        guarded = _guarded(function)
        app.add_command(_DeclaredCommand(function, guarded, example, options, before))
        return guarded

    return register


def separate_command(example: str) -> Callable[[Callable[P, None]], click.Command]:
    """Make a command of the function as ``command`` does, for a package that adds it (headrace.cli.command_group)."""
    return lambda function: _DeclaredCommand(function, _guarded(function), example)


def _guarded(function: Callable[P, None]) -> Callable[P, None]:
    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        with reported(Format(str(kwargs["output"]))):
            function(*args, **kwargs)

    return guarded


class _DeclaredCommand(click.Command):
    """The command of a function, whose parameters are made when somebody asks for them."""

    def __init__(
        self,
        function: Callable[..., None],
        callback: Callable[..., None],
        example: str,
        options: str = "",
        before: str = "",
    ) -> None:
        text = cleandoc(function.__doc__ or "")
        super().__init__(
            function.__name__.replace("_", "-"),
            callback=callback,
            help=text,
            short_help=text.partition(". ")[0].partition("\n")[0].rstrip(".") + ".",
            epilog=f"\b\nExample:\n  {example}",
        )
        del self.params
        self._declared = (function, options, before)

    def __getattr__(self, name: str) -> list[click.Parameter]:
        if name != "params":
            raise AttributeError(f"{type(self).__name__} has no {name}")
        function, options, before = self._declared
        self.params = [*parameters(function, run_options(options), before=before)]
        return self.params
