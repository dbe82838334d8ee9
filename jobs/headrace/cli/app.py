"""The application ``headrace``: its exit codes, its group of commands, how a function becomes one, and what it takes.

Exit codes say what the caller of a command should do next, as in the tree of headrace.errors.

The group (``CommandGroup``) has Headrace's own commands, and those that other packages add. A package adds one as an
entry point of the group ``headrace.commands``: a ``click.Command``, by its name. It may make one with
``headrace.cli.app.separate_command``, of a function like Headrace's own commands::

    [project.entry-points."headrace.commands"]
    simulate = "headrace_lab.commands.simulate:simulate"

Such a command is looked for when somebody types its name, so that nothing else waits for it: ``headrace --help`` does
not list it. One that nobody has is a wrong command line; one that cannot be loaded is the error config.entry_point.

A command takes what the signature of its function says, and what the declarations of a run's options say, as parameters
of Click. ``limit: Annotated[int, Option(min=1, help="Entries to print.")] = 20`` is the option ``--limit``. Typer knows
that form too, but imports pydantic to convert values, which takes longer than all else that most commands do.

A shell offers names of pipelines, branches, tags and snapshots while somebody types. Whatever goes wrong with that
offers nothing: a shell has no place for an error, and the command itself will tell it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import wraps
from inspect import Parameter, cleandoc, signature
from itertools import islice
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Final, ParamSpec, get_args, get_origin

import click
import msgspec

from headrace import __version__
from headrace.cli.output import Format, report_errors
from headrace.errors import FixConfigError, FixDataError, GiveUpError, HeadraceError, RestoreError, RetryError
from headrace.installed import EntryPointGroup, require_library
from headrace.pipeline.scheduling import AUTO, EXECUTORS
from headrace.this_process import escape_invisible
from headrace_snapshots.names import MAIN, PUBLISHED, TAGS

if TYPE_CHECKING:
    from headrace.runs.option_kinds import RunOption
    from headrace_snapshots.catalog import Catalog


Completion = Callable[[click.Context, click.Parameter, str], list[str]]


class Argument(msgspec.Struct, frozen=True):
    """An argument: what comes without a name, in the order of the signature."""

    help: str
    metavar: str
    complete: Completion | None = None


class Option(msgspec.Struct, frozen=True):
    """An option, called as its parameter unless ``name`` says otherwise; without a default it must be given.

    ``min`` and ``max`` are inclusive bounds of a number; ``envvar`` is the variable that gives the value where the
    command line does not; ``default_text`` is what help says of a default that the value does not tell. ``words`` are
    the values that help names; besides them each name of ``group`` is one.
    """

    help: str
    name: str | None = None
    min: float | None = None
    max: float | None = None
    metavar: str | None = None
    envvar: str | None = None
    complete: Completion | None = None
    default_text: str | None = None
    words: Sequence[str] = ()
    group: EntryPointGroup[Any] | None = None


def click_parameters(
    function: Callable[..., object], options: Iterable[click.Option] = (), *, next_parameter: str = ""
) -> Iterator[click.Parameter]:
    """The parameters of Click's that give ``function`` what it takes; ``options``, which it takes as keywords, come
    before ``next_parameter``, one of its own.
    """
    for name, parameter in signature(function).parameters.items():
        if name == next_parameter:
            yield from options
        if parameter.kind is not Parameter.VAR_KEYWORD:
            kind, declaration = get_args(parameter.annotation)
            yield (
                _click_argument(name, declaration, kind, parameter)
                if isinstance(declaration, Argument)
                else click_option(name, declaration, kind, parameter.default)
            )


class _Word(click.Choice[str]):
    """One of the words of an enumeration."""

    def __init__(self, kind: type[StrEnum]) -> None:
        super().__init__([member.value for member in kind])
        self._kind = kind

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self._kind(super().convert(str(value), param, ctx))


class _Name(click.Choice[str]):
    """One of some words, or the name of a part of ``group``, which help does not look for."""

    def __init__(self, words: Sequence[str], group: EntryPointGroup[Any]) -> None:
        super().__init__(words)
        self._group = group

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value not in self.choices:
            self.choices = tuple(dict.fromkeys([*self.choices, *self._group.names()]))
        return super().convert(str(value), param, ctx)


def _click_argument(name: str, declaration: Argument, kind: Any, parameter: Parameter) -> click.Argument:
    return click.Argument(
        [name],
        help=declaration.help,
        metavar=declaration.metavar,
        type=_click_type(kind),
        shell_complete=declaration.complete,
        **_default_keywords(parameter.default),
    )


def click_option(name: str, option: Option, kind: Any, default: Any) -> click.Option:
    """The option of Click's that gives a ``kind`` as the argument ``name``."""
    is_list = get_origin(_without_none(kind)) is list
    return click.Option(
        [name, option.name or f"--{name.replace('_', '-')}"],
        help=option.help,
        metavar=option.metavar,
        type=_click_type(kind, option.min, option.max) if option.group is None else _Name(option.words, option.group),
        is_flag=_without_none(kind) is bool,
        multiple=is_list,
        callback=_list_or_none if is_list else None,
        envvar=option.envvar,
        show_envvar=option.envvar is not None,
        show_default=option.default_text or default != "",
        shell_complete=option.complete,
        **_default_keywords(default),
    )


def _default_keywords(default: Any) -> dict[str, Any]:
    if default is Parameter.empty:
        return {"required": True}
    return {"default": default.value if isinstance(default, StrEnum) else default}


def _list_or_none(_ctx: click.Context, _param: click.Parameter, values: tuple[Any, ...]) -> list[Any] | None:
    return [*values] or None


def _click_type(kind: Any, least: float | None = None, most: float | None = None) -> Any:
    one = _without_none(kind)
    if get_origin(one) is list:
        (one,) = get_args(one)
    if isinstance(one, type) and issubclass(one, StrEnum):
        return _Word(one)
    if least is None and most is None:
        return click.Path(path_type=Path) if one is Path else one
    return click.FloatRange(least, most) if one is float else click.IntRange(_int_or_none(least), _int_or_none(most))


def _int_or_none(bound: float | None) -> int | None:
    return None if bound is None else int(bound)


def _without_none(kind: Any) -> Any:
    kinds = [part for part in get_args(kind) if part is not NoneType]
    return kinds[0] if NoneType in get_args(kind) else kind


def run_options(command: str) -> Iterator[click.Option]:
    """The options of a run that are declared for a command; none of a command without a name."""
    if not command:
        return
    from headrace.runs.options import options_of_command  # for what runs

    for option in options_of_command(command):
        default = None if option.kind.value_type == list[str] else option.default
        kind = option.kind.value_type if default is not None else option.kind.value_type | None
        yield click_option(option.name, _to_cli_option(option), kind, default)


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """What was given of ``options``; a method has its own defaults for all else."""
    return {name: value for name, value in options.items() if value is not None}


def flags_again(command: str, options: Mapping[str, Any]) -> str:
    """The flags among ``options`` that were given, each after a space, for a command to write again."""
    from headrace.runs.options import options_of_command

    flags = (option.flag for option in options_of_command(command) if options.get(option.name) is True)
    return "".join(f" {flag}" for flag in flags)


def _to_cli_option(option: "RunOption") -> Option:
    from headrace.runs.option_kinds import BranchOption, ExecutorNameOption, WholeOption

    kind = option.kind
    is_executor = isinstance(kind, ExecutorNameOption)
    return Option(
        option.help,
        option.flag,
        min=1 if isinstance(kind, WholeOption) else None,
        metavar=option.metavar,
        complete=complete_branch if isinstance(kind, BranchOption) else None,
        words=(*EXECUTORS.built_in, AUTO) if is_executor else (),
        group=EXECUTORS if is_executor else None,
    )


_RECENT = 20
"""Entries of the log whose snapshots are offered."""

_FIXED_REFS = {MAIN, PUBLISHED}

_SHELLS = ("bash", "zsh", "fish")


def _complete_from(names: Callable[[click.Context], Iterable[str]]) -> Completion:
    """Offer those ``names`` that begin so; a context has the pipeline that the line names."""

    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        try:
            return sorted({name for name in names(ctx) if name.startswith(incomplete)})
        except Exception:
            return []

    return complete


complete_pipeline = _complete_from(lambda _ctx: _registered_pipelines())
complete_branch = _complete_from(lambda ctx: [*_FIXED_REFS, *_ref_names(ctx)])
complete_at = _complete_from(lambda ctx: [*_FIXED_REFS, *_ref_names(ctx), *_recent_snapshots(ctx)])
complete_droppable = _complete_from(lambda ctx: _ref_names(ctx) - _FIXED_REFS)
complete_snapshot = _complete_from(lambda ctx: [*_ref_names(ctx), *_recent_snapshots(ctx)])


def show_completion(program: str) -> click.Option:
    """The option that prints the script with which a shell completes ``program``."""

    def print_completion(ctx: click.Context, _param: click.Parameter, shell: str | None) -> None:
        if shell is None:
            return
        from click.shell_completion import get_completion_class

        completion = get_completion_class(shell)
        assert completion is not None  # Click has those of _SHELLS
        click.echo(completion(ctx.command, {}, program, f"_{program.upper()}_COMPLETE").source())
        ctx.exit()

    return click.Option(
        ["--show-completion"],
        type=click.Choice(_SHELLS),
        is_eager=True,
        expose_value=False,
        callback=print_completion,
        help='Print what makes a shell complete names: eval "$(headrace --show-completion bash)" in ~/.bashrc.',
    )


def _registered_pipelines() -> Iterable[str]:
    from headrace.pipeline.loading.registry import registered_files

    return registered_files().pipelines


def _ref_names(ctx: click.Context) -> set[str]:
    head = _open_catalog(ctx).head()
    return {name.removeprefix(TAGS) for name in (*head.refs, *head.generations)}


def _recent_snapshots(ctx: click.Context) -> set[str]:
    moves = [entry.moves for entry in islice(_open_catalog(ctx).entries(), _RECENT)]
    return {new_id for move in moves for _, new_id in move.values() if new_id is not None}


def _open_catalog(ctx: click.Context) -> "Catalog":
    from headrace.cli.deployments import handle_of

    # a line that ends with an option is not taken apart to its end: its arguments are what is left
    return handle_of(ctx.params.get("pipeline") or ctx.args[0], ctx.params["root"]).catalog


EXIT_DONE: Final = 0
FAILED_CASES: Final = 1
USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130

_OF_BRANCHES: Final[dict[type[HeadraceError], str]] = {
    FixConfigError: "fix the pipeline, the command or the environment; trying again does not help",
    FixDataError: "correct the data (the input, or what an expectation found in the output), then run again",
    RetryError: "try again: something outside failed or was busy",
    RestoreError: "something stored is damaged or missing: go back to an older snapshot (headrace rollback, recover)",
    GiveUpError: "do not try again as it is: another writer has the branch, or an invariant broke",
}
_OTHER_EXIT_CODES: Final = {
    EXIT_DONE: "done",
    FAILED_CASES: "test, conformance, simulate: one failed; diff --against, deliver --check: they differ; any other "
    "command: a mistake in Headrace, with a traceback",
    USAGE: "the command line is wrong: see headrace COMMAND --help",
    EXIT_INTERRUPTED: "interrupted by Ctrl-C; what was committed stays",
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
            ctx.exit(EXIT_INTERRUPTED)


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


app = CommandGroup(
    name="headrace",
    help="Pipelines in the terms of the Dataflow Model, as snapshots in an object store.",
    epilog="\b\nExit codes:\n"
    + "\n".join(f"  {code:>3}  {words}" for code, words in exit_code_meanings())
    + f"\n\n{MORE_COMMANDS}",
    no_args_is_help=True,
    context_settings={"max_content_width": 120, "help_option_names": ["--help", "-h"]},
)
click.version_option(__version__, message="headrace %(version)s", help="Print the version.")(app)
app.params.append(show_completion("headrace"))

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
RootOption = Annotated[
    str,
    Option(help="URI of the deployment: file:///folder or s3://bucket/prefix.", envvar="HEADRACE_ROOT"),
]
FormatOption = Annotated[Format, Option(name="--format", help="Tables for people, or JSON for machines.")]
ViewOption = Annotated[str, Option(name="--view", help="current, panes, late, rejected, or state (open windows).")]
StageOption = Annotated[
    int | None,
    Option(min=1, help="The number of an aggregation in the chain; by default the last."),
]
AtOption = Annotated[
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
    example: str, *, options: str = "", next_parameter: str = "output"
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register the function as the command of its name; errors are reported in its ``output`` format, and its help ends
    with ``example``. ``options``: it takes what ``COMMANDS`` of ``headrace.runs.options`` says of a command of that
    name, as keywords; help has them before ``next_parameter``, another of its options.
    """

    def register(function: Callable[P, None]) -> Callable[P, None]:
        guarded_function = _guard_command(function)
        app.add_command(_DeclaredCommand(function, guarded_function, example, options, next_parameter))
        return guarded_function

    return register


def separate_command(example: str) -> Callable[[Callable[P, None]], click.Command]:
    """Make a command of the function as ``command`` does, for a package that adds it (headrace.cli.app)."""
    return lambda function: _DeclaredCommand(function, _guard_command(function), example)


def _guard_command(function: Callable[P, None]) -> Callable[P, None]:
    @wraps(function)
    def call_guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        with report_errors(Format(str(kwargs["output"]))):
            function(*args, **kwargs)

    return call_guarded


class _DeclaredCommand(click.Command):
    """The command of a function, whose parameters are made when somebody asks for them."""

    def __init__(
        self,
        function: Callable[..., None],
        callback: Callable[..., None],
        example: str,
        options: str = "",
        next_parameter: str = "",
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
        self._parameter_parts = (function, options, next_parameter)

    def __getattr__(self, name: str) -> list[click.Parameter]:
        if name != "params":
            raise AttributeError(f"{type(self).__name__} has no {name}")
        function, options, next_parameter = self._parameter_parts
        self.params = [*click_parameters(function, run_options(options), next_parameter=next_parameter)]
        return self.params
