"""A program and all that it starts, as one session of processes: ended as a whole, whichever process died before."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress

import psutil
import tenacity


class StillRunningError(Exception):
    """Processes of a session do not end."""


def family(first: "subprocess.Popen[bytes]") -> list[psutil.Process]:
    """The living processes of the session that ``first`` leads (``start_new_session=True``), itself included."""
    return list(_living(first.pid))


def end(first: "subprocess.Popen[bytes]", *, politely: float = 0.0) -> None:
    """End the session that ``first`` leads. It gets so many seconds after SIGTERM, then all are killed.

    Raises StillRunningError when a process does not end at all.
    """
    if politely and first.poll() is None:
        first.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            first.wait(politely)
    for attempt in tenacity.Retrying(
        stop=tenacity.stop_after_delay(60),
        wait=tenacity.wait_fixed(0.05),
        retry=tenacity.retry_if_exception_type(StillRunningError),
        reraise=True,
    ):
        with attempt:
            left = family(first)
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            if left:
                raise StillRunningError(f"processes do not end: {[process.pid for process in left]}")
    first.wait()


def _living(session: int) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, ProcessLookupError, PermissionError):
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                yield process
