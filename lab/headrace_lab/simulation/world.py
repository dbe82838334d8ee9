"""The simulated world: a dataflow, its coordinator, the log of snapshots, what goes wrong. One seed decides it all."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from random import Random

from headrace_lab.simulation.control import Control
from headrace_lab.simulation.dataflow import Dataflow
from headrace_lab.simulation.settings import Assumption, Settings
from headrace_lab.simulation.timeline import Timeline
from headrace_lab.simulation.workload import SnapshotPart, TaskState, Workload
from headrace_snapshots.protocol import coordinator
from headrace_snapshots.protocol.barriers import ORDER, RULES, Abandon, Barrier, Holds, Resume, SnapshotId, TaskEvent
from headrace_snapshots.protocol.coordinator import Coordinator, CoordinatorEvent

_PATIENCE = 20
"""A run ends when nothing has come of it for so many timeouts."""


class World:
    """One run: ``run`` it, then look at ``complete`` (the snapshots in the log), ``states`` and ``counts``."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.graph, self.rules = settings, settings.graph, RULES[settings.protocol]
        self.workload = Workload(settings.graph, settings.graph.back_edges, settings.records)
        self.timeline = Timeline()
        self.complete: dict[SnapshotId, list[SnapshotPart]] = {}
        self.counts: dict[str, int] = defaultdict(int)
        self.finished_at: int | None = None
        self._random = Random(settings.seed)
        self._control = Control(settings, self.timeline, self._random)
        self._stored_parts: dict[SnapshotId, dict[int, SnapshotPart]] = defaultdict(dict)
        self._generation = 0
        self._coordinators = {0: self._coordinator()}
        self._completed_at = 0
        self._faults = 0
        self._needed_snapshot: SnapshotId | None = None
        late = self._late_channels() if settings.without is Assumption.FIXED_GRAPH else ()
        self.dataflow = self._dataflow(late)
        self.dataflow.begin()

    def run(self) -> None:
        """Until all records are processed and a snapshot of that is complete, or nothing comes of it any more."""
        self._plan_faults()
        if self.settings.interval:
            self.timeline.call_after(self.settings.interval, self._due, control=True)
        self.timeline.run()
        self.counts["barriers"] += self.dataflow.barriers
        self.counts["resent"] = self._control.resent

    @property
    def states(self) -> list[TaskState]:
        """States of the tasks now."""
        return self.dataflow.states

    @property
    def is_drained(self) -> bool:
        """Whether every record is processed, and nothing is going to be lost any more."""
        return not self._faults and all(self.dataflow.alive) and self.dataflow.is_drained

    def _dataflow(self, unknown: Iterable[int] = ()) -> Dataflow:
        return Dataflow(self.settings, self.workload, self.timeline, self._random, hear=self._hear, unknown=[*unknown])

    def _due(self) -> None:
        """Time for a snapshot; after the last record until one that was begun after it is complete."""
        if self.is_drained:
            if self._needed_snapshot is None:
                self._needed_snapshot = max(coordinator.next_snapshot for coordinator in self._coordinators.values())
            elif max(self.complete, default=self._needed_snapshot[:0]) >= self._needed_snapshot:
                self.finished_at = self._completed_at
                return
        if self.timeline.now - self.dataflow.progress_at > _PATIENCE * self.settings.timeout:
            return
        self._tell_all(coordinator.Due())
        self.timeline.call_after(self.settings.interval, self._due, control=True)

    # What is said, and may be lost

    def _hear(
        self, task: int, event: coordinator.Acknowledged | coordinator.Declined, part: SnapshotPart | None
    ) -> None:
        """A task has stored its part, or declines."""
        if part is not None:
            self._stored_parts[event.snapshot][task] = part
        self._control.send(("from", task), self._tell_all, event)

    def _say(self, tasks: Iterable[int], event: TaskEvent) -> None:
        """The coordinator tells tasks. Only its word to go on is never lost."""
        for task in tasks:
            self._control.send(("to", task), self._tell_task, task, event, is_sure=isinstance(event, Resume))

    def _tell_task(self, task: int, event: TaskEvent) -> None:
        self.dataflow.tell(task, event)

    def _tell_all(self, event: CoordinatorEvent) -> None:
        for generation in [*self._coordinators]:
            self._tell(generation, event)

    def _tell(self, generation: int, event: CoordinatorEvent) -> None:
        if target := self._coordinators.get(generation):
            for effect in target.receive(event):
                self._do(generation, effect)

    # The coordinator's effects

    def _coordinator(self) -> Coordinator:
        most = 1 if self.rules.holds is Holds.EVERYTHING else self.settings.most_in_flight
        newest = max(self.complete, default=None)
        return Coordinator(range(self.graph.tasks), generation=self._generation, most_in_flight=most, complete=newest)

    def _do(self, generation: int, effect: coordinator.CoordinatorEffect) -> None:
        schedule = partial(self.timeline.call_after, control=True)
        match effect:
            case coordinator.Order(snapshot):
                self.counts["begun"] += 1
                stops_all = self.rules.holds is Holds.EVERYTHING
                self._say(range(self.graph.tasks) if stops_all else self.graph.starts, Barrier(ORDER, snapshot))
            case coordinator.StartTimer(snapshot):
                schedule(self.settings.timeout, self._tell, generation, coordinator.TimedOut(snapshot))
            case coordinator.CommitSnapshot(snapshot):
                schedule(self._control.delay(), self._commit, generation, snapshot)
            case coordinator.Announce(snapshot):
                if self.rules.holds is Holds.EVERYTHING:
                    self._say(range(self.graph.tasks), Resume(snapshot))
            case coordinator.GiveUp(snapshot):
                self.counts["abandoned"] += 1
                self._stored_parts.pop(snapshot, None)
                self._say(range(self.graph.tasks), Abandon(snapshot))
            case coordinator.Restore(snapshot, attempt):
                schedule(self._control.delay(), self._restore, generation, snapshot, attempt)

    def _commit(self, generation: int, snapshot: SnapshotId) -> None:
        """The conditional put: it fails once a newer generation has claimed the log."""
        if generation != self._generation:
            self.counts["fenced"] += 1
            self._tell(generation, coordinator.CommitFenced(snapshot))
            return
        parts = self._stored_parts.pop(snapshot)
        self.complete[snapshot] = [parts[task] for task in range(self.graph.tasks)]
        self._completed_at = self.timeline.now
        self._tell(generation, coordinator.Committed(snapshot))

    def _restore(self, generation: int, snapshot: SnapshotId | None, attempt: int) -> None:
        if generation != self._generation:
            return
        self.counts["restores"] += 1
        self.counts["barriers"] += self.dataflow.barriers
        self.timeline.drop_data()
        self.dataflow = self._dataflow()
        self.dataflow.begin(snapshot, self.complete[snapshot] if snapshot else ())
        self._tell(generation, coordinator.Restored(attempt))

    # What goes wrong

    def _plan_faults(self) -> None:
        span = max(1, self.settings.records * self.settings.rate)
        faults: list[Callable[[], None]] = [self._lose_task] * self.settings.task_losses
        faults += [self._lose_coordinator] * self.settings.coordinator_losses
        faults += [self._connect] * (self.settings.without is Assumption.FIXED_GRAPH)
        self._faults = len(faults)
        for fault in faults:
            self.timeline.call_after(self._random.randrange(span), fault, control=True)

    def _lose_task(self) -> None:
        self._faults -= 1
        self.counts["tasks lost"] += 1
        self.dataflow.lose(self._random.randrange(self.graph.tasks))
        self.timeline.call_after(self._control.delay(), self._tell_all, coordinator.TaskLost(), control=True)

    def _lose_coordinator(self) -> None:
        """Loses the coordinator: it dies, or goes on unheard until its commit is refused. A new one starts later."""
        self.counts["coordinators lost"] += 1
        if self._random.random() < 0.5:
            self._coordinators.pop(self._generation, None)
        self.timeline.call_after(self._control.delay(), self._start_coordinator, control=True)

    def _start_coordinator(self) -> None:
        self._faults -= 1
        self._generation += 1
        self._coordinators[self._generation] = self._coordinator()
        if not all(self.dataflow.alive):
            self._tell(self._generation, coordinator.TaskLost())

    def _late_channels(self) -> Iterable[int]:
        """The first input of each task that has several."""
        return (inputs[0] for inputs in self.graph.inputs if len(inputs) > 1)

    def _connect(self) -> None:
        self._faults -= 1
        self.dataflow.connect()
