"""Work beside the epochs, in a thread of its own, that ends with the run which began it: what it would still write
nobody would ever name.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Generic, TypeVar

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

    def check(self) -> None:
        """Raise CancelledError if the work is to end."""
        if self._is_set:
            raise CancelledError

    def checked(self, pieces: Iterable[T]) -> Iterator[T]:
        """``pieces``, as long as the work goes on. Raises CancelledError."""
        for piece in pieces:
            self.check()
            yield piece

    @contextmanager
    def calling(self, end: Callable[[], object]) -> Iterator[None]:
        """Call ``end`` if the work is to end while the block lasts. Raises CancelledError if it is already."""
        with self._lock:
            self.check()
            self._end = end
        try:
            yield
        finally:
            with self._lock:
                self._end = None


class Beside(Generic[R]):
    """One piece of work at a time, in a thread called ``name``."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._running: tuple[Stop, Future[R]] | None = None

    def begin(self, work: Callable[[Stop], R]) -> None:
        """Begin ``work``; none is running."""
        stop, thread = Stop(), ThreadPoolExecutor(1, thread_name_prefix=self._name)
        self._running = (stop, thread.submit(work, stop))
        thread.shutdown(wait=False)

    @property
    def is_running(self) -> bool:
        """Whether the result of some work was not taken yet."""
        return self._running is not None

    @property
    def is_done(self) -> bool:
        """Whether a result, or an error, can be taken without waiting."""
        return self._running is not None and self._running[1].done()

    def result(self) -> R:
        """Wait for what the work gives, and take it. Raises the error that ended it."""
        assert self._running is not None
        (_, future), self._running = self._running, None
        return future.result()

    def close(self) -> None:
        """End the work, if some is running, and wait until it has ended. Its result, or its error, is nobody's: nothing
        of it counts.
        """
        if self._running is not None:
            (stop, future), self._running = self._running, None
            stop.set()
            wait([future])
