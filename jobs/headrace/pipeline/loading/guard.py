"""Executing what somebody else wrote: it ends in time, and whatever it raises is its own, but for what a person did.

The limit is a timer of the process (SIGALRM), as Airflow's own is for a whole DAG file, so it holds in the main thread
alone, and code that never comes back to Python is past its reach.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn

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
