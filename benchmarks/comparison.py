"""Both sides in turn, each run in a process of its own: the figures, whether the results agree, the machine."""

import contextlib
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import duckdb
import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.engines import interpreter, settings
from benchmarks.memory import watched
from benchmarks.runs import Measured, Results, Run
from benchmarks.workloads import RESULTS, Side, Workload

FOLDER = Path(tempfile.gettempdir()) / "headrace-benchmarks"
"""Generated data and the folders of runs, unless ``--folder`` names another place."""

RATIOS = (
    "ratio",
    "cpu_ratio",
    "process_ratio",
    "process_cpu_ratio",
    "epoch_ratio",
    "first_commit_ratio",
    "memory_ratio",
)


@dataclass(frozen=True)
class Comparison:
    """Runs of both sides, in pairs, and what the last pair agreed on."""

    ours: Sequence[Measured]
    peer: Sequence[Measured]
    agreement: Mapping[str, Any]
    loads: Sequence[float] = field(default_factory=list)

    def to_json(self, rows: int) -> dict[str, Any]:
        """The figures; ``rows`` were measured in each run. A ratio is None where a side has no such figure."""
        pairs = list(zip(self.ours, self.peer, strict=True))

        def ratio(figure: Callable[[Measured], float | None]) -> dict[str, float] | None:
            return ratios([(figure(ours), figure(peer)) for ours, peer in pairs])

        return {
            "ours": _figures(self.ours, rows),
            "peer": _figures(self.peer, rows),
            "ratio": ratio(lambda run: run.wall_seconds),
            "cpu_ratio": ratio(lambda run: run.cpu_seconds),
            "process_ratio": ratio(lambda run: run.process_seconds),
            "process_cpu_ratio": ratio(lambda run: run.process_cpu_seconds),
            "epoch_ratio": ratio(_warm),
            "first_commit_ratio": ratio(lambda run: run.first_commit_seconds),
            "memory_ratio": ratio(lambda run: run.peak_memory_bytes),
            "agrees": self.agreement["agrees"],
            "compared": self.agreement,
            "load_averages": [round(load, 2) for load in self.loads],
        }


def compare(ours: Run, against: Side, repeats: int, work: Path) -> Comparison:
    """Run ours, the peer, ours, the peer ... and hold the results of every pair against each other.

    Raises SystemExit when a run fails.
    """
    found: dict[Side, list[Measured]] = {Side.OURS: [], against: []}
    loads = []
    agreement: Mapping[str, Any] = {}
    for repeat in range(repeats):
        folders = {side: work / f"{side}-{repeat}" for side in found}
        for side, folder in folders.items():
            loads.append(os.getloadavg()[0])
            found[side].append(measured(replace(ours, side=side, work=folder)))
            last = found[side][-1]
            print(f"{side} {repeat + 1}/{repeats}: {last.wall_seconds:.1f} s", file=sys.stderr, flush=True)
        agreement = agree(ours.workload, found[Side.OURS][-1].results, found[against][-1].results)
        for folder in folders.values():
            shutil.rmtree(folder, ignore_errors=True)  # a JVM that ends may be clearing up its own
        if not agreement["agrees"]:
            break
    return Comparison(found[Side.OURS], found[against], agreement, loads)


def measured(run: Run) -> Measured:
    """Run it in a new process. Raises SystemExit with the end of its log when it fails."""
    run.work.mkdir(parents=True, exist_ok=True)
    asked, answer, log = (run.work / name for name in ("run.json", "measured.json", "log.txt"))
    answer.unlink(missing_ok=True)
    command = [interpreter(run.side), "-m", "benchmarks.child", str(asked), str(answer)]
    environment = {**os.environ, **settings(run.side), "HEADRACE_CACHE": str(run.cache)}
    asked.write_text(replace(run, launched=time.time()).to_json())
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output, env=environment) as process,
        ended(process),
    ):
        peak = watched(process)
    if process.returncode or not answer.is_file():
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        raise SystemExit(f"{tail}\nthe run of {run.side} failed with exit code {process.returncode}")
    return replace(Measured.from_json(answer.read_text()), peak_memory_bytes=peak)


@contextlib.contextmanager
def ended(process: "subprocess.Popen[Any]") -> Iterator[None]:
    """An error inside ends the process."""
    try:
        yield
    except BaseException:
        process.kill()
        raise


@contextlib.contextmanager
def workplace(folder: Path) -> Iterator[Path]:
    """A new folder for runs below ``folder``, gone afterwards."""
    # a run that is told to end takes its process and its folder along
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix="run-", dir=folder))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def agree(workload: Workload, ours: Results, peer: Results) -> dict[str, Any]:
    """Whether the final results are the same, row by row, up to where both have final ones."""
    columns = RESULTS[workload]
    cuts = [cut for cut in (ours.cut, peer.cut) if cut is not None]
    where = f"where epoch_us(window_end) <= {min(cuts)}" if cuts else ""
    values = [name for name in columns if not name.startswith("window_")]
    plain = ", ".join(f"epoch_us({name})" if name.startswith("window_") else f'"{name}"::bigint' for name in columns)
    sums = ", ".join(f'sum("{name}")::varchar' for name in values)
    found = []
    for side in (ours, peer):
        with duckdb.connect() as connection:
            connection.execute("set timezone = 'UTC'")
            sql = f"select count(*), {sums}, bit_xor(hash({plain}))::varchar from ({side.rows_sql}) {where}"
            found.append(connection.execute(sql).fetchall()[0])
    names = ["results", *(f"sum_of_{name}" for name in values), "digest"]
    return {
        "agrees": found[0] == found[1] and found[0][0] > 0,
        "columns": list(columns),
        "up_to_window_end_us": min(cuts) if cuts else None,
        "ours": dict(zip(names, found[0], strict=True)),
        "peer": dict(zip(names, found[1], strict=True)),
    }


def machine(cores: int, memory: str) -> dict[str, Any]:
    """Where the figures were measured, and with what."""
    model = platform.processor()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return {
        "processor": model,
        "machine_cores": os.cpu_count(),
        "cores": cores,
        "driver_memory": memory,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
        "pyspark": metadata.version("pyspark"),
        "system": platform.platform(),
    }


def _warm(run: Measured) -> float:
    """The median epoch, without the first, in which code is still being compiled."""
    return statistics.median(run.epoch_seconds[1:] or run.epoch_seconds)


def _figures(runs: Sequence[Measured], rows: int) -> dict[str, Any]:
    def each(figure: Callable[[Measured], float]) -> list[float]:
        return [round(figure(run), 3) for run in runs]

    wall = each(lambda run: run.wall_seconds)
    return {
        "wall_seconds": wall,
        "cpu_seconds": each(lambda run: run.cpu_seconds),
        "process_seconds": each(lambda run: run.process_seconds),
        "process_cpu_seconds": each(lambda run: run.process_cpu_seconds),
        "start_seconds": each(lambda run: run.start_seconds),
        "first_commit_seconds": _known([run.first_commit_seconds for run in runs]),
        "peak_memory_bytes": [run.peak_memory_bytes for run in runs],
        "first_epoch_seconds": each(lambda run: run.epoch_seconds[0]),
        "epoch_seconds": each(_warm),
        "median_epoch_seconds": round(statistics.median(_warm(run) for run in runs), 3),
        "epochs": [[round(seconds, 3) for seconds in run.epoch_seconds] for run in runs],
        "median_wall_seconds": round(statistics.median(wall), 3),
        "rows_per_second": round(rows / statistics.median(wall)),
        "stages_of_epochs": _stages(runs),
        "extra": [dict(run.extra) for run in runs],
    }


def _stages(runs: Sequence[Measured]) -> dict[str, float]:
    """Medians over the warm epochs of the seconds that the side tells of its stages."""
    warm = [epoch for run in runs for epoch in (run.details[1:] or run.details)]
    names = sorted({name for epoch in warm for name, value in epoch.items() if isinstance(value, int | float)})
    return {name: round(statistics.median(epoch.get(name, 0) for epoch in warm), 3) for name in names}


def _known(seconds: Sequence[float | None]) -> list[float]:
    """Those that there are."""
    return [round(value, 3) for value in seconds if value is not None]


def ratios(pairs: Sequence[tuple[float | None, float | None]]) -> dict[str, float] | None:
    """Peer over ours of pairs (ours, peer); None unless all of them are known."""
    found = [peer / ours for ours, peer in pairs if ours and peer]
    if len(found) < len(pairs):
        return None
    return {"median": round(statistics.median(found), 3), "min": round(min(found), 3), "max": round(max(found), 3)}


def told(ratio: Mapping[str, float] | None) -> str:
    """A ratio for people."""
    return "-" if ratio is None else f"{ratio['median']:.2f}x ({ratio['min']:.2f} to {ratio['max']:.2f})"


def show(title: str, found: Sequence[Mapping[str, Any]], label: Callable[[Mapping[str, Any]], str]) -> None:
    """A small table on standard output."""
    table = Table(title=title, title_justify="left")
    table.add_column("run")
    for name in ("wall s", "cpu s", "process s", "its cpu s", "warm epoch s", "to first commit s", "peak MB", "rows/s"):
        table.add_column(name, justify="right")
    for entry in found:
        for side in ("ours", "peer"):
            figures = entry[side]
            table.add_row(
                f"{label(entry)} {side if side == 'ours' else entry['against']}",
                f"{figures['median_wall_seconds']:.2f}",
                f"{statistics.median(figures['cpu_seconds']):.2f}",
                f"{statistics.median(figures['process_seconds']):.2f}",
                f"{statistics.median(figures['process_cpu_seconds']):.2f}",
                f"{statistics.median(figures['epoch_seconds']):.2f}",
                f"{statistics.median(commits):.2f}" if (commits := figures["first_commit_seconds"]) else "-",
                f"{peak / 1e6:,.0f}" if (peak := statistics.median(figures["peak_memory_bytes"])) else "-",
                f"{figures['rows_per_second']:,}",
            )
        shown = [told(entry[name]) for name in RATIOS]
        verdict = "agrees" if entry["agrees"] else "DISAGREES"
        table.add_row(f"{label(entry)} peer / ours", *shown, verdict, style="bold", end_section=True)
    Console(width=220).print(table)
