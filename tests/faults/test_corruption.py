"""An object of any kind is damaged: fsck names it, a run ends right or says how, and no reader sees a wrong row.

Each kind of object is damaged in one way, as SEED draws it; HEADRACE_CORRUPTIONS=all tries all ways, with an empty and
with a warm cache of state.
"""

import os
import random
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.runs.client.handle import open as open_root
from headrace.runs.publishing.publish import PlannedPublish
from headrace_lab.sizes import set_sizes
from tests.faults.corrupting import DAMAGES, NAME, OLDER, PIPELINE, Deployment, build_deployment, spoil, victims

pytestmark = pytest.mark.slow
ALL = os.environ.get("HEADRACE_CORRUPTIONS") == "all"
SEED = 2
RUNS = 3
"""More than any remedy takes."""

VICTIMS = (
    *("entry", "older entry", "hint", "manifest", "older manifest", "tagged manifest", "mark"),
    *("node of inputs", "node of panes", "node of late", "node of rejected"),
    *("state", "state_1", "ids", "current", "panes", "late", "rejected"),
    *("older state", "older state_1", "older ids", "older current", "older panes", "older late", "older rejected"),
    *("audit", "data docs", "result", "input"),
)
AUDITS = {"audit", "data docs", "result"}
"""What audits leave, or tells of them."""
SINGLE_OBJECTS = {"hint", "mark"}
"""Kinds of which there is one."""

UNNAMED_DAMAGE = {("result", "deleted")}
"""What fsck cannot know; nor does it of what only people read, and of input (docs/how-to/reading.md)."""


def _view(view: str, ref: str, **more: Any) -> Callable[[Deployment], Any]:
    def read(deployment: Deployment) -> list[str]:
        return sorted(map(str, getattr(deployment.history, view)(at=ref, **more).to_arrow().to_pylist()))

    return read


READERS: Mapping[str, Callable[[Deployment], Any]] = {
    **{
        f"{view} at {ref}": _view(view, ref)
        for view in ("current", "panes", "late", "rejected")
        for ref in ("main", OLDER)
    },
    "then": lambda deployment: _view("current", deployment.then)(deployment),
    "snapshots": _view("snapshots", "main"),
    "state": _view("state", "main", pipeline=PIPELINE, stage=1),
    "older state": _view("state", OLDER, pipeline=PIPELINE),
    "duckdb": lambda deployment: sorted(map(str, deployment.history.current().to_duckdb().fetchall())),
    "files": lambda deployment: deployment.history.panes(at="main").files(verify=True),
    "diff": lambda deployment: deployment.history.diff(OLDER, "main").to_json(),
    "explain": lambda deployment: str(deployment.history.explain(3, pipeline=PIPELINE)),
    "plan": lambda deployment: str(deployment.history.plan(PIPELINE)),
    "show": lambda deployment: deployment.catalog.manifest(deployment.catalog.head().refs["main"]).to_json(),
    "pipelines": lambda deployment: list(open_root(deployment.uri)),
    "audit": lambda deployment: (
        PlannedPublish.from_head(deployment.catalog, deployment.catalog.head().refs["main"]).audits
    ),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """With few records in a node, and few layers in a merge: so there are some of each after a few epochs."""
    with set_sizes(log_radix=4, fanout=4):
        yield build_deployment(tmp_path_factory.mktemp("corruption"))


@dataclass(frozen=True)
class SoundAnswers:
    """What readers see while all is whole, and what main has after the next run."""

    seen: Mapping[str, Any]
    truth: Mapping[str, list[str]]


@pytest.fixture(scope="module")
def sound_answers(whole: Deployment) -> SoundAnswers:
    seen_answers = {name: read(whole) for name, read in READERS.items()}
    with whole.caching(warm=True):
        whole.run("truth")
    truth = _results(whole)
    whole.mend()
    return SoundAnswers(seen_answers, truth)


@pytest.fixture
def deployment(whole: Deployment, sound_answers: SoundAnswers) -> Iterator[Deployment]:
    yield whole
    whole.mend()


def _cases() -> Iterator[tuple[str, str, bool]]:
    for victim in VICTIMS:
        ways = [each for each in DAMAGES if victim not in SINGLE_OBJECTS or each != "replaced by another one"]
        dice = random.Random(f"{SEED} {victim}")
        for damage in ways if ALL else [dice.choice(ways)]:
            is_state = victim.split()[-1] in {"state", "state_1", "ids"}
            for warm in (False, True) if ALL and is_state else (dice.random() < 0.5,):
                yield victim, damage, warm


def test_there_is_a_victim_of_each_kind_and_no_object_of_another(whole: Deployment) -> None:
    assert set(victims(whole)) == set(VICTIMS)
    assert whole.history.fsck(deep=True).problems == ()


@pytest.mark.parametrize(("victim", "damage", "warm"), [*_cases()])
def test_nothing_wrong_comes_of(
    deployment: Deployment, sound_answers: SoundAnswers, victim: str, damage: str, warm: bool
) -> None:
    path, other = victims(deployment)[victim]
    spoil(deployment.root / path, damage, deployment.root / (other or path), random.Random(f"{victim} {damage}"))
    is_unnamed = (victim, damage) in UNNAMED_DAMAGE or victim in {"data docs", "input"}
    problems = deployment.history.fsck(deep=True).problems
    assert {problem.path for problem in problems} == (set() if is_unnamed else {path})
    assert all(problem.remedy and problem.needed_by for problem in problems)
    _check_readers(deployment, sound_answers.seen)
    with deployment.caching(warm=warm):
        _run_and_do_as_told(deployment, path, audits=victim in AUDITS)
    assert _results(deployment) == sound_answers.truth


def _check_readers(deployment: Deployment, answers: Mapping[str, Any]) -> None:
    """Each gives what it gave, or an error that names what is wrong."""
    for name, read in READERS.items():
        try:
            answer = read(deployment)
        except HeadraceError:
            continue
        assert answer == answers[name], name


def _run_and_do_as_told(deployment: Deployment, path: str, *, audits: bool) -> None:
    """Run, and read; where either is refused do what the message says."""
    for number in range(RUNS):
        try:
            deployment.run(f"run-{number}", audits=audits)
            _results(deployment)
        except HeadraceError as error:
            advice = re.search(rf"`headrace rollback {NAME} --to (\S+?)`", str(error))
            if advice is not None:
                for snapshot in re.findall(rf"`headrace release {NAME} (\S+) --message WHY`", str(error)):
                    deployment.history.release(snapshot, message="as the message says")
                deployment.history.rollback(to=advice[1])
                continue
            assert re.search("from a backup|[Pp]ut the old content back", str(error)), error
            (deployment.root / path).parent.mkdir(exist_ok=True)
            shutil.copy2(deployment.whole / path, deployment.root / path)
        else:
            return


def _results(deployment: Deployment) -> dict[str, list[str]]:
    """What main says. Of epochs that had expired, what shares a leaf of a log with newer ones may still be there."""
    found_objects: dict[str, list[str]] = {}
    for view in ("current", "panes", "late", "rejected"):
        rows = getattr(deployment.history, view)(at="main").to_arrow().to_pylist()
        found_objects[view] = sorted(
            str(row) for row in rows if view == "current" or row["epoch"] >= deployment.first_epoch
        )
    return found_objects
