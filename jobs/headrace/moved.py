"""Names that code of others imports from a module where they no longer are.

They go on until 0.4, with a warning that says where they are now. This module goes with them.
"""

import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from headrace.own_parts import TABLES

SINCE_VERSION, UNTIL_VERSION = "0.3", "0.4"

_NEW_NAMES: Final[Mapping[str, str]] = {
    "Applied": "AppliedCounts",
    "Held": "SinkState",
    "Offsets": "SourcePosition",
    "Required": "RequiredColumns",
    "Scanned": "ScannedRecords",
    "SinkKind": "SinkConnector",
}


def _former_places() -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """The names of modules by where they were."""
    former: Mapping[str, Mapping[str, tuple[str, ...]]] = import_module(TABLES["former places"]).FORMER_PLACES
    return former


def redirect_names(old: str) -> Callable[[str], Any]:
    """Give the ``__getattr__`` of module ``old`` (PEP 562), which finds the names that were in it."""

    def __getattr__(name: str) -> Any:  # noqa: N807
        former_places = {} if name.startswith("_") else _former_places()  # which Python itself asks for
        places = {name: new for new, former in former_places.items() for name in former.get(old, ())}
        if name not in places:
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        new, now = places[name], _NEW_NAMES.get(name, name)
        warnings.warn(
            f"{old}.{name} is {new}.{now} since {SINCE_VERSION}: import it from there; "
            f"the old place goes with {UNTIL_VERSION}",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(import_module(new), now)

    return __getattr__


def moved_modules(package: str) -> None:
    """Make the modules that a ``package`` had: each has the names that were in it."""
    for former in _former_places().values():
        for old in former:
            if old.startswith(f"{package}."):
                module = ModuleType(old, "Where something was up to 0.2.")
                setattr(module, "__getattr__", redirect_names(old))  # noqa: B010 (mypy: a module has no such attribute)
                sys.modules[old] = module
