"""Which options of a run a command, a form and the process of a task take, as they are declared in ``RunOptions``."""

from dataclasses import fields
from functools import cache

from headrace.runs.option_kinds import DECLARED, OptionField, RunOption
from headrace.runs.options import COMMANDS, FORMS, RunOptions


@cache
def option_fields() -> dict[str, OptionField]:
    """The fields of RunOptions that people and tasks give, each with its options, whose names are all filled in."""
    declared = {field.name: field.metadata[DECLARED] for field in fields(RunOptions) if DECLARED in field.metadata}
    return {
        name: OptionField(tuple(_named(option, name) for option in of_field.options), of_field.made)
        for name, of_field in declared.items()
    }


@cache
def declared_options() -> dict[str, RunOption]:
    """All options by their names."""
    return {option.name: option for of_field in option_fields().values() for option in of_field.options}


def options_of_command(command: str) -> list[RunOption]:
    """The options of a command of ``headrace``, in the order of its help."""
    return [option for option in _at_command(command) if option.on_command_line]


def options_of_method(method: str) -> list[RunOption]:
    """The options of a method of ``PipelineHandle``, in the order of its signature."""
    return [option for option in _at_command(method) if option.in_python]


def options_of_form(form: str) -> list[RunOption]:
    """The options that are fields of a form, in its order."""
    return [declared_options()[name].at(form) for name in FORMS[form]]


def _at_command(command: str) -> list[RunOption]:
    return [declared_options()[name].at(command) for name in COMMANDS[command]]


def _named(option: RunOption, field_name: str) -> RunOption:
    name = option.name or field_name
    flag = option.flag or f"--{name.replace('_', '-')}"
    return option._replace(
        name=name,
        flag=flag,
        argument=option.argument or flag.partition("/")[0],
        in_form=option.in_form or name,
    )
