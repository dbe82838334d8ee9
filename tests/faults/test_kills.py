"""Runs that are killed, at every effect of the commit protocol and at random times: the next run ends as if nothing had
been. And runs that stand still while another commits.

`make kills` does a thousand, which are all fault points and more; without it, a part of them, as SEED draws them.
"""

import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path

import pytest

from headrace_snapshots.catalog import Catalog
from headrace_snapshots.fsck import fsck
from headrace_snapshots.protocol import Kind
from headrace_snapshots.store import open_store
from headrace_snapshots.testing import check_catalog
from tests.faults.scenarios import PIPELINES, land, results
from tests.faults.victims import REFUSED, Moment, Point, Victim, effects, run

pytestmark = pytest.mark.slow
KILLS = int(os.environ.get("HEADRACE_KILLS", "16"))
STOPS = int(os.environ.get("HEADRACE_STOPS", "4"))
SEED = os.environ.get("HEADRACE_KILLS_SEED", "1")
SECONDS = 120.0
LASTS = 0.6
"""Seconds: random kills come until then."""

ENTRIES = {Kind.INIT, Kind.CLAIM, Kind.COMMIT, Kind.PUBLISH}
DATA = {"panes", "late", "rejected", "state", "state_1", "ids"}
OTHERS = {"manifests", "log-hint", "audits"}


class Undisturbed:
    """What a run of a pipeline puts, and what comes of it."""

    def __init__(self, name: str, root: Path) -> None:
        land(root)
        self.landed = root.with_name(f"{name} landed")
        shutil.copytree(root, self.landed)
        self.effects = effects(name, root)
        self.results = results(PIPELINES[name], root.as_uri())

    def points(self) -> Iterator[Point]:
        """Each moment of each effect."""
        return (Point(effect, moment) for effect in self.effects for moment in Moment)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Undisturbed]:
    folder = tmp_path_factory.mktemp("undisturbed")
    return {name: Undisturbed(name, folder / name) for name in PIPELINES}


def drawn(undisturbed: dict[str, Undisturbed], number: int) -> list[tuple[str, Point | None]]:
    """So many faults: points, in random order, none twice while there are others; every fourth at a random time."""
    rolled = random.Random(SEED)
    points = [(name, point) for name, each in undisturbed.items() for point in each.points()]
    rolled.shuffle(points)
    every = chain.from_iterable(repeat(points))
    return [next(every) if n % 4 else (rolled.choice(list(PIPELINES)), None) for n in range(1, number + 1)]


def check(name: str, root: Path, undisturbed: Undisturbed) -> None:
    """Another run ends as if nothing had been."""
    run(name, root)
    assert results(PIPELINES[name], root.as_uri()) == undisturbed.results
    check_catalog(open_store(root.as_uri()), name)
    damaged = {problem.path for problem in fsck(Catalog(open_store(root.as_uri()), name), deep=True).damage}
    assert damaged <= {f"{name}/log-hint.json"}  # late if the kill came before it; the next few entries write it


def kill(victim: Victim, point: Point | None, rolled: random.Random) -> None:
    """Wait until the victim has killed itself, or kill it some time from now."""
    if point is None:
        time.sleep(rolled.random() * LASTS)  # the random time
        victim.kill()
    assert victim.ends(SECONDS) == -signal.SIGKILL or point is None, f"{point} was never reached"


def test_all_that_a_run_puts_is_a_fault_point(undisturbed: dict[str, Undisturbed]) -> None:
    kinds = {effect.kind for each in undisturbed.values() for effect in each.effects}
    assert kinds == {*(f"{kind} entry" for kind in ENTRIES), *(f"{kind} data" for kind in DATA), *OTHERS}


def test_kills(undisturbed: dict[str, Undisturbed], tmp_path: Path) -> None:
    rolled = random.Random(SEED)
    for number, (name, point) in enumerate(drawn(undisturbed, KILLS)):
        root = tmp_path / str(number)
        shutil.copytree(undisturbed[name].landed, root)
        kill(Victim(name, root, point, signal.SIGKILL), point, rolled)
        check(name, root, undisturbed[name])
        shutil.rmtree(root)


def test_writers_that_stand_still_while_another_commits(undisturbed: dict[str, Undisturbed], tmp_path: Path) -> None:
    """What was not committed by then never is: the writer is fenced."""
    rolled = random.Random(SEED)
    for number in range(STOPS):
        name = rolled.choice(list(PIPELINES))
        commits = [effect for effect in undisturbed[name].effects if effect.kind in {"commit entry", "manifests"}]
        point = Point(rolled.choice(commits), rolled.choice([Moment.BEFORE, Moment.UNNAMED]))
        root = tmp_path / str(number)
        shutil.copytree(undisturbed[name].landed, root)
        victim = Victim(name, root, point, signal.SIGSTOP)
        victim.waits_until_stopped(SECONDS)
        check(name, root, undisturbed[name])
        victim.goes_on()
        assert victim.ends(SECONDS) == REFUSED, point
        assert victim.said == "give_up.fenced", point
        check(name, root, undisturbed[name])
        shutil.rmtree(root)
