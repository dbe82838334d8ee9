"""Deliveries that are stopped in their middle: killed at a step, or held up while another one passes them."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from headrace.pipeline.sinks import SINKS
from headrace.read.diff.change_records import ChangeRecords
from headrace.read.diff.changes import Changes
from headrace.sinks.open_sink import Applied, Held, Intervention, OpenChangeLog, OpenSink, OpenTarget
from headrace.testing.connectors.sink_world import SinkWorld

if TYPE_CHECKING:
    import pyarrow as pa

Act = Callable[[], None]
_SECONDS: Final = 120
_PRELOAD: Final = ("headrace.runs.delivering.deliver", "headrace.testing.connectors.deployment", "duckdb")


@dataclass(frozen=True)
class _SteppedChanges(Changes):
    """Changes that call ``act`` before each batch."""

    act: Act = field(default=lambda: None)

    def _batches(self, columns: Collection[str], condition: str) -> "Iterator[pa.RecordBatch]":
        for batch in super()._batches(columns, condition):
            self.act()
            yield batch


@dataclass(frozen=True)
class _SteppedRecords(ChangeRecords):
    """Records that call ``act`` before each batch."""

    act: Act = field(default=lambda: None)

    def batches(self) -> "Iterator[pa.RecordBatch]":
        for batch in super().batches():
            self.act()
            yield batch


@dataclass(frozen=True)
class _SteppedLog(OpenChangeLog):
    """A target that appends, which calls ``act`` as ``_Stepped`` does."""

    target: OpenChangeLog
    act: Act

    def held(self) -> Held | None:
        return self.target.held()

    def intervention(self, held: Held) -> Intervention | None:
        return self.target.intervention(held)

    def unknown_records(self) -> int:
        return self.target.unknown_records()

    def append(self, records: ChangeRecords, before: Held | None, after: Held) -> None:
        self.act()
        parts: dict[str, Any] = {part.name: getattr(records, part.name) for part in fields(ChangeRecords)}
        self.target.append(_SteppedRecords(**parts, act=self.act), before, after)
        self.act()


@dataclass(frozen=True)
class _Stepped(OpenSink):
    """A target for whose every change ``act`` is called, before it, at each batch of it, and after it."""

    target: OpenSink
    act: Act

    def held(self) -> Held | None:
        return self.target.held()

    def intervention(self, held: Held) -> Intervention | None:
        return self.target.intervention(held)

    def apply(self, changes: Changes, before: Held | None, after: Held) -> Applied:
        self.act()
        parts: dict[str, Any] = {part.name: getattr(changes, part.name) for part in fields(Changes)}
        stepped = _SteppedChanges(**parts, act=self.act)
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
                yield _Stepped(target, act)

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
    from headrace.testing.connectors.deployment import SinkDeployment

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
