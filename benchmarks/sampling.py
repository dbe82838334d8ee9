"""Where a process spends its time, by samples of its threads: in which module of ours each is, and if it only waits."""

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_SECONDS: Final = 0.005
_WAITING: Final = ("threading", "selectors", "queue", "concurrent.futures", "asyncio")
"""Modules in which a thread is that waits for another one, or for an answer."""

_OURS: Final = ("headrace.", "headrace_snapshots.")


@contextmanager
def sampled() -> Iterator[dict[str, float]]:
    """Inside, threads are looked at each five milliseconds; afterwards the shares, largest first, by module of ours.
    Threads in nothing of ours are left out: those of pools that have nothing to do.
    """
    seen: Counter[str] = Counter()
    shares: dict[str, float] = {}
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(seen, over), daemon=True)
    watcher.start()
    try:
        yield shares
    finally:
        over.set()
        watcher.join()
        total = max(1, seen.total())
        shares.update({place: round(count / total, 3) for place, count in seen.most_common()})


def _watch(seen: Counter[str], over: threading.Event) -> None:
    while not over.wait(_SECONDS):
        own = threading.get_ident()
        for thread, frame in sys._current_frames().items():
            if thread != own and (place := _place(frame)) is not None:
                seen[place] += 1


def _place(innermost: FrameType) -> str | None:
    """The innermost module of ours, and that it waits; None if there is none."""
    waits = str(innermost.f_globals.get("__name__", "")).startswith(_WAITING)
    frame: FrameType | None = innermost
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith(_OURS):
            return f"{module} (waits)" if waits else module
        frame = frame.f_back
    return None
