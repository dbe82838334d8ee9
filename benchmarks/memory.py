"""Memory of a process and all below it, seen from outside: a JVM and Python workers together."""

import subprocess

import psutil

SECONDS = 0.5
"""From look to look; what comes and goes between two of them is not seen."""


def watched(process: "subprocess.Popen[bytes]") -> int:
    """Wait for the process to end, and tell the most bytes that it and all below it had; 0 if it ended before the
    first look.

    Proportional set sizes: a page that several processes map counts once among them.
    """
    peak = 0
    while process.returncode is None:
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            peak = max(peak, _tree_bytes(process.pid))
    return peak


def _tree_bytes(pid: int) -> int:
    try:
        root = psutil.Process(pid)
        processes = (root, *root.children(recursive=True))
    except psutil.NoSuchProcess:
        return 0
    return sum(_bytes(process) for process in processes)


def _bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.NoSuchProcess:  # ended meanwhile
        return 0
