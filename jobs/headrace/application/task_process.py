"""What programs that tasks run in processes of their own have in common: how they speak, and when they end."""

import os
import signal
import sys
from threading import Thread

from headrace.runs.reporting.results import redacted
from headrace.terminal import speak_utf8, visible


def tell(line: str) -> None:
    """Say a line for the log of the task."""
    speak_utf8()
    print(visible(redacted(line)), flush=True)


def end_with_input() -> None:
    """End the whole group of processes from now on when the standard input ends, because the process that started this
    one has ended.
    """
    Thread(target=_end_with_input, daemon=True).start()


def _end_with_input() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.killpg(0, signal.SIGKILL)
