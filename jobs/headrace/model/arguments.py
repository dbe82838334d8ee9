"""What users pass, in the form that the model keeps; and what classes of the model are called, for good.

Each method of ``Arguments`` gives the value back, or raises one error (a PipelineError, if no other is asked for). The
error names the argument, shows what was given, and says what to write instead. A mistyped name is answered with the
nearest one, whether it is of a keyword argument, a method or a column.

A class that may stand in a pipeline says its word where it is defined::

    @register_word("after count", count=REQUIRED)
    @dataclass(frozen=True)
    class AfterCount(Trigger): ...

Fingerprints and recorded definitions are made of words (``pipeline.identity``). Checks know by words what may stand in
a pipeline, and conformance cases are read by them. So neither names in the code nor defaults count. A class may be
renamed and a default may change, while its word and its parts never do.

Users' own objects are told apart by their fields, and what they raise becomes a PipelineError.
"""

import difflib
import inspect
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import cache, update_wrapper, wraps
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar, Unpack, cast, get_args, get_origin
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from headrace.errors import FixConfigError, PipelineError
from headrace.installed import EntryPointGroup
from headrace.model.time import LONGEST, Duration, parse_duration
from headrace.model.time import to_duration as of_timedelta

_C = TypeVar("_C", bound=Callable[..., Any])
_Call = TypeVar("_Call", bound=type)
_INIT = ".__init__"


_SHORTEST = 2


def did_you_mean(name: str, known_names: Iterable[str]) -> str:
    """``"did you mean 'x'? "``, or nothing where no known name is near."""
    names = [*known_names]
    longer = [one for one in names if len(name) > _SHORTEST and one.startswith(name)]
    near_names = sorted(longer, key=len) or difflib.get_close_matches(name, names, 1)
    return f"did you mean {near_names[0]!r}? " if near_names else ""


_COMPARISON = r"(\w+)\s*(==?|!=|<>|<=?|>=?)\s*(-?\d+(?:\.\d+)?|'[^']*'|\"[^\"]*\")"
_PYTHON_SPELLINGS = {"=": "==", "<>": "!="}


def as_expression(value: object) -> str:
    """The expression that ``value``, which is none, may have meant, as users write it."""
    text = value.strip() if isinstance(value, str) else ""
    if re.fullmatch(r"\w+", text):
        return f'hr.col("{text}")'
    if comparison := re.fullmatch(_COMPARISON, text):
        column, operator, constant = comparison.groups()
        return f'hr.col("{column}") {_PYTHON_SPELLINGS.get(operator, operator)} {constant}'
    return 'one such as hr.col("price") > 10'


def check_keywords(public: _C) -> _C:
    """Refuse keyword arguments that a public function or class does not have, and name the nearest: PipelineError."""
    if isinstance(public, type):
        public.__init__ = _wrap_with_check(public.__init__)  # type: ignore[misc]
        return public
    return _wrap_with_check(public)


def method_keywords(public: _Call) -> _Call:
    """Apply ``check_keywords`` to each public method that is written in class ``public``."""
    for name, method in list(vars(public).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(public, name, _wrap_with_check(method))
    return public


def _wrap_with_check(function: _C) -> _C:
    @wraps(function)
    def check_and_call(*args: Any, **keywords: Any) -> Any:
        if keywords and (unknown := [name for name in keywords if name not in _keyword_names(function)]):
            _refuse_keyword(_owner_name(function, args), unknown[0], _keyword_names(function))
        return function(*args, **keywords)

    if not isinstance(function, type) and function.__code__.co_flags & inspect.CO_VARKEYWORDS:
        setattr(check_and_call, "__signature__", _written_out(function))  # noqa: B010 (mypy knows no such attribute)
    return cast("_C", check_and_call)


def _written_out(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of ``function`` with each of its options, for ``help``, completion and the reference.

    ``**options: Unpack[Options]`` becomes a keyword for each of them, whose default is that of the class returned.
    """
    signature = inspect.signature(function)
    parameters = [one for one in signature.parameters.values() if get_origin(one.annotation) is not Unpack]
    options = _options(signature)
    if not options:
        return signature
    defaults = inspect.signature(signature.return_annotation).parameters
    keyword = inspect.Parameter.KEYWORD_ONLY
    option_parameters = [
        inspect.Parameter(name, keyword, default=defaults[name].default, annotation=annotation)
        for name, annotation in options.items()
    ]
    return signature.replace(parameters=[*parameters, *option_parameters])


def _options(signature: inspect.Signature) -> dict[str, Any]:
    """The options that a function takes as ``**options: Unpack[Options]``, with their types."""
    return {
        name: annotation
        for parameter in signature.parameters.values()
        if get_origin(parameter.annotation) is Unpack
        for options in get_args(parameter.annotation)
        for name, annotation in options.__annotations__.items()
    }


def _refuse_keyword(owner: str, name: str, known_names: Iterable[str]) -> NoReturn:
    public_names = [parameter for parameter in known_names if not parameter.startswith("_") and parameter != "self"]
    takes = ", ".join(public_names) or "no argument by name"
    raise PipelineError(
        f"{owner}({name}=): there is no such argument; {did_you_mean(name, public_names)}it takes {takes}"
    )


def _owner_name(function: Callable[..., Any], args: tuple[Any, ...]) -> str:
    """The name that users call: that of the object's own class where ``function`` makes it."""
    name = function.__qualname__
    return type(args[0]).__name__ if name.endswith(_INIT) else name.rpartition(".")[2]


class _Anything(tuple[str, ...]):
    """The names of a function that takes any: it judges them itself."""

    __slots__ = ()

    def __contains__(self, name: object) -> bool:
        return True


@cache
def _keyword_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """Names that may be written as keywords, those of ``**options: Unpack[Options]`` among them."""
    names: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            if get_origin(parameter.annotation) is not Unpack:
                return _Anything()
            names += _options(inspect.Signature([parameter]))
        elif parameter.kind is not parameter.VAR_POSITIONAL:
            names.append(name)
    return tuple(names)


def require_call(function: _C) -> _C:
    """Refuse ``function["x"]`` and ``function.x``, and say to call it: PipelineError, AttributeError."""
    return cast("_C", update_wrapper(_CheckedCall(function), function))


class _CheckedCall:
    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self._function(*args, **keywords)

    def __getitem__(self, name: object) -> NoReturn:
        raise PipelineError(f"{self._access_text(name, '[{}]')}: write {self._access_text(name, '({})')}")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(f"{self._function.__name__}.{name}: write {self._access_text(name, '({})')}")

    def _access_text(self, name: object, brackets: str) -> str:
        text = f'"{name}"' if isinstance(name, str) else repr(name)
        return self._function.__name__ + brackets.format(text)


def no_such_name(owner: str, name: str, known_names: Iterable[str], more: str = "") -> AttributeError:
    """The error for a ``name`` that a module does not have, with what it may have meant, or ``more``."""
    names = [one for one in known_names if not one.startswith("_")]
    hint = more or did_you_mean(name, names).strip() or _in_other_case(name, names)
    return AttributeError(f"{owner} has no {name!r}; {hint or f'dir({owner}) names what it has'}")


def _in_other_case(name: str, known_names: Iterable[str]) -> str:
    """What ``did_you_mean`` says where cases and underscores do not count, nor does the ``get`` of other libraries."""
    plain = {one.replace("_", "").lower(): one for one in known_names}
    near_names = difflib.get_close_matches(name.replace("_", "").lower().removeprefix("get"), plain, 1, cutoff=0.75)
    return f"did you mean {plain[near_names[0]]!r}?" if near_names else ""


class Suggesting:
    """A value whose missing names are refused with the nearest one: AttributeError."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):  # it is there, and raises an AttributeError of its own
                return object.__getattribute__(self, name)
            kind = type(self).__name__
            if name.startswith("_"):
                raise AttributeError(f"{kind} has no {name!r}")
            names = [one for one in dir(self) if not one.startswith("_")]
            hint = did_you_mean(name, names).strip() or _in_other_case(name, names)
            raise AttributeError(f"{kind} has no {name!r}{'; ' + hint if hint else ''}")


@contextmanager
def locate_errors(place: str, kind: type[PipelineError] | None = PipelineError) -> Iterator[None]:
    """A block whose errors say the ``place`` that they are about, as errors of a ``kind``; None: of the same."""
    try:
        yield
    except PipelineError as error:
        raise (kind or type(error))(f"{place}: {error}") from None


Length = timedelta | str | Duration
"""How users write a length of time: a timedelta, or text such as "1h" or "4h 30m"."""

_T = TypeVar("_T")
_E = TypeVar("_E", bound=StrEnum)

_LARGEST_INT = 2**63 - 1
_WIDTH = 80


@dataclass(frozen=True)
class Arguments:
    """The arguments of ``owner``, the class or function whose name the user wrote."""

    owner: str
    error: type[FixConfigError] = PipelineError

    def refusal(self, name: str, value: object, why: str) -> FixConfigError:
        """The error for argument ``name``; ``why`` says what is wrong with it, and what to write."""
        return self.error(f"{self.owner}({name}={short_repr(value)}): {why}")

    def duration(
        self,
        name: str,
        value: object,
        *,
        least: int | None = 0,
        most: Duration = LONGEST,
        is_capped: bool = False,
    ) -> Duration:
        """A length of time of at least ``least`` granules, or of either sign (None). One that is longer than ``most``
        is refused, or is that one if it ``is_capped``: past the end of time all are alike.
        """
        duration = self._parse_duration(name, value)
        if is_capped:
            duration = Duration(min(duration, most))
        if abs(duration) > most:
            raise self.refusal(name, value, f"it is longer than {'70,000' if most == LONGEST else '1,000'} years")
        if least is not None and duration < least:
            requirement = "it must not be negative" if least == 0 else "it must be longer than zero"
            raise self.refusal(name, value, f"{requirement}; {_HOW_LONG}")
        return duration

    def _parse_duration(self, name: str, value: object) -> Duration:
        if isinstance(value, Duration):
            return value
        if isinstance(value, timedelta):
            return of_timedelta(value)
        if isinstance(value, str):
            try:
                return parse_duration(value)
            except ValueError as error:
                raise self.refusal(name, value, f"{error}; {_HOW_LONG}") from None
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise self.refusal(name, value, f"a bare number has no unit; {_HOW_LONG}")
        raise self.refusal(name, value, f"not a length of time; {_HOW_LONG}")

    def whole_number(self, name: str, value: object, *, least: int) -> int:
        """A whole number from ``least`` on."""
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _LARGEST_INT:
            size = "" if not isinstance(value, int) or isinstance(value, bool) or value < least else " below 2^63"
            raise self.refusal(name, value, f"write a whole number of at least {least}{size}")
        return int(value)

    def number(self, name: str, value: object, *, above: float | None = None, least: float = 0, most: float) -> float:
        """A number above ``above``, or from ``least`` on, up to ``most``."""
        if (
            not isinstance(value, int | float)
            or isinstance(value, bool)
            or math.isnan(value)
            or not least <= value <= most
            or (above is not None and value <= above)
        ):
            low = f"from {least}" if above is None else f"above {above}"
            raise self.refusal(name, value, f"write a number {low} to {most}")
        return value

    def flag(self, name: str, value: object) -> bool:
        """True or False."""
        if not isinstance(value, bool):
            raise self.refusal(name, value, "write True or False")
        return value

    def text(self, name: str, value: object, such_as: str) -> str:
        """Text that is not empty."""
        if not isinstance(value, str) or not value:
            raise self.refusal(name, value, f"write text such as {such_as!r}")
        return str(value)

    def time_zone(self, name: str, value: object) -> str:
        """The name of a time zone."""
        text = self.text(name, value, "Europe/Berlin")
        if text == "UTC":  # which some machines without a database of zones lack
            return text
        try:
            return ZoneInfo(text).key
        except (ZoneInfoNotFoundError, ValueError, OSError):
            why = "there is no such time zone; write one such as 'Europe/Berlin'"
            raise self.refusal(name, value, why) from None

    def choice(self, name: str, value: object, kind: type[_E]) -> _E:
        """One of ``kind``, or its name in any case."""
        if isinstance(value, kind):
            return value
        if isinstance(value, str):
            for member in kind:
                if value.lower() in (member.name.lower(), member.value.lower()):
                    return member
        possible = ", ".join(f'"{member.name.lower()}"' for member in kind)
        raise self.refusal(name, value, f"write one of {possible}")

    def registered_name(self, name: str, value: object, group: EntryPointGroup[Any], also: Sequence[str] = ()) -> str:
        """The name of a part of ``group``, or one of the words ``also``; Headrace's own in any case."""
        if isinstance(value, str):
            if (own := value.lower()) in group.built_in or own in also:
                return own
            if value in group:
                return str(value)
        possible = ", ".join(f'"{word}"' for word in (*group.names(), *also))
        raise self.refusal(name, value, f"write one of {possible}")

    def instance(self, name: str, value: object, kind: type[_T], write: str) -> _T:
        """A ``kind``; ``write`` says how one is written."""
        if not isinstance(value, kind):
            raise self.refusal(name, value, f"write {write}{_call_hint(value, kind)}")
        return value

    def optional_instance(self, name: str, value: object, kind: type[_T], write: str) -> _T | None:
        """None, or a ``kind``; ``write`` says how one is written."""
        return None if value is None else self.instance(name, value, kind, write)

    def mapping(self, name: str, value: object, kind: type[_T], write: str, *, least: int = 1) -> dict[str, _T]:
        """Names and a ``kind`` for each."""
        if not isinstance(value, Mapping) or len(value) < least:
            raise self.refusal(name, value, f"write {write}")
        for key, item in value.items():
            if not isinstance(key, str):
                raise self.refusal(name, value, f"{short_repr(key)} is not a name; write {write}")
            if not isinstance(item, kind):
                raise self.refusal(f"{name}[{key!r}]", item, f"write {write}{_call_hint(item, kind)}")
        return dict(value)

    def tuple_of(self, name: str, value: object, kind: type[_T], write: str) -> tuple[_T, ...]:
        """Any number of ``kind``, in a list or a tuple."""
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
            raise self.refusal(name, value, f"write a list: [{write}]")
        for number, item in enumerate(value):
            if not isinstance(item, kind):
                raise self.refusal(f"{name}[{number}]", item, f"write {write}{_call_hint(item, kind)}")
        return tuple(value)


_HOW_LONG = 'write text such as "1h", "4h 30m" or "2d", or a timedelta'


def _call_hint(value: object, kind: type) -> str:
    """A hint for a class where an instance of it is wanted."""
    return f"; {value.__name__} needs its parentheses" if isinstance(value, type) and issubclass(value, kind) else ""


def short_repr(value: object) -> str:
    """``value`` as an error shows it: its repr, cut off where it is long."""
    try:
        text = repr(value)
    except Exception as error:  # a value of a user's own class may fail to show itself
        text = f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


T = TypeVar("T")

REQUIRED: Any = object()
"""In the place of a value: the part is never left out."""


class Word(NamedTuple):
    """What a class is called, and its parts, each with the value that counts as left out (a tuple: one of these).

    A new part has the value that means "as before": then it changes nothing for pipelines that do not use it.
    """

    name: str
    parts: Mapping[str, Any]


WORDS: dict[type, Word] = {}
"""The words of all classes that have been imported."""


def register_word(name: str, /, **parts: Any) -> Callable[[type[T]], type[T]]:
    """Call the decorated class ``name``; ``parts`` are fields of it."""

    def register_kind(kind: type[T]) -> type[T]:
        WORDS[kind] = Word(name, parts)
        return kind

    return register_kind


def kinds_by_word(kind: type[T]) -> dict[str, type[T]]:
    """The subclasses of ``kind`` that have a word, by it."""
    return {word.name: subclass for subclass, word in WORDS.items() if issubclass(subclass, kind)}


@contextmanager
def user_code(owner: object, doing: str) -> Iterator[None]:
    """Raise what ``owner``, a user's own object, raises inside the block as a PipelineError that names it."""
    try:
        yield
    except PipelineError:
        raise
    except Exception as error:
        raise PipelineError(f"{owner!r} could not {doing}: {error!r}") from error


def check_frozen(owner: object) -> None:
    """Raise PipelineError unless ``owner`` is a frozen dataclass: its fields are part of the pipeline's fingerprint."""
    params = getattr(type(owner), "__dataclass_params__", None)
    if params is None or not params.frozen:
        raise PipelineError(f"{owner!r} must be a frozen dataclass: put @dataclass(frozen=True) on its class")


def check_fields(owner: object, what: str, made_fields: Collection[str], declared_fields: Collection[str]) -> None:
    """Raise PipelineError unless ``what``, which ``owner`` made, has exactly the declared fields."""
    if set(made_fields) != set(declared_fields):
        made_text = f"the fields {', '.join(sorted(made_fields))}" if made_fields else "no fields"
        raise PipelineError(f"{owner!r} made {what} with {made_text}; it declares {', '.join(sorted(declared_fields))}")


class Weekday(StrEnum):
    """The days of a week."""

    MONDAY = "monday"
    TUESDAY = "tuesday"
    WEDNESDAY = "wednesday"
    THURSDAY = "thursday"
    FRIDAY = "friday"
    SATURDAY = "saturday"
    SUNDAY = "sunday"


MIDNIGHT = "00:00"
_CLOCK = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")


def day_beginning(arguments: Arguments, clock: str) -> str:
    """The time of clocks at which days begin. Raises PipelineError."""
    if not isinstance(clock, str) or not _CLOCK.fullmatch(clock):
        raise arguments.refusal("day_begins", clock, 'write a time of clocks such as "06:00"')
    return clock


def week_beginning(arguments: Arguments, day: Weekday | str, unit: str) -> Weekday:
    """The day with which weeks begin. Raises PipelineError, also where another ``unit`` has no use for it."""
    weekday = arguments.choice("week_begins", day, Weekday)
    if weekday is not Weekday.MONDAY and unit != "week":
        raise arguments.refusal("week_begins", day, f"it is about weeks, and these are {unit}s")
    return weekday


def year_beginning(arguments: Arguments, month: int, unit: str, *, is_of_months: bool) -> int:
    """The month with which years begin. Raises PipelineError, also where a ``unit`` is not made of months."""
    first_month = arguments.whole_number("year_begins", month, least=1)
    if first_month > 12:
        raise arguments.refusal("year_begins", month, "write the number of a month, 1 to 12")
    if first_month > 1 and not is_of_months:
        raise arguments.refusal("year_begins", month, f"it is about months, and these are {unit}s")
    return first_month


def after_midnight(clock: str) -> timedelta:
    """How long after midnight clocks show ``clock``."""
    hours, minutes = map(int, clock.split(":"))
    return timedelta(hours=hours, minutes=minutes)
