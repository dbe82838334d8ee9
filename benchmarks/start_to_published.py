"""From the start of a run in Airflow to published, and where the time goes.

``python -m benchmarks.start_to_published --executors local spark --flights 1000 100000``: a real Airflow of its own,
pipelines over flights with and without expectations, their DAG *process* triggered by REST, each time on as many more
flights; in turn with a DAG of as many tasks that do nothing, which is Airflow's own share: up to published, that of the
tasks before the one that publishes, and of its own start and end. Marks come from Airflow (of
runs and tasks) and from the processes themselves (``marking/sitecustomize.py``). Figures are medians: wall seconds, and
CPU seconds of the processes of tasks and of what they start.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from headrace_snapshots.store import ObjectStore, open_store
from scripts.airflow_env import REPOSITORY, LocalAirflow
from scripts.land_flights import FILES, flights, json_lines, split

NOTHING = "nothing"
_TASKS = [(name, "default_pool") for name in ("preconditions", "process", "audit", "publish")]
"""Ids and pools of the tasks of a DAG *process*, for the DAG that does nothing."""
_PUBLISHES = "process"
"""The task that publishes."""
_RUN_SECONDS = 900
_DAG_SECONDS = 180
_NOTHING_DAG = '''
"""As many tasks as a run has, which do nothing."""
from datetime import datetime
from airflow.sdk import DAG, BaseOperator, chain

class Nothing(BaseOperator):
    def execute(self, context):
        return None

with DAG("{name}", schedule=None, start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1):
    chain(*[Nothing(task_id=name, pool=pool) for name, pool in {tasks}])
'''
_PIPELINES = """
from dataclasses import replace
from pipelines import flights_departures as demo

_source = replace(demo.flights.source, path="landing/{name}")
_expectations = demo.departures.expectations if {expects} else ()
pipeline = replace(
    demo.departures,
    name="{name}",
    input=replace(demo.flights, source=_source),
    executor="{executor}",
    expectations=_expectations,
)
"""


@dataclass(frozen=True)
class Case:
    """What is measured: a pipeline on an executor, so many flights a run, with expectations or without."""

    executor: str
    flights: int
    expects: bool

    @property
    def name(self) -> str:
        """The pipeline's."""
        return f"{self.executor}_{self.flights}_{'with' if self.expects else 'without'}"

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.executor}, {self.flights:,} flights, {'with' if self.expects else 'without'} expectations"


@dataclass(frozen=True)
class Span:
    """Wall and CPU seconds of a part."""

    wall: float
    cpu: float


Parts = Mapping[str, Span]
BESIDE = ("import great_expectations", "import pyspark", "spark_session", "evaluate")
"""Marks of which the wall and the CPU seconds of their thread are told besides: they overlap with others."""


def main() -> None:
    """Measure, print a table for each case, and keep all figures where ``--out`` says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executors", nargs="+", default=["local", "spark"], choices=["local", "spark"])
    parser.add_argument("--flights", nargs="+", type=int, default=[1_000, 100_000])
    parser.add_argument("--expectations", choices=["with", "without", "both"], default="both")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="a folder for Airflow, root and marks, which stay there")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    expects = {"with": [True], "without": [False], "both": [False, True]}[given.expectations]
    cases = [Case(one, size, has) for one in given.executors for size in given.flights for has in expects]
    folder = given.keep or Path(tempfile.mkdtemp(prefix="start-to-published-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        figures = measured(folder, cases, given.repeats)
    finally:
        if given.keep is None:
            shutil.rmtree(folder)
    for label, runs in figures.items():
        print_table(label, runs, figures[NOTHING])
    if given.out:
        told = {
            label: [{name: asdict(span) for name, span in parts.items()} for parts in runs]
            for label, runs in figures.items()
        }
        given.out.write_text(json.dumps(told, indent=1))


def measured(folder: Path, cases: Sequence[Case], repeats: int) -> dict[str, list[Parts]]:
    """The parts of each run of each case, by its label, and of the DAG that does nothing."""
    marks = folder / "marks.jsonl"
    prepare(folder, cases)
    root = (folder / "root").as_uri()
    store, table = open_store(root), flights()
    if (most := max(case.flights for case in cases)) * repeats > len(table):
        raise SystemExit(f"{repeats} times {most:,} flights are more than the {len(table):,} that there are")
    figures: dict[str, list[Parts]] = {}
    with airflow_over(folder, root, marks) as airflow:
        for dag_id in (NOTHING, *(f"headrace_{case.name}_process" for case in cases)):
            airflow.api.wait_for_dag(dag_id, _DAG_SECONDS)
        run(airflow, marks, NOTHING)  # the first task of a scheduler takes longer
        for number in range(repeats):
            for case in cases:
                land(store, case, table, number)
                figures.setdefault(case.label, []).append(run(airflow, marks, f"headrace_{case.name}_process"))
                figures.setdefault(NOTHING, []).append(run(airflow, marks, NOTHING))
    return figures


def prepare(folder: Path, cases: Sequence[Case]) -> None:
    """Write pipelines, and the folder of DAGs: the repository's own, and one that does nothing."""
    (folder / "pipelines").mkdir()
    for case in cases:
        text = _PIPELINES.format(name=case.name, executor=case.executor, expects=case.expects)
        (folder / "pipelines" / f"{case.name}.py").write_text(text)
    shutil.copytree(REPOSITORY / "dags", folder / "dags", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "dags" / "nothing.py").write_text(_NOTHING_DAG.format(name=NOTHING, tasks=_TASKS))


@contextmanager
def airflow_over(folder: Path, root: str, marks: Path) -> Iterator[LocalAirflow]:
    """A local Airflow with what ``prepare`` has written, whose processes leave marks."""
    path = [str(Path(__file__).parent / "marking"), str(REPOSITORY / "jobs"), os.environ.get("PYTHONPATH", "")]
    environment = {
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "HEADRACE_PIPELINES": str(folder / "pipelines"),
        "HEADRACE_MARKS": str(marks),
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
    }
    local = LocalAirflow(folder / "airflow", root, environment)
    try:
        local.start()
        yield local
    finally:
        local.stop()


def land(store: ObjectStore, case: Case, table: Any, number: int) -> None:
    """The ``number``-th so many flights, in files as large as those of the demo."""
    rows = table.iloc[case.flights * number : case.flights * (number + 1)]
    files = max(1, round(FILES * len(rows) / len(table)))
    for index, part in enumerate(split(rows, files)):
        store.write(f"landing/{case.name}/part-{number:03}-{index:06}.jsonl", json_lines(part))


def run(airflow: LocalAirflow, marks: Path, dag_id: str) -> Parts:
    """One run of a DAG, in parts. Raises SystemExit if it fails."""
    before = size_of(marks)
    cpu = airflow_cpu(airflow)
    run_id = airflow.api.trigger(dag_id)
    ended = airflow.api.wait_for_run(dag_id, run_id, _RUN_SECONDS)
    used = airflow_cpu(airflow) - cpu
    if ended.state != "success" or "skipped" in ended.tasks.values():
        log = [line for task in ended.tasks for line in airflow.api.log(dag_id, run_id, task)]
        raise SystemExit("\n".join([str(ended), *log[-40:]]))
    told = airflow.api.run(dag_id, run_id)
    tasks = sorted(airflow.api.task_instances(dag_id, run_id), key=lambda task: task["start_date"])
    with marks.open() as lines:
        lines.seek(before)
        left = [json.loads(line) for line in lines]
    return {**parts_of(told, tasks, left), "with scheduler and API server": Span(0.0, used)}


def size_of(file: Path) -> int:
    """Bytes of ``file``, 0 if there is none."""
    return file.stat().st_size if file.exists() else 0


def airflow_cpu(airflow: LocalAirflow) -> float:
    """CPU seconds of scheduler and API server, and of all that they have started."""
    total = 0.0
    for component in ("scheduler", "api-server"):
        process = psutil.Process(airflow.pid(component))
        for one in (process, *process.children(recursive=True)):
            try:
                times = one.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system + times.children_user + times.children_system
    return total


def seconds(moment: str) -> float:
    """A time of Airflow's as ``time.time()`` has it."""
    return datetime.fromisoformat(moment).timestamp()


def parts_of(run: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]], marks: Sequence[Mapping[str, Any]]) -> Parts:
    """The parts of a run, one after the other (``PARTS``), and what else is asked about it (``BESIDE``)."""
    began = seconds(run["queued_at"])
    line = Timeline(began)
    published = [mark["ended"] for mark in marks if mark["name"] == "PlannedPublish.publish"]
    line.published = published[0] if published else None
    starts = sorted((mark for mark in marks if mark["name"] == "startup"), key=lambda mark: mark["began"])
    for start, task in zip(starts, tasks, strict=True):
        own = {mark["name"]: mark for mark in marks if mark["pid"] == start["pid"]}
        line.add("Airflow", own["fork"]["began"], 0.0)
        line.add("start of tasks", own["run"]["began"], own["run"]["cpu_began"])
        if task["task_id"] == "process" and run["dag_id"] != NOTHING:
            follow_application(line, marks)
        cpu = own["run"]["cpu_ended"] + own["run"]["children_cpu_ended"] - own["run"]["cpu_began"]
        if task["task_id"] == _PUBLISHES and run["dag_id"] == NOTHING:
            line.published = own["run"]["ended"]
        line.add(task["task_id"], own["run"]["ended"], max(0.0, cpu - line.application_cpu))
        line.application_cpu = 0.0
    line.add("Airflow", seconds(run["end_date"]), 0.0)
    beside = {mark["name"]: Span(mark["ended"] - mark["began"], mark["thread_cpu"]) for mark in marks}
    return {
        **line.parts,
        "start to published": Span((line.published or line.at) - began, line.cpu - line.cpu_after),
        "start to end": Span(line.at - began, line.cpu),
        **{name: span for name, span in beside.items() if name in BESIDE},
    }


def follow_application(line: "Timeline", marks: Sequence[Mapping[str, Any]]) -> None:
    """The parts of the process that computes."""
    (begun,) = (mark for mark in marks if mark["name"] == "application starts")
    own = {mark["name"]: mark for mark in marks if mark["pid"] == begun["pid"]}
    for part, name, edge in (
        ("application: JVM and imports", "resolve", "began"),
        ("application: plan", "plan_run", "ended"),
        ("application: session, restore", "commit_epochs", "began"),
        ("application: engine", "commit_epochs", "ended"),
        ("application: audit", "run_audit", "ended"),
        ("application: publication", "PlannedPublish.publish", "ended"),
    ):
        mark = own[name]
        used = mark[f"cpu_{edge}"] + mark[f"jvm_cpu_{edge}"]
        line.add(part, mark[edge], used - line.application_cpu)
        line.application_cpu = used


@dataclass
class Timeline:
    """Parts that follow one another; ``at`` is the end of the last. Those after ``published`` are apart."""

    at: float
    published: float | None = None
    application_cpu: float = 0.0
    cpu: float = 0.0
    cpu_after: float = 0.0

    def __post_init__(self) -> None:
        self.parts: dict[str, Span] = {}

    def add(self, part: str, until: float, cpu: float) -> None:
        """The part from the end of the last one ``until`` then."""
        if self.published is not None and self.at < self.published < until:
            self._count(part, self.published, cpu)
            cpu = 0.0
        self._count(part, until, cpu)

    def _count(self, part: str, until: float, cpu: float) -> None:
        is_after = self.published is not None and self.at >= self.published
        name = f"then {part}" if is_after else part
        self.cpu_after += cpu if is_after else 0.0
        before = self.parts.get(name, Span(0.0, 0.0))
        self.parts[name] = Span(before.wall + max(0.0, until - self.at), before.cpu + cpu)
        self.at, self.cpu = max(self.at, until), self.cpu + cpu


def print_table(label: str, runs: Sequence[Parts], nothing: Sequence[Parts]) -> None:
    """Medians of the parts."""
    names = [*dict.fromkeys(name for parts in runs for name in parts)]
    table = Table("part", "wall s", "CPU s", title=f"{label} ({len(runs)} runs)", title_justify="left")
    for name in names:
        spans = [parts[name] for parts in runs if name in parts]
        table.add_row(name, *(f"{figure:.2f}" for figure in median(spans)))
    if runs is not nothing:
        for name in ("start to published", "start to end"):
            own = median([parts[name] for parts in nothing])
            beyond = [mine - airflows for mine, airflows in zip(median([p[name] for p in runs]), own, strict=True)]
            table.add_row(f"{name}, beyond Airflow's own", *(f"{figure:.2f}" for figure in beyond))
    Console(width=100).print(table)


def median(spans: Sequence[Span]) -> tuple[float, float]:
    """Of wall and CPU seconds."""
    return statistics.median(one.wall for one in spans), statistics.median(one.cpu for one in spans)


if __name__ == "__main__":
    main()
