"""Airflow's processes and those of runs are killed at random times, in each family of DAGs. Then people clear tasks,
mark them, or wait. After each kill what is published equals the truth that the test works out from what has landed.

Two kills in CI, ``HEADRACE_AIRFLOW_KILLS`` of them if it is set (``make airflow-kills``); ``HEADRACE_KILLS_SEED`` draws
others.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

import headrace as hr
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store
from scripts.airflow_env import LocalAirflow
from tests.airflow.subprocesses import write_pipeline
from tests.airflow.test_end_to_end import family as started
from tests.airflow.test_end_to_end import land

pytestmark = pytest.mark.airflow

KILLS = int(os.environ.get("HEADRACE_AIRFLOW_KILLS", "2"))
SEED = os.environ.get("HEADRACE_KILLS_SEED", "1")
_DAG_SECONDS = 180
_RUN_SECONDS = 600
_LATEST = 1.5
"""Seconds after its victim was seen, within which the kill comes: a run without Spark computes for two."""

FAMILIES = ("process", "backfill", "recover", "maintain")
VICTIMS = ("task", "scheduler", "driver", "supervisor", "JVM", "API server")
AFTERWARDS = ("nothing", "clear", "mark success", "mark failed")
OF_AIRFLOW = {"scheduler": "scheduler", "API server": "api-server"}
NAME = "clicks"


@dataclass(frozen=True)
class Kill:
    """Which process of a run of which family is killed how many seconds after it was seen, and what is done then."""

    number: int
    family: str
    victim: str
    seconds: float
    afterwards: str

    @classmethod
    def drawn(cls, number: int) -> "Kill":
        """The kill of that number: families and victims take turns, the rest is random."""
        dice = random.Random(f"{SEED}/{number}")
        family = FAMILIES[number % len(FAMILIES)]
        victims = [*OF_AIRFLOW] if family == "maintain" else [*VICTIMS]  # it runs in the worker alone, for a moment
        victim = victims[number // len(FAMILIES) % len(victims)]
        return cls(number, family, victim, dice.uniform(0, _LATEST), dice.choice(AFTERWARDS))


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAirflow]:
    """An Airflow that looks for killed workers often, with one pipeline."""
    folder: Path = tmp_path_factory.mktemp("kills")
    (folder / "pipelines").mkdir()
    write_pipeline(folder / "pipelines", NAME, options='executor="local", airflow=hr.airflow(retry_delay="1s")')
    environment = {
        "HEADRACE_PIPELINES": str(folder / "pipelines"),
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "20",
    }
    local = LocalAirflow(folder / "home", (folder / "root").as_uri(), environment)
    try:
        local.start()
        for family in ("process", "backfill", "recover"):
            local.api.wait_for_dag(f"headrace_{NAME}_{family}", _DAG_SECONDS)
        local.api.wait_for_dag("headrace_maintain", _DAG_SECONDS)
        yield local
    finally:
        local.stop()


@pytest.fixture(scope="module")
def truth(airflow: LocalAirflow) -> Counter[str]:
    """Clicks by minute of all that has landed: it grows with each kill. The first two files are processed in peace."""
    landed: Counter[str] = Counter()
    for number in range(2):
        more(airflow, landed, -2 + number)
        processed(airflow)
    assert published(airflow) == landed
    return landed


def more(airflow: LocalAirflow, landed: Counter[str], number: int) -> None:
    """Land the file of a kill. It has minutes of the one before it, too, so that state is merged."""
    minutes = range((number + 2) * 10, (number + 2) * 10 + 13)
    land(open_store(airflow.root), NAME, f"{number + 2:04}.jsonl", minutes)
    start = datetime(2026, 11, 20, tzinfo=UTC)
    landed.update((start + timedelta(minutes=minute)).isoformat() for minute in minutes)


def published(airflow: LocalAirflow) -> Counter[str]:
    """Clicks by minute as readers see them."""
    rows = hr.open(airflow.root)[NAME].read("current", at="published").to_arrow().to_pylist()
    return Counter({row["window_start"].astimezone(UTC).isoformat(): row["clicks"] for row in rows})


def processed(airflow: LocalAirflow) -> None:
    """A run of *process* that nobody disturbs, which must end well."""
    dag = f"headrace_{NAME}_process"
    ended = airflow.api.wait_for_run(dag, airflow.api.trigger(dag), _RUN_SECONDS)
    logs = {task: airflow.api.log(dag, ended.run_id, task) for task, state in ended.tasks.items() if state == "failed"}
    assert ended.state == "success", (ended, logs)


def begun(airflow: LocalAirflow, kill: Kill) -> tuple[str, str]:
    """DAG and id of the run in which the kill happens."""
    conf: dict[str, object] = {"executor": "spark" if kill.victim == "JVM" else "local"}
    if kill.family == "maintain":
        return "headrace_maintain", airflow.api.trigger("headrace_maintain", {"pipeline": NAME, "keep_last": 3})
    if kill.family == "recover":
        catalog = Catalog(open_store(airflow.root), NAME)
        line = [link.snapshot_id for link in catalog.lineage(catalog.head().refs["main"])]
        conf |= {"snapshot": line[min(1, len(line) - 1)], "when": "at once"}
    dag = f"headrace_{NAME}_{kill.family}"
    return dag, airflow.api.trigger(dag, conf)


def victim_of(kill: Kill) -> psutil.Process | None:
    """The process of the run that is to die, as soon as it is there."""
    at_work = [one for one in started() if is_application(one)]
    jvm = next((one for one in at_work if one.name() == "java"), None)
    driver = next((one for one in at_work if one.name() != "java"), None)
    if kill.victim in {"JVM", "driver"}:
        return jvm if kill.victim == "JVM" else driver
    top = jvm or driver
    task = None if top is None else top.parent()
    return task if task is None or kill.victim == "task" else task.parent()


def is_application(process: psutil.Process) -> bool:
    """Whether it is what a task has started to compute; the JVM that only works out the command of Spark's is not."""
    try:
        words = process.cmdline()
        computes = not any(word.endswith("launcher.Main") for word in words)
        return computes and any(word.endswith("submit.py") for word in words)
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False


def struck(airflow: LocalAirflow, kill: Kill) -> bool:
    """Kill the victim at its time; whether it still was there."""
    if kill.victim in OF_AIRFLOW:
        time.sleep(kill.seconds)  # the time of the fault is drawn, nothing is waited for
        airflow.kill(OF_AIRFLOW[kill.victim])
        return True
    patient = Retrying(
        stop=stop_after_delay(_RUN_SECONDS), wait=wait_fixed(0.05), retry=retry_if_result(lambda p: not p)
    )
    victim = patient(victim_of, kill)
    assert victim is not None
    time.sleep(kill.seconds)
    try:
        victim.kill()
    except psutil.NoSuchProcess:
        return False
    return True


def answered(airflow: LocalAirflow, kill: Kill, dag: str, run_id: str) -> None:
    """What people do about the run: mark a task that has not ended, or clear all tasks once the run has ended."""
    if kill.afterwards.startswith("mark"):
        tasks = airflow.api.task_states(dag, run_id)
        open_ones = [task for task, state in tasks.items() if state not in {"success", "failed", "skipped"}]
        working = [task for task in open_ones if tasks[task] in {"running", "queued", "up_for_retry"}]
        for task in (working or open_ones)[:1]:
            airflow.api.mark(dag, run_id, task, kill.afterwards.removeprefix("mark "))
    airflow.api.wait_for_run(dag, run_id, _RUN_SECONDS)
    if kill.afterwards == "clear":
        airflow.api.clear(dag, run_id)
        airflow.api.wait_for_run(dag, run_id, _RUN_SECONDS)


@pytest.mark.parametrize("number", range(KILLS))
def test_what_is_published_equals_what_landed_whatever_was_killed(
    airflow: LocalAirflow, truth: Counter[str], number: int
) -> None:
    kill = Kill.drawn(number)
    more(airflow, truth, number)
    dag, run_id = begun(airflow, kill)
    hit = struck(airflow, kill)
    if kill.victim in OF_AIRFLOW:
        airflow.revive(OF_AIRFLOW[kill.victim])
    answered(airflow, kill, dag, run_id)
    states = airflow.api.task_states(dag, run_id)
    processed(airflow)
    print(f"{kill}: {'killed' if hit else 'it had ended'}; {states}")
    assert published(airflow) == truth, (kill, states)
    assert not hr.open(airflow.root)[NAME].fsck().damage
    if not hit:
        pytest.skip(f"{kill}: it had ended before the kill came, so this was none")
