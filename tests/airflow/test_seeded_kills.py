"""Airflow's processes and those of runs are killed at random times, in each family of DAGs. Then people clear tasks,
mark them, delete the run, change the pool, or wait. After each kill what is published equals the truth that the test
works out from what has landed.

Two kills in CI, ``HEADRACE_AIRFLOW_KILLS`` of them if it is set (``make airflow-kills``); ``HEADRACE_KILLS_SEED`` draws
others.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

import headrace as hr
from headrace.ext.stores import open_store
from scripts.airflow_env import LocalAirflow
from tests.airflow.conftest import DisturbedAirflow
from tests.airflow.test_end_to_end import family as started
from tests.airflow.test_end_to_end import land

pytestmark = pytest.mark.airflow

KILLS = int(os.environ.get("HEADRACE_AIRFLOW_KILLS", "2"))
SEED = os.environ.get("HEADRACE_KILLS_SEED", "1")
_DAG_SECONDS = 180
_RUN_SECONDS = 600

TASKS = {
    "process": ("process", "publish"),
    "backfill": ("replay", "cut_over"),
    "recover": ("recover", "publish"),
    "maintain": ("maintain",),
}
"""Tasks that write, by family; the first starts an application."""
VICTIMS = ("task", "scheduler", "driver", "supervisor", "JVM", "API server", "Python worker")
OF_AIRFLOW = {"scheduler": "scheduler", "API server": "api-server"}
OF_SPARK = ("JVM", "Python worker")
AFTERWARDS = ("nothing", "clear", "mark success", "mark failed", "delete", "two slots", "no slots")
NAME = "struck"
POOL = f"headrace_{NAME}"

_PROGRAMS = ("submit.py", "maintain.py")
_END_STATES = ("success", "failed")


@dataclass(frozen=True)
class Kill:
    """Which process of a run of which family is killed how many seconds after it was seen, and what is done then.

    ``task``: in which task, unless the victim is one of Airflow's own.
    """

    number: int
    family: str
    executor: str
    victim: str
    task: str
    seconds: float
    afterwards: str

    @classmethod
    def from_number(cls, number: int) -> "Kill":
        """The kill of that number: families, victims, executors and what is done take turns, the rest is random."""
        dice = random.Random(f"{SEED}/{number}")
        turn, place = divmod(number, len(TASKS))
        family = [*TASKS][place]
        victims = [victim for victim in VICTIMS if family != "maintain" or victim not in OF_SPARK]
        victim = victims[turn % len(victims)]
        executor = "spark" if victim in OF_SPARK or turn % 2 else "local"
        task = dice.choice(TASKS[family]) if victim in {"task", "supervisor"} else TASKS[family][0]
        seconds = dice.uniform(0, _lasts(family, executor, victim, task))
        order = random.Random(SEED).sample(AFTERWARDS, len(AFTERWARDS))
        return cls(number, family, executor, victim, task, seconds, order[number % len(order)])

    def earlier_and_earlier(self) -> "Iterator[Kill]":
        """This one; and what is tried if it came too late for its victim, which lives shorter on a quick machine."""
        for part in (1, 0.25, 0):
            yield replace(self, seconds=self.seconds * part)


def _lasts(family: str, executor: str, victim: str, task: str) -> float:
    """Seconds from when the victim is seen, within which the kill comes."""
    if victim in OF_AIRFLOW:
        return 8  # from when the run was asked for
    if victim == "Python worker" or family == "maintain" or task != TASKS[family][0]:
        return 0.6
    return 1.5 if executor == "local" else 6


@pytest.fixture(scope="module")
def airflow(disturbed_airflow: DisturbedAirflow) -> LocalAirflow:
    """With the DAGs of all families."""
    for family in TASKS:
        disturbed_airflow.airflow.api.wait_for_dag(dag_of(family), _DAG_SECONDS)
    return disturbed_airflow.airflow


@pytest.fixture(scope="module")
def truth(airflow: LocalAirflow) -> Counter[str]:
    """Clicks by minute of all that has landed: it grows with each kill. The first file is processed in peace."""
    landed_counts: Counter[str] = Counter()
    more(airflow, landed_counts)
    run_process(airflow)
    assert published_counts(airflow) == landed_counts
    return landed_counts


def dag_of(family: str) -> str:
    """The DAG of a family."""
    return "headrace_maintain" if family == "maintain" else f"headrace_{NAME}_{family}"


def more(airflow: LocalAirflow, landed_counts: Counter[str]) -> None:
    """Land another file. It has minutes of the one before it, too, so that state is merged."""
    store = open_store(airflow.root)
    number = len([*store.list(f"landing/{NAME}/")])
    minutes = range(number * 10, number * 10 + 13)
    land(store, NAME, f"{number:04}.jsonl", minutes)
    start = datetime(2026, 11, 20, tzinfo=UTC)
    landed_counts.update((start + timedelta(minutes=minute)).isoformat() for minute in minutes)


def published_counts(airflow: LocalAirflow) -> Counter[str]:
    """Clicks by minute as readers see them."""
    rows = hr.open(airflow.root)[NAME].read("current", at="published").to_arrow().to_pylist()
    return Counter({row["window_start"].astimezone(UTC).isoformat(): row["clicks"] for row in rows})


def run_process(airflow: LocalAirflow) -> None:
    """A run of *process* that nobody disturbs, which must end well."""
    dag = dag_of("process")
    ended_run = airflow.api.wait_for_run(dag, airflow.api.trigger(dag), _RUN_SECONDS)
    logs = {
        task: airflow.api.log(dag, ended_run.run_id, task)
        for task, state in ended_run.tasks.items()
        if state == "failed"
    }
    assert ended_run.state == "success", (ended_run, logs)


def begin_run(airflow: LocalAirflow, family: str, executor: str) -> tuple[str, str]:
    """DAG and id of a new run of a family."""
    conf: dict[str, object] = {"executor": executor}
    if family == "maintain":
        conf = {"pipeline": NAME, "keep_last": 3}
    elif family == "recover":
        catalog = hr.open(airflow.root)[NAME].catalog
        line = [link.snapshot_id for link in catalog.lineage(catalog.head().refs["main"])]
        conf |= {"snapshot": line[min(1, len(line) - 1)], "when": "at once"}
    return dag_of(family), airflow.api.trigger(dag_of(family), conf)


def victim_of(kill: Kill, try_id: str) -> psutil.Process | None:
    """The process that is to die, as soon as it is there: ``try_id`` is what Airflow calls the first try of its task,
    and how it calls the two processes of it.
    """
    if kill.victim in {"task", "supervisor"}:
        title = f"airflow worker -- {'LocalExecutor: ' if kill.victim == 'supervisor' else ''}{try_id}"
        return next((one for one in started() if words(one) == [title]), None)
    if kill.victim == "Python worker":
        return next((one for one in reversed(started()) if "headrace.distribute.spark.daemon" in words(one)), None)
    applications = [one for one in started() if is_application(one)]
    return next((one for one in applications if (words(one)[0].endswith("java")) == (kill.victim == "JVM")), None)


def is_application(process: psutil.Process) -> bool:
    """Whether it is what a task has started to compute; what only works out the command of Spark's is not."""
    program, *rest = words(process) or [""]
    starts = any(word.endswith("launcher.Main") for word in rest)
    is_program = Path(program).name.startswith(("java", "python"))
    return is_program and not starts and any(word.endswith(_PROGRAMS) for word in rest)


def words(process: psutil.Process) -> list[str]:
    """Its command line; empty once it has ended."""
    try:
        return [word for word in process.cmdline() if word]
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


def strike_victim(airflow: LocalAirflow, kill: Kill, dag: str, run_id: str) -> bool:
    """Kill the victim at its time; whether it still was there."""
    if kill.victim in OF_AIRFLOW:
        time.sleep(kill.seconds)  # the time of the fault is drawn, nothing is waited for
        airflow.kill(OF_AIRFLOW[kill.victim])
        return True
    (try_id,) = (one["id"] for one in airflow.api.task_instances(dag, run_id) if one["task_id"] == kill.task)
    patient = Retrying(
        stop=stop_after_delay(_RUN_SECONDS), wait=wait_fixed(0.05), retry=retry_if_result(lambda state: state is None)
    )

    def find_victim() -> psutil.Process | bool | None:
        return victim_of(kill, try_id) or (
            False if airflow.api.task_state(dag, run_id, kill.task) in _END_STATES else None
        )

    victim = patient(find_victim)
    if not isinstance(victim, psutil.Process):
        return False
    time.sleep(kill.seconds)
    try:
        victim.kill()
    except psutil.NoSuchProcess:
        return False
    return True


def react_to_run(airflow: LocalAirflow, kill: Kill, dag: str, run_id: str) -> None:
    """What people do about the run: mark a task that has not ended, delete the run, change how many may write at once,
    or clear all tasks once the run has ended.
    """
    api = airflow.api
    if kill.afterwards.startswith("mark"):
        tasks = api.task_states(dag, run_id)
        open_ones = [task for task, state in tasks.items() if state not in {*_END_STATES, "skipped"}]
        working = [task for task in open_ones if tasks[task] in {"running", "queued", "up_for_retry"}]
        for task in (working or open_ones)[:1]:
            api.mark(dag, run_id, task, kill.afterwards.removeprefix("mark "))
    if kill.afterwards == "delete":
        api.mark_run(dag, run_id, "failed")
        api.delete_run(dag, run_id)  # its application may go on for a while
        return
    if kill.afterwards == "two slots":
        api.set_slots(POOL, 2)
    if kill.afterwards == "no slots":
        api.set_slots(POOL, 0)
        Retrying(stop=stop_after_delay(_RUN_SECONDS), wait=wait_fixed(0.5), retry=retry_if_result(bool))(
            lambda: {"running", "queued", "up_for_retry"} & {*api.task_states(dag, run_id).values()}
        )
        api.set_slots(POOL, 1)
    api.wait_for_run(dag, run_id, _RUN_SECONDS)
    if kill.afterwards == "clear":
        api.clear(dag, run_id)
        api.wait_for_run(dag, run_id, _RUN_SECONDS)


def kill_run(airflow: LocalAirflow, truth: Counter[str], kill: Kill) -> bool:
    """Whether the kill came before its victim had ended; readers see the truth after it, and nothing is damaged."""
    more(airflow, truth)
    dag, run_id = begin_run(airflow, kill.family, kill.executor)
    neighbour: tuple[str, str] | None = None
    if kill.afterwards == "two slots":  # of two writers at once the newer one counts
        neighbour = begin_run(airflow, "backfill" if kill.family == "process" else "process", "local")
    hit = strike_victim(airflow, kill, dag, run_id)
    if kill.victim in OF_AIRFLOW:
        airflow.revive(OF_AIRFLOW[kill.victim])
    try:
        react_to_run(airflow, kill, dag, run_id)
        states = [] if kill.afterwards == "delete" else [airflow.api.task_states(dag, run_id)]
        if neighbour is not None:
            states.append(airflow.api.wait_for_run(*neighbour, _RUN_SECONDS).tasks)
    finally:
        airflow.api.set_slots(POOL, 1)
    run_process(airflow)
    print(f"{kill}: {'killed' if hit else 'it had ended'}; {states}")
    assert published_counts(airflow) == truth, (kill, states)
    assert not hr.open(airflow.root)[NAME].fsck().damage
    return hit


@pytest.mark.parametrize("number", range(KILLS))
def test_what_is_published_equals_what_landed_whatever_was_killed(
    airflow: LocalAirflow, truth: Counter[str], number: int
) -> None:
    tried_kills = [*Kill.from_number(number).earlier_and_earlier()]
    assert any(kill_run(airflow, truth, kill) for kill in tried_kills), (
        f"each came after the end of its victim: {tried_kills}"
    )
