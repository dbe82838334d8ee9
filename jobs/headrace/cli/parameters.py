"""What a command takes, and what a shell offers for it while somebody types.

A command takes what the signature of its function says, and what the declarations of a run's options say, as parameters
of Click. ``limit: Annotated[int, Option(min=1, help="Entries to print.")] = 20`` is the option ``--limit``. Typer knows
that form too, but imports pydantic to convert values, which takes longer than all else that most commands do.

A shell offers names of pipelines, branches, tags and snapshots. Whatever goes wrong with that offers nothing: a shell
has no place for an error, and the command itself will tell it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from inspect import Parameter, signature
from itertools import islice
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin

import click
import msgspec

from headrace.installed import EntryPointGroup
from headrace.pipeline.scheduling import AUTO, EXECUTORS
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
    function: Callable[..., object], options: Iterable[click.Option] = (), *, before: str = ""
) -> Iterator[click.Parameter]:
    """The parameters of Click's that give ``function`` what it takes; ``options``, which it takes as keywords, come
    ``before`` one of its own.
    """
    for name, parameter in signature(function).parameters.items():
        if name == before:
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


def click_option(name: str, declared: Option, kind: Any, default: Any) -> click.Option:
    """The option of Click's that gives a ``kind`` as the argument ``name``."""
    is_list = get_origin(_without_none(kind)) is list
    return click.Option(
        [name, declared.name or f"--{name.replace('_', '-')}"],
        help=declared.help,
        metavar=declared.metavar,
        type=_click_type(kind, declared.min, declared.max)
        if declared.group is None
        else _Name(declared.words, declared.group),
        is_flag=_without_none(kind) is bool,
        multiple=is_list,
        callback=_list_or_none if is_list else None,
        envvar=declared.envvar,
        show_envvar=declared.envvar is not None,
        show_default=declared.default_text or default != "",
        shell_complete=declared.complete,
        **_default_keywords(default),
    )


def _default_keywords(default: Any) -> dict[str, Any]:
    if default is Parameter.empty:
        return {"required": True}
    return {"default": default.value if isinstance(default, StrEnum) else default}


def _list_or_none(_ctx: click.Context, _param: click.Parameter, values: tuple[Any, ...]) -> list[Any] | None:
    return [*values] or None


_CLICK_TYPES: Final[dict[object, "click.ParamType[Any]"]] = {
    str: click.STRING,
    bool: click.BOOL,
    int: click.INT,
    float: click.FLOAT,
    Path: click.Path(path_type=Path),
}


def _click_type(kind: Any, least: float | None = None, most: float | None = None) -> "click.ParamType[Any]":
    one = _without_none(kind)
    if get_origin(one) is list:
        (one,) = get_args(one)
    if isinstance(one, type) and issubclass(one, StrEnum):
        return _Word(one)
    if least is None and most is None:
        return _CLICK_TYPES[one]
    return click.FloatRange(least, most) if one is float else click.IntRange(_int_or_none(least), _int_or_none(most))


def _int_or_none(bound: float | None) -> int | None:
    return None if bound is None else int(bound)


def _without_none(kind: Any) -> Any:
    """``kind``, without its None."""
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

_FIXED = {MAIN, PUBLISHED}

_SHELLS = ("bash", "zsh", "fish")


def complete_pipeline(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Registered names."""
    return _completions(_registered_pipelines, incomplete)


def complete_branch(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Branches and tags of the pipeline that the line names."""
    return _completions(lambda: [*_FIXED, *_ref_names(ctx)], incomplete)


def complete_at(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Branches, tags, and the newest snapshots of the pipeline that the line names."""
    return _completions(lambda: [*_FIXED, *_ref_names(ctx), *_recent_snapshots(ctx)], incomplete)


def complete_droppable(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names of branches and tags that can be dropped."""
    return _completions(lambda: _ref_names(ctx) - _FIXED, incomplete)


def complete_snapshot(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Branches, tags, and the newest snapshots of the pipeline that the line names."""
    return _completions(lambda: [*_ref_names(ctx), *_recent_snapshots(ctx)], incomplete)


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


def _completions(names: Callable[[], Iterable[str]], incomplete: str) -> list[str]:
    try:
        return sorted({name for name in names() if name.startswith(incomplete)})
    except Exception:
        return []


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
