"""How CPU grows with rows, keys, epochs, files, pipelines, and files of one folder: five points of each, drawn.

``python -m benchmarks.curves rows keys ... --repeats 3``: a point is CPU seconds (user and system, children's too) of a
process of its own on ``local``; the curves named are measured again, and all are drawn as SVG beside their numbers in
``docs/figures`` (``--draw-only``: nothing is measured). The dashed line is what growing as the axis does would be, from
the middle point on. Imports and starts are left out, but for Airflow's parsing, where they are what is paid.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from statistics import median
from typing import Any, Final

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, NullFormatter, StrMethodFormatter

from benchmarks import data, parsing, small_files
from benchmarks.comparison import machine, measured, workplace
from benchmarks.runs import Measured, Run
from benchmarks.throughput import common_arguments
from benchmarks.workloads import Side, Workload

FOLDER: Final = Path(__file__).resolve().parents[1] / "docs" / "figures"
NUMBERS, PICTURE = "curves.json", "curves.svg"
ROWS, KEYS, FILES = 2_000_000, 20_000, 80
CHANGED, EPOCHS = 20_000, 6
NEW = 100

_INK, _GREY, _BLUE = "#1f2933", "#8a94a0", "#2f5f98"


@dataclass(frozen=True)
class Curve:
    """``measure`` gives CPU seconds at a point; ``of`` says of what they are."""

    of: str
    axis: str
    at: Sequence[int]
    measure: Callable[[int, argparse.Namespace], float]


def rows(number: int, given: argparse.Namespace) -> float:
    """A drain of so many rows in ten epochs."""
    files = data.events(given.folder / "data", data.Events(number, KEYS, 10))
    return _drain(files, given).cpu_seconds


def keys(number: int, given: argparse.Namespace) -> float:
    """An epoch that changes a few of so many live keys."""
    files = data.touches(given.folder / "data", data.Touches(number, CHANGED, EPOCHS))
    everyone = data.everyone(given.folder / "data", number)
    return _drain(files, given, workload=Workload.LIVE_KEYS, prepare=everyone).cpu_seconds / EPOCHS


def epochs(number: int, given: argparse.Namespace) -> float:
    """A drain of the same rows in so many epochs."""
    files = data.events(given.folder / "data", data.Events(ROWS, KEYS, FILES))
    return _drain(files, given, files_per_epoch=FILES // number).cpu_seconds


def files(number: int, given: argparse.Namespace) -> float:
    """A drain of so many JSON files of 1 KB that landed at once."""
    return small_files.side_run(Side.OURS, small_files.landed(given.folder, number), given).cpu_seconds


def pipelines(number: int, given: argparse.Namespace) -> float:
    """Airflow's parsing of so many pipelines, from one file."""
    with workplace(given.folder) as work:
        parsing.write_pipelines(work / "pipelines", number)
        parsing.write_files(work / "dags", 1)
        return sum(parsing.beyond(file) for file in parsing.measured(work)["files"].values())


def folder(number: int, given: argparse.Namespace) -> float:
    """A look for new files in a folder with so many that were read."""
    asked = ["--names", str(number), "--new", str(NEW), "--stores", "local", "--folder", str(given.folder)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.names", *asked], check=True, stdout=subprocess.PIPE, text=True
    )
    looks = {look["how"]: look for look in map(json.loads, done.stdout.splitlines())}
    return float(looks["any"]["cpu_seconds"])


CURVES: Final[Mapping[str, Curve]] = {
    "rows": Curve("a drain in ten epochs", "rows", (1_000_000, 2_000_000, 4_000_000, 8_000_000, 16_000_000), rows),
    "keys": Curve(
        "an epoch of 20,000 changes", "live keys", (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000), keys
    ),
    "epochs": Curve("two million rows", "epochs", (5, 10, 20, 40, 80), epochs),
    "files": Curve("a drain of files of 1 KB", "files landed at once", (100, 300, 1_000, 3_000, 10_000), files),
    "pipelines": Curve("Airflow's parsing", "pipelines", (10, 30, 100, 300, 1_000), pipelines),
    "folder": Curve(
        "a look for 100 new files", "files of the folder, read", (3_000, 10_000, 30_000, 100_000, 300_000), folder
    ),
}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("curves", nargs="*", choices=[[], *CURVES], default=[])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--draw-only", action="store_true")
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.set_defaults(executor="local")
    common_arguments(parser)
    given = parser.parse_args()
    numbers = json.loads((given.out / NUMBERS).read_text()) if (given.out / NUMBERS).is_file() else {}
    for name in () if given.draw_only else given.curves or CURVES:
        numbers[name] = {
            "date": datetime.now(UTC).date().isoformat(),
            "machine": machine(given.cores, given.memory),
            "points": _points(CURVES[name], given),
        }
        (given.out / NUMBERS).write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    (given.out / PICTURE).write_text(picture(numbers), encoding="utf-8")


def picture(numbers: Mapping[str, Any]) -> str:
    """All curves that were measured, as SVG."""
    document = StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "headrace", "font.family": "DejaVu Sans"}):
        figure = Figure(figsize=(11, 6.5), facecolor="white", layout="constrained")
        for place, (name, curve) in enumerate(CURVES.items()):
            if name in numbers:
                _draw(figure.add_subplot(2, 3, place + 1), curve, numbers[name]["points"])
        figure.supylabel("CPU seconds", color=_INK)
        figure.savefig(document, format="svg", metadata={"Title": "Curves", "Date": None, "Creator": None})
    return document.getvalue().replace("'DejaVu Sans'", "Helvetica, Arial, sans-serif")


def _points(curve: Curve, given: argparse.Namespace) -> list[dict[str, Any]]:
    found: dict[int, list[float]] = {number: [] for number in curve.at}
    for _ in range(given.repeats):
        for number, seconds in found.items():
            seconds.append(round(curve.measure(number, given), 3))
            print(f"{curve.axis} {number:,}: {seconds[-1]:.3f} s of CPU", file=sys.stderr, flush=True)
    return [{"at": number, "cpu_seconds": seconds} for number, seconds in found.items()]


def _drain(source: Path, given: argparse.Namespace, workload: Workload = Workload.TUMBLING, **fields: Any) -> Measured:
    with workplace(given.folder) as work:
        run = Run(Side.OURS, Side.STRUCTURED_STREAMING, workload, source, work, given.cores, given.memory, "local")
        return measured(Run(**{**vars(run), **fields}))


def _draw(axes: Axes, curve: Curve, points: Sequence[Mapping[str, Any]]) -> None:
    at, seconds = [point["at"] for point in points], [median(point["cpu_seconds"]) for point in points]
    middle = len(at) // 2
    axes.loglog(at, seconds, "o-", color=_BLUE, linewidth=2)
    linear = [seconds[middle] * number / at[middle] for number in at[middle:]]
    axes.loglog(at[middle:], linear, "--", color=_GREY, linewidth=1)
    axes.set_title(curve.of, color=_INK, fontsize=11, loc="left")
    axes.set_xlabel(curve.axis, color=_INK)
    axes.set_xticks(at)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_formatter(NullFormatter())
    axes.set_ylim(min(seconds) / 2, max(*seconds, *linear) * 2)
    axes.grid(color="#e6e9ed", linewidth=0.8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


if __name__ == "__main__":
    main()
