"""The simulated tasks and channels: what drives the protocol's role of a task."""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from random import Random

from headrace_lab.simulation.settings import Assumption, Settings
from headrace_lab.simulation.timeline import Timeline
from headrace_lab.simulation.workload import SentRecord, SnapshotPart, TaskState, Workload
from headrace_snapshots.protocol import barriers
from headrace_snapshots.protocol.barriers import (
    ONLY_DELIVER,
    ORDER,
    RULES,
    Barrier,
    Record,
    SnapshotId,
    Task,
    TaskEffect,
    TaskEvent,
)
from headrace_snapshots.protocol.coordinator import Acknowledged, Declined

Message = SentRecord | SnapshotId


class Dataflow:
    """All tasks and channels from one restore to the next.

    ``hear`` takes which task tells the coordinator what, with the part that it has stored. ``unknown``: inputs that
    their tasks do not know of.
    """

    def __init__(
        self,
        settings: Settings,
        workload: Workload,
        timeline: Timeline,
        random: Random,
        *,
        hear: Callable[[int, Acknowledged | Declined, SnapshotPart | None], None],
        unknown: Collection[int] = (),
    ) -> None:
        self._settings, self._timeline, self._workload, self._hear = settings, timeline, workload, hear
        self._random = random
        self._draw, self._twice_the_delay = random.random, 2 * settings.delay
        self._is_fifo = settings.without is not Assumption.FIFO
        self._loses_barriers = settings.without is Assumption.BARRIERS_ARRIVE
        self._graph, tasks = settings.graph, range(settings.graph.tasks)
        self._unknown, self._starts = frozenset(unknown), frozenset(self._graph.starts)
        self.restored_snapshot: SnapshotId | None = None
        self.roles = [self._role(task) for task in tasks]
        self.states = [TaskState() for _ in tasks]
        self.alive = [True for _ in tasks]
        channels = range(len(self._graph.channels))
        self._sent_counts, self._received_counts = [0 for _ in channels], [0 for _ in channels]
        self._queues: list[deque[Message]] = [deque() for _ in channels]
        self._last_arrival = [timeline.now for _ in channels]
        self._ready: list[deque[int]] = [deque() for _ in tasks]
        self._held_messages: list[list[tuple[int, Message]]] = [[] for _ in tasks]
        self._parts: list[dict[SnapshotId, SnapshotPart]] = [{} for _ in tasks]
        self._busy_until = [timeline.now for _ in tasks]
        self._is_waking = [False for _ in tasks]
        self._pausing: set[int] = set()
        self._under_way = 0
        self.barriers = 0
        self.progress_at = timeline.now

    def begin(self, snapshot: SnapshotId | None = None, parts: Sequence[SnapshotPart] = ()) -> None:
        """Continue from ``snapshot``, with nothing in the channels but what it logged (None: from the beginning)."""
        self.restored_snapshot = snapshot
        self.roles = [self._role(task) for task in range(self._graph.tasks)]
        for task, part in enumerate(parts):
            self._restore(task, part)
        self._received_counts = [
            sent_count - len(queue) for sent_count, queue in zip(self._sent_counts, self._queues, strict=True)
        ]
        for task in self._workload.emitters:
            self._timeline.call_after(self._random.randrange(self._settings.rate), self._emit, task)

    @property
    def is_drained(self) -> bool:
        """Whether every record was emitted and processed."""
        return not self._under_way and all(
            self.states[task].emitted == self._settings.records for task in self._workload.emitters
        )

    def tell(self, task: int, event: TaskEvent) -> None:
        """The coordinator's word."""
        if self.alive[task]:
            self._perform(task, self.roles[task].receive(event), ORDER)

    def lose(self, task: int) -> None:
        """The task is gone, with all that it holds."""
        self.alive[task] = False

    def connect(self) -> None:
        """Tasks get to know all of their inputs."""
        unknown, self._unknown = self._unknown, frozenset()
        for channel in sorted(unknown):
            task = self._graph.channels[channel][1]
            self.roles[task].connect(channel)
            self._ready[task].extend([channel] * len(self._queues[channel]))
            self._work(task)

    # Records

    def _emit(self, task: int) -> None:
        state, settings = self.states[task], self._settings
        if not self.alive[task] or state.emitted >= settings.records:
            return
        if self.roles[task].is_stopped:
            self._pausing.add(task)
            return
        if self._busy_until[task] > self._timeline.now:
            self._timeline.call_after(self._busy_until[task] - self._timeline.now, self._emit, task)
            return
        record = self._workload.emit(task, state.emitted)
        state.emitted += 1
        self._process(task, record, 0)
        if state.emitted < settings.records:
            self._timeline.call_after(settings.rate, self._emit, task)

    def _process(self, task: int, record: int, laps: int) -> None:
        self.progress_at = now = self._timeline.now
        self._busy_until[task] = now + self._settings.cost
        if way := self._workload.process(task, self.states[task], record, laps):
            channel, laps = way
            self._under_way += 1
            self._send(channel, SentRecord(self._sent_counts[channel], record, laps))
            self._sent_counts[channel] += 1

    def _send(self, channel: int, message: Message) -> None:
        delay, now = int(self._draw() * self._twice_the_delay), self._timeline.now
        if self._is_fifo:
            delay = max(delay, self._last_arrival[channel] - now)
            self._last_arrival[channel] = now + delay
        self._timeline.call_after(delay, self._arrive, channel, message)

    def _arrive(self, channel: int, message: Message) -> None:
        task = self._graph.channels[channel][1]
        if not self.alive[task]:
            return
        self._queues[channel].append(message)
        if channel not in self.roles[task].blocked and channel not in self._unknown:
            self._ready[task].append(channel)
            self._work(task)

    def _work(self, task: int) -> None:
        """Process what is ready, until the task is busy."""
        ready, role = self._ready[task], self.roles[task]
        while ready:
            if self._busy_until[task] > self._timeline.now:
                self._wake_after(task, self._busy_until[task] - self._timeline.now)
                return
            channel = ready.popleft()
            queue = self._queues[channel]
            if not queue or channel in role.blocked:
                continue
            message = queue.popleft()
            if isinstance(message, SentRecord):
                effects = role.receive(Record(channel))
                if effects is ONLY_DELIVER:
                    self._deliver(task, channel, message)
                else:
                    self._perform(task, effects, channel, message)
            else:
                self._perform(task, role.receive(Barrier(channel, message)), channel, message)

    def _wake_after(self, task: int, delay: int) -> None:
        if not self._is_waking[task]:
            self._is_waking[task] = True
            self._timeline.call_after(delay, self._wake, task)

    def _wake(self, task: int) -> None:
        self._is_waking[task] = False
        self._work(task)

    # Effects

    def _perform(self, task: int, effects: Sequence[TaskEffect], channel: int, message: Message | None = None) -> None:
        for effect in effects:
            if message is None or not self._do_with(task, effect, channel, message):
                self._do(task, effect)
        if self._ready[task]:
            self._wake_after(task, 0)

    def _do_with(self, task: int, effect: TaskEffect, channel: int, message: Message) -> bool:
        """Do what ``effect`` says of the message at hand, if it does."""
        match effect:
            case barriers.Deliver() if isinstance(message, SentRecord):
                self._deliver(task, channel, message)
            case barriers.Log(snapshot) if isinstance(message, SentRecord):
                self._parts[task][snapshot].log.setdefault(channel, []).append(message)
            case barriers.Hold():
                self._held_messages[task].append((channel, message))
            case _:
                return False
        return True

    def _do(self, task: int, effect: TaskEffect) -> None:
        match effect:
            case barriers.TakeState(snapshot):
                self._busy_until[task] = max(self._busy_until[task], self._timeline.now) + self._settings.snapshot_cost
                self._parts[task][snapshot] = self._part(task)
            case barriers.Forward(snapshot):
                self._forward(task, snapshot)
            case barriers.Unblock(blocked):
                self._ready[task].extend([blocked] * len(self._queues[blocked]))
            case barriers.Release():
                self._release(task)
            case barriers.Acknowledge(snapshot):
                part = self._parts[task].pop(snapshot)
                self._timeline.call_after(self._settings.store_delay, self._acknowledge, task, snapshot, part)
            case barriers.Decline(snapshot):
                self._hear(task, Declined(snapshot), None)
            case barriers.Discard(snapshot):
                self._parts[task].pop(snapshot, None)

    def _deliver(self, task: int, channel: int, message: SentRecord) -> None:
        self._received_counts[channel] += 1
        self._under_way -= 1
        self._process(task, message.record, message.laps)

    def _part(self, task: int) -> SnapshotPart:
        received_by_channel = {channel: self._received_counts[channel] for channel in self._graph.inputs[task]}
        sent_by_channel = {channel: self._sent_counts[channel] for channel in self._graph.outputs[task]}
        return SnapshotPart(TaskState(**vars(self.states[task])), received_by_channel, sent_by_channel)

    def _forward(self, task: int, snapshot: SnapshotId) -> None:
        for channel in self._graph.outputs[task]:
            if channel or not self._loses_barriers:
                self.barriers += 1
                self._send(channel, snapshot)

    def _release(self, task: int) -> None:
        held_messages, self._held_messages[task] = self._held_messages[task], []
        for channel, message in reversed(held_messages):
            self._queues[channel].appendleft(message)
            self._ready[task].appendleft(channel)
        if task in self._pausing:
            self._pausing.discard(task)
            self._timeline.call_after(0, self._emit, task)

    def _acknowledge(self, task: int, snapshot: SnapshotId, part: SnapshotPart) -> None:
        if self.alive[task]:
            self._hear(task, Acknowledged(task, snapshot), part)

    # Going back

    def _role(self, task: int) -> Task:
        graph, assumption = self._graph, self._settings.without
        inputs = frozenset(graph.inputs[task]) - self._unknown
        back_edges = frozenset() if assumption is Assumption.BACK_EDGES else graph.back_edges & inputs
        is_start = task in self._starts
        return Task(
            RULES[self._settings.protocol],
            inputs,
            back_edges,
            is_start=is_start,
            restored_snapshot=self.restored_snapshot,
        )

    def _restore(self, task: int, part: SnapshotPart) -> None:
        self.states[task] = TaskState(**vars(part.state))
        for channel, number in part.sent.items():
            self._sent_counts[channel] = number
        for channel, logged_records in part.log.items():
            self._queues[channel].extend(logged_records)
            self._ready[task].extend([channel] * len(logged_records))
            self._under_way += len(logged_records)
        if self._ready[task]:
            self._wake_after(task, 0)
