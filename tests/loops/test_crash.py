"""Loops in runs that are cut short and killed, with nothing left but snapshots: readers see union-find and Bellman-Ford
over all edges so far, and the panes are those of runs that nothing happened to.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.distribute.tasks import stages as loops
from headrace.errors import RetryError
from headrace.model.time import to_instant
from headrace_lab.catalog_checks import check_catalog
from headrace_snapshots.store import open_store
from tests.loops.graphs import Cut, Edge, cuts
from tests.loops.pipelines import LOOPS, SECOND, answers, links, pipeline
from tests.loops.runs import Runs
from tests.process.executors import LOCAL, ExecutorUnderTest, on_both
from tests.process.random_runs import panes
from tests.reading import read
from tests.reference.strategies import examples

START_TIME = datetime(1970, 1, 1, tzinfo=UTC)
ROUNDS = st.sampled_from([1, 2, 3, None])
by_loop = pytest.mark.parametrize("name", LOOPS)


def land(root: Path, number: int, edges: Sequence[Edge]) -> None:
    """A file of ``edges``, if there are any."""
    folder = root / "links"
    folder.mkdir(exist_ok=True)
    if not edges:
        return
    rows = [
        {"a": edge.a, "b": edge.b, "weight": edge.weight, "at": (START_TIME + timedelta(seconds=edge.at)).isoformat()}
        for edge in edges
    ]
    (folder / f"{number:04}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def current(pipeline: hr.Pipeline, root: Path) -> dict[tuple[int | None, Any], Any]:
    """The value of each vertex of each window on main."""
    rows = read(pipeline, root.as_uri(), "current", "main").to_pylist()
    starts = [None if row["window_start"] is None else to_instant(row["window_start"]) // SECOND for row in rows]
    return {(start, row["vertex"]): row["value"] for start, row in zip(starts, rows, strict=True)}


_CRASHES = st.lists(st.tuples(st.integers(0, 25), st.none() | st.integers(1, 3), st.integers(1, 4)), max_size=3)
"""After how many writes, and at most how many epochs, of how many tasks."""


@pytest.mark.slow
@given(
    data=st.data(),
    name=st.sampled_from([*LOOPS]),
    cut=cuts(times=35),
    rounds=ROUNDS,
    width=st.sampled_from([None, 10]),
)
@settings(examples(45, fewest=4), suppress_health_check=list(HealthCheck))
def test_crashes_do_not_show(data: st.DataObject, name: str, cut: Cut, rounds: int | None, width: int | None) -> None:
    known_loop = LOOPS[name]
    where = hr.GlobalWindows() if width is None else hr.FixedWindows(f"{width}s")
    definition = pipeline(known_loop.with_rounds(rounds), where=where, input=links("100s"))
    with TemporaryDirectory() as disturbed_folder, TemporaryDirectory() as undisturbed_folder:
        runs, calm = Runs(definition, Path(disturbed_folder), LOCAL), Runs(definition, Path(undisturbed_folder), LOCAL)
        so_far: list[Edge] = []
        for number, edges in enumerate(cut.epochs):
            for each in (runs, calm):
                land(each.root, number, edges)
            so_far += edges
            if not (cut.runs[number] or number == len(cut.epochs) - 1):
                continue
            for crash in data.draw(_CRASHES, label="crashes"):
                runs.crash(*crash)
            for each in (runs, calm):
                each.run()
                assert not each.is_in_flight
                assert current(definition, each.root) == answers(known_loop, so_far, width)
        if so_far:
            assert runs.epochs == calm.epochs
            found_panes, expected = (panes(definition, each.root, "main", each.epochs) for each in (runs, calm))
            assert found_panes == expected
            check_catalog(open_store(runs.root.as_uri()), definition.name)


@on_both
@by_loop
def test_a_long_way_in_short_runs(name: str, executor: ExecutorUnderTest, tmp_path: Path) -> None:
    """Each run has one epoch, of one round: the next one has nothing but what is in flight."""
    known_loop, edges = LOOPS[name], WAY
    runs = Runs(pipeline(known_loop.with_rounds(1)), tmp_path, executor)
    land(tmp_path, 0, edges)
    runs.run(epochs=1)
    assert runs.is_in_flight
    land(tmp_path, 1, MORE)
    while runs.is_in_flight:
        assert current(runs.pipeline, tmp_path) != answers(known_loop, [*edges, *MORE], None)
        runs.run(epochs=1)
    assert runs.epochs > 3
    assert current(runs.pipeline, tmp_path) == answers(known_loop, [*edges, *MORE], None)


WAY = [Edge(f"v{n:02}", f"v{n + 1:02}", 5, 0) for n in range(4)]
MORE = [Edge("v01", "v09", 1, 0), Edge("v09", "v03", 2, 0), Edge("v04", "v10", 9, 0)]


def test_a_loop_that_throws_away_what_is_in_flight_is_found_out(
    executor: ExecutorUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops._Turning, "_in_flight", lambda turning: turning.loop.no_messages)
    for name, known_loop in LOOPS.items():
        runs = Runs(pipeline(known_loop.with_rounds(1)), tmp_path / name, executor)
        runs.root.mkdir()
        land(runs.root, 0, WAY)
        runs.run()
        assert current(runs.pipeline, runs.root) != answers(known_loop, WAY, None)


def test_a_loop_whose_back_edge_is_not_declared_has_no_snapshot(
    executor: ExecutorUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "BACK_EDGES", ())
    runs = Runs(pipeline(LOOPS["components"].with_rounds()), tmp_path, executor)
    land(tmp_path, 0, WAY)
    with pytest.raises(RetryError) as error:
        runs.run()
    assert error.value.code == "retry.incomplete_epoch"
    assert runs.epochs == 0
