"""A user's own function, which a definition names ``module:function``."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.errors import FixConfigError
from headrace.pipeline.loading.folders import imported


@dataclass(frozen=True)
class NamedFunction:
    """A ``function``, and what the ``module`` that has it is called in memory."""

    function: Callable[..., Any]
    module: str


def named_function(what: str, named: str, package: str | None, error: type[FixConfigError]) -> NamedFunction:
    """The function that is ``named``; ``what`` names it for people. Raises an ``error`` where there is none, and
    whatever else the module raises as it is imported.
    """
    name, _, called = named.partition(":")
    try:
        module = imported(name, package)
    except ImportError as problem:
        raise error(
            f"{what}: module {name} cannot be imported ({problem}): it lies beside the pipeline's file, or is installed"
        ) from problem
    function = getattr(module, called, None)
    if not callable(function):
        raise error(f"{what}: module {name} has no function {called}")
    return NamedFunction(function, module.__name__)
