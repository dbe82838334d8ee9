"""Public names of a package: a table says once where each stands, and it is imported when it is first used.

For type checkers ``python -m scripts.stubs --write`` writes the same as a stub, which nothing reads at run time.
"""

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module


def imported_when_used(
    package: str,
    homes: Mapping[str, str],
    modules: Collection[str] = (),
    hint: Callable[[str], str] = lambda name: "",
) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """``__all__``, ``__getattr__`` and ``__dir__`` of ``package``.

    ``homes``: the module in headrace that defines each name. ``modules``: modules of the package that are names, too.
    ``hint``: what to write instead of a name that is not there; empty where nothing is known.
    """

    names = sorted([*homes, *modules])

    def value_of(name: str) -> object:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name not in homes:
            raise _unknown(name)
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def _unknown(name: str) -> AttributeError:
        if name.startswith("_"):  # which Python itself asks for
            return AttributeError(f"{package} has no {name!r}")
        from headrace.model.suggestions import no_such_name

        return no_such_name(package, name, names, hint(name))

    return names, value_of, names.copy
