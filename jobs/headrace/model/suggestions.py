"""What a mistyped name may have meant: one answer for keyword arguments, methods and columns."""

import difflib
import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

from headrace.errors import PipelineError

_C = TypeVar("_C", bound=Callable[..., Any])


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``"did you mean 'x'? "``, or nothing where no known name is near."""
    near = difflib.get_close_matches(name, list(known), 1)
    return f"did you mean {near[0]!r}? " if near else ""


def keywords(function: _C) -> _C:
    """Refuse keyword arguments that a public function does not have, and name the nearest: PipelineError."""

    @wraps(function)
    def checked(*args: Any, **given: Any) -> Any:
        known = _names(function)
        if unknown := [name for name in given if name not in known]:
            shown = [name for name in known if not name.startswith("_") and name != "self"]
            raise PipelineError(
                f"{_owner(function)}({unknown[0]}=): there is no such argument; {did_you_mean(unknown[0], shown)}"
                f"It takes {', '.join(shown)}"
            )
        return function(*args, **given)

    return cast("_C", checked)


def _owner(function: Callable[..., Any]) -> str:
    return function.__qualname__.removesuffix(".__init__").rpartition(".")[2]


def _names(function: Callable[..., Any]) -> list[str]:
    """Names that may be written as keywords, those of ``**options: Unpack[Options]`` among them."""
    names = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            names += [key for options in get_args(parameter.annotation) for key in options.__annotations__]
        elif parameter.kind is not parameter.VAR_POSITIONAL:
            names.append(name)
    return names


class Suggesting:
    """A value whose missing methods are refused with the nearest one: AttributeError."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            kind = type(self).__name__
            hint = "" if name.startswith("_") else did_you_mean(name, [n for n in dir(type(self)) if n[0] != "_"])
            raise AttributeError(f"{kind} has no {name!r}{'; ' + hint.strip() if hint else ''}")
