"""The process that computes epochs: what it may take, and work beside them in a thread of its own.

It has one heap for all allocators, which give back what they keep for later; no pandas before somebody wants it; a
limit of the rows that one epoch may hold in memory; and tasks beside each other, as many as somebody has said. The
thread ends with the run which began it: what it would still write nobody would ever name.
"""

import ctypes
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Generic, TypeVar

import pyarrow as pa
from pyarrow import lib

from headrace.errors import FixConfigError


class LargeEpochError(FixConfigError, code="config.large_epoch"):
    """An epoch has a column of more than 2 GB, which is as much as Arrow's strings and lists hold in one piece."""


@contextmanager
def columns_fit() -> Iterator[None]:
    """Raises LargeEpochError if a column outgrows Arrow's offsets of 32 bits."""
    try:
        yield
    except (pa.ArrowCapacityError, pa.ArrowInvalid) as error:
        if isinstance(error, pa.ArrowInvalid) and "overflow" not in str(error):
            raise
        raise LargeEpochError(
            f"a column of the epoch, of strings or lists, outgrows 2 GB ({error}). Let an epoch take less input "
            "(--files-per-epoch, max_bytes of the source), or run the pipeline with --executor spark"
        ) from error


_ARENAS = -8
"""M_ARENA_MAX of ``mallopt``."""


def share_one_heap() -> None:
    """Let Arrow allocate where numpy does, and all threads from the same heap: what one frees another one takes. With a
    heap each, a process takes as much as all of them had at their worst moments together.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc alone has it
    if mallopt is not None:
        mallopt(_ARENAS, 1)


def give_back() -> None:
    """Let the system have what Arrow and the C library hold and nobody uses. Takes milliseconds."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc alone has it
    if trim is not None:
        trim(0)


def import_pandas_late() -> None:
    """Let Arrow do without pandas, which it imports for its first value: a third of the CPU of a short run. Once
    somebody else imports pandas, or asks for what only pandas can hold, all is as if it had been there.
    """
    shim = getattr(lib, "_pandas_api", None)
    if "pandas" in sys.modules or shim is None or any(isinstance(finder, _PandasFinder) for finder in sys.meta_path):
        return
    finder = _PandasFinder(shim, threading.get_ident())
    sys.meta_path.insert(0, finder)  # and there it stays: who takes one out while others import has them skip one
    if not shim.have_pandas:
        lib._pandas_api = _AskedShim(shim)
    finder.hidden_from = None


class _PandasFinder(MetaPathFinder):
    """Finds no pandas for the thread in which Arrow is to miss it; for all, from then on, one that it learns of."""

    def __init__(self, shim: Any, hidden_from: int) -> None:
        self._shim = shim
        self._is_missed = False
        self.hidden_from: int | None = hidden_from

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """What the other finders give. Raises ModuleNotFoundError where pandas is hidden."""
        if name != "pandas":
            return None
        if self.hidden_from == threading.get_ident():
            self._is_missed = True
            raise ModuleNotFoundError("Arrow looks for pandas later", name=name)
        if not self._is_missed:  # Arrow still looks itself
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _PandasLoader(spec.loader, self._shim)
        return spec


class _PandasLoader(Loader):
    """Loads pandas as ``loader`` does, and has Arrow look for it again before anybody gets it."""

    def __init__(self, loader: Loader, shim: Any) -> None:
        self._loader = loader
        self._shim = shim

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """The module that ``loader`` makes."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Execute it, and tell Arrow."""
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        lib._pandas_api = self._shim
        try:
            self._shim.pd  # noqa: B018  # which looks again
        except ImportError as error:  # pandas is too old for Arrow, which only warns of that where it looks by itself
            warnings.warn(str(error), stacklevel=2)


class _AskedShim:
    """Arrow's shim of pandas for those who ask by its name: nanoseconds are pandas' if there is one."""

    def __init__(self, shim: Any) -> None:
        self._shim = shim

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shim, name)

    @property
    def have_pandas(self) -> bool:
        """Whether pandas can be imported, and it is then."""
        try:
            import_module("pandas")
        except ImportError:  # which Arrow, too, takes for an answer
            return False
        return bool(self._shim.have_pandas)


TASKS_VARIABLE = "HEADRACE_TASKS"


class TasksSettingError(FixConfigError, code="config.tasks"):
    """HEADRACE_TASKS is not a number of tasks."""


def stated_tasks() -> int | None:
    """What HEADRACE_TASKS says, None if it is not set. Raises TasksSettingError."""
    setting = os.environ.get(TASKS_VARIABLE)
    if not setting:
        return None
    if not setting.isdecimal() or int(setting) < 1:
        raise TasksSettingError(f"{TASKS_VARIABLE}={setting}: write a number, 1 or more")
    return int(setting)


R = TypeVar("R")
T = TypeVar("T")


class Stop:
    """Whether work is to end: it asks between two pieces, or has itself called."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_set = False
        self._end: Callable[[], object] | None = None

    def set(self) -> None:
        """End the work."""
        with self._lock:
            self._is_set = True
            if self._end is not None:
                self._end()

    def raise_if_set(self) -> None:
        """Raise CancelledError if the work is to end."""
        if self._is_set:
            raise CancelledError

    def check_each(self, pieces: Iterable[T]) -> Iterator[T]:
        """``pieces``, as long as the work goes on. Raises CancelledError."""
        for piece in pieces:
            self.raise_if_set()
            yield piece

    @contextmanager
    def call_on_stop(self, end: Callable[[], object]) -> Iterator[None]:
        """Call ``end`` if the work is to end while the block lasts. Raises CancelledError if it is already."""
        with self._lock:
            self.raise_if_set()
            self._end = end
        try:
            yield
        finally:
            with self._lock:
                self._end = None


class BackgroundThread(Generic[R]):
    """One piece of work at a time, in a thread called ``name``."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._running: tuple[Stop, Future[R]] | None = None

    def begin(self, work: Callable[[Stop], R]) -> None:
        """Begin ``work``; none is running."""
        stop, thread = Stop(), ThreadPoolExecutor(1, thread_name_prefix=self._name)
        self._running = (stop, thread.submit(work, stop))
        # the thread ends with its work, and nobody has to end it
        thread.shutdown(wait=False)

    @property
    def is_running(self) -> bool:
        """Whether the result of some work was not taken yet."""
        return self._running is not None

    @property
    def is_done(self) -> bool:
        """Whether a result, or an error, can be taken without waiting."""
        return self._running is not None and self._running[1].done()

    def take_result(self) -> R:
        """Wait for what the work gives, and take it. Raises the error that ended it."""
        assert self._running is not None
        (_, future), self._running = self._running, None
        return future.result()

    def close(self) -> None:
        """End the work, if any, and wait until it has ended. Its result or error is nobody's: nothing of it counts."""
        if self._running is not None:
            (stop, future), self._running = self._running, None
            stop.set()
            wait([future])
