"""Seeded runs over random graphs: what the protocols promise holds, whatever is lost."""

import os
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from headrace_lab.simulation import Assumption, Settings, SimulationReport, random_dataflow, random_processes, simulate
from headrace_lab.simulation.graphs import Graph
from headrace_snapshots.protocol.barriers import Protocol

ALL = os.environ.get("HEADRACE_INTERLEAVINGS") == "all"
MANY = 10_000 if ALL else 2_500
EVERY = pytest.mark.parametrize("protocol", [*Protocol])
QUICK = Settings(Graph(1, ()), records=20, interval=5_000, most_in_flight=3)


def a_graph(protocol: Protocol, tasks: int, loops: int, seed: int) -> Graph:
    random = Random(seed)
    return (
        random_processes(tasks, random)
        if protocol is Protocol.CHANDY_LAMPORT
        else random_dataflow(tasks, loops, random)
    )


def failed_properties(report: SimulationReport) -> dict[str, str]:
    return {each.name: each.problems[0] for each in report.properties if not each.holds}


@st.composite
def settings_of_any_run(draw: st.DrawFn) -> Settings:
    """Small graphs, with whatever may be lost."""
    protocol, tasks, seed = draw(st.sampled_from(Protocol)), draw(st.integers(1, 12)), draw(st.integers(0, 10_000))
    return replace(
        QUICK,
        graph=a_graph(protocol, tasks, draw(st.integers(0, 4)), seed),
        protocol=protocol,
        seed=seed,
        records=10,
        task_losses=draw(st.integers(0, 3)),
        coordinator_losses=draw(st.integers(0, 3)),
        lost_messages=draw(st.sampled_from([0.0, 0.02, 0.1])),
        tries=draw(st.sampled_from([10, 10, 1 if tasks < 6 else 3])),
        snapshot_cost=draw(st.sampled_from([0, 1_000])),
    )


@examples(deadline=None)
@given(settings_of_any_run())
def test_every_property_holds_whatever_is_lost(settings: Settings) -> None:
    assert not failed_properties(simulate(settings))


@pytest.mark.slow
@EVERY
def test_losses_lead_to_restores_and_snapshots_go_on_behind_them(protocol: Protocol) -> None:
    settings = replace(QUICK, graph=a_graph(protocol, 30, 3, 1), protocol=protocol, task_losses=2, coordinator_losses=1)
    reports = [simulate(replace(settings, seed=seed)) for seed in range(5)]
    assert all(report.holds for report in reports)
    assert sum(report.totals["restores"] for report in reports) >= 5
    assert all(report.totals["complete"] for report in reports)


@pytest.mark.slow
@EVERY
def test_what_is_lost_is_sent_again_so_snapshots_of_many_tasks_complete(protocol: Protocol) -> None:
    settings = replace(QUICK, graph=a_graph(protocol, 40, 2, 1), protocol=protocol, lost_messages=0.1)
    report = simulate(settings)
    assert not failed_properties(report)
    assert report.totals["complete"] >= 3
    assert report.totals["resent"] > 40
    totals_once = simulate(replace(settings, tries=1, timeout=100_000)).totals
    assert (totals_once["resent"], totals_once["complete"] < totals_once["abandoned"]) == (0, True)


def test_the_same_seed_gives_the_same_run() -> None:
    settings = replace(QUICK, graph=a_graph(Protocol.ALIGNED, 40, 3, 5), seed=5, task_losses=2, lost_messages=0.01)
    assert simulate(settings) == simulate(settings)
    assert simulate(settings) != simulate(replace(settings, seed=6))


def test_only_loops_have_channel_contents_when_barriers_align() -> None:
    acyclic, with_loops = (replace(QUICK, graph=a_graph(Protocol.ALIGNED, 40, loops, 3)) for loops in (0, 6))
    assert simulate(acyclic).totals["logged"] == 0
    assert simulate(with_loops).totals["logged"] > 0
    assert simulate(replace(acyclic, protocol=Protocol.UNALIGNED)).totals["logged"] > 0


@pytest.mark.slow
def test_at_least_once_counts_twice_what_alignment_counts_once() -> None:
    graph = a_graph(Protocol.ALIGNED, 20, 0, 2)
    quick = replace(QUICK, graph=graph, records=200, task_losses=3)
    aligned_settings = [replace(quick, seed=seed) for seed in range(10)]
    counts = [simulate(settings).totals["records"] for settings in aligned_settings]
    assert len({*counts}) == 1
    more = [simulate(replace(each, protocol=Protocol.AT_LEAST_ONCE)).totals["records"] for each in aligned_settings]
    assert all(number >= counts[0] for number in more)
    assert any(number > counts[0] for number in more)


def test_a_stopped_world_takes_longer() -> None:
    settings = replace(QUICK, graph=a_graph(Protocol.ALIGNED, 30, 0, 4), snapshot_cost=5_000, records=50)
    end_by_protocol = {
        each: simulate(replace(settings, protocol=each)).totals["processed_us"]
        for each in (Protocol.ALIGNED, Protocol.SYNCHRONOUS)
    }
    assert end_by_protocol[Protocol.SYNCHRONOUS] > end_by_protocol[Protocol.ALIGNED]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "tasks", "records"),
    [(Protocol.ALIGNED, MANY, 5), (Protocol.CHANDY_LAMPORT, MANY, 1)],
    ids=["aligned", "chandy-lamport"],
)
def test_thousands_of_tasks(protocol: Protocol, tasks: int, records: int) -> None:
    """Ten thousand of both with ``make exhaustive``: every channel of Chandy and Lamport's carries markers."""
    settings = replace(QUICK, graph=a_graph(protocol, tasks, tasks // 50, 1), protocol=protocol, records=records)
    report = simulate(settings)
    assert not failed_properties(report)
    assert report.totals["complete"]


def failures_without(assumption: Assumption, protocol: Protocol) -> dict[str, str]:
    """What fails of ten runs over loops."""
    problems: dict[str, str] = {}
    for seed in range(10):
        settings = replace(QUICK, graph=a_graph(protocol, 8, 2, seed), protocol=protocol, seed=seed)
        problems |= failed_properties(simulate(replace(settings, records=60, interval=20_000, without=assumption)))
    return problems


@pytest.mark.slow
@EVERY
def test_channels_that_are_not_first_in_first_out_make_snapshots_inconsistent(protocol: Protocol) -> None:
    problems = failures_without(Assumption.FIFO, protocol)
    assert {"feasibility", "restored state"} <= {*problems}
    assert "final state" not in problems, "a run without failures needs no order"


@pytest.mark.slow
@EVERY
def test_a_barrier_that_is_lost_for_ever_costs_snapshots_but_no_record(protocol: Protocol) -> None:
    assert failures_without(Assumption.BARRIERS_ARRIVE, protocol) == {
        "termination": "after the last record no snapshot became complete"
    }


@pytest.mark.slow
@EVERY
def test_a_graph_that_changes_during_a_snapshot_makes_it_inconsistent(protocol: Protocol) -> None:
    problems = failures_without(Assumption.FIXED_GRAPH, protocol)
    assert "feasibility" in problems
    assert {*problems} <= {"feasibility", "restored state"}


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [Protocol.ALIGNED, Protocol.AT_LEAST_ONCE])
def test_alignment_without_back_edges_waits_for_ever_in_a_loop(protocol: Protocol) -> None:
    assert {*failures_without(Assumption.BACK_EDGES, protocol)} == {"termination"}


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [Protocol.UNALIGNED, Protocol.SYNCHRONOUS, Protocol.CHANDY_LAMPORT])
def test_protocols_that_do_not_align_need_no_back_edges(protocol: Protocol) -> None:
    assert not failures_without(Assumption.BACK_EDGES, protocol)
