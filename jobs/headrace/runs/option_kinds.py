"""How an option of a run is declared: its kind, and what people read of it at each door.

The command line and forms are made of declarations whenever they are looked at, so this imports next to nothing.
"""

from collections.abc import Mapping, Set
from dataclasses import field
from datetime import date
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple

from headrace.errors import FixConfigError
from headrace.pipeline.scheduling import executor_name

if TYPE_CHECKING:
    from headrace.model.arguments import Arguments


class RunOptionsError(FixConfigError, code="config.run_options"):
    """An option of a run that makes no sense."""


OPTION_KEY: Final = "option"
"""The key of a declaration among what a field of RunOptions carries."""


class OptionKind:
    """The kind of an option's value, such as the ``example``. ``value_type`` is what one is on the command line;
    ``annotation`` says what Python takes; ``empty`` is what None stands for there, if not for the default.
    """

    value_type: ClassVar[Any] = str
    annotation: ClassVar[str] = "str"
    empty: ClassVar[object] = None
    schema: ClassVar[Mapping[str, Any]] = {"type": ["null", "string"]}
    """The JSON Schema of its field in a form."""

    def __init__(self, example: Any = None) -> None:
        self.example = example

    def check_value(self, arguments: "Arguments", name: str, value: object) -> Any:
        """The field's value for what was given in Python. Raises the error of ``arguments``."""
        raise NotImplementedError

    def of_text(self, text: Any) -> Any:
        """The field's value for what the parser of arguments has read."""
        return text

    @property
    def argument(self) -> Mapping[str, Any]:
        """What ``argparse`` is told of it."""
        return {}


class WholeOption(OptionKind):
    """A whole number of at least 1."""

    value_type = int
    annotation = "int"
    argument = {"type": int}
    schema = {"type": ["null", "integer"], "minimum": 1}

    def check_value(self, arguments: "Arguments", name: str, value: object) -> int:
        return arguments.whole_number(name, value, least=1)


class FlagOption(OptionKind):
    """On or off."""

    value_type = bool
    annotation = "bool"
    empty = False
    argument = {"action": "store_true"}
    schema = {"type": "boolean"}

    def check_value(self, arguments: "Arguments", name: str, value: object) -> bool:
        return arguments.flag(name, value)


class TextOption(OptionKind):
    """Text that is not empty."""

    def check_value(self, arguments: "Arguments", name: str, value: object) -> str:
        return arguments.text(name, value, self.example)


class BranchOption(TextOption):
    """The name of a branch: shells complete it, and forms hold it against the grammar of names."""


class OutputOption(TextOption):
    """The name of an output: forms offer those of the pipeline."""


class TimeOption(TextOption):
    """A day or a moment, as text; in Python also a date or a datetime."""

    annotation = "str | date"
    schema = {**TextOption.schema, "format": "date-time"}

    def check_value(self, arguments: "Arguments", name: str, value: object) -> str:
        return super().check_value(arguments, name, value.isoformat() if isinstance(value, date) else value)


class MomentOption(TimeOption):
    """A moment, as text or a datetime."""

    annotation = "str | datetime"


class TextsOption(TextOption):
    """Any number of texts."""

    value_type = list[str]
    annotation = "Sequence[str]"
    empty = ()
    schema = {"type": "array", "items": {"type": "string"}}  # with examples, people could choose but not write

    def check_value(self, arguments: "Arguments", name: str, value: object) -> Any:
        return arguments.tuple_of(name, tuple(value) if isinstance(value, Set) else value, str, f'"{self.example}"')

    def of_text(self, text: Any) -> Any:
        return tuple(text)

    @property
    def argument(self) -> Mapping[str, Any]:
        return {"action": "append", "default": []}


class SignalsOption(TextsOption):
    """Signals, each as text or as the model has it, which ``asked_options`` makes of it."""

    annotation = '"Sequence[str | Signal]"'


class ChoiceOption(OptionKind):
    """A word of the enumeration of which the ``example`` is one."""

    @property
    def value_type(self) -> Any:  # each has words of its own
        return type(self.example)

    def check_value(self, arguments: "Arguments", name: str, value: object) -> Any:
        return arguments.choice(name, value, self.value_type)

    def of_text(self, text: Any) -> Any:
        return self.value_type(text)

    @property
    def argument(self) -> Mapping[str, Any]:
        return {"choices": list(self.value_type)}


class ExecutorNameOption(OptionKind):
    """The name of an executor, or that a run looks which one fits."""

    def check_value(self, arguments: "Arguments", name: str, value: object) -> str:
        return executor_name(arguments, value)


class RunOption(NamedTuple):
    """One option of a run, as people give it.

    ``name`` is its parameter in Python, ``flag`` its option on the command line. ``argument`` is that of the process
    which a task of Airflow runs, ``in_form`` its field in forms. Each follows from the one before it, and the name from
    the field of RunOptions. ``help`` is for the command line; ``title`` and ``about`` are for forms, which say the help
    where nothing else is said. A form has it only where ``needs``, a property of the pipeline, is true. ``doors`` has
    what is different at a command or a form, by its name.
    """

    kind: OptionKind
    help: str = ""
    name: str = ""
    flag: str = ""
    argument: str = ""
    in_form: str = ""
    metavar: str | None = None
    title: str = ""
    about: str = ""
    needs: str = ""
    default: Any = None
    in_python: bool = True
    on_command_line: bool = True
    doors: Mapping[str, Mapping[str, Any]] = MappingProxyType({})

    def for_door(self, door: str) -> "RunOption":
        """The option as a command or a form has it."""
        return self._replace(**self.doors.get(door, {}))


OptionResult = Literal["span", "clock"]
"""What is made of several options."""


class OptionField(NamedTuple):
    """A field of RunOptions and the ``options`` that say it; ``result_kind`` makes its value of them, if given."""

    options: tuple[RunOption, ...]
    result_kind: OptionResult | None = None


def option_field(default: Any, *options: RunOption, result: OptionResult | None = None) -> Any:
    """A field of RunOptions with the ``options`` that it is given by; the value of several is ``result``."""
    field_options = options if result is not None else tuple(one._replace(default=default) for one in options)
    return field(default=default, metadata={OPTION_KEY: OptionField(field_options, result)})


def single_option(default: Any, kind: OptionKind, text: str = "", **parts: Any) -> Any:
    """A field of RunOptions that one option gives: its ``kind``, its help, and the other ``parts`` of a RunOption."""
    return option_field(default, RunOption(kind, text, **parts))
