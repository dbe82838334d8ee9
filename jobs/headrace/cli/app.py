"""The application ``headrace``: its exit codes, its group of commands, and how a function becomes one.

Exit codes say what the caller of a command should do next, as in the tree of headrace.errors.

The group (``CommandGroup``) has Headrace's own commands, and those that other packages add. A package adds one as an
entry point of the group ``headrace.commands``: a ``click.Command``, by its name. It may make one with
``headrace.cli.app.separate_command``, of a function like Headrace's own commands::

    [project.entry-points."headrace.commands"]
    simulate = "headrace_lab.commands.simulate:simulate"

Such a command is looked for when somebody types its name, so that nothing else waits for it: ``headrace --help`` does
not list it. One that nobody has is a wrong command line; one that cannot be loaded is the error config.entry_point.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import cleandoc
from typing import Annotated, Any, Final, ParamSpec

import click

from headrace import __version__
from headrace.cli import parameters as cli_parameters
from headrace.cli.output import Format, report_errors
from headrace.errors import FixConfigError, FixDataError, GiveUpError, HeadraceError, RestoreError, RetryError
from headrace.installed import EntryPointGroup, require_library
from headrace.this_process import escape_invisible

DONE: Final = 0
FAILED_CASES: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130

_OF_BRANCHES: Final[dict[type[HeadraceError], str]] = {
    FixConfigError: "fix the pipeline, the command or the environment; trying again does not help",
    FixDataError: "correct the data (the input, or what an expectation found in the output), then run again",
    RetryError: "try again: something outside failed or was busy",
    RestoreError: "something stored is damaged or missing: go back to an older snapshot (headrace rollback, recover)",
    GiveUpError: "do not try again as it is: another writer has the branch, or an invariant broke",
}
_OTHER_EXIT_CODES: Final = {
    DONE: "done",
    FAILED_CASES: "test, conformance, simulate: one failed; diff --against, deliver --check: they differ; any other "
    "command: a mistake in Headrace, with a traceback",
    USAGE: "the command line is wrong: see headrace COMMAND --help",
    INTERRUPTED: "interrupted by Ctrl-C; what was committed stays",
}


def exit_code_meanings() -> Iterator[tuple[int, str]]:
    """Every exit code and what it means, in order."""
    yield from sorted(
        {**_OTHER_EXIT_CODES, **{branch.exit_code: words for branch, words in _OF_BRANCHES.items()}}.items()
    )


COMMANDS: Final[EntryPointGroup[click.Command]] = EntryPointGroup("headrace.commands", "command")
LAB: Final = ("conformance", "simulate")
"""Commands of the package headrace_lab, which comes with the repository."""

MORE_COMMANDS: Final = f"Other packages may add commands: headrace-lab has {' and '.join(LAB)}."


class CommandGroup(click.Group):
    """The commands; Ctrl-C ends any of them with the exit code of what was interrupted."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if (own := super().get_command(ctx, cmd_name)) is not None:
            return own
        with report_errors(Format.TEXT):
            own_command = COMMANDS.get(cmd_name)
            if own_command is None and cmd_name in LAB:
                require_library("headrace_lab", f"headrace {cmd_name}", "./lab in a clone of the repository")
            return own_command

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _visible_errors():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with _visible_errors():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


@contextmanager
def _visible_errors() -> Iterator[None]:
    """Have Click show the words of a command line that it finds fault with as text."""
    try:
        yield
    except click.UsageError as error:
        message = error.format_message()
        if message == escape_invisible(message):
            raise
        raise click.UsageError(escape_invisible(message), error.ctx) from error


P = ParamSpec("P")


def _version_option() -> click.Option:
    def print_version(ctx: click.Context, _param: click.Parameter, is_asked: bool) -> None:
        if is_asked:
            click.echo(f"headrace {__version__}")
            ctx.exit()

    return click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=print_version,
        help="Print the version.",
    )


app = CommandGroup(
    name="headrace",
    params=[_version_option(), cli_parameters.show_completion("headrace")],
    help="Pipelines in the terms of the Dataflow Model, as snapshots in an object store.",
    epilog="\b\nExit codes:\n"
    + "\n".join(f"  {code:>3}  {words}" for code, words in exit_code_meanings())
    + f"\n\n{MORE_COMMANDS}",
    no_args_is_help=True,
    context_settings={"max_content_width": 120, "help_option_names": ["--help", "-h"]},
)

PipelineArgument = Annotated[
    str,
    cli_parameters.Argument(
        metavar="PIPELINE",
        help="A registered name, or path/to/file.py[:name].",
        complete=cli_parameters.complete_pipeline,
    ),
]
SnapshotArgument = Annotated[
    str,
    cli_parameters.Argument(
        metavar="SNAPSHOT",
        help="A snapshot's id (see headrace log), a branch or a tag.",
        complete=cli_parameters.complete_snapshot,
    ),
]
RootOption = Annotated[
    str,
    cli_parameters.Option(help="URI of the deployment: file:///folder or s3://bucket/prefix.", envvar="HEADRACE_ROOT"),
]
FormatOption = Annotated[
    Format, cli_parameters.Option(name="--format", help="Tables for people, or JSON for machines.")
]
ViewOption = Annotated[
    str, cli_parameters.Option(name="--view", help="current, panes, late, rejected, or state (open windows).")
]
StageOption = Annotated[
    int | None,
    cli_parameters.Option(min=1, help="The number of an aggregation in the chain; by default the last."),
]
AtOption = Annotated[
    str,
    cli_parameters.Option(
        help="A branch, a tag, a snapshot's id, or a time: what readers saw then, like 2026-01-01T00:00:00Z.",
        complete=cli_parameters.complete_at,
    ),
]
RefArgument = Annotated[
    str,
    cli_parameters.Argument(metavar="NAME", help="A branch or a tag.", complete=cli_parameters.complete_droppable),
]


def command(
    example: str, *, options: str = "", before: str = "output"
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register the function as the command of its name; errors are reported in its ``output`` format, and its help
    ends with ``example``. ``options``: it takes what ``COMMANDS`` of ``headrace.runs.options`` says of a command of
    that name, as keywords; help has them ``before`` another of its options.
    """

    def register(function: Callable[P, None]) -> Callable[P, None]:
        guarded_function = _guard_command(function)
        app.add_command(_DeclaredCommand(function, guarded_function, example, options, before))
        return guarded_function

    return register


def separate_command(example: str) -> Callable[[Callable[P, None]], click.Command]:
    """Make a command of the function as ``command`` does, for a package that adds it (headrace.cli.app)."""
    return lambda function: _DeclaredCommand(function, _guard_command(function), example)


def _guard_command(function: Callable[P, None]) -> Callable[P, None]:
    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        with report_errors(Format(str(kwargs["output"]))):
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
        # so that ``__getattr__`` is asked for them
        del self.params
        self._declared = (function, options, before)

    def __getattr__(self, name: str) -> list[click.Parameter]:
        if name != "params":
            raise AttributeError(f"{type(self).__name__} has no {name}")
        function, options, help_before = self._declared
        self.params = [
            *cli_parameters.click_parameters(function, cli_parameters.run_options(options), before=help_before)
        ]
        return self.params
