"""The roles of task and coordinator, told one event after the other; and every row of their tables is used."""

import re
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from headrace_lab.simulation import Settings, random_dataflow, simulate
from headrace_snapshots.protocol.barriers import (
    ORDER,
    RULES,
    TASK_TABLE,
    Abandon,
    Acknowledge,
    Barrier,
    Block,
    Decline,
    Deliver,
    Discard,
    Forward,
    Hold,
    Log,
    Protocol,
    ProtocolError,
    Record,
    Release,
    Resume,
    SnapshotId,
    Table,
    TakeState,
    Task,
    Unblock,
)
from headrace_snapshots.protocol.coordinator import (
    COORDINATOR_TABLE,
    Acknowledged,
    Announce,
    CommitFenced,
    CommitSnapshot,
    Committed,
    Coordinator,
    Declined,
    Due,
    GiveUp,
    Order,
    Restore,
    Restored,
    RunState,
    StartTimer,
    TaskLost,
    TimedOut,
)
from scripts.diagrams import FIGURES, FILE, draw_diagrams, page

A, B, LOOP = 0, 1, 2
FIRST, SECOND = SnapshotId(0, 0), SnapshotId(0, 1)


def a_task(protocol: Protocol, *inputs: int) -> Task:
    return Task(RULES[protocol], inputs or (A, B), {LOOP} & {*inputs})


def test_algorithm_1_blocks_an_input_until_the_barrier_is_on_all() -> None:
    task = a_task(Protocol.ALIGNED)
    assert task.receive(Barrier(A, FIRST)) == [Block(A)]
    assert [*task.receive(Record(B))] == [Deliver()]
    with pytest.raises(ProtocolError, match="channel 0 is blocked"):
        task.receive(Record(A))
    assert task.receive(Barrier(B, FIRST)) == [TakeState(FIRST), Forward(FIRST), Unblock(A), Acknowledge(FIRST)]
    assert [*task.receive(Record(A))] == [Deliver()]


def test_algorithm_2_logs_a_back_edge_until_the_barrier_comes_round() -> None:
    task = a_task(Protocol.ALIGNED, A, LOOP)
    assert [*task.receive(Record(LOOP))] == [Deliver()]
    assert task.receive(Barrier(A, FIRST)) == [TakeState(FIRST), Forward(FIRST)]
    assert task.receive(Record(LOOP)) == [Log(FIRST), Deliver()]
    assert task.receive(Record(A)) == [Deliver()]
    assert task.receive(Barrier(A, SECOND)) == [TakeState(SECOND), Forward(SECOND)]
    assert task.receive(Record(LOOP)) == [Log(FIRST), Log(SECOND), Deliver()]
    assert task.receive(Barrier(LOOP, FIRST)) == [Acknowledge(FIRST)]
    assert task.receive(Record(LOOP)) == [Log(SECOND), Deliver()]
    assert task.receive(Barrier(LOOP, SECOND)) == [Acknowledge(SECOND)]


def test_unaligned_takes_its_part_at_once_and_logs_the_other_inputs() -> None:
    task = a_task(Protocol.UNALIGNED)
    assert task.receive(Barrier(A, FIRST)) == [TakeState(FIRST), Forward(FIRST)]
    assert task.receive(Record(A)) == [Deliver()]
    assert task.receive(Record(B)) == [Log(FIRST), Deliver()]
    assert task.receive(Barrier(B, FIRST)) == [Acknowledge(FIRST)]


def test_at_least_once_waits_for_the_barrier_but_holds_nothing_back() -> None:
    task = a_task(Protocol.AT_LEAST_ONCE)
    assert task.receive(Barrier(A, FIRST)) == []
    assert task.receive(Record(A)) == [Deliver()]
    assert task.receive(Barrier(B, FIRST)) == [TakeState(FIRST), Forward(FIRST), Acknowledge(FIRST)]


def test_a_stopped_task_logs_and_holds_until_it_is_resumed() -> None:
    task = a_task(Protocol.SYNCHRONOUS)
    assert task.receive(Barrier(ORDER, FIRST)) == [TakeState(FIRST), Forward(FIRST)]
    assert task.receive(Record(A)) == [Log(FIRST), Hold()]
    assert task.receive(Barrier(A, FIRST)) == []
    assert task.receive(Record(A)) == [Hold()], "from a task that goes on already"
    assert task.receive(Barrier(B, FIRST)) == [Acknowledge(FIRST)]
    assert task.is_stopped
    assert task.receive(Resume(FIRST)) == [Release()]
    assert not task.is_stopped


def test_a_stopped_task_comes_to_a_newer_barrier_behind_what_it_held() -> None:
    task = a_task(Protocol.SYNCHRONOUS)
    task.receive(Barrier(ORDER, FIRST))
    assert task.receive(Record(A)) == [Log(FIRST), Hold()]
    assert task.receive(Barrier(A, SECOND)) == [Hold(), Discard(FIRST), Release(), Decline(FIRST)]
    assert [*task.receive(Record(A))] == [Deliver()]
    assert task.receive(Barrier(A, SECOND)) == [TakeState(SECOND), Forward(SECOND)]


def test_a_newer_barrier_on_an_input_that_waits_gives_the_older_snapshot_up() -> None:
    task = a_task(Protocol.ALIGNED)
    task.receive(Barrier(A, FIRST))
    assert task.receive(Barrier(B, SECOND)) == [Discard(FIRST), Unblock(A), Decline(FIRST), Block(B)]
    assert task.receive(Barrier(A, SnapshotId(1, 0))) == [Discard(SECOND), Unblock(B), Decline(SECOND), Block(A)]


def test_a_late_barrier_of_a_snapshot_that_was_overtaken_blocks_nothing() -> None:
    task = a_task(Protocol.ALIGNED, A, B, 3)
    task.receive(Barrier(A, FIRST))
    task.receive(Barrier(B, SECOND))
    assert task.receive(Barrier(3, FIRST)) == []
    assert task.receive(Barrier(3, SECOND)) == [Block(3)]
    assert task.receive(Barrier(A, SECOND))[:2] == [TakeState(SECOND), Forward(SECOND)]


def test_what_comes_of_an_abandoned_snapshot_is_ignored() -> None:
    task = a_task(Protocol.ALIGNED)
    assert task.receive(Abandon(SECOND)) == []
    task.receive(Barrier(A, FIRST))
    assert task.receive(Abandon(FIRST)) == [Discard(FIRST), Unblock(A)]
    assert task.receive(Barrier(B, FIRST)) == []
    assert task.receive(Barrier(A, SECOND)) == []
    assert task.receive(Barrier(A, SnapshotId(0, 2))) == [Block(A)]


def test_a_snapshot_is_complete_when_all_have_acknowledged_and_the_log_names_it() -> None:
    role = Coordinator(range(2))
    assert role.receive(Due()) == [Order(FIRST), StartTimer(FIRST)]
    assert role.receive(Due()) == [], "one is in flight"
    assert role.receive(Acknowledged(0, FIRST)) == []
    assert role.receive(Acknowledged(0, FIRST)) == []
    assert role.receive(Acknowledged(1, FIRST)) == [CommitSnapshot(FIRST)]
    assert role.receive(TimedOut(FIRST)) == []
    assert role.receive(Committed(FIRST)) == [Announce(FIRST)]
    assert role.receive(Acknowledged(1, FIRST)) == []
    assert role.complete == FIRST


@pytest.mark.parametrize("failure", [TimedOut(FIRST), Declined(FIRST)])
def test_a_snapshot_that_fails_is_given_up_and_the_next_one_begins(failure: TimedOut | Declined) -> None:
    role = Coordinator(range(2))
    role.receive(Due())
    assert role.receive(failure) == [GiveUp(FIRST)]
    assert role.receive(Acknowledged(0, FIRST)) == []
    assert role.receive(Due()) == [Order(SECOND), StartTimer(SECOND)]


def test_snapshots_in_flight_are_committed_in_order_and_a_whole_one_ends_older_ones() -> None:
    role, third = Coordinator([0], most_in_flight=3), SnapshotId(0, 2)
    for _ in range(3):
        role.receive(Due())
    assert role.receive(Acknowledged(0, SECOND)) == [GiveUp(FIRST), CommitSnapshot(SECOND)]
    assert role.receive(Acknowledged(0, third)) == [], "one is being committed"
    assert role.receive(Committed(SECOND)) == [Announce(SECOND), CommitSnapshot(third)]


def test_a_loss_while_a_commit_is_under_way_waits_for_its_outcome() -> None:
    role = Coordinator([0], most_in_flight=2)
    role.receive(Due())
    role.receive(Due())
    role.receive(Acknowledged(0, FIRST))
    assert role.receive(TaskLost()) == [GiveUp(SECOND)]
    assert role.receive(TaskLost()) == []
    assert role.receive(Due()) == []
    assert role.receive(Committed(FIRST)) == [Announce(FIRST), Restore(FIRST, 1)]
    assert role.receive(TaskLost()) == [Restore(FIRST, 2)]
    assert role.receive(Restored(1)) == []
    assert role.receive(Due()) == []
    role.receive(Restored(2))
    assert role.receive(Due()) == [Order(SnapshotId(0, 2)), StartTimer(SnapshotId(0, 2))]


def test_a_fenced_coordinator_does_nothing_more() -> None:
    role = Coordinator([0])
    role.receive(Due())
    role.receive(Acknowledged(0, FIRST))
    assert role.receive(CommitFenced(FIRST)) == []
    assert role.state is RunState.FENCED
    assert role.receive(Due()) == role.receive(TaskLost()) == role.receive(TimedOut(FIRST)) == []


def test_the_next_coordinator_begins_newer_snapshots() -> None:
    role = Coordinator([0], generation=3, complete=FIRST)
    assert role.receive(TaskLost()) == [Restore(FIRST, 1)]
    role.receive(Restored(1))
    assert role.receive(Due()) == [Order(SnapshotId(3, 0)), StartTimer(SnapshotId(3, 0))]


@pytest.mark.slow
def test_every_row_of_both_tables_is_used_by_runs_with_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    used: set[int] = set()
    step = Table.step

    def note_call(table: Table[Any, Any], state: Any, event: Any, context: Any) -> Any:
        row = next(r for r in table.rows if state in r.states and r.event == event and (not r.when or r.when(context)))
        used.add(id(row))
        return step(table, state, event, context)

    monkeypatch.setattr(Table, "step", note_call)
    base = Settings(random_dataflow(8, 2, Random(1)), records=20, interval=2_000, most_in_flight=3, lost_messages=0.02)
    for seed in range(12):
        for protocol in Protocol:
            timeout = 12_000 if seed % 2 else base.timeout
            lossy = replace(base, protocol=protocol, seed=seed, timeout=timeout, task_losses=3, coordinator_losses=2)
            simulate(replace(lossy, tries=1))  # what is lost is lost for good
    # what hardly any run has: an acknowledgement that comes twice, a loss behind the fence, losses during a commit
    first_events = (Due(), *[Acknowledged(0, FIRST)] * 2)
    for events in (
        (*first_events, CommitFenced(FIRST), TaskLost()),
        (*first_events, TaskLost(), TaskLost(), Committed(FIRST)),
    ):
        role = Coordinator([0])
        for event in events:
            role.receive(event)
    unused_rows = [row for table in (TASK_TABLE, COORDINATOR_TABLE) for row in table.rows if id(row) not in used]
    assert not unused_rows


@pytest.mark.slow
def test_the_page_of_the_protocol_is_that_of_its_tables() -> None:
    assert FILE.read_text(encoding="utf-8") == page(), "make diagrams writes it"
    for name, diagram in draw_diagrams().items():
        assert (FIGURES / name).read_text(encoding="utf-8") == diagram, "make diagrams writes it"


@pytest.mark.slow
def test_every_state_has_its_place_in_a_diagram() -> None:
    states = {state.value for table in (TASK_TABLE, COORDINATOR_TABLE) for row in table.rows for state in row.states}
    diagram_texts = {text for diagram in draw_diagrams().values() for text in re.findall(r">([^<>]+)</text>", diagram)}
    assert states <= diagram_texts
