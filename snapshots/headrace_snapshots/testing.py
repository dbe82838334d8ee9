"""A store that fails on purpose: requests fail, answers are lost, puts land late, operations are held in place."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeVar

from headrace.ext import stores as store_ports

Result = TypeVar("Result")


@dataclass(frozen=True)
class Operation:
    """What is about to be asked of the store: its kind (as requests are counted), path, and how many came before."""

    kind: str
    path: str
    number: int


class Fault(Enum):
    """What goes wrong once."""

    FAIL = "it does not happen, and the caller is told"
    LOSE_REQUEST = "it does not happen, and the caller is not told so"
    LOSE_ANSWER = "it happens, and the caller is not told so"


@dataclass(frozen=True)
class LandLate:
    """The answer is lost at once; the request happens only before the ``after``-th operation that follows."""

    after: int


@dataclass(frozen=True)
class HoldRequest:
    """The operation waits until ``wait`` returns, then happens."""

    wait: Callable[[], object]


FaultPlan = Callable[[Operation], Fault | LandLate | HoldRequest | None]


class FaultyStore:
    """``inner``, with what ``plan`` says for each operation. Safe to use from many threads if the plan is."""

    def __init__(self, inner: store_ports.ObjectStore, plan: FaultPlan) -> None:
        self.inner = inner
        self.uri = inner.uri
        self._plan = plan
        self._lock = threading.Lock()
        self._number = 0
        self._late: list[tuple[int, Callable[[], object]]] = []

    @property
    def requests(self) -> store_ports.RequestCounts:
        return self.inner.requests

    def read(self, path: str) -> bytes:
        return self._perform_request("get", path, lambda: self.inner.read(path))

    def read_range(self, path: str, start: int, length: int) -> bytes:
        return self._perform_request("get", path, lambda: self.inner.read_range(path, start, length))

    def stat(self, path: str) -> store_ports.ObjectInfo:
        return self._perform_request("stat", path, lambda: self.inner.stat(path))

    def read_same(self, info: store_ports.ObjectInfo) -> bytes:
        return self._perform_request("get", info.path, lambda: self.inner.read_same(info))

    def digested(self, path: str) -> store_ports.ObjectInfo | None:
        return self._perform_request("get", path, lambda: self.inner.digested(path))

    def write(self, path: str, data: bytes) -> store_ports.ObjectInfo:
        return self._perform_request("put", path, lambda: self.inner.write(path, data))

    def create(self, path: str, data: bytes) -> store_ports.ObjectInfo:
        return self._perform_request("create", path, lambda: self.inner.create(path, data))

    def list(self, prefix: str, start_after: str = "") -> Iterator[store_ports.ObjectInfo]:
        return self._perform_request("list", prefix, lambda: self.inner.list(prefix, start_after))

    def delete(self, path: str) -> None:
        self._perform_request("delete", path, lambda: self.inner.delete(path))

    def _perform_request(self, kind: str, path: str, request: Callable[[], Result]) -> Result:
        with self._lock:
            operation = Operation(kind, path, self._number)
            self._number += 1
            due = [late for due_number, late in self._late if due_number <= operation.number]
            self._late = [(due_number, late) for due_number, late in self._late if due_number > operation.number]
        for late in due:
            _without_answer(late)
        fault = self._plan(operation)
        if fault is None:
            return request()
        if isinstance(fault, HoldRequest):
            fault.wait()
            return request()
        if fault is Fault.FAIL:
            raise store_ports.StoreUnavailableError(f"{kind} of {self.uri}/{path} failed on purpose")
        if fault is Fault.LOSE_ANSWER:
            _without_answer(request)
        if isinstance(fault, LandLate):
            with self._lock:
                self._late.append((operation.number + fault.after, request))
        lost_error = store_ports.UnknownOutcomeError if kind == "create" else store_ports.StoreUnavailableError
        raise lost_error(f"the answer to {kind} of {self.uri}/{path} was lost on purpose")


def _without_answer(request: Callable[[], object]) -> None:
    with suppress(
        store_ports.ObjectExistsError
    ):  # a server's "exists already" is an answer too, and nobody is there to hear it
        request()


@contextmanager
def disturb_stores(plan: FaultPlan, scheme: str = "file") -> Iterator[None]:
    """Inside, each store of a ``scheme`` that this process opens does what ``plan`` says."""
    own = store_ports.SCHEMES[scheme]
    faulty_scheme = replace(own, open=lambda uri: FaultyStore(own.open(uri), plan))
    with store_ports.SCHEMES.replace_part(scheme, faulty_scheme):
        yield
