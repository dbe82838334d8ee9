"""Fault points: all that a process comes to as it commits, generated from the protocol's own tables and what is stored.

An effect is a row of the coordinator's transition table that is taken, or the put or deletion of an object; the puts of
log entries are named after the kinds of entries. Before and after each of them is a point, and in the middle of a put.
"""

import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import pytest
from urllib3.connection import HTTPConnection

from headrace_snapshots.log import Entry
from headrace_snapshots.names import summarized_pipeline
from headrace_snapshots.protocol import coordinator
from headrace_snapshots.protocol.barriers import Row, Table
from headrace_snapshots.protocol.moves import Kind
from headrace_snapshots.store import ObjectInfo
from headrace_snapshots.store.local import LocalStore
from headrace_snapshots.store.s3 import S3Store


class Moment(StrEnum):
    """When in an effect."""

    BEFORE = "before"
    MIDDLE = "in the middle of"
    """A file is written, and without its name; a request is sent, and not answered."""
    AFTER = "after"


@dataclass(frozen=True, order=True)
class Effect:
    """Something that a process does: of which kind, and how many of these came before."""

    kind: str
    number: int


@dataclass(frozen=True, order=True)
class Point:
    """Where a fault hits."""

    effect: Effect
    moment: Moment

    def __str__(self) -> str:
        return f"{self.moment} {self.effect.kind} {self.effect.number}"


PointListener = Callable[[Point], None]


def _of_row(row: Row[Any, Any]) -> str:
    condition = "" if row.when is None else f" and {row.when.__name__}"
    return f"{row.event}{condition} in {'/'.join(row.states)}"


def _of_entry(kind: Kind) -> str:
    return f"{kind} entry"


ROWS = tuple(_of_row(row) for row in coordinator.COORDINATOR_TABLE.rows)
ENTRIES = tuple(_of_entry(kind) for kind in Kind)


def watch(patch: pytest.MonkeyPatch, listener: PointListener) -> None:
    """Call ``listener`` at each point that this process comes to from now on."""
    watching = _Watching(listener)
    rows = [watching.row(row) for row in coordinator.COORDINATOR_TABLE.rows]
    patch.setattr(coordinator, "COORDINATOR_TABLE", Table(rows))
    for store in (LocalStore, S3Store):
        patch.setattr(store, "write", watching.put(store.write))
        patch.setattr(store, "create", watching.put(store.create))
        patch.setattr(store, "delete", watching.deletion(store.delete))


class _Watching:
    def __init__(self, listener: PointListener) -> None:
        self._listener = listener
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def row(self, row: Row[Any, Any]) -> Row[Any, Any]:
        kind = _of_row(row)

        def strike_before(step: Any) -> Sequence[Any]:
            self._listener(Point(self._next(kind), Moment.BEFORE))
            return ()

        def strike_after(step: Any) -> Sequence[Any]:
            self._listener(Point(Effect(kind, self._counts[kind] - 1), Moment.AFTER))
            return ()

        return replace(row, do=(strike_before, *row.do, strike_after))

    def put(self, put: Callable[[Any, str, bytes], ObjectInfo]) -> Callable[[Any, str, bytes], ObjectInfo]:
        def watch_call(store: Any, path: str, data: bytes) -> ObjectInfo:
            effect = self._next(_of_put(path, data))
            self._listener(Point(effect, Moment.BEFORE))
            self._listener(Point(effect, Moment.MIDDLE))
            info = put(store, path, data)
            self._listener(Point(effect, Moment.AFTER))
            return info

        return watch_call

    def deletion(self, delete: Callable[[Any, str], None]) -> Callable[[Any, str], None]:
        def watch_call(store: Any, path: str) -> None:
            effect = self._next(f"{_folder(path)} deleted")
            self._listener(Point(effect, Moment.BEFORE))
            delete(store, path)
            self._listener(Point(effect, Moment.AFTER))

        return watch_call

    def _next(self, kind: str) -> Effect:
        with self._lock:
            self._counts[kind] += 1
            return Effect(kind, self._counts[kind] - 1)


def _folder(path: str) -> str:
    return path.split("/")[1].removesuffix(".json")


def _of_put(path: str, data: bytes) -> str:
    """``commit entry``, ``manifests``, ``state data``, ``summary``, ..."""
    if summarized_pipeline(path) is not None:
        return "summary"
    match _folder(path):
        case "log":
            return _of_entry(Entry.from_bytes(data, path).kind)
        case "data":
            return f"{_table_of(path)} data"
        case folder:
            return folder


def _table_of(path: str) -> str:
    """The table or log of a data file, without the name of its output."""
    first, second, *_ = path.rpartition("/")[2].split("-")
    return first if _TABLE.fullmatch(first) else second


_TABLE = re.compile(r"panes|late|rejected|ids|edges|inflight|current|elements|(state|joinleft|joinright)(_\d+)?")


def in_the_middle(patch: pytest.MonkeyPatch, strike: Callable[[], None]) -> None:
    """Strike when this thread is about to give the next file its name, or to wait for the answer to a request."""
    own_thread, left = threading.get_ident(), [strike]

    def strike_instead(call: Callable[..., Any]) -> Callable[..., Any]:
        def act(*arguments: Any, **options: Any) -> Any:
            if left and threading.get_ident() == own_thread:
                left.pop()()
            return call(*arguments, **options)

        return act

    patch.setattr(os, "link", strike_instead(os.link))
    patch.setattr(os, "replace", strike_instead(os.replace))
    patch.setattr(HTTPConnection, "getresponse", strike_instead(HTTPConnection.getresponse))
