"""Reading JSON that people wrote: a value of each kind, or an error that says where it is and what is wrong with it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any, TypeVar, overload

from headrace.errors import FixConfigError
from headrace_lab.conformance.cases import Json

_T = TypeVar("_T")
_D = TypeVar("_D")
_Enum = TypeVar("_Enum", bound=Enum)
NO_DEFAULT: Any = object()
"""The default of a field that must be there."""


class CaseFormatError(FixConfigError, code="config.conformance_case"):
    """A case, or a file of cases, that does not follow the schema."""


@contextmanager
def locate_errors(place: str) -> Iterator[None]:
    """Errors from within say that they are at ``place``."""
    try:
        yield
    except FixConfigError as error:
        raise type(error)(f"{place}: {error}") from error


@overload
def field(raw: Json, name: str, read: Callable[[Any], _T]) -> _T: ...


@overload
def field(raw: Json, name: str, read: Callable[[Any], _T], default: _D) -> _T | _D: ...


def field(raw: Json, name: str, read: Callable[[Any], _T], default: Any = NO_DEFAULT) -> _T | Any:
    """The field ``name`` of ``raw`` as ``read`` takes it; if it is not there or null, ``default``. Without a default it
    must be there.
    """
    if name not in raw or (raw[name] is None and default is not NO_DEFAULT):
        if default is NO_DEFAULT:
            raise CaseFormatError(f"there is no field {name!r}")
        return default
    with locate_errors(name):
        return read(raw[name])


def list_of(read: Callable[[Any], _T], one: str) -> Callable[[Any], tuple[_T, ...]]:
    """Reads a list; an error in it says which ``one`` it is in, counted from 1."""

    def read_all(raw: Any) -> tuple[_T, ...]:
        if not isinstance(raw, list):
            raise CaseFormatError(f"{raw!r} is not a list")
        values = []
        for number, item in enumerate(raw, start=1):
            op = f" ({item['op']})" if isinstance(item, dict) and isinstance(item.get("op"), str) else ""
            with locate_errors(f"{one} {number}{op}"):
                values.append(read(item))
        return tuple(values)

    return read_all


def one_of(*choices: str) -> Callable[[Any], str]:
    def read(raw: Any) -> str:
        if raw not in choices:
            raise CaseFormatError(f"{raw!r} is not one of {', '.join(choices)}")
        return str(raw)

    return read


def member_of(enum: type[_Enum]) -> Callable[[Any], _Enum]:
    member_values = [str(member.value) for member in enum]
    return lambda raw: enum(one_of(*member_values)(raw))


def an_object(raw: Any) -> Json:
    if not isinstance(raw, dict):
        raise CaseFormatError(f"{raw!r} is not an object")
    return raw


def anything(raw: Any) -> Any:
    return raw


def flag(raw: Any) -> bool:
    if not isinstance(raw, bool):
        raise CaseFormatError(f"{raw!r} is neither true nor false")
    return raw


def text(raw: Any) -> str:
    if not isinstance(raw, str):
        raise CaseFormatError(f"{raw!r} is not text")
    return raw


def integer(raw: Any) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int):
        raise CaseFormatError(f"{raw!r} is not an integer")
    return raw


def text_or_integer(raw: Any) -> str | int:
    return raw if isinstance(raw, str) else integer(raw)


def number(raw: Any) -> float:
    try:
        return float(raw)
    except (TypeError, ValueError, OverflowError) as error:
        raise CaseFormatError(f"{raw!r} is not a number") from error
