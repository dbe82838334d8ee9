"""Loops over landed edges: whatever the cuts, rounds and crashes, what a plain computation over all edges gives."""

import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.distribute.tasks import stages as rounds_of_loops
from headrace.errors import IntegerOverflowError
from headrace.ext.sources import SourceSplit
from headrace.model.time import to_instant
from headrace.pipeline.endpoints import OWN
from headrace.read.snapshots.progress import LastStage
from headrace.runs.commits import IncompleteEpochError
from headrace.runs.options import Mode, RunOptions
from headrace.runs.relanding import late_behind
from headrace_lab.catalog_checks import check_catalog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store import open_store
from tests.process.executors import LOCAL, ExecutorUnderTest, on_both
from tests.process.graphs import (
    KINDS,
    START,
    DatedEdge,
    by_hour,
    components,
    distances,
    land,
    least_reachable,
    links,
    random_graph,
    shortest,
)
from tests.process.outputs import catalog_of, digests, line
from tests.reading import read


def values(pipeline: hr.Pipeline, root: Path, branch: str = "main") -> dict[int, int]:
    """What a loop over all time has come to."""
    rows = read(pipeline, root.as_uri(), "current", branch).to_pylist()
    assert len({row["vertex"] for row in rows}) == len(rows)
    return {row["vertex"]: row["value"] for row in rows}


def in_flight(manifest: Manifest) -> int:
    """How many messages a snapshot has under way."""
    return sum(layer.rows for layer in manifest.tables["inflight"])


def land_all(root: Path, graph: Sequence[Sequence[DatedEdge]]) -> None:
    for number, edges in enumerate(graph):
        land(root, number, edges)


def edges_of(graph: Sequence[Sequence[DatedEdge]]) -> list[tuple[int, int, int]]:
    return [edge.edge for edges in graph for edge in edges]


def path_graph(length: int, *, files: int = 1) -> list[list[DatedEdge]]:
    """A path from 0 on, whose edges come from its far end."""
    edges = [DatedEdge((number, number + 1, 1), 0) for number in reversed(range(length))]
    return [edges[file::files] for file in range(files)]


def check_random(executor: ExecutorUnderTest, root: Path, kind: str, seed: int) -> None:
    """Random edges in random runs, each of which continues from what the last one has left."""
    dice = random.Random(f"{kind} {seed}")
    make, oracle = KINDS[kind]
    pipeline = make(rounds=dice.choice([1, 2, 3, None]))
    graph = random_graph(dice)
    for number, edges in enumerate(graph):
        land(root, number, edges)
        if dice.random() < 0.5:
            executor.process(pipeline, root.as_uri(), RunOptions(f"run-{number}", max_epochs=dice.choice([1, None])))
    executor.process(pipeline, root.as_uri(), RunOptions("last"))
    assert values(pipeline, root) == oracle(edges_of(graph)), seed
    manifests = line(catalog_of(root, "graph"))
    assert in_flight(manifests[-1]) == 0
    for number, manifest in enumerate(manifests):
        if in_flight(manifest) == 0:
            read_so_far = sum(m.counts["input_files"] for m in manifests[: number + 1])
            assert values(pipeline, root, manifest.snapshot_id) == oracle(edges_of(graph[:read_so_far]))
    check_catalog(open_store(root.as_uri()), "graph")


@pytest.mark.hypothesis  # make fuzz turns as many as it turns of others
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(int(os.environ.get("HEADRACE_EXAMPLES", "2"))))
def test_random_graphs(executor: ExecutorUnderTest, kind: str, seed: int, tmp_path: Path) -> None:
    check_random(executor, tmp_path, kind, seed)


@pytest.mark.spark
@pytest.mark.parametrize("kind", KINDS)
def test_random_graphs_on_spark(kind: str, spark: Any, tmp_path: Path) -> None:
    for seed in (100, 101):
        check_random(ExecutorUnderTest("spark", spark), tmp_path / str(seed), kind, seed)


@on_both
def test_what_is_in_flight_is_taken_up_first(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    pipeline = distances(rounds=1)
    land_all(tmp_path, path_graph(6))
    for epoch in range(8):
        executor.process(pipeline, tmp_path.as_uri(), RunOptions(f"run-{epoch}", max_epochs=1))
        values_by_vertex = values(pipeline, tmp_path)
        assert values_by_vertex == {vertex: vertex for vertex in range(min(epoch, 6) + 1)}
    manifests = line(catalog_of(tmp_path, "graph"))
    assert [in_flight(manifest) for manifest in manifests] == [1] * 6 + [0]


def test_a_run_goes_on_until_nothing_is_in_flight(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    pipeline = distances(rounds=2)
    land_all(tmp_path, path_graph(9))
    result = executor.process(pipeline, tmp_path.as_uri(), RunOptions("run"))
    assert [*result.epochs] == [0, 1, 2, 3, 4]
    assert values(pipeline, tmp_path) == {vertex: vertex for vertex in range(10)}
    second_result = executor.process(pipeline, tmp_path.as_uri(), RunOptions("again"))
    assert [*second_result.epochs] == []


@pytest.mark.parametrize("mutation", ["log thrown away", "back-edge not declared"])
def test_mistakes_in_the_protocol_are_seen(
    executor: ExecutorUnderTest, mutation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept on the back-edge is what makes rounds that end early right, and being declared lets it end."""
    pipeline = distances(rounds=1)
    land_all(tmp_path, path_graph(6))
    if mutation == "log thrown away":
        receive = rounds_of_loops._Turning._receive_event

        def forgetting(self: Any, event: Any, messages: Any = None) -> None:
            receive(self, event, messages)
            self.logged_batches = self.logged_batches[:1]

        monkeypatch.setattr(rounds_of_loops._Turning, "_receive_event", forgetting)
        executor.process(pipeline, tmp_path.as_uri(), RunOptions("run"))
        assert values(pipeline, tmp_path) != shortest(edges_of(path_graph(6)))
    else:
        monkeypatch.setattr(rounds_of_loops, "BACK_EDGES", ())
        with pytest.raises(IncompleteEpochError, match="is not committed"):
            executor.process(pipeline, tmp_path.as_uri(), RunOptions("run"))
        assert "main" not in catalog_of(tmp_path, "graph").head().refs


@pytest.mark.parametrize("rounds", [1, 3, None])
def test_panes_wait_for_what_is_in_flight(executor: ExecutorUnderTest, rounds: int | None, tmp_path: Path) -> None:
    """Windows: the values of each are those of its own edges, and final panes are right, however few rounds turn."""
    late = DatedEdge((0, 29, 0), 5)
    graph = [*random_graph(random.Random(7), files=6, most=25), [late], [DatedEdge((1, 2, 3), 60 * 12)]]
    land_all(tmp_path, graph)
    where = {"where": hr.FixedWindows("1h"), "when": hr.on_update(), "how": hr.retracting()}
    pipeline = distances(rounds=rounds, **where)
    executor.process(pipeline, tmp_path.as_uri(), RunOptions("run", files_per_epoch=1))
    on_time = [edge for edges in graph for edge in edges if edge is not late]
    rows = read(pipeline, tmp_path.as_uri(), "current", "main").to_pylist()
    values_by_hour: dict[Any, dict[int, int]] = {}
    for row in rows:
        values_by_hour.setdefault(row["window_start"], {})[row["vertex"]] = row["value"]
        assert row["timing"] == "ON_TIME" or row["window_start"] == START + timedelta(hours=12)
    expected = {hour: shortest(edges) for hour, edges in by_hour(on_time).items()}
    assert values_by_hour == {hour: hourly_values for hour, hourly_values in expected.items() if hourly_values}
    (dropped_row,) = read(pipeline, tmp_path.as_uri(), "late", "main").to_pylist()
    assert (dropped_row["a"], dropped_row["b"], dropped_row["reason"]) == (0, 29, "window expired")
    for row in read(pipeline, tmp_path.as_uri(), "panes", "main").to_pylist():
        if row["timing"] == "ON_TIME" and not row["is_retraction"]:
            assert row["value"] == expected[row["window_start"]][row["vertex"]]


def test_a_batch_turns_all_rounds(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    pipeline = components(rounds=1, where=hr.FixedWindows("1h"))
    graph = random_graph(random.Random(3), files=4, most=30)
    land_all(tmp_path, graph)
    executor.process(pipeline, tmp_path.as_uri(), RunOptions("run", mode=Mode.BATCH))
    rows = read(pipeline, tmp_path.as_uri(), "panes", "main").to_pylist()
    seen_rows = {(row["window_start"], row["vertex"]): row["value"] for row in rows}
    edges_by_hour = by_hour(edge for edges in graph for edge in edges)
    assert seen_rows == {
        (hour, v): value for hour, edges in edges_by_hour.items() for v, value in least_reachable(edges).items()
    }
    assert {row["timing"] for row in rows} == {"ON_TIME"}
    assert all(in_flight(manifest) == 0 for manifest in line(catalog_of(tmp_path, "graph")))


@on_both
def test_a_replay_gives_the_same_panes(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    pipeline = components(rounds=2)
    graph = random_graph(random.Random(11), files=5, most=20)
    for number, edges in enumerate(graph):
        land(tmp_path, number, edges)
        LOCAL.process(pipeline, tmp_path.as_uri(), RunOptions(f"run-{number}"))
    executor.process(pipeline, tmp_path.as_uri(), RunOptions("replay", mode=Mode.REPLAY, branch="again"))
    catalog = catalog_of(tmp_path, "graph")
    panes = [read(pipeline, tmp_path.as_uri(), "panes", branch).to_pylist() for branch in ("main", "again")]
    assert panes[0] == panes[1]
    assert len(line(catalog)) == len(line(catalog, "again"))


def test_backfills_forks_expiry_and_fsck_have_its_tables(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    pipeline = distances(rounds=1)
    graph = path_graph(12, files=3)
    for number, edges in enumerate(graph):
        land(tmp_path, number, edges)
        executor.process(pipeline, tmp_path.as_uri(), RunOptions(f"run-{number}", max_epochs=2, publish=True))
    opened_handle = hr.open(tmp_path.as_uri())["graph"]
    catalog = catalog_of(tmp_path, "graph")
    old = line(catalog)[1].snapshot_id
    catalog.fork("side", catalog.head().refs["main"])
    executor.process(pipeline, tmp_path.as_uri(), RunOptions("side", branch="side"))
    executor.backfill(pipeline, tmp_path.as_uri(), RunOptions("fill", branch="fill"))
    expected_lengths = shortest(edges_of(graph))
    assert values(pipeline, tmp_path, "side") == values(pipeline, tmp_path, "fill") == expected_lengths
    assert values(pipeline, tmp_path) != expected_lengths
    opened_handle.promote("fill")
    assert values(pipeline, tmp_path) == expected_lengths
    opened_handle.expire(keep_last=1)
    assert old not in {manifest.snapshot_id for manifest in line(catalog)}
    assert opened_handle.fsck(deep=True).problems == ()
    land(tmp_path, 9, [DatedEdge((0, 12, 1), 0)])
    executor.process(pipeline, tmp_path.as_uri(), RunOptions("more"))
    assert values(pipeline, tmp_path) == {**expected_lengths, 12: 1}


def test_an_edge_that_makes_values_better_is_a_dead_letter(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    pipeline = distances(filter=(col("w") != -7) | col("w").is_null())
    edges: list[Any] = [DatedEdge((0, 1, 3), 0), DatedEdge((1, 2, -2), 0), DatedEdge((2, 3, -7), 0)]
    land(tmp_path, 0, [*edges, DatedEdge((1, 4, None), 0), DatedEdge((None, 4, 1), 0)])  # type: ignore[arg-type]
    executor.process(pipeline, tmp_path.as_uri(), RunOptions("run"))
    assert values(pipeline, tmp_path) == {0: 0, 1: 3}
    reasons = [row["reason"] for row in read(pipeline, tmp_path.as_uri(), "rejected", "main").to_pylist()]
    assert reasons == ["the step of the loop descends: w", "the step of the loop is null: w", "key is null: a"]
    (manifest,) = line(catalog_of(tmp_path, "graph"))
    assert (manifest.counts["accepted"], manifest.counts["rejected"], manifest.counts["filtered"]) == (1, 3, 1)


def test_edges_that_come_again_are_kept_once(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    """The same graph in many epochs, merged meanwhile."""
    pipeline = components()
    graph = random_graph(random.Random(5), files=1, most=20)[0]
    for number in range(20):
        land(tmp_path, number, graph)
    executor.process(pipeline, tmp_path.as_uri(), RunOptions("run", files_per_epoch=1))
    *_, head = line(catalog_of(tmp_path, "graph"))
    merged_layer = head.tables["edges"][0]
    assert merged_layer.first_epoch == 0
    assert merged_layer.last_epoch > 0
    both_ways = {way for edge in graph for a, b, w in [edge.edge] for way in ((a, b), (b, a))}
    assert merged_layer.rows == len(both_ways)
    assert values(pipeline, tmp_path) == least_reachable([edge.edge for edge in graph])


def test_edges_of_expired_windows_are_forgotten(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    pipeline = components(where=hr.FixedWindows("1h"), when=hr.on_update())
    hours = 40
    for hour in range(hours):
        land(tmp_path, hour, [DatedEdge((hour, hour + 1, 1), 60 * hour), DatedEdge((hour + 1, hour + 2, 1), 60 * hour)])
    executor.process(pipeline, tmp_path.as_uri(), RunOptions("run", files_per_epoch=1))
    *_, head = line(catalog_of(tmp_path, "graph"))
    assert sum(layer.rows for layer in head.tables["edges"]) < 4 * hours
    rows = read(pipeline, tmp_path.as_uri(), "current", "main").to_pylist()
    hour_of = {hour: START + timedelta(hours=hour) for hour in range(hours)}
    assert {(row["window_start"], row["vertex"], row["value"]) for row in rows} == {
        (hour_of[hour], hour + step, hour) for hour in range(hours) for step in range(3)
    }


@on_both
def test_beside_other_outputs_and_above_them(
    executor: ExecutorUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_TASKS", "3")
    everything: dict[str, Any] = {"where": hr.GlobalWindows(), "when": hr.Repeatedly(hr.AfterCount(1))}
    definition = components()
    sizes = hr.Aggregation(key="value", what={"size": hr.count()}, **everything)
    pipeline = hr.Pipeline(
        "graph",
        links(),
        deduplicate=None,
        outputs={
            "degrees": hr.Output(key="a", what={"n": hr.count()}, **everything),
            "sizes": hr.Output(key=["a", "b"], loop=definition.loop, then=[sizes], **everything),
            "components": hr.Output(key=["a", "b"], loop=definition.loop, **everything),
            "largest": hr.Output(of="components", key="value", what={"size": hr.count()}, **everything),
        },
    )
    graph = random_graph(random.Random(23), files=4, most=20)
    land_all(tmp_path, graph)
    executor.process(pipeline, tmp_path.as_uri(), RunOptions("run"))
    reachable_least = least_reachable(edges_of(graph))
    rows = read(pipeline, tmp_path.as_uri(), "current", "main", "components").to_pylist()
    assert {row["vertex"]: row["value"] for row in rows} == reachable_least
    expected_sizes = {value: [*reachable_least.values()].count(value) for value in reachable_least.values()}
    for output in ("sizes", "largest"):
        rows = read(pipeline, tmp_path.as_uri(), "current", "main", output).to_pylist()
        assert {row["value"]: row["size"] for row in rows} == expected_sizes
    *_, head = line(catalog_of(tmp_path, "graph"))
    assert {"components/edges", "sizes/edges", "components/inflight"} <= {*head.tables}


def test_only_the_first_record_of_an_id_is_an_edge(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    pipeline = distances(deduplicate=hr.Deduplicate("w", "1d"))
    land(tmp_path, 0, [DatedEdge((0, 1, 1), 0), DatedEdge((0, 2, 2), 0)])
    land(tmp_path, 1, [DatedEdge((0, 3, 1), 60), DatedEdge((2, 4, 5), 60)])
    executor.process(pipeline, tmp_path.as_uri(), RunOptions("run"))
    assert values(pipeline, tmp_path) == {0: 0, 1: 1, 2: 2, 4: 7}


VALUES: Mapping[str, tuple[hr.Loop, Mapping[int, Any]]] = {
    "texts": (
        hr.Loop(start=hr.concat("v", col("vertex").cast(str)), step=col("value"), combine="greatest", both_ways=True),
        {1: "v3", 2: "v3", 3: "v3", 8: "v9", 9: "v9"},
    ),
    "bools": (
        hr.Loop(start=col("vertex") == 2, step=col("value"), combine="greatest"),
        {1: False, 2: True, 3: True, 8: False, 9: False},
    ),
    "decimals": (
        hr.Loop(start=col("vertex").cast(hr.DataType.DECIMAL), step=col("value") + col("w"), combine="least"),
        {1: 1, 2: 2, 3: 3, 8: 8, 9: 9},
    ),
    "narrowest": (
        hr.Loop(
            start=hr.if_else(col("vertex") == 1, 100, None),
            step=hr.least(col("value"), col("w")),
            combine="greatest",
        ),
        {1: 100, 2: 4, 3: 4},
    ),
}


@pytest.mark.parametrize("kind", VALUES)
def test_values_of_each_type(executor: ExecutorUnderTest, kind: str, tmp_path: Path) -> None:
    loop, expected_value = VALUES[kind]
    pipeline = replace(components(), loop=loop)
    land(tmp_path, 0, [DatedEdge((1, 2, 4), 0), DatedEdge((2, 3, 9), 0)])
    land(tmp_path, 1, [DatedEdge((8, 9, 2), 60)])
    executor.process(pipeline, tmp_path.as_uri(), RunOptions("run"))
    assert values(pipeline, tmp_path) == expected_value


def test_a_sum_that_leaves_64_bits_is_an_error(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    most = 2**62
    land(tmp_path, 0, [DatedEdge((0, 1, most), 0), DatedEdge((1, 2, most), 0)])
    with pytest.raises(IntegerOverflowError, match="leaves 64 bits"):
        executor.process(distances(), tmp_path.as_uri(), RunOptions("run"))


def test_files_of_one_epoch_are_the_same_however_they_are_shared_out(
    executor: ExecutorUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = random_graph(random.Random(2), files=6, most=40)
    pipeline = components()
    for tasks in ("1", "4"):
        root = tmp_path / tasks
        monkeypatch.setenv("HEADRACE_TASKS", tasks)
        land_all(root, graph)
        executor.process(pipeline, root.as_uri(), RunOptions("run", files_per_epoch=3))
    panes = [read(pipeline, (tmp_path / tasks).as_uri(), "panes", "main").to_pylist() for tasks in ("1", "4")]
    assert sorted(map(str, panes[0])) == sorted(map(str, panes[1]))
    assert digests(catalog_of(tmp_path / "1", "graph"), "late") == digests(catalog_of(tmp_path / "4", "graph"), "late")


def test_a_window_with_something_in_flight_has_not_expired(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(tmp_path, 0, path_graph(5)[0])
    land(tmp_path, 1, [DatedEdge((7, 8, 1), 600)])
    pipeline = components(where=hr.FixedWindows("1h"), rounds=1, how=hr.retracting("0s"))
    executor.process(pipeline, tmp_path.as_uri(), RunOptions("some", max_epochs=2))
    head = line(catalog_of(tmp_path, "graph"))[-1]
    stage = LastStage.from_manifest(head)
    assert stage is not None
    assert in_flight(head)
    assert stage.expired_until(head) < to_instant(START + timedelta(hours=1)), "else a patch would replace what changes"
    executor.process(pipeline, tmp_path.as_uri(), RunOptions("all"))
    head = line(catalog_of(tmp_path, "graph"))[-1]
    assert not in_flight(head)
    assert stage.expired_until(head) >= to_instant(START + timedelta(hours=9))


def held_windows(**more: Any) -> hr.Pipeline:
    """One round an epoch: while edges of an hour are on their way, the hour takes further edges."""
    return distances(where=hr.FixedWindows("1h"), how=hr.retracting("0s"), **more)


def land_held(root: Path) -> DatedEdge:
    """A way of the first hour, something of the tenth, and an edge of the first hour when the source has passed it."""
    land(root, 0, path_graph(5)[0])
    land(root, 1, [DatedEdge((0, 8, 1), 600)])
    late_edge = DatedEdge((0, 4, 0), 30)
    land(root, 2, [late_edge])
    return late_edge


@pytest.mark.parametrize("files", [1, 2])
def test_a_backfill_takes_what_main_took_while_something_was_in_flight(
    executor: ExecutorUnderTest, files: int, tmp_path: Path
) -> None:
    main = held_windows(rounds=1)
    land_held(tmp_path)
    executor.process(main, tmp_path.as_uri(), RunOptions("main", files_per_epoch=1))
    backfill = RunOptions("fill", branch="fill", files_per_epoch=files)
    executor.backfill(held_windows(rounds=None), tmp_path.as_uri(), backfill)
    late = [read(main, tmp_path.as_uri(), "late", ref).to_pylist() for ref in ("main", "fill")]
    assert late == [[], []]
    rows = [read(main, tmp_path.as_uri(), "current", ref).to_pylist() for ref in ("main", "fill")]
    seen_rows = [{(row["window_start"], row["vertex"]): row["value"] for row in own} for own in rows]
    assert seen_rows[0] == seen_rows[1]
    assert seen_rows[0][START, 4] == 0
    assert {row["timing"] for row in rows[1] if row["window_start"] == START} == {"ON_TIME"}


def test_how_many_would_be_late_is_said_by_the_clock_of_the_loop(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    main = held_windows(rounds=1)
    land_held(tmp_path)
    catalog = catalog_of(tmp_path, "graph")
    info = catalog.store.stat("landing/links/0002.jsonl")
    file = SourceSplit(info.path, info.size, info.etag)
    executor.process(main, tmp_path.as_uri(), RunOptions("main", files_per_epoch=1, max_epochs=2))
    assert in_flight(line(catalog)[-1])
    assert late_behind(catalog, main, {OWN: [file]}) == 0
    executor.process(main, tmp_path.as_uri(), RunOptions("rest"))
    assert late_behind(catalog, main, {OWN: [file]}) == 1
