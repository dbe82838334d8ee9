"""Processes that signal themselves at one effect of a run: a put, before it, in its middle or after it."""

import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.pipeline.executors import Executor
from headrace.runs import process as processing
from headrace.runs.options import RunOptions
from headrace_snapshots.format.entry import Entry
from headrace_snapshots.store import ObjectInfo, ObjectStore, open_store
from tests.faults.scenarios import PIPELINES

REFUSED = 3
"""How a victim exits that ends with an error of Headrace's."""


class Moment(StrEnum):
    """When in a put."""

    BEFORE = "before"
    UNNAMED = "written, and without its name"
    AFTER = "after"


@dataclass(frozen=True, order=True)
class Effect:
    """The put of an object of a run: of which kind, and how many of these came before. Kinds of entries are theirs."""

    kind: str
    number: int


@dataclass(frozen=True, order=True)
class Point:
    """Where a fault hits."""

    effect: Effect
    moment: Moment


def kind_of(path: str, data: bytes) -> str:
    """``commit entry``, ``manifests``, ``state data``, ..."""
    _, folder, *rest = path.split("/")
    if folder == "log":
        return f"{Entry.from_bytes(data, path).kind} entry"
    return f"{rest[-1].partition('-')[0]} data" if folder == "data" else folder.removesuffix(".json")


class Watched:
    """A store that calls ``reached`` around each put."""

    def __init__(self, inner: ObjectStore, reached: Callable[[Point], None]) -> None:
        self._inner, self._reached = inner, reached
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def write(self, path: str, data: bytes) -> ObjectInfo:
        return self._around(path, data, self._inner.write)

    def create(self, path: str, data: bytes) -> ObjectInfo:
        return self._around(path, data, self._inner.create)

    def _around(self, path: str, data: bytes, put: Callable[[str, bytes], ObjectInfo]) -> ObjectInfo:
        kind = kind_of(path, data)
        with self._lock:
            effect = Effect(kind, self._counts[kind])
            self._counts[kind] += 1
        self._reached(Point(effect, Moment.BEFORE))
        self._reached(Point(effect, Moment.UNNAMED))
        info = put(path, data)
        self._reached(Point(effect, Moment.AFTER))
        return info


def run(name: str, root: Path, reached: Callable[[Point], None] = lambda point: None) -> None:
    """Process and publish pipeline ``name``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processing, "open_store", lambda uri: Watched(open_store(uri), reached))
        processing.process(PIPELINES[name], root.as_uri(), RunOptions("run", executor=Executor.LOCAL, publish=True))


def effects(name: str, root: Path) -> list[Effect]:
    """All of a run that nothing disturbs, which this is."""
    found: list[Point] = []
    run(name, root, found.append)
    return sorted({point.effect for point in found})


class Victim:
    """A process that runs pipeline ``name``, and sends itself signal ``number`` at ``point``."""

    def __init__(self, name: str, root: Path, point: Point | None, number: int) -> None:
        context = multiprocessing.get_context("forkserver")  # so that libraries are imported once
        context.set_forkserver_preload([__name__])
        self._said = root.with_suffix(".said")
        self._process = context.Process(target=_live, args=(name, root, self._said, point, number))
        self._process.start()

    @property
    def said(self) -> str:
        """The code of the error that it ended with."""
        return self._said.read_text()

    def kill(self) -> None:
        """Kill it, if it is still there."""
        self._process.kill()

    def ends(self, seconds: float) -> int | None:
        """Its exit code, once it has ended; None after so many seconds."""
        self._process.join(seconds)
        return self._process.exitcode

    def waits_until_stopped(self, seconds: float) -> None:
        """Wait until the kernel says that it stands still."""
        deadline = time.monotonic() + seconds
        status = Path(f"/proc/{self._process.pid}/stat")
        while status.read_text().rpartition(")")[2].split()[0] != "T":
            assert time.monotonic() < deadline, "it does not stop"
            assert self._process.is_alive(), "it has ended"
            time.sleep(0.01)  # polls a condition with a deadline

    def goes_on(self) -> None:
        """Let it go on."""
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGCONT)


def _live(name: str, root: Path, said: Path, point: Point | None, number: int) -> None:
    def strike(*_: object) -> None:
        signal.pthread_kill(threading.get_ident(), number)  # this thread does nothing more, whatever others do

    def reached(here: Point) -> None:
        if here != point:
            return
        if here.moment is Moment.UNNAMED:
            _before_the_name(strike)
        else:
            strike()

    try:
        run(name, root, reached)
    except HeadraceError as error:
        said.write_text(error.code)
        os._exit(REFUSED)


def _before_the_name(strike: Callable[[], None]) -> None:
    """Strike when the next file is about to get its name."""
    link, replace = os.link, os.replace

    def struck(call: Callable[..., None]) -> Callable[..., None]:
        def instead(*arguments: Any, **named: Any) -> None:
            os.link, os.replace = link, replace
            strike()
            call(*arguments, **named)

        return instead

    os.link, os.replace = struck(link), struck(replace)
