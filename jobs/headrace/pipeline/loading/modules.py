"""Modules of users: executed in limited time, found beside a pipeline's file, with notes on what each has run.

``limit_time`` sets a timer of the process (SIGALRM), as Airflow's own is for a whole DAG file. So it holds in the main
thread alone, and code that never comes back to Python is past its reach. Whatever code of users raises is its own, but
for what a person did (``InterruptedByUser``).

Every folder is in memory a package of its own, so that two folders may each hold a ``parsing.py``. ``import parsing``
in a file of a folder means the ``parsing.py`` beside it, and else what is installed; Python's own modules and Headrace
come before both. Only imports that such files write themselves are looked at.

``RunCode`` is what a file has run. What the file defines stays the same while that does, unless the file asks about
what is written elsewhere.
"""

import builtins
import hashlib
import importlib
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import module_from_spec, resolve_name, spec_from_file_location
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, Final, NoReturn

_AGAIN_SECONDS: Final = 1.0
"""Code that catches everything is told again after so long."""
_LIMIT_DIVISOR: Final = 2
"""The part of an outer limit that an inner one takes is one in so many. So some time is always left for what comes
afterwards.
"""
_SHORTEST_SECONDS: Final = 1e-3


class TimeUpError(BaseException):
    """Raised inside code that takes longer than it may. It is no Exception: code that goes on after errors must end."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"it has not ended after {seconds:g} s")


class InterruptedByUser(KeyboardInterrupt):
    """A person has asked for the end (Ctrl-C); a bare KeyboardInterrupt was raised by the code itself."""


@contextmanager
def limit_time(seconds: float | None) -> Iterator[None]:
    """Raise TimeUpError in the block when it takes longer than ``seconds`` (None: any time). It may take no more than
    half of what an outer timer leaves. Raise InterruptedByUser on Ctrl-C. Only the main thread has either.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with _on_interrupt(), nullcontext() if seconds is None else _limit_seconds(seconds):
        yield


@contextmanager
def _on_interrupt() -> Iterator[None]:
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # somebody else's: it is left alone
        yield
        return
    with _install_handler(signal.SIGINT, _raise_interrupted):
        yield


@contextmanager
def _limit_seconds(seconds: float) -> Iterator[None]:
    start = time.monotonic()
    left, interval = signal.setitimer(signal.ITIMER_REAL, 0)
    limit = min(seconds, left / _LIMIT_DIVISOR) if left else seconds

    def raise_time_up(_signal: int, _frame: FrameType | None) -> NoReturn:
        raise TimeUpError(limit)

    try:
        with _install_handler(signal.SIGALRM, raise_time_up):
            signal.setitimer(signal.ITIMER_REAL, limit, _AGAIN_SECONDS)
            try:
                yield
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        if left:
            # never 0, which would end the outer limit
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - start), _SHORTEST_SECONDS), interval)


@contextmanager
def _install_handler(number: signal.Signals, handler: Callable[[int, FrameType | None], NoReturn]) -> Iterator[None]:
    old_handler = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, old_handler if old_handler is not None else signal.SIG_DFL)


def _raise_interrupted(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise InterruptedByUser


_PREFIX = "_headrace_"
OWN_PACKAGES = frozenset({"headrace", "headrace_airflow", "headrace_lab", "headrace_snapshots"})
_NEVER_USERS = sys.stdlib_module_names | OWN_PACKAGES
_loading: ContextVar[str | None] = ContextVar("_loading", default=None)
_SAME_EACH_TIME = OWN_PACKAGES | {
    "__future__", "abc", "collections", "copy", "dataclasses", "datetime", "decimal", "enum",
    "fractions", "functools", "itertools", "json", "math", "numbers", "operator", "re",
    "statistics", "string", "textwrap", "types", "typing", "zoneinfo",
}  # fmt: skip
"""What these say does not depend on the machine, its environment or its files."""


class _ModuleNotes:
    """What modules of a folder have run, by their names at its top: digests of texts, the others that they imported;
    and which of them have asked what their texts do not say.
    """

    def __init__(self) -> None:
        self.texts: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self.imports_by_module: defaultdict[str, set[str]] = defaultdict(set)
        self.asking: set[str] = set()


_notes_by_package: dict[str, _ModuleNotes] = {}
"""By package, since it was forgotten."""


_executing = threading.RLock()


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Keep other threads from executing and forgetting modules of users: they would see half of one."""
    with _executing:
        yield


def _renew_lock() -> None:
    """Makes a lock that nobody holds: in a fork there is no other thread that would let go of the old one."""
    global _executing  # noqa: PLW0603
    _executing = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def load_module(file: Path) -> ModuleType:
    """The module of a pipeline's file, executed unless it was since ``forget_modules``. Raises what the file raises."""
    folder = file.resolve().parent
    name = f"{_ensure_package(folder)}.{_module_name(file)}"
    with one_at_a_time():
        if name in sys.modules:
            return sys.modules[name]
        path = str(folder / file.name)
        spec = spec_from_file_location(name, path, loader=_SourceLoader(name, path))
        assert spec is not None and spec.loader is not None
        module = sys.modules[name] = module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            # as an import does: nobody finds a module that is there in part
            sys.modules.pop(name, None)
            raise
        return module


def _module_name(file: Path) -> str:
    return file.stem.replace(".", "·")


def forget_modules(folder: Path) -> None:
    """Forget the modules of ``folder``: what is loaded afterwards is what lies there then."""
    package = _package_name(folder.resolve())
    _notes_by_package.pop(package, None)
    for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
        del sys.modules[name]


@dataclass(frozen=True)
class RunCode:
    """What a file has run: ``digests`` of its text and of all beside it that it imported, by path under ``folder``; ""
    for what would come first if it were there. ``asks_outside``: it has also asked what no text there says.
    """

    folder: str
    digests: Mapping[str, str]
    asks_outside: bool


def run_code(file: Path) -> RunCode:
    """What ``file`` has run since ``forget_modules``, also if it ended with an error."""
    folder = file.resolve().parent
    notes, own = _notes_by_package.get(_package_name(folder), _ModuleNotes()), _module_name(file)
    reached_modules, to_visit = {own}, [own]
    while to_visit:
        further = notes.imports_by_module[to_visit.pop()] - reached_modules
        reached_modules |= further
        to_visit += further
    sibling_texts = {path: text for name in reached_modules - {own} for path, text in notes.texts[name].items()}
    first = {place: "" for path in sibling_texts for place in _possible_files(path)}
    return RunCode(
        str(folder), {file.name: "", **first, **sibling_texts, **notes.texts[own]}, bool(reached_modules & notes.asking)
    )


def content_digest(content: bytes) -> str:
    """What tells a text from others."""
    return hashlib.sha256(content).hexdigest()[:32]


def _possible_files(path: str) -> Iterator[str]:
    """Where a module might be instead that lies at ``path``, and the packages that it is in."""
    place = Path(path).with_suffix("")
    for package in (place, *place.parents[:-1]):
        yield from (f"{package}.py", f"{package}{os.sep}__init__.py")


def current_package() -> str | None:
    """The package of the folder of which a module is being executed; None outside."""
    return _loading.get()


def import_from_package(name: str, package: str | None) -> ModuleType:
    """The module that a file of ``package`` means by ``name``. Raises what importing it raises."""
    if package is not None and package in sys.modules and _is_beside(_package_folder(package), name.partition(".")[0]):
        name = f"{package}.{name}"
    return importlib.import_module(name)


def package_of(module: str) -> str | None:
    """The package of the folder that the module of that name lies in; None for any other module."""
    package = module.partition(".")[0]
    return package if package.startswith(_PREFIX) else None


def plain_name(module: str) -> str:
    """The name by which files of its folder know the module: without the package."""
    package = package_of(module)
    return module if package is None else module.removeprefix(f"{package}.")


class _SourceLoader(SourceFileLoader):
    """Executes a module of a folder: always from its source, and with imports of its own."""

    def get_code(self, fullname: str) -> CodeType:
        # no cached bytecode: that is told from the source by a time in seconds and the size, and may be another's
        path = self.get_filename(fullname)
        text = self.get_data(path)
        package, _, name = fullname.partition(".")
        place = os.path.relpath(path, _package_folder(package))
        _notes_by_package.setdefault(package, _ModuleNotes()).texts[name.partition(".")[0]][place] = content_digest(
            text
        )
        return self.source_to_code(text, path)

    def exec_module(self, module: ModuleType) -> None:
        package, _, name = module.__name__.partition(".")
        imports = _Imports(package, name.partition(".")[0])
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": imports.import_, "open": imports.open}
        token = _loading.set(package)
        try:
            super().exec_module(module)
        finally:
            _loading.reset(token)


class _Finder:
    """Finds modules of the packages, in their folders."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, _: ModuleType | None = None) -> ModuleSpec | None:
        if path is None or package_of(name) is None:
            return None
        specs = (FileFinder(entry, (_SourceLoader, SOURCE_SUFFIXES)).find_spec(name) for entry in path)
        return next((spec for spec in specs if spec is not None), None)


sys.meta_path.insert(0, _Finder)  # before the finder that gives modules of packages their common loader


def _package_name(folder: Path) -> str:
    return f"{_PREFIX}{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"


def _ensure_package(folder: Path) -> str:
    name = _package_name(folder)
    if name not in sys.modules:
        package = sys.modules[name] = ModuleType(name, f"The modules of {folder}.")
        package.__path__ = [str(folder)]
    return name


def _package_folder(package: str) -> Path:
    return Path(sys.modules[package].__path__[0])


def _is_beside(folder: Path, top: str) -> bool:
    """Whether a module or package ``top`` in ``folder`` is meant. A folder without ``__init__.py`` is the last choice,
    as it is for Python.
    """
    if top in _NEVER_USERS:
        return False
    spec = FileFinder(str(folder), (_SourceLoader, SOURCE_SUFFIXES)).find_spec(top)
    return spec is not None and (spec.loader is not None or PathFinder.find_spec(top) is None)


class _Imports:
    """Imports that a module writes, and files that it opens. It is ``name`` at the top of a folder, or lies in that."""

    def __init__(self, package: str, name: str) -> None:
        self._package, self._name = package, name
        self._notes = _notes_by_package.setdefault(package, _ModuleNotes())
        self._is_beside = cache(partial(_is_beside, _package_folder(package)))

    def import_(
        self,
        name: str,
        globals_: Mapping[str, Any] | None = None,
        local: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """The module that is meant. Raises what importing it raises."""
        top = name.partition(".")[0]
        is_beside = not level and self._is_beside(top)
        try:
            self._note_import(name if level else top, globals_, fromlist, level, is_beside)
            if not is_beside:
                return builtins.__import__(name, globals_, local, fromlist or (), level)
            module = builtins.__import__(f"{self._package}.{name}", globals_, local, fromlist or (), 0)
        except ImportError:
            self._notes.asking.add(self._name)  # it may be there another time
            raise
        return module if fromlist else sys.modules[f"{self._package}.{top}"]

    def _note_import(
        self,
        name: str,
        importer_globals: Mapping[str, Any] | None,
        fromlist: Sequence[str] | None,
        level: int,
        is_beside: bool,
    ) -> None:
        imported_names = self._notes.imports_by_module[self._name]
        if level:
            full_name = resolve_name("." * level + name, (importer_globals or {}).get("__package__") or self._package)
            imported_names.update(full_name.split(".")[1:2] or fromlist or ())
        elif is_beside:
            imported_names.add(name)
        elif name not in _SAME_EACH_TIME:
            self._notes.asking.add(self._name)

    def open(self, *arguments: Any, **options: Any) -> Any:
        """A file, as the function of that name opens it."""
        self._notes.asking.add(self._name)
        return builtins.open(*arguments, **options)  # noqa: PTH123 - it is what the file calls
