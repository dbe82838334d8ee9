"""Modules of users: where they are found, and how what they raise, or how long they take, is held.

Executing what somebody else wrote: it ends in time, and whatever it raises is its own, but for what a person did.

The limit is a timer of the process (SIGALRM), as Airflow's own is for a whole DAG file, so it holds in the main thread
alone, and code that never comes back to Python is past its reach.

Modules beside a pipeline's file: in memory every folder is a package of its own, so that two folders may each hold a
``parsing.py``.

``import parsing`` in a file of a folder means the ``parsing.py`` beside it, and else what is installed; Python's own
modules and Headrace come before both. Only imports that such files write themselves are looked at.
"""

import builtins
import hashlib
import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, Final, NoReturn

_AGAIN_SECONDS: Final = 1.0
"""Code that catches everything is told again after so long."""
_SHARE: Final = 2
"""Of what an outer limit leaves, one part in so many: so there is always some left for what comes afterwards."""
_SOON: Final = 1e-3


class TimeUpError(BaseException):
    """Raised inside code that takes longer than it may. It is no Exception: code that goes on after errors must end."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"it has not ended after {seconds:g} s")


class Interrupted(KeyboardInterrupt):
    """A person has asked for the end (Ctrl-C); a bare KeyboardInterrupt was raised by the code itself."""


@contextmanager
def guarded(seconds: float | None) -> Iterator[None]:
    """Raise TimeUpError in the block when it takes longer than ``seconds`` (None: it may take any time), or than half
    of what a timer leaves that was set outside; and Interrupted on Ctrl-C. Only the main thread has either.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with _on_interrupt():
        if seconds is None:
            yield
        else:
            with _timer(seconds):
                yield


@contextmanager
def _on_interrupt() -> Iterator[None]:
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # somebody else's: it is left alone
        yield
        return
    with _handler(signal.SIGINT, _interrupt):
        yield


@contextmanager
def _timer(seconds: float) -> Iterator[None]:
    begun = time.monotonic()
    left, interval = signal.setitimer(signal.ITIMER_REAL, 0)
    limit = min(seconds, left / _SHARE) if left else seconds

    def end(_signal: int, _frame: FrameType | None) -> NoReturn:
        raise TimeUpError(limit)

    try:
        with _handler(signal.SIGALRM, end):
            signal.setitimer(signal.ITIMER_REAL, limit, _AGAIN_SECONDS)
            try:
                yield
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - begun), _SOON), interval)


@contextmanager
def _handler(number: signal.Signals, handler: Callable[[int, FrameType | None], NoReturn]) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before if before is not None else signal.SIG_DFL)


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise Interrupted


_PREFIX = "_headrace_"
OWN_PACKAGES = frozenset({"headrace", "headrace_airflow", "headrace_lab", "headrace_snapshots"})
_FIRST = sys.stdlib_module_names | OWN_PACKAGES
_loading: ContextVar[str | None] = ContextVar("_loading", default=None)


_executing = threading.RLock()


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Keep other threads from executing and forgetting modules of users: they would see half of one."""
    with _executing:
        yield


def _renew() -> None:
    """Makes a lock that nobody holds: in a fork there is no other thread that would let go of the old one."""
    global _executing  # noqa: PLW0603
    _executing = threading.RLock()


os.register_at_fork(after_in_child=_renew)


def load(file: Path) -> ModuleType:
    """The module of a pipeline's file, executed unless it was since ``forget``. Raises what the file raises."""
    folder = file.resolve().parent
    name = f"{_package(folder)}.{file.stem.replace('.', '·')}"
    with one_at_a_time():
        if name in sys.modules:
            return sys.modules[name]
        path = str(folder / file.name)
        spec = spec_from_file_location(name, path, loader=_Loader(name, path))
        assert spec is not None and spec.loader is not None
        module = sys.modules[name] = module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            sys.modules.pop(name, None)
            raise
        return module


def forget(folder: Path) -> None:
    """Forget the modules of ``folder``: what is loaded afterwards is what lies there then."""
    package = _name(folder.resolve())
    for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
        del sys.modules[name]


def current() -> str | None:
    """The package of the folder of which a module is being executed; None outside."""
    return _loading.get()


def imported(name: str, package: str | None) -> ModuleType:
    """The module that a file of ``package`` means by ``name``. Raises what importing it raises."""
    if package is not None and package in sys.modules and _is_beside(_folder(package), name.partition(".")[0]):
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


class _Loader(SourceFileLoader):
    """Executes a module of a folder: always from its source, and with imports of its own."""

    def get_code(self, fullname: str) -> CodeType:
        # no cached bytecode: that is told from the source by a time in seconds and the size, and may be another's
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)

    def exec_module(self, module: ModuleType) -> None:
        package = module.__name__.partition(".")[0]
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _importer(package)}
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
        specs = (FileFinder(entry, (_Loader, SOURCE_SUFFIXES)).find_spec(name) for entry in path)
        return next((spec for spec in specs if spec is not None), None)


sys.meta_path.insert(0, _Finder)  # before the finder that gives modules of packages their common loader


def _name(folder: Path) -> str:
    return f"{_PREFIX}{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"


def _package(folder: Path) -> str:
    name = _name(folder)
    if name not in sys.modules:
        package = sys.modules[name] = ModuleType(name, f"The modules of {folder}.")
        package.__path__ = [str(folder)]
    return name


def _folder(package: str) -> Path:
    return Path(sys.modules[package].__path__[0])


def _is_beside(folder: Path, top: str) -> bool:
    """Whether a module or package ``top`` in ``folder`` is meant. A folder without ``__init__.py`` is the last choice,
    as it is for Python.
    """
    if top in _FIRST:
        return False
    spec = FileFinder(str(folder), (_Loader, SOURCE_SUFFIXES)).find_spec(top)
    return spec is not None and (spec.loader is not None or PathFinder.find_spec(top) is None)


def _importer(package: str) -> Callable[..., ModuleType]:
    folder = _folder(package)
    is_beside = cache(lambda top: _is_beside(folder, top))

    def import_(
        name: str,
        of: Mapping[str, Any] | None = None,
        local: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        top = name.partition(".")[0]
        if level or not is_beside(top):
            return builtins.__import__(name, of, local, fromlist or (), level)
        module = builtins.__import__(f"{package}.{name}", of, local, fromlist or (), 0)
        return module if fromlist else sys.modules[f"{package}.{top}"]

    return import_
