"""The two examples over real data, in runs that crash, beside union-find and Bellman-Ford over all lines so far."""

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from headrace.model.time import Instant, to_instant
from headrace.pipeline.loading.registry import resolve_pipeline
from headrace.pipeline.pipeline import Pipeline
from headrace_lab.reference import Epoch, PipelineRun, fold_current
from headrace_lab.reference.elements import Pane
from scripts import land_flights
from scripts.land_history import land as land_history
from tests.docs.pages import ROOT
from tests.loops.oracles import components, distances
from tests.loops.runs import Runs
from tests.loops.test_landing import ANN, BOB, Repository
from tests.process.executors import LOCAL
from tests.reading import read

EXAMPLES = ROOT / "examples"
Row = Mapping[str, Any]
Answer = Mapping[tuple[datetime, str], Any]


def lines(example: str, folder: str) -> list[Row]:
    """What stands in the landing files of an example."""
    files = sorted((EXAMPLES / example / "data" / "landing" / folder).iterdir())
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def circles(rows: Iterable[Row]) -> Answer:
    """The least member of each circle, by quarter and member."""
    quarters: dict[datetime, list[tuple[str, str]]] = defaultdict(list)
    for row in rows:
        moment = datetime.fromisoformat(row["at"])
        quarter = datetime(moment.year, (moment.month - 1) // 3 * 3 + 1, 1, tzinfo=UTC)
        quarters[quarter].append((f"author {row['author']}", f"file {row['file']}"))
    return {
        (quarter, member): circle for quarter, edges in quarters.items() for member, circle in components(edges).items()
    }


def connections(rows: Iterable[Row]) -> Answer:
    """The fewest minutes from JFK, by month in New York and airport."""
    zone = ZoneInfo("America/New_York")
    months: dict[datetime, list[tuple[str, str, int]]] = defaultdict(list)
    for row in rows:
        if row["air_time"] is not None:
            hour = datetime.fromisoformat(row["time_hour"]).astimezone(zone)
            start = datetime(hour.year, hour.month, 1, tzinfo=zone).astimezone(UTC)
            ends = (row["origin"], row["dest"])
            months[start] += [(*ends, row["air_time"]), (*ends[::-1], row["air_time"])]
    return {
        (month, airport): minutes
        for month, edges in months.items()
        for airport, minutes in distances(edges, {"JFK": 0}).items()
    }


def records(pipeline: Pipeline, rows: Sequence[Row]) -> list[Row]:
    """``rows`` as the reference reads them."""
    times = [name for name in ("at", "time_hour") if name in pipeline.source.schema]
    expected_columns = pipeline.source.schema
    return [
        {
            name: to_instant(datetime.fromisoformat(row[name])) if name in times else row[name]
            for name in expected_columns
        }
        for row in rows
    ]


def by_place(panes: Iterable[Pane]) -> Answer:
    """``current`` of ``panes``."""
    folded_panes = fold_current(panes)
    return {
        (datetime.fromtimestamp(window.start // 1_000_000, UTC), key[0]): pane.values[-1]
        for (key, window), pane in folded_panes.items()
    }


EXPECTED = {"circles": (circles, "history"), "connections": (connections, "flights")}


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("seed", range(3))
def test_each_epoch_of_an_example_has_the_answer_for_all_lines_so_far(name: str, seed: int) -> None:
    answer, folder = EXPECTED[name]
    pipeline, rows = resolve_pipeline(str(EXAMPLES / name / f"{name}.py")), lines(name, folder)
    draw = random.Random(seed)
    run, panes = PipelineRun(pipeline), list[Pane]()
    cuts = sorted({0, len(rows), *draw.sample(range(len(rows)), 6)})
    for number, (start, end) in enumerate(pairwise(cuts)):
        panes += run.run(Epoch(Instant(number), records(pipeline, rows[start:end]))).panes
        assert by_place(panes) == answer(rows[:end])
    assert not run.run(Epoch(Instant(10**15), is_last=True)).drops
    assert len({value for (_, _), value in by_place(panes).items()}) > 3


@pytest.mark.parametrize("name", EXPECTED)
def test_what_an_example_says_that_it_gives_is_the_answer(name: str) -> None:
    answer, folder = EXPECTED[name]
    rows = [json.loads(line) for line in (EXAMPLES / name / "expected.jsonl").read_text().splitlines()]
    expected = {(datetime.fromisoformat(row["window_start"]), row["vertex"]): row["value"] for row in rows}
    assert expected == answer(lines(name, folder))


def current(pipeline: Pipeline, root: Path) -> Answer:
    """What readers of main see."""
    rows = read(pipeline, root.as_uri(), "current", "main").to_pylist()
    return {(row["window_start"].astimezone(UTC), row["vertex"]): row["value"] for row in rows}


def with_rounds(name: str, rounds: int | None) -> Pipeline:
    """An example with another bound."""
    pipeline = resolve_pipeline(str(EXAMPLES / name / f"{name}.py"))
    assert pipeline.loop is not None
    return replace(pipeline, loop=replace(pipeline.loop, rounds=rounds), what={}, executor="local")


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("rounds", [1, 3, None])
def test_an_example_that_is_killed_at_any_write_has_the_answer(name: str, rounds: int | None, tmp_path: Path) -> None:
    answer, folder = EXPECTED[name]
    rows, draw = lines(name, folder), random.Random(f"{name} {rounds}")
    runs = Runs(with_rounds(name, rounds), tmp_path, LOCAL)
    landing = tmp_path / "landing" / folder
    landing.mkdir(parents=True)
    cuts = sorted({0, len(rows), *draw.sample(range(len(rows)), 3)})
    for number, (start, end) in enumerate(pairwise(cuts)):
        (landing / f"{number:04}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows[start:end]))
        for _ in range(3):
            runs.crash(draw.randrange(20), draw.choice([None, 1, 2]), draw.randint(1, 3))
        runs.run()
        assert current(runs.pipeline, tmp_path) == answer(rows[:end])


@pytest.mark.slow
def test_circles_of_a_clone_that_grows(tmp_path: Path) -> None:
    """A history with branches, landed by the script between runs that crash."""
    draw = random.Random(3)
    repository, root = Repository(tmp_path / "clone"), tmp_path / "root"
    runs = Runs(with_rounds("circles", 2), root, LOCAL)
    people = [ANN, BOB, *((f"P{n}", f"p{n}@example.org") for n in range(4))]
    for instalment in range(4):
        for _ in range(12):
            who = draw.randrange(len(people))  # of three circles, in the end
            files = [f"part{who % 3}/f{draw.randrange(6)}" for _ in range(draw.randint(1, 2))]
            repository.commit(*files, author=people[who])
            if draw.random() < 0.2:
                repository.git("checkout", "--quiet", "-B", "side", f"HEAD~{draw.randint(0, 1)}")
                repository.commit(f"side{instalment}{who % 3}", author=people[who])
                side = repository.git("rev-parse", "HEAD")
                repository.git("checkout", "--quiet", "main")
                repository.git("merge", "--quiet", "--no-ff", "-m", "Merged", side)
        land_history(repository.folder, root.as_uri(), files=2)
        runs.crash(draw.randrange(5, 20))
        runs.run()
        landed_files = sorted((root / "landing" / "history").iterdir())
        rows = [json.loads(line) for file in landed_files for line in file.read_text().splitlines()]
        assert current(runs.pipeline, root) == circles(rows)
    assert len({*circles(rows).values()}) == 3


@pytest.mark.slow
def test_connections_of_two_months(tmp_path: Path) -> None:
    """Fifty thousand flights of the demo's data."""
    year = land_flights.flights()
    table = year[year["month"].isin([1, 2])]
    land_flights.land(tmp_path.as_uri(), files=8, table=table)
    runs = Runs(with_rounds("connections", 1), tmp_path, LOCAL)
    for writes in (9, 14):
        runs.crash(writes, tasks=2)
    runs.run()
    rows = json.loads(table[["origin", "dest", "time_hour", "minute", "air_time"]].to_json(orient="records"))
    expected = connections(rows)
    assert len(expected) > 150
    assert current(runs.pipeline, tmp_path) == expected
