"""Deliveries that are stopped in their middle: killed at a step, or held up while another one passes them."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from headrace.ext.sinks import (
    SINKS,
    AppliedCounts,
    ChangeRecords,
    Changes,
    Intervention,
    OpenChangeLog,
    OpenSink,
    OpenTarget,
    SinkState,
)
from headrace.testing.connectors.worlds import SinkWorld

if TYPE_CHECKING:
    import pyarrow as pa

Act = Callable[[], None]
_SECONDS: Final = 120
_PRELOAD: Final = ("headrace.runs.delivering.deliver", "headrace.testing.connectors.pipelines", "duckdb")


@dataclass(frozen=True)
class _SteppedChanges(Changes):
    """Changes that call ``act`` before each batch of ``whole``."""

    whole: Changes = field(kw_only=True)
    act: Act = field(kw_only=True)

    def removed(self) -> "Iterator[pa.RecordBatch]":
        return _stepped(self.whole.removed(), self.act)

    def rows(self, ordered_by: Sequence[str] = ()) -> "Iterator[pa.RecordBatch]":
        return _stepped(self.whole.rows(ordered_by), self.act)

    def days(self) -> list[int | None]:
        return self.whole.days()

    def met_by(self, copied: "pa.Table") -> tuple[int, int]:
        return self.whole.met_by(copied)

    def untouched(self, copied: "pa.Table") -> "pa.Table":
        return self.whole.untouched(copied)


@dataclass(frozen=True)
class _SteppedRecords(ChangeRecords):
    """Records that call ``act`` before each batch of ``whole``."""

    whole: ChangeRecords = field(kw_only=True)
    act: Act = field(kw_only=True)

    def batches(self) -> "Iterator[pa.RecordBatch]":
        return _stepped(self.whole.batches(), self.act)


def _stepped(batches: "Iterator[pa.RecordBatch]", act: Act) -> "Iterator[pa.RecordBatch]":
    for batch in batches:
        act()
        yield batch


def _fields(whole: Changes | ChangeRecords, port: type[Changes | ChangeRecords]) -> dict[str, Any]:
    return {part.name: getattr(whole, part.name) for part in fields(port)}


@dataclass(frozen=True)
class _SteppedTarget(OpenTarget):
    """A ``target`` for whose every change ``act`` is called, before it, at each batch of it, and after it."""

    target: OpenTarget
    act: Act

    def held(self) -> SinkState | None:
        return self.target.held()

    def intervention(self, held: SinkState) -> Intervention | None:
        return self.target.intervention(held)


@dataclass(frozen=True)
class _SteppedLog(_SteppedTarget, OpenChangeLog):
    """A target that appends."""

    target: OpenChangeLog

    def unknown_records(self) -> int:
        return self.target.unknown_records()

    def append(self, records: ChangeRecords, before: SinkState | None, after: SinkState) -> None:
        self.act()
        stepped = _SteppedRecords(**_fields(records, ChangeRecords), whole=records, act=self.act)
        self.target.append(stepped, before, after)
        self.act()


@dataclass(frozen=True)
class _SteppedSink(_SteppedTarget, OpenSink):
    """A target that holds rows."""

    target: OpenSink

    def apply(self, changes: Changes, before: SinkState | None, after: SinkState) -> AppliedCounts:
        self.act()
        stepped = _SteppedChanges(**_fields(changes, Changes), whole=changes, act=self.act)
        applied = self.target.apply(stepped, before, after)
        self.act()
        return applied


@contextmanager
def at_each_step(world: SinkWorld, act: Act) -> Iterator[None]:
    """Inside, deliveries to the sink of ``world`` call ``act`` at each of their steps."""
    kind = SINKS[world.sink.kind]
    opened = kind.open

    @contextmanager
    def stepped(*given: Any) -> Iterator[OpenTarget]:
        with opened(*given) as target:
            if isinstance(target, OpenChangeLog):
                yield _SteppedLog(target, act)
            else:
                assert isinstance(target, OpenSink)
                yield _SteppedSink(target, act)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "open", stepped)
        yield


@dataclass
class _Countdown:
    """Ends the process in which it was made, as a machine does that loses its power, at the step of that number."""

    left: int
    process: int = field(default_factory=os.getpid)

    def __call__(self) -> None:
        if self.left == 0:
            os.kill(self.process, signal.SIGKILL)
        self.left -= 1


def _victim(world: SinkWorld, folder: Path, environment: Mapping[str, str], step: int) -> None:
    from headrace.testing.connectors.pipelines import SinkDeployment

    os.environ.update(environment)
    countdown = _Countdown(step)
    world.before_each_request(countdown)
    deployment = SinkDeployment(world, folder)
    with at_each_step(world, countdown):
        deployment.deliver(deployment.sales())


def killed_at(world: SinkWorld, folder: Path, step: int) -> bool:
    """Deliver in a process that is killed at its ``step``; False if it came to its end with fewer."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*_PRELOAD, type(world).__module__])
    process = context.Process(target=_victim, args=(world, folder, dict(os.environ), step))
    process.start()
    process.join(_SECONDS)
    if process.exitcode not in (0, -signal.SIGKILL):
        process.kill()
        pytest.fail(f"a delivery that was to be killed at step {step} ended with {process.exitcode} (None: it hung)")
    return process.exitcode != 0
