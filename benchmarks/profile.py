"""Where an epoch's time goes: ``python -m benchmarks.profile --workload sessions --rows 2000000 --keys 20000``.

Runs our side once and prints, per epoch: wall and CPU seconds; CPU seconds of the JVM's threads by what they do (JIT,
garbage, tasks, and the rest, which is the driver); seconds of compiling Spark's code, how many classes that were, and
of optimising plans; the manifest's timings; then, of the whole run, Spark's SQL executions in the order of an
epoch (jobs, stages, exchanges, planning, running) and the dearest rules of the optimiser. ``--plans FILE`` keeps the
physical plans.
"""

import argparse
import contextlib
import json
import os
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks import data
from benchmarks.comparison import workplace
from benchmarks.ours import Commits
from benchmarks.pipelines import pipeline
from benchmarks.runs import timed
from benchmarks.throughput import common_arguments
from benchmarks.workloads import COMPARED, Side, Workload
from headrace.distribute.spark.application import SparkSession
from headrace.distribute.spark.session import spark_session
from headrace.runs.options import Mode, RunOptions
from headrace.runs.process import process
from headrace_snapshots.format.manifest import Manifest

_KINDS = {"jit": ("Compiler",), "gc": ("G1 ", "GC ", "VM Thread"), "tasks": ("Executor task",)}
_SQL = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecution"


@dataclass
class Counters(Commits):
    """Also reads the JVM's counters at every commit."""

    jvm: Any = None
    readings: list[dict[str, float]] = field(default_factory=list)

    def committed(self, manifest: Manifest) -> None:
        """Keep it, and read."""
        super().committed(manifest)
        self.readings.append(self.read())

    def read(self) -> dict[str, float]:
        """Totals so far, in seconds."""
        generated = self.jvm.org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator
        classes = self.jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
        wall, cpu = self.watch.read()
        return {
            "wall": wall,
            "cpu": cpu,
            **_threads(),
            "codegen": generated.compileTime() / 1e9,
            "classes": float(classes.getCount()),
            "rules": float(rules(self.jvm).partition("Total time: ")[2].partition(" ")[0] or 0),
        }


def _threads() -> dict[str, float]:
    """CPU seconds of the JVM's living threads, by what they do."""
    found = dict.fromkeys(("jit", "gc", "tasks", "driver"), 0.0)
    jvms = [process for process in psutil.Process().children() if process.name() == "java"]
    for task in (task for jvm in jvms for task in Path(f"/proc/{jvm.pid}/task").iterdir()):
        with contextlib.suppress(OSError):
            name, _, numbers = (task / "stat").read_text().partition("(")[2].rpartition(")")
            kind = next((kind for kind, words in _KINDS.items() if any(word in name for word in words)), "driver")
            found[kind] += sum(int(ticks) for ticks in numbers.split()[11:13]) / os.sysconf("SC_CLK_TCK")
    return found


def rules(jvm: Any) -> str:
    """What Spark's rule executors tell of themselves."""
    return str(jvm.org.apache.spark.sql.catalyst.rules.RuleExecutor.dumpTimeSpent())


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", type=Workload, choices=COMPARED, default=Workload.TUMBLING)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", action="store_true", help="all input in one epoch")
    parser.add_argument("--plans", type=Path)
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="of Spark, to try it out")
    common_arguments(parser)
    given = parser.parse_args()
    source = data.events(given.folder / "data", data.Events(given.rows, given.keys, given.epochs))
    with workplace(given.folder) as work:
        logs, root = work / "events", work / "root"
        logs.mkdir()
        root.mkdir()
        conf = {
            "spark.driver.memory": given.memory,
            "spark.local.dir": str(work / "spark"),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": logs.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
            "spark.sql.debug.maxToStringFields": "1000",
            **dict(setting.partition("=")[::2] for setting in given.conf),
        }
        spark = spark_session("headrace profile", cores=given.cores, conf=conf)
        _run(spark, given, source, root)
        spark.stop()
        (log,) = [path for path in logs.iterdir() if not path.name.startswith(".")]
        executions = list(_executions(json.loads(line) for line in log.open()))
        _show_executions(executions, given.epochs)
        if given.plans:
            plans = "\n\n".join(f"#### {e.number} {e.pool}\n{e.plan}" for e in executions)
            given.plans.write_text(plans)


def _run(spark: SparkSession, given: argparse.Namespace, source: Path, root: Path) -> None:
    jvm: Any = spark.sparkContext._jvm
    made = pipeline(given.workload, Side.SPARK_BATCH if given.batch else Side.STRUCTURED_STREAMING, source)
    listener = Counters(jvm=jvm)
    before = listener.read()
    options = RunOptions("profile", mode=Mode.BATCH) if given.batch else RunOptions("profile", files_per_epoch=1)
    seconds = timed(lambda: process(made, root.as_uri(), options, listener=listener, spark=spark))
    table = Table(title=f"{given.workload}: {seconds:.1f} s, load {os.getloadavg()[0]:.1f}", title_justify="left")
    names = list(before)
    stages = ["compute_seconds", "write_seconds"]
    counts = ["state_rows", "panes", "retractions"]
    for name in ("epoch", *names, *stages, *counts):
        table.add_column(name.removesuffix("_seconds"), justify="right")
    for manifest, reading in zip(listener.manifests, listener.readings, strict=True):
        spent = [f"{reading[name] - before[name]:.1f}" for name in names]
        told = [f"{manifest.timings[name]:.2f}" for name in stages]
        table.add_row(str(manifest.epoch), *spent, *told, *(str(manifest.counts[name]) for name in counts))
        before = reading
    Console(width=160).print(table)
    print("\n".join(rules(jvm).splitlines()[:24]))


# --- Spark's event log


@dataclass
class Execution:
    """One SQL execution: an action on a DataFrame. Times in seconds."""

    number: int
    plan: str
    started: float
    pool: str = "-"
    ended: float = 0.0
    planned: float | None = None
    """When its first job was submitted: until then it was planned and its code generated."""
    jobs: int = 0
    stages: int = 0
    busy: float = 0.0
    """Seconds of its tasks, summed."""
    cpu: float = 0.0
    shuffled: int = 0

    @property
    def exchanges(self) -> int:
        """Exchanges in its own plan (those of what it reuses are with the execution that made it)."""
        tree = self.plan.partition("\n\n")[0]
        return sum("Exchange" in line and "Reused" not in line for line in tree.splitlines())


def _executions(events: Iterable[Mapping[str, Any]]) -> list[Execution]:
    found: dict[int, Execution] = {}
    stages: dict[int, int] = {}
    for event in events:
        match event["Event"]:
            case kind if kind == f"{_SQL}Start":
                number = event["executionId"]
                found[number] = Execution(number, event["physicalPlanDescription"], event["time"] / 1e3)
            case kind if kind == f"{_SQL}End":
                found[event["executionId"]].ended = event["time"] / 1e3
            case "SparkListenerJobStart" if "spark.sql.execution.id" in event["Properties"]:
                number = int(event["Properties"]["spark.sql.execution.id"])
                execution = found[number]
                execution.jobs += 1
                execution.pool = event["Properties"].get("spark.scheduler.pool", "epoch")
                execution.planned = execution.planned or event["Submission Time"] / 1e3
                stages |= dict.fromkeys(event["Stage IDs"], number)
            case "SparkListenerStageCompleted" if event["Stage Info"]["Stage ID"] in stages:
                found[stages[event["Stage Info"]["Stage ID"]]].stages += 1
            case "SparkListenerTaskEnd" if event["Stage ID"] in stages:
                metrics = event["Task Metrics"]
                execution = found[stages[event["Stage ID"]]]
                execution.busy += metrics["Executor Run Time"] / 1e3
                execution.cpu += metrics["Executor CPU Time"] / 1e9
                execution.shuffled += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
    return list(found.values())


def _show_executions(executions: list[Execution], epochs: int) -> None:
    """Of each pool the executions in their order; figures of the last warm epochs are medians by position."""
    table = Table(title="SQL executions (the last two epochs of each pool)", title_justify="left")
    columns = ["id", "pool", "jobs", "stages", "exchanges", "plan s", "run s", "task s", "task cpu s", "shuffle MB"]
    for name in [*columns, "plan"]:
        table.add_column(name, justify="left" if name in ("pool", "plan") else "right")
    for pool in sorted({execution.pool for execution in executions}):
        mine = [execution for execution in executions if execution.pool == pool]
        a_epoch = len(mine) / epochs
        for execution in mine[-round(2 * a_epoch) :]:
            planned = execution.planned or execution.ended
            table.add_row(
                str(execution.number),
                pool,
                str(execution.jobs),
                str(execution.stages),
                str(execution.exchanges),
                f"{planned - execution.started:.2f}",
                f"{execution.ended - planned:.2f}",
                f"{execution.busy:.2f}",
                f"{execution.cpu:.2f}",
                f"{execution.shuffled / 1e6:.1f}",
                _nature(execution),
            )
        print(
            f"{pool}: {a_epoch:.1f} executions an epoch, {sum(e.jobs for e in mine) / epochs:.1f} jobs, "
            f"{sum(e.stages for e in mine) / epochs:.1f} stages, median "
            f"{statistics.median(e.ended - e.started for e in mine):.2f} s"
        )
    Console(width=160).print(table)


def _nature(execution: Execution) -> str:
    """Telling operators of the plan and its length."""
    tree = execution.plan.partition("\n\n")[0]
    words = [line.strip(" +-:*()0123456789").split(" ")[0] for line in tree.splitlines()[1:]]
    telling = ("MapInArrow", "ShuffledHashJoin", "Window", "HashAggregate", "SortAggregate", "Sort", "Generate", "Scan")
    counts = {name: sum(name in word for word in words) for name in telling}
    return f"{len(words)} nodes: " + ", ".join(f"{count} {name}" for name, count in counts.items() if count)


if __name__ == "__main__":
    main()
