"""Processes that are killed, at every effect of the commit protocol and at random times, on local files and on a real
MinIO: what is done again ends as if nothing had been. And runs that stand still while another commits.

`make kills` does a thousand, at all fault points and more; without it, a part of them, as SEED draws them.
"""

import os
import random
import shutil
import signal
import time
from itertools import chain, repeat
from pathlib import Path
from uuid import uuid4

import pytest

import headrace as hr
from headrace import Pipeline
from headrace.ext.stores import open_store
from headrace_lab.catalog_checks import check_catalog
from tests.faults.points import ENTRIES, ROWS, Moment, Point, watch
from tests.faults.scenarios import PIPELINES, land, results
from tests.faults.victims import EXIT_REFUSED, Victim
from tests.faults.works import SCENARIOS
from tests.minio_bucket import BUCKET

pytestmark = pytest.mark.slow
KILLS = os.environ.get("HEADRACE_KILLS", "")
STOPS = os.environ.get("HEADRACE_STOPS", "")
SEED = os.environ.get("HEADRACE_KILLS_SEED", "1")
NAMES = [name for name in os.environ.get("HEADRACE_KILLS_SCENARIOS", "").split(",") if name] or [*SCENARIOS]
"""The scenarios in which processes are killed."""
SECONDS = 120.0
LONGER = 1.5
"""How much longer than it lasts undisturbed random kills come: a process of its own begins later."""
LOCAL = "local"

NO_TASK_IS_LOST = "whoever runs tasks runs lost ones again, or the run ends: a coordinator never hears of them"
UNREACHED_KINDS = {
    "task lost and commits in running": NO_TASK_IS_LOST,
    "task lost in running/restoring": NO_TASK_IS_LOST,
    "task lost in settling": NO_TASK_IS_LOST,
    "task lost in fenced": NO_TASK_IS_LOST,
    "settled in settling": NO_TASK_IS_LOST,
    "restored in restoring": NO_TASK_IS_LOST,
    "failed in begun": "epochs have no timers, and one that is not whole ends the run",
    "failed in whole/committing": "epochs have no timers",
    "due in running/settling/restoring": "an epoch waits until fewer are in flight before it is begun",
    "due in fenced": "a run that is fenced begins no epoch",
    "acknowledged in whole/committing": "each level acknowledges an epoch once",
}
"""Rows of the coordinator's table that no run takes, and why."""
OTHERS = {
    *("panes data", "late data", "rejected data", "state data", "state_1 data", "ids data"),
    *("edges data", "inflight data", "joinleft data", "joinright data"),
    *("manifests", "log-hint", "audits", "marks", "summary", "deliveries", "rows"),
    *("manifests deleted", "data deleted", "audits deleted", "marks deleted"),
}
"""Effects that are in no table of the protocol."""


class UndisturbedRun:
    """What a scenario does, and what comes of it."""

    def __init__(self, name: str, root: Path) -> None:
        land(root)
        self.landed_root = root.with_name(f"{name} landed")
        shutil.copytree(root, self.landed_root)
        self.points: list[Point] = []
        began = time.monotonic()
        with pytest.MonkeyPatch.context() as patch:
            watch(patch, self.points.append)
            SCENARIOS[name].run(root.as_uri())
        self.seconds = time.monotonic() - began
        self.results = results(SCENARIOS[name].pipeline, root.as_uri())


@pytest.fixture(scope="module")
def undisturbed_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, UndisturbedRun]:
    folder = tmp_path_factory.mktemp("undisturbed")
    return {name: UndisturbedRun(name, folder / name) for name in NAMES}


@pytest.fixture
def roots(request: pytest.FixtureRequest, tmp_path: Path) -> "Roots":
    """Of the kind of store that the test asks for."""
    if request.param == "s3":
        request.getfixturevalue("minio")
    return Roots(tmp_path, is_local=request.param == LOCAL)


class Roots:
    """Where scenarios are run."""

    def __init__(self, folder: Path, *, is_local: bool) -> None:
        self.folder, self.is_local = folder, is_local

    def make_root(self, landing: Path) -> str:
        """A new one, with these files."""
        if self.is_local:
            return Path(shutil.copytree(landing, self.folder / uuid4().hex)).as_uri()
        root = f"s3://{BUCKET}/{uuid4().hex}"
        for file in sorted(landing.rglob("*.jsonl")):
            open_store(root).write(str(file.relative_to(landing)), file.read_bytes())
        return root

    def remove(self, root: str) -> None:
        """So that a thousand do not fill the disk; those on MinIO go with it."""
        if self.is_local:
            shutil.rmtree(root.removeprefix("file://"))


Kind = tuple[str, str, Moment]


def kind_of(name: str, point: Point) -> Kind:
    return name, point.effect.kind, point.moment


def draw_faults(undisturbed_runs: dict[str, UndisturbedRun], number: int) -> list[tuple[str, Point | None]]:
    """So many faults: points in random order, first one of each kind, none twice while there are others; every fourth
    at a random time.
    """
    dice = random.Random(SEED)
    points = [(name, point) for name, each in undisturbed_runs.items() for point in each.points]
    dice.shuffle(points)
    first = {kind_of(name, point): (name, point) for name, point in points}
    others = sorted({*points} - {*first.values()})
    dice.shuffle(others)
    every = chain.from_iterable(repeat([*first.values(), *others]))
    return [next(every) if n % 4 else (dice.choice([*undisturbed_runs]), None) for n in range(1, number + 1)]


def check_left(name: str, root: str) -> None:
    """What a victim leaves is sound: readers of an output see nothing that it is not computed of yet for others."""
    pipeline = SCENARIOS[name].pipeline
    check_catalog(open_store(root), pipeline.name)
    catalog = hr.open(root)[pipeline].catalog
    refs = catalog.head().refs
    for output, own_pipeline in pipeline.by_output.items():
        if own_pipeline.upstream and f"published/{output}" in refs:
            own, *epochs_above = (
                catalog.manifest(refs[f"published/{name}"]).epoch for name in _with_upstream(output, own_pipeline)
            )
            assert own <= min(epochs_above)
    if name == "several_outputs":
        published_refs = {ref: snapshot for ref, snapshot in refs.items() if ref.startswith("published")}
        assert len({*published_refs.values()}) <= 1, "one entry moves all of them"
        assert published_refs.keys() in ({*()}, {f"published/{output}" for output in pipeline.by_output})


def _with_upstream(output: str, pipeline: Pipeline) -> list[str]:
    return [output, *(pipeline_above.output for pipeline_above in pipeline.upstream)]


def check(name: str, root: str, undisturbed_run: UndisturbedRun) -> None:
    """What is done again ends as if nothing had been."""
    scenario = SCENARIOS[name]
    pipeline = scenario.pipeline.name
    check_left(name, root)
    scenario.run(root)
    assert results(scenario.pipeline, root) == undisturbed_run.results
    check_catalog(open_store(root), pipeline)
    damaged_paths = {problem.path for problem in hr.open(root)[pipeline].fsck(deep=True).damage}
    assert damaged_paths <= {f"{pipeline}/log-hint.json"}  # late if the kill came before it; the next command writes it


def kill(victim: Victim, point: Point | None, seconds: float) -> None:
    """Wait until the victim has killed itself, or kill it after so many seconds."""
    if point is None:
        time.sleep(seconds)  # the random time
        victim.kill()
    assert victim.ends(SECONDS) == -signal.SIGKILL or point is None, f"{point} was never reached"


of_all_scenarios = pytest.mark.skipif(len(NAMES) < len(SCENARIOS), reason="only some scenarios were asked for")


@of_all_scenarios
@pytest.mark.parametrize("kind", [*ROWS, *ENTRIES])
def test_all_that_the_protocol_does_is_a_fault_point(undisturbed_runs: dict[str, UndisturbedRun], kind: str) -> None:
    is_hit = any(point.effect.kind == kind for each in undisturbed_runs.values() for point in each.points)
    assert is_hit or kind in UNREACHED_KINDS, "no scenario comes to it: add one, or say why there is none"
    assert not (is_hit and kind in UNREACHED_KINDS)


@of_all_scenarios
def test_all_that_is_stored_is_a_fault_point(undisturbed_runs: dict[str, UndisturbedRun]) -> None:
    kinds = {point.effect.kind for each in undisturbed_runs.values() for point in each.points}
    assert kinds - {*ROWS} == {*ENTRIES, *OTHERS}


@pytest.mark.parametrize(
    ("roots", "few"), [(LOCAL, 6), pytest.param("s3", 2, marks=pytest.mark.s3)], indirect=["roots"]
)
def test_kills(undisturbed_runs: dict[str, UndisturbedRun], roots: Roots, few: int, tmp_path: Path) -> None:
    dice = random.Random(SEED)
    faults = draw_faults(undisturbed_runs, int(KILLS or few))
    for number, (name, point) in enumerate(faults):
        print(f"kill {number}: {name}, {point or 'at a random time'}")
        root = roots.make_root(undisturbed_runs[name].landed_root)
        with Victim(name, root, tmp_path / "said", point, signal.SIGKILL) as victim:
            kill(victim, point, dice.random() * undisturbed_runs[name].seconds * LONGER)
        check(name, root, undisturbed_runs[name])
        roots.remove(root)
    hit = {kind_of(name, point) for name, point in faults if point is not None}
    every = {kind_of(name, point) for name, each in undisturbed_runs.items() for point in each.points}
    print(f"{len(faults)} kills, at {len(hit)} of {len(every)} kinds of fault points: all ended alike")
    assert hit == every or len(faults) <= len(every) * 4 / 3


@pytest.mark.parametrize(
    ("roots", "few"), [(LOCAL, 3), pytest.param("s3", 1, marks=pytest.mark.s3)], indirect=["roots"]
)
def test_writers_that_stand_still_while_another_commits(
    undisturbed_runs: dict[str, UndisturbedRun], roots: Roots, few: int, tmp_path: Path
) -> None:
    """What was not committed by then never is: the writer is fenced."""
    dice = random.Random(SEED)
    moments = {Moment.BEFORE, Moment.MIDDLE} if roots.is_local else {Moment.BEFORE}  # what is sent to S3 may count
    drained_names = [name for name in PIPELINES if name in undisturbed_runs]
    for number in range(int(STOPS or few) if drained_names else 0):
        name = dice.choice(drained_names)
        points = [
            point for point in undisturbed_runs[name].points if point.effect.kind in {"commit entry", "manifests"}
        ]
        point = dice.choice([point for point in points if point.moment in moments])
        print(f"stop {number}: {name}, {point}")
        root, log_path = roots.make_root(undisturbed_runs[name].landed_root), tmp_path / f"{number}"
        with Victim(name, root, log_path, point, signal.SIGSTOP) as victim:
            victim.waits_until_stopped(SECONDS)
            check(name, root, undisturbed_runs[name])
            victim.goes_on()
            assert victim.ends(SECONDS) == EXIT_REFUSED
            assert victim.error_code == "give_up.fenced"
        check(name, root, undisturbed_runs[name])
        roots.remove(root)
