"""Where an epoch's time goes: ``python -m benchmarks.profile --workload sessions --rows 2000000 --keys 20000``.

Runs our side once and prints, per epoch: wall and CPU seconds; CPU seconds of the JVM's threads by what they do (JIT,
garbage, tasks, and the rest, which is the driver); seconds of compiling Spark's code, how many classes that were, and
of optimising plans; the manifest's timings; then, of the whole run, the dearest rules of the optimiser, and Spark's
jobs in the order of an epoch (stages, running, their tasks, what they shuffle, and the levels that they are).
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
            **dict(setting.partition("=")[::2] for setting in given.conf),
        }
        spark = spark_session("headrace profile", cores=given.cores, conf=conf)
        _run(spark, given, source, root)
        spark.stop()
        (log,) = [path for path in logs.iterdir() if not path.name.startswith(".")]
        _show_jobs(_jobs(json.loads(line) for line in log.open()), given.epochs)


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
class Job:
    """A job of Spark. Times in seconds."""

    number: int
    pool: str
    levels: str
    """The names of its stages, in their order."""
    started: float
    ended: float = 0.0
    stages: int = 0
    busy: float = 0.0
    """Seconds of its tasks, summed."""
    cpu: float = 0.0
    shuffled: int = 0


def _jobs(events: Iterable[Mapping[str, Any]]) -> list[Job]:
    found: dict[int, Job] = {}
    of_stage: dict[int, Job] = {}
    for event in events:
        match event["Event"]:
            case "SparkListenerJobStart":
                stages = sorted(event["Stage Infos"], key=lambda stage: stage["Stage ID"])
                levels = ", ".join(stage["Stage Name"] for stage in stages)
                pool = event["Properties"].get("spark.scheduler.pool", "epoch")
                job = Job(event["Job ID"], pool, levels, event["Submission Time"] / 1e3)
                found[job.number] = job
                of_stage |= dict.fromkeys(event["Stage IDs"], job)
            case "SparkListenerJobEnd":
                found[event["Job ID"]].ended = event["Completion Time"] / 1e3
            case "SparkListenerStageCompleted":
                of_stage[event["Stage Info"]["Stage ID"]].stages += 1
            case "SparkListenerTaskEnd":
                metrics, job = event["Task Metrics"], of_stage[event["Stage ID"]]
                job.busy += metrics["Executor Run Time"] / 1e3
                job.cpu += metrics["Executor CPU Time"] / 1e9
                job.shuffled += metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"]
    return [*found.values()]


def _show_jobs(jobs: list[Job], epochs: int) -> None:
    """Of each pool the jobs of its last two epochs, in their order, and its medians."""
    table = Table(title="Spark's jobs (the last two epochs of each pool)", title_justify="left")
    for name in ["id", "pool", "stages", "run s", "task s", "task cpu s", "shuffle MB", "levels"]:
        table.add_column(name, justify="left" if name in ("pool", "levels") else "right")
    for pool in sorted({job.pool for job in jobs}):
        mine = [job for job in jobs if job.pool == pool]
        a_epoch = len(mine) / epochs
        for job in mine[-round(2 * a_epoch) :]:
            seconds = (job.ended - job.started, job.busy, job.cpu)
            table.add_row(
                str(job.number),
                pool,
                str(job.stages),
                *(f"{number:.2f}" for number in seconds),
                f"{job.shuffled / 1e6:.1f}",
                job.levels,
            )
        print(
            f"{pool}: {a_epoch:.1f} jobs an epoch, {sum(job.stages for job in mine) / epochs:.1f} stages, median "
            f"{statistics.median(job.ended - job.started for job in mine):.2f} s"
        )
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
