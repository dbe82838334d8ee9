"""What happens to sinks in a test: before a target is asked, after it has answered, or instead of both."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from headrace.ext.sinks import (
    SINKS,
    AppliedCounts,
    Changes,
    Connection,
    Intervention,
    OpenReceiver,
    OpenSink,
    OpenTarget,
    Sink,
    SinkConnector,
    SinkState,
)
from headrace.model.expressions.data_types import ValueType


@dataclass(frozen=True)
class SinkCall:
    """One call of a ``method`` of a target of rows (held, intervention, apply, rows), which ``perform`` makes."""

    method: str
    sink: Sink
    perform: Callable[[], Any]


SinkPlan = Callable[[SinkCall], Any]
"""Answers a call: mostly by ``call.perform()``, before or after which anything may happen."""


class _PlannedSink(OpenSink):
    """A target of rows, of which each call goes by a plan."""

    def __init__(self, sink: Sink, target: OpenSink, plan: SinkPlan) -> None:
        self._sink, self._target, self._plan = sink, target, plan

    def held(self) -> SinkState | None:
        state: SinkState | None = self._answer("held")
        return state

    def intervention(self, state: SinkState) -> Intervention | None:
        intervention: Intervention | None = self._answer("intervention", state)
        return intervention

    def apply(self, changes: Changes, old_state: SinkState | None, new_state: SinkState) -> AppliedCounts:
        counts: AppliedCounts = self._answer("apply", changes, old_state, new_state)
        return counts

    def rows(self, columns: Mapping[str, ValueType]) -> AbstractContextManager[pa.RecordBatchReader] | None:
        rows: AbstractContextManager[pa.RecordBatchReader] | None = self._answer("rows", columns)
        return rows

    def _answer(self, method: str, *arguments: Any) -> Any:
        return self._plan(SinkCall(method, self._sink, partial(getattr(self._target, method), *arguments)))


class _PlannedConnector(SinkConnector):
    """The code of a kind of sinks, whose targets of rows go by a plan."""

    def __init__(self, own: SinkConnector, plan: SinkPlan) -> None:
        self._own, self._plan = own, plan

    @contextmanager
    def open(self, sink: Sink, connection: Connection) -> Iterator[OpenTarget | OpenReceiver]:
        with self._own.open(sink, connection) as target:
            yield _PlannedSink(sink, target, self._plan) if isinstance(target, OpenSink) else target

    def read(
        self, table: str, columns: Sequence[str], connection: Connection
    ) -> AbstractContextManager[pa.RecordBatchReader]:
        return self._own.read(table, columns, connection)


@contextmanager
def disturb_sinks(kind: str, plan: SinkPlan) -> Iterator[None]:
    """Inside, each target of rows of this ``kind`` of sinks, such as "delta", answers as ``plan`` says.

    >>> def fail(call):
    ...     if call.method == "apply":
    ...         raise OSError("the disk is full")
    ...     return call.perform()
    >>> with disturb_sinks("delta", fail):
    ...     handle.deliver()
    """
    with SINKS.replace_part(kind, _PlannedConnector(SINKS[kind], plan)):
        yield


@contextmanager
def act_meanwhile(kind: str, method: str, happens: Callable[[], object]) -> Iterator[None]:
    """Inside, something ``happens`` once: after a delivery has decided to call ``method`` of a target, and before it
    does. What happens may deliver itself.
    """
    has_happened = False

    def plan(call: SinkCall) -> Any:
        nonlocal has_happened
        if call.method == method and not has_happened:
            has_happened = True
            happens()
        return call.perform()

    with disturb_sinks(kind, plan):
        yield
