"""What a mistyped name may have meant: one answer for keyword arguments, methods and columns."""

import difflib
import inspect
import re
from collections.abc import Callable, Iterable
from functools import cache, update_wrapper, wraps
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, Unpack, cast, get_args, get_origin

from headrace.errors import PipelineError

_C = TypeVar("_C", bound=Callable[..., Any])
_T = TypeVar("_T", bound=type)
_INIT = ".__init__"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``"did you mean 'x'? "``, or nothing where no known name is near."""
    near = difflib.get_close_matches(name, list(known), 1)
    return f"did you mean {near[0]!r}? " if near else ""


_COMPARISON = r"(\w+)\s*(==?|!=|<>|<=?|>=?)\s*(-?\d+(?:\.\d+)?|'[^']*'|\"[^\"]*\")"
_OPERATORS = {"=": "==", "<>": "!="}


def as_expression(value: object) -> str:
    """The expression that ``value``, which is none, may have meant, as users write it."""
    text = value.strip() if isinstance(value, str) else ""
    if re.fullmatch(r"\w+", text):
        return f'hr.col("{text}")'
    if written := re.fullmatch(_COMPARISON, text):
        column, operator, constant = written.groups()
        return f'hr.col("{column}") {_OPERATORS.get(operator, operator)} {constant}'
    return 'one such as hr.col("price") > 10'


def keywords(public: _C) -> _C:
    """Refuse keyword arguments that a public function or class does not have, and name the nearest: PipelineError."""
    if isinstance(public, type):
        public.__init__ = _checked(public.__init__)  # type: ignore[misc]
        return public
    return _checked(public)


def method_keywords(public: _T) -> _T:
    """Apply ``keywords`` to each public method that is written in class ``public``."""
    for name, method in list(vars(public).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(public, name, _checked(method))
    return public


def _checked(function: _C) -> _C:
    @wraps(function)
    def checked(*args: Any, **given: Any) -> Any:
        if given and (unknown := [name for name in given if name not in _names(function)]):
            _refuse(_owner(function, args), unknown[0], _names(function))
        return function(*args, **given)

    return cast("_C", checked)


def _refuse(owner: str, name: str, known: Iterable[str]) -> NoReturn:
    shown = [parameter for parameter in known if not parameter.startswith("_") and parameter != "self"]
    takes = ", ".join(shown) or "no argument by name"
    raise PipelineError(f"{owner}({name}=): there is no such argument; {did_you_mean(name, shown)}it takes {takes}")


def _owner(function: Callable[..., Any], args: tuple[Any, ...]) -> str:
    """The name that users call: that of the object's own class where ``function`` makes it."""
    name = function.__qualname__
    return type(args[0]).__name__ if name.endswith(_INIT) else name.rpartition(".")[2]


class _Anything(tuple[str, ...]):
    """The names of a function that takes any: it judges them itself."""

    __slots__ = ()

    def __contains__(self, name: object) -> bool:
        return True


@cache
def _names(function: Callable[..., Any]) -> tuple[str, ...]:
    """Names that may be written as keywords, those of ``**options: Unpack[Options]`` among them."""
    names: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            if get_origin(parameter.annotation) is not Unpack:
                return _Anything()
            names += [key for options in get_args(parameter.annotation) for key in options.__annotations__]
        elif parameter.kind is not parameter.VAR_POSITIONAL:
            names.append(name)
    return tuple(names)


def called(function: _C) -> _C:
    """Refuse ``function["x"]`` and ``function.x``, and say to call it: PipelineError, AttributeError."""
    return cast("_C", update_wrapper(_Called(function), function))


class _Called:
    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *args: Any, **given: Any) -> Any:
        return self._function(*args, **given)

    def __getitem__(self, name: object) -> NoReturn:
        raise PipelineError(f"{self._written(name, '[{}]')}: write {self._written(name, '({})')}")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(f"{self._function.__name__}.{name}: write {self._written(name, '({})')}")

    def _written(self, name: object, brackets: str) -> str:
        text = f'"{name}"' if isinstance(name, str) else repr(name)
        return self._function.__name__ + brackets.format(text)


def no_such_name(owner: str, name: str, known: Iterable[str], more: str = "") -> AttributeError:
    """The error for a ``name`` that a module does not have, with what it may have meant, or ``more``."""
    names = [one for one in known if not one.startswith("_")]
    hint = more or did_you_mean(name, names).strip() or _in_other_case(name, names)
    return AttributeError(f"{owner} has no {name!r}; {hint or f'dir({owner}) names what it has'}")


def _in_other_case(name: str, known: Iterable[str]) -> str:
    """What ``did_you_mean`` says where cases and underscores do not count."""
    plain = {one.replace("_", "").lower(): one for one in known}
    near = difflib.get_close_matches(name.replace("_", "").lower(), plain, 1, cutoff=0.75)
    return f"did you mean {plain[near[0]]!r}?" if near else ""


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
