"""What a command takes, said by the signature of its function and by the declarations of a run's options, for Click.

``limit: Annotated[int, Option(min=1, help="Entries to print.")] = 20`` is the option ``--limit``. Typer knows that form
too, but imports pydantic to convert values, which takes longer than all else that most commands do.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from inspect import Parameter, signature
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin

import click

from headrace.entry_points import EntryPointGroup
from headrace.pipeline.executors import AUTO, EXECUTORS

if TYPE_CHECKING:
    from headrace.runs.option_kinds import RunOption

Completion = Callable[[click.Context, click.Parameter, str], list[str]]


@dataclass(frozen=True)
class Argument:
    """An argument: what comes without a name, in the order of the signature."""

    help: str
    metavar: str
    complete: Completion | None = None


@dataclass(frozen=True)
class Option:
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


def parameters(
    function: Callable[..., object], options: Iterable[click.Option] = (), *, before: str = ""
) -> Iterator[click.Parameter]:
    """The parameters of Click's that give ``function`` what it takes; ``options``, which it takes as keywords, come
    ``before`` one of its own.
    """
    for name, parameter in signature(function).parameters.items():
        if name == before:
            yield from options
        if parameter.kind is not Parameter.VAR_KEYWORD:
            kind, declared = get_args(parameter.annotation)
            yield (
                _argument(name, declared, kind, parameter)
                if isinstance(declared, Argument)
                else click_option(name, declared, kind, parameter.default)
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


def _argument(name: str, declared: Argument, kind: Any, parameter: Parameter) -> click.Argument:
    return click.Argument(
        [name],
        help=declared.help,
        metavar=declared.metavar,
        type=_type(kind),
        shell_complete=declared.complete,
        **_given(parameter.default),
    )


def click_option(name: str, declared: Option, kind: Any, default: Any) -> click.Option:
    """The option of Click's that gives a ``kind`` as the argument ``name``."""
    is_list = get_origin(_one(kind)) is list
    return click.Option(
        [name, declared.name or f"--{name.replace('_', '-')}"],
        help=declared.help,
        metavar=declared.metavar,
        type=_type(kind, declared.min, declared.max)
        if declared.group is None
        else _Name(declared.words, declared.group),
        is_flag=_one(kind) is bool,
        multiple=is_list,
        callback=_listed if is_list else None,
        envvar=declared.envvar,
        show_envvar=declared.envvar is not None,
        show_default=declared.default_text or default != "",
        shell_complete=declared.complete,
        **_given(default),
    )


def _given(default: Any) -> dict[str, Any]:
    if default is Parameter.empty:
        return {"required": True}
    return {"default": default.value if isinstance(default, StrEnum) else default}


def _listed(_ctx: click.Context, _param: click.Parameter, values: tuple[Any, ...]) -> list[Any] | None:
    return [*values] or None


_TYPES: Final[dict[object, "click.ParamType[Any]"]] = {
    str: click.STRING,
    bool: click.BOOL,
    int: click.INT,
    float: click.FLOAT,
    Path: click.Path(path_type=Path),
}


def _type(kind: Any, least: float | None = None, most: float | None = None) -> "click.ParamType[Any]":
    one = _one(kind)
    if get_origin(one) is list:
        (one,) = get_args(one)
    if isinstance(one, type) and issubclass(one, StrEnum):
        return _Word(one)
    if least is None and most is None:
        return _TYPES[one]
    return click.FloatRange(least, most) if one is float else click.IntRange(_whole(least), _whole(most))


def _whole(bound: float | None) -> int | None:
    return None if bound is None else int(bound)


def _one(kind: Any) -> Any:
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
        yield click_option(option.name, _shown(option), kind, default)


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """What was given of ``options``; a method has its own defaults for all else."""
    return {name: value for name, value in options.items() if value is not None}


def flags_again(command: str, options: Mapping[str, Any]) -> str:
    """The flags among ``options`` that were given, each after a space, for a command to write again."""
    from headrace.runs.options import options_of_command

    flags = (option.flag for option in options_of_command(command) if options.get(option.name) is True)
    return "".join(f" {flag}" for flag in flags)


def _shown(option: "RunOption") -> Option:
    from headrace.cli.completion import complete_branch
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
