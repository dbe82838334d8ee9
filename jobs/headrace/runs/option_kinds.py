"""How an option of a run is declared: its kind, and what people read of it at each door.

The command line and forms are made of declarations whenever they are looked at, so this imports next to nothing.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from datetime import date
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headrace.pipeline.executors import executor_name

if TYPE_CHECKING:
    from headrace.model.arguments import Arguments

DECLARED: Final = "option"
"""The key of a declaration among what a field of RunOptions carries."""


@dataclass(frozen=True)
class OptionKind:
    """The kind of an option's value. ``value_type`` is what one is on the command line; ``annotation`` says what Python
    takes; ``empty`` is what None stands for there, if not for the default.
    """

    value_type: ClassVar[Any] = str
    annotation: ClassVar[str] = "str"
    empty: ClassVar[object] = None

    def checked(self, arguments: "Arguments", name: str, value: object) -> Any:
        """The field's value for what was given in Python. Raises the error of ``arguments``."""
        raise NotImplementedError

    def of_text(self, text: Any) -> Any:
        """The field's value for what the parser of arguments has read."""
        return text

    @property
    def argument(self) -> Mapping[str, Any]:
        """What ``argparse`` is told of it."""
        return {}

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema of its field in a form."""
        return {"type": ["null", "string"]}


@dataclass(frozen=True)
class WholeOption(OptionKind):
    """A whole number of at least ``least``."""

    least: int = 1
    value_type = int
    annotation = "int"

    def checked(self, arguments: "Arguments", name: str, value: object) -> int:
        return arguments.whole(name, value, least=self.least)

    @property
    def argument(self) -> Mapping[str, Any]:
        return {"type": int}

    @property
    def schema(self) -> Mapping[str, Any]:
        return {"type": ["null", "integer"], "minimum": self.least}


@dataclass(frozen=True)
class FlagOption(OptionKind):
    """On or off."""

    value_type = bool
    annotation = "bool"
    empty = False

    def checked(self, arguments: "Arguments", name: str, value: object) -> bool:
        return arguments.flag(name, value)

    @property
    def argument(self) -> Mapping[str, Any]:
        return {"action": "store_true"}

    @property
    def schema(self) -> Mapping[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True)
class TextOption(OptionKind):
    """Text that is not empty, such as the ``example``."""

    example: str = ""

    def checked(self, arguments: "Arguments", name: str, value: object) -> str:
        return arguments.text(name, value, self.example)


@dataclass(frozen=True)
class BranchOption(TextOption):
    """The name of a branch: shells complete it, and forms hold it against the grammar of names."""


@dataclass(frozen=True)
class TimeOption(TextOption):
    """A day or a moment, as text; in Python also a date or a datetime."""

    annotation = "str | date"

    def checked(self, arguments: "Arguments", name: str, value: object) -> str:
        return super().checked(arguments, name, value.isoformat() if isinstance(value, date) else value)

    @property
    def schema(self) -> Mapping[str, Any]:
        return {**super().schema, "format": "date-time"}


@dataclass(frozen=True)
class MomentOption(TimeOption):
    """A moment, as text or a datetime."""

    annotation = "str | datetime"


@dataclass(frozen=True)
class TextsOption(TextOption):
    """Any number of texts, such as the ``example``."""

    value_type = list[str]
    annotation = "Sequence[str]"
    empty = ()

    def checked(self, arguments: "Arguments", name: str, value: object) -> Any:
        return arguments.several(name, tuple(value) if isinstance(value, Set) else value, str, f'"{self.example}"')

    def of_text(self, text: Any) -> Any:
        return tuple(text)

    @property
    def argument(self) -> Mapping[str, Any]:
        return {"action": "append", "default": []}

    @property
    def schema(self) -> Mapping[str, Any]:
        return {"type": "array", "items": {"type": "string"}}  # with examples, people could choose but not write


@dataclass(frozen=True)
class SignalsOption(TextsOption):
    """Signals, each as text or as the model has it, which ``asked_options`` makes of it."""

    annotation = '"Sequence[str | Signal]"'


@dataclass(frozen=True)
class ChoiceOption(OptionKind):
    """One of ``words``."""

    words: type[StrEnum]

    @property
    def value_type(self) -> Any:  # each has words of its own
        return self.words

    def checked(self, arguments: "Arguments", name: str, value: object) -> Any:
        return arguments.choice(name, value, self.words)

    def of_text(self, text: Any) -> Any:
        return self.words(text)

    @property
    def argument(self) -> Mapping[str, Any]:
        return {"choices": list(self.words)}


@dataclass(frozen=True)
class ExecutorNameOption(OptionKind):
    """The name of an executor, or that a run looks which one fits."""

    def checked(self, arguments: "Arguments", name: str, value: object) -> str:
        return executor_name(arguments, value)


@dataclass(frozen=True)
class RunOption:
    """One option of a run, as people give it.

    ``name`` is its parameter in Python, ``flag`` its option on the command line, ``argument`` that of the process which
    a task of Airflow runs, ``in_form`` its field in forms: each follows from the one before it, and the name from the
    field of RunOptions. ``help`` is for the command line; ``title`` and ``about`` are for forms, which say the help
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
    doors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def at(self, door: str) -> "RunOption":
        """The option as a command or a form has it."""
        return replace(self, **self.doors.get(door, {}))


class Made(StrEnum):
    """What is made of several options."""

    SPAN = "span"
    CLOCK = "clock"


@dataclass(frozen=True)
class OptionField:
    """A field of RunOptions: the ``options`` by which people say it. What they give is the field's value, or what of
    which it is ``made``.
    """

    options: tuple[RunOption, ...]
    made: Made | None = None


def option(default: Any, *options: RunOption, made: Made | None = None) -> Any:
    """A field of RunOptions with the ``options`` that it is given by; of several it is ``made``."""
    given = options if made is not None else tuple(replace(one, default=default) for one in options)
    return field(default=default, metadata={DECLARED: OptionField(given, made)})
