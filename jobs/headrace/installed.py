"""What is installed: extras of Headrace, and parts that other distributions declare as entry points.

A distribution adds a part in its ``pyproject.toml``, by the name with which users ask for it::

    [project.entry-points."headrace.formats"]
    fixed_width = "my_package.fixed_width:FORMAT"

Nothing is imported before its name is used. Installed distributions are looked through only for a name that is not one
of Headrace's own; nobody can take over those.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headrace.errors import FixConfigError, HeadraceError, NotInstalledError
from headrace.own_parts import EXTRAS, PLACES, PORTS

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint


class PysparkClientError(FixConfigError, code="config.pyspark_client"):
    """``pyspark-client`` was installed over the files of ``pyspark``: what runs is neither."""


def require_extra(extra: str, what: str, advice: str = "") -> None:
    """Raise NotInstalledError unless ``extra`` is installed, which ``what`` needs; ``advice``: what does without."""
    if missing := [module for module in EXTRAS[extra] if not _is_there(module)]:
        are = "which is not installed" if len(missing) == 1 else "which are not installed"
        hint = f"; or {advice}" if advice else ""
        raise NotInstalledError(f"{what} needs {' and '.join(missing)}, {are}: pip install 'headrace[{extra}]'{hint}")
    if (
        extra == "spark"
        and (spark := _installed_version("pyspark"))
        and (client := _installed_version("pyspark-client"))
    ):
        raise PysparkClientError(
            f"pyspark-client {client} is installed over the files of pyspark (Airflow's Spark provider asks for it): "
            f"pip uninstall -y pyspark-client && pip install --force-reinstall --no-deps pyspark=={spark}"
        )


def require_library(library: str, what: str, source: str = "") -> None:
    """Raise NotInstalledError unless ``library`` is installed, which ``what`` needs and no extra brings.

    ``source`` says what pip installs it from, if not by its name.
    """
    if not _is_there(library):
        raise NotInstalledError(f"{what} needs {library}, which is not installed: pip install {source or library}")


def _is_there(module: str) -> bool:
    package, *inner = module.split(".")
    # the packages of a module are imported to find it, which for Airflow takes seconds: look for its folder first
    if inner and any(Path(place, package, *inner).is_dir() for place in sys.path):
        return True
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even its package
        return False


def _installed_version(distribution: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version  # with a parser of e-mail: only where it is asked

    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


T = TypeVar("T")


class NotRegisteredError(FixConfigError, code="config.not_registered"):
    """A name for which neither Headrace nor an installed distribution has a part of that kind."""


class BrokenEntryPointError(FixConfigError, code="config.entry_point"):
    """An entry point of another distribution that cannot be used. It cannot be imported, is not what it should be, is
    there twice, or has a name of one of Headrace's own parts.
    """


@dataclass(frozen=True)
class EntryPointGroup(Generic[T]):
    """The parts of one kind, by name. ``group`` is the group of entry points, ``kind`` what messages call one part.

    It knows neither Headrace's own parts nor their class. So it may stand below their modules, and naming a part
    imports none of them.
    """

    group: str
    kind: str

    @property
    def built_in(self) -> Mapping[str, str]:
        """Where Headrace's own are (``module:attribute``), by name."""
        return PLACES.get(self.group, {})

    def __contains__(self, name: object) -> bool:
        """Whether somebody has a part called ``name``; it is not loaded."""
        return name in self.built_in or any(entry.name == name for entry in self._declared_entry_points())

    def __getitem__(self, name: str) -> T:
        """The part called ``name``. Raises NotRegisteredError, BrokenEntryPointError."""
        part = self.get(name)
        if part is None:
            raise NotRegisteredError(
                f"there is no {self.kind} {name!r}: it is one of {', '.join(self.names())}, or comes with a package "
                f"that has an entry point {name!r} in the group {self.group!r}; is that package installed here?"
            )
        return part

    def get(self, name: str) -> T | None:
        """The part called ``name``, or None if nobody has it. Raises BrokenEntryPointError."""
        if (self.group, name) not in _LOADED_PARTS and (part := self._load_part(name)) is not None:
            _LOADED_PARTS[self.group, name] = part
        return _LOADED_PARTS.get((self.group, name))

    def names(self) -> list[str]:
        """All names that can be used: Headrace's own first."""
        return [*self.built_in, *sorted({entry_point.name for entry_point in self._declared_entry_points()})]

    def loaded_parts(self) -> "list[T]":
        """Headrace's own parts, and those of others that this process uses."""
        others = [
            part
            for (group, name), part in [*_LOADED_PARTS.items()]
            if group == self.group and name not in self.built_in
        ]
        return [*(self[name] for name in self.built_in), *others]

    @contextmanager
    def replace_part(self, name: str, part: T) -> "Iterator[None]":
        """Inside, this process has ``part`` for the one called ``name``: so a test gives a fake of Headrace's own."""
        own = self[name]
        _LOADED_PARTS[self.group, name] = part
        try:
            yield
        finally:
            _LOADED_PARTS[self.group, name] = own

    def _declared_entry_points(self) -> "Sequence[EntryPoint]":
        """What distributions declare. Raises BrokenEntryPointError for a name of Headrace's own."""
        entry_points = _declared_on(_search_path_times(), self.group)
        for entry_point in entry_points:
            if entry_point.name in self.built_in:
                raise BrokenEntryPointError(
                    f"the {self.kind} {entry_point.name!r} is Headrace's own, and nobody can take it over (as does "
                    f"{_describe_entry_point(entry_point)}); give that another name, or uninstall the package"
                )
        return entry_points

    def _load_part(self, name: str) -> T | None:
        if place := self.built_in.get(name):
            part: T = _import_attribute(place)
            return part
        match [entry_point for entry_point in self._declared_entry_points() if entry_point.name == name]:
            case []:
                return None
            case [one]:
                return self._load_installed(one)
            case several:
                raise BrokenEntryPointError(
                    f"the {self.kind} {name!r} is there twice: {' and '.join(map(_describe_entry_point, several))}; "
                    "uninstall all of these packages but one"
                )

    def _load_installed(self, entry_point: "EntryPoint") -> T:
        try:
            part: T = entry_point.load()
        except Exception as error:
            raise BrokenEntryPointError(
                f"the {self.kind} {entry_point.name!r} cannot be loaded: {type(error).__name__}: {error} (from "
                f"{_describe_entry_point(entry_point)}); mend or uninstall that package"
            ) from error
        provides: type[Any] = _import_attribute(PORTS[self.group])
        if not isinstance(part, provides):
            raise BrokenEntryPointError(
                f"the {self.kind} {entry_point.name!r} is {type(part).__name__}, not a {provides.__name__} (from "
                f"{_describe_entry_point(entry_point)}); mend or uninstall that package"
            )
        return part


_LOADED_PARTS: dict[tuple[str, str], Any] = {}
"""Parts by group and name. What is not found is not remembered: it may be installed meanwhile."""


def _import_attribute(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


def import_callable(place: str, what: str) -> Callable[..., Any]:
    """Import what ``place`` ("module:name") names, for ``what``. Raises NotInstalledError, BrokenEntryPointError."""
    try:
        part: Callable[..., Any] = _import_attribute(place)
    except ModuleNotFoundError as error:
        for extra, modules in EXTRAS.items():
            if error.name in modules:
                require_extra(extra, what)
        raise _broken_place(place, what, error) from error
    except HeadraceError:
        raise
    except Exception as error:
        raise _broken_place(place, what, error) from error
    if not callable(part):
        raise BrokenEntryPointError(
            f"{what} is opened by {place}, which is {type(part).__name__}: name what can be called"
        )
    return part


def _broken_place(place: str, what: str, error: Exception) -> BrokenEntryPointError:
    return BrokenEntryPointError(
        f"{what} is opened by {place}, which cannot be imported: {type(error).__name__}: {error}; mend the place or "
        "install what it needs"
    )


@lru_cache(64)
def _declared_on(places: Sequence[tuple[str, int]], group: str) -> "Sequence[EntryPoint]":
    """The entry points of a group: of distributions of one name those of the first on the path."""
    # of equal keys the last one stays, and that is to be the first on the path
    first = {name: entries for place in reversed(places) for name, entries in _declared_at(*place)}
    return tuple(entry for entries in first.values() for entry in entries if entry.group == group)


@lru_cache(256)
def _declared_at(place: str, _changed_at: int) -> "Sequence[tuple[str, Sequence[EntryPoint]]]":
    """The distributions in a place, by name, and what each declares for Headrace. Asking all places takes as long as
    building a DAG, so a place where others write all the time is asked alone.
    """
    from importlib.metadata import distributions  # with a parser of e-mail: only where it is asked

    found_distributions = [*distributions(path=[place])][::-1]
    return [
        (_name_of(one), [entry for entry in one.entry_points if entry.group.startswith("headrace.")])
        for one in found_distributions
    ]


def _name_of(distribution: "Distribution") -> str:
    """Its name as ``importlib.metadata`` compares it, which most know without a look into their metadata."""
    normalized_name = getattr(distribution, "_normalized_name", None)
    return str(normalized_name or re.sub(r"[-_.]+", "-", distribution.name).lower().replace("-", "_"))


def _search_path_times() -> Sequence[tuple[str, int]]:
    """Where distributions are installed, and when each of these folders has changed last: what is installed or removed
    changes one of them.
    """
    return tuple((place, _modification_time(place)) for place in sys.path)


def _modification_time(place: str) -> int:
    try:
        return os.stat(place).st_mtime_ns  # noqa: PTH116 - asked for a dozen places and each DAG: a Path costs more
    except OSError:  # many interpreters list an archive that is not there
        return 0


def _describe_entry_point(entry_point: "EntryPoint") -> str:
    package = f" of {entry_point.dist.name} {entry_point.dist.version}" if entry_point.dist else ""
    return f"the entry point {entry_point.name} = {entry_point.value} in {entry_point.group}{package}"
