"""Rounds of a loop against a plain computation: hashes that are equal, values of every type, edges in pieces."""

import random
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace import col
from headrace.kernel.loops import CompiledLoop, Rounds, in_order_of
from headrace.kernel.stage import CompiledStage
from headrace.kernel.state import rows_of
from headrace.program import columns as c
from headrace_lab.sizes import set_sizes

WINDOWS = [(0, 10), (10, 20)]


def compile_loop(kind: type, loop: hr.Loop) -> CompiledLoop:
    links = hr.json("landing/links", {"a": kind, "b": kind, "w": int, "at": datetime}).event_time("at", bound="0s")
    own_pipeline = hr.Pipeline(
        "links", links, key=["a", "b"], loop=loop, where=hr.FixedWindows("10s"), when=hr.on_update()
    )
    assert own_pipeline.loop is not None
    assert own_pipeline.edges is not None
    return CompiledLoop.from_loop(own_pipeline.loop, own_pipeline.edges, CompiledStage(own_pipeline.stages[0]))


def delta(loop: CompiledLoop, edges: Iterable[tuple[Any, Any, int, int]]) -> pa.RecordBatch:
    """Records grouped as edges; the last number says which window they are in."""
    rows = [*edges]
    vertex = loop.message_schema.field("vertex").type
    columns = {"a": pa.array([a for a, *_ in rows], vertex), "b": pa.array([b for _, b, *_ in rows], vertex)}
    columns |= {name: pa.array([w for _, _, w, _ in rows], pa.int64()) for name in loop.terms}
    for name, side in ((c.WINDOW_START, 0), (c.WINDOW_END, 1)):
        columns[name] = pa.array([WINDOWS[window][side] for *_, window in rows], pa.int64())
    return pa.RecordBatch.from_pydict(columns)


class Store:
    """Edges and values between epochs."""

    def __init__(self, loop: CompiledLoop) -> None:
        self.loop, self.edges, self.values = loop, [loop.no_edges], [loop.no_messages]
        self.in_flight = loop.no_messages

    def epoch(self, new: pa.RecordBatch, most: int | None) -> int:
        """Take ``new`` edges in and turn rounds; how many."""
        edges = self.loop.edges_of(new)
        self.edges.append(edges.rows)
        rounds = Rounds(self.loop, self._edges, self._stored_values)
        messages, rounds_done = rounds.first_messages(self.in_flight, edges), 0
        while len(messages) and rounds_done != most:
            messages, rounds_done = rounds.send(rounds.deliver(messages)), rounds_done + 1
        self.in_flight = rounds.improving_rows(messages)
        self.values.append(rounds.changed_vertices())
        return rounds_done

    def _edges(self, hashes: Any) -> Iterator[pa.RecordBatch]:
        return (rows_of(edges, hashes) for edges in self.edges)

    def _stored_values(self, hashes: Any) -> Iterator[pa.RecordBatch]:
        return (rows_of(values, hashes) for values in self.values)

    def known_values(self) -> dict[tuple[int, Any], Any]:
        rows = [row for values in self.values for row in values.to_pylist()]
        return {(row[c.WINDOW_START], row["vertex"]): row["value"] for row in rows}


def nearest(edges: Iterable[tuple[Any, Any, int, int]], start: Any) -> dict[tuple[int, Any], int]:
    """Distances from ``start`` in each window."""
    rows = [*edges]
    distances: dict[tuple[int, Any], int] = {}
    for a, b, _, window in rows:
        if start in (a, b):
            distances[WINDOWS[window][0], start] = 0
    for _ in rows:
        for a, b, w, window in rows:
            window_start = WINDOWS[window][0]
            if (window_start, a) in distances:
                distances[window_start, b] = min(
                    distances.get((window_start, b), 2**60), distances[window_start, a] + w
                )
    return distances


@pytest.mark.parametrize("bits", [64, 3, 0])
@pytest.mark.parametrize("kind", [int, str])
def test_vertices_with_one_hash_are_told_apart(kind: type, bits: int) -> None:
    with set_sizes(hash_bits=(2**bits - 1) << (64 - bits), loop_slice_rows=3):
        start = hr.if_else(col("vertex") == kind(0), 0, None)
        loop = compile_loop(kind, hr.Loop(start=start, step=col("value") + col("w"), combine="least"))
        rolled_generator = random.Random(f"{kind} {bits}")
        for _ in range(20):
            store, every = Store(loop), []
            for _ in range(4):
                new = [
                    (
                        kind(rolled_generator.randrange(12)),
                        kind(rolled_generator.randrange(12)),
                        rolled_generator.randrange(9),
                        rolled_generator.randrange(2),
                    )
                    for _ in range(rolled_generator.randrange(8))
                ]
                every += new
                store.epoch(delta(loop, new), rolled_generator.choice([1, 2, None]))
            while store.in_flight.num_rows:
                store.epoch(delta(loop, []), 1)
            assert store.known_values() == nearest(every, kind(0))


def test_a_long_way_round_ends() -> None:
    """A path of many vertices: a round for each."""
    loop = compile_loop(int, hr.Loop(start=col("vertex"), step=col("value"), combine="least", both_ways=True))
    store, length = Store(loop), 300
    assert store.epoch(delta(loop, [(n, n + 1, 0, 0) for n in range(1, length)]), None) == length
    assert store.epoch(delta(loop, [(0, 1, 0, 0)]), None) == length + 1
    assert {*store.known_values().values()} == {0}


def test_an_epoch_without_edges_does_nothing() -> None:
    loop = compile_loop(int, hr.Loop(start=col("vertex"), step=col("value"), combine="least"))
    store = Store(loop)
    store.epoch(delta(loop, [(1, 2, 0, 0)]), None)
    assert store.epoch(delta(loop, []), None) == 0
    assert store.epoch(delta(loop, [(1, 2, 0, 0)]), None) <= 1


def test_least_of_nothing_does_not_arrive() -> None:
    """``least`` leaves NULL out, and a vertex without a value sends nothing all the same."""
    loop = compile_loop(
        int,
        hr.Loop(
            start=hr.if_else(col("vertex") == 1, 9, None), step=hr.least(col("value"), col("w")), combine="greatest"
        ),
    )
    store = Store(loop)
    store.epoch(delta(loop, [(5, 6, 4, 0)]), None)
    assert store.known_values() == {}
    store.epoch(delta(loop, [(1, 5, 7, 0)]), None)
    assert store.known_values() == {(0, 1): 9, (0, 5): 7, (0, 6): 4}


@pytest.mark.parametrize("most", [3, 2**40, 2**62])
def test_rows_in_order_of_their_numbers(most: int) -> None:
    numbers = np.random.default_rng(most).integers(0, most, 1000)
    assert in_order_of(numbers).tolist() == np.argsort(numbers, kind="stable").tolist()
