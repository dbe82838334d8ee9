"""What programs that tasks run in processes of their own have in common: how they end, and how they write to the log.

Import this module before what may register something to do at the exit: Python does these things in reverse order, so
the end comes last.
"""

import atexit
import os
import signal
import sys
from threading import Thread
from typing import NoReturn

from headrace.runs.reporting.results import redact_secrets
from headrace.this_process import escape_invisible, flush_output, speak_utf8

_codes: list[int] = []


def exit_with(code: int) -> NoReturn:
    """End this process as ``sys.exit`` does: its threads end, and what was registered with ``atexit`` is done. Nothing
    takes down, object by object, what was imported: that takes up to a second of CPU.
    """
    _codes.append(code)
    sys.exit(code)


@atexit.register
def _end() -> None:
    if _codes:
        flush_output()
        os._exit(_codes[-1])


def write_log_line(line: str) -> None:
    """Say a line for the log of the task."""
    speak_utf8()
    print(escape_invisible(redact_secrets(line)), flush=True)


def end_with_input() -> None:
    """End the whole group of processes from now on when the standard input ends, because the process that started this
    one has ended.
    """
    Thread(target=_end_with_input, daemon=True).start()


def _end_with_input() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.killpg(0, signal.SIGKILL)
