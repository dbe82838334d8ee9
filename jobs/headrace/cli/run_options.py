"""The options of a run on the command line, made of their declarations (``headrace.runs.options``)."""

from collections.abc import Iterator, Mapping
from typing import Any

import click

from headrace.cli.completion import complete_branch
from headrace.cli.parameters import Option, click_option
from headrace.pipeline.executors import AUTO, EXECUTORS
from headrace.runs.declared_options import options_of_command
from headrace.runs.option_kinds import BranchOption, ExecutorNameOption, RunOption, TextsOption, WholeOption


def run_options(command: str) -> Iterator[click.Option]:
    """The options that are declared for a command."""
    for option in options_of_command(command):
        default = None if isinstance(option.kind, TextsOption) else option.default
        kind = option.kind.value_type if default is not None else option.kind.value_type | None
        yield click_option(option.name, _shown(option), kind, default)


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """What was given of ``options``; a method has its own defaults for all else."""
    return {name: value for name, value in options.items() if value is not None}


def flags_again(command: str, options: Mapping[str, Any]) -> str:
    """The flags among ``options`` that were given, each after a space, for a command to write again."""
    flags = (option.flag for option in options_of_command(command) if options.get(option.name) is True)
    return "".join(f" {flag}" for flag in flags)


def _shown(option: RunOption) -> Option:
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
