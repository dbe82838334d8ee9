"""``make figures``, second part: figures 6 and 7 of the paper on asynchronous barrier snapshots, from the simulator.

``docs/figures/abs_simulated.json`` has the numbers, from which the pictures and the page are made; beside them stand
those of the real engine (``abs_measured.json``, by ``make bench-abs``) once it was measured.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from scripts.abs_evaluation import (
    COSTS,
    FAN_OUT,
    INTERVAL,
    LARGE,
    NODES_OF_INTERVALS,
    RECORDS_OF_A_NODE,
    evaluate_runs,
    runs,
)

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "figures"
SIMULATED_FILE, MEASURED_FILE, PAGE = "abs_simulated.json", "abs_measured.json", "snapshots.md"
PICTURES = ("abs_figure_06.svg", "abs_figure_07.svg", "abs_more_nodes.svg")

Numbers = Mapping[str, Sequence[Mapping[str, Any]]]

_INK, _GREY = "#1f2933", "#8a94a0"
_COLORS = {"none": _GREY, "aligned": "#2f5f98", "synchronous": "#c9781a"}
_NAMES = {"none": "without snapshots", "aligned": "ABS", "synchronous": "synchronous"}
_FONT = "DejaVu Sans"  # matplotlib brings it, so the layout is the same on every machine


def pictures(numbers: Numbers) -> dict[str, str]:
    """The pictures by file, as SVG."""
    return {
        PICTURES[0]: _svg("Figure 6: run time against the interval of snapshots", _intervals, numbers["intervals"]),
        PICTURES[1]: _svg("Figure 7: run time against nodes", _nodes, numbers["nodes"]),
        PICTURES[2]: _svg("On to 10,000 nodes: as much work for each node", _more_nodes, numbers["more_nodes"]),
    }


def _svg(title: str, draw: Any, runs: Sequence[Mapping[str, Any]]) -> str:
    document = StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "headrace", "font.family": _FONT}):
        figure = Figure(figsize=(7, 4), facecolor="white", layout="constrained")
        axes = figure.add_subplot()
        axes.set_title(title, color=_INK, fontsize=12, fontweight="bold", loc="left")
        axes.set_ylabel("seconds until the last record", color=_INK)
        axes.grid(color="#e6e9ed", linewidth=0.8)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        draw(axes, runs)
        axes.legend(frameon=False)
        figure.savefig(document, format="svg", metadata={"Title": title, "Date": None, "Creator": None})
    return document.getvalue().replace(f"'{_FONT}'", "Helvetica, Arial, sans-serif")


def _intervals(axes: Axes, runs: Sequence[Mapping[str, Any]]) -> None:
    _line(axes, "none", [(run["interval"], runs[0]["seconds"]) for run in runs if run["protocol"] == "aligned"])
    for protocol in ("aligned", "synchronous"):
        _line(axes, protocol, [(run["interval"], run["seconds"]) for run in runs if run["protocol"] == protocol])
    axes.set_xlabel("seconds between snapshots", color=_INK)
    axes.set_ylim(bottom=0)


def _nodes(axes: Axes, runs: Sequence[Mapping[str, Any]]) -> None:
    _by_nodes(axes, runs)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(_plain))
    axes.yaxis.set_minor_formatter(NullFormatter())
    seconds = sorted({round(run["seconds"]) for run in runs if run["protocol"] == "none"})
    axes.set_yticks(seconds)


def _more_nodes(axes: Axes, runs: Sequence[Mapping[str, Any]]) -> None:
    _by_nodes(axes, runs)
    axes.set_ylim(0, 1.3 * max(run["seconds"] for run in runs))


def _by_nodes(axes: Axes, runs: Sequence[Mapping[str, Any]]) -> None:
    for protocol in ("none", "aligned"):
        _line(axes, protocol, [(run["nodes"], run["seconds"]) for run in runs if run["protocol"] == protocol])
    axes.set_xscale("log")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(_plain))
    axes.set_xticks(sorted({run["nodes"] for run in runs}))
    axes.set_xlabel("nodes, with six tasks each", color=_INK)


def _line(axes: Axes, protocol: str, points: Sequence[tuple[float, float]]) -> None:
    dashes = (0, (4, 2)) if protocol == "none" else "-"
    axes.plot(*zip(*points, strict=True), marker="o", color=_COLORS[protocol], label=_NAMES[protocol], linestyle=dashes)


def _plain(value: float, place: int | None) -> str:
    del place
    return f"{value:,.0f}"


# The page


def page(numbers: Numbers, engine_figures: Mapping[str, Any] | None) -> str:
    """The page as Markdown."""
    tables = {
        "intervals": "\n".join(_interval_rows(numbers["intervals"])),
        "nodes": "\n".join(_node_rows(numbers["nodes"])),
        "more_nodes": "\n".join(_node_rows(numbers["more_nodes"])),
        "engine": "\n".join(_engine(engine_figures)),
    }
    return _PAGE.format(
        costs="\n".join(_cost_rows()),
        nodes_of_intervals=NODES_OF_INTERVALS,
        interval=INTERVAL,
        fan_out=FAN_OUT,
        share=f"{RECORDS_OF_A_NODE / 1e6:.0f}",
        coarser=LARGE.batch // COSTS.batch,
        **{f"{name}_table": table for name, table in tables.items()},
    )


def _cost_rows() -> Iterator[str]:
    yield "| what | takes |\n|---|---|"
    yield f"| a source reads {COSTS.batch:,} records, which go through the graph as one | {_ms(COSTS.read)} |"
    yield f"| any other task works on them | {_ms(COSTS.work)} |"
    yield f"| a record or a barrier goes through a channel: a random time, on average | {_ms(COSTS.channel)} |"
    yield f"| a message between a task and the coordinator: on average | {_ms(COSTS.channel // 2)} |"
    yield f"| a task stops and copies its state in memory: its part of a snapshot | {_ms(COSTS.copy)} |"
    yield f"| the part is stored | {_ms(COSTS.store)} |"


def _ms(microseconds: int) -> str:
    return f"{microseconds / 1000:,.0f} ms"


def _interval_rows(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    base = runs[0]["seconds"]
    runs_by_settings = {(run["protocol"], run["interval"]): run for run in runs[1:]}
    yield "| interval | ABS | over | snapshots | synchronous | over | snapshots |\n|---|---|---|---|---|---|---|"
    yield f"| none | {base:.1f} s | | | | | |"
    for interval in sorted({run["interval"] for run in runs[1:]}):
        cells = [_cells(runs_by_settings[protocol, interval], base) for protocol in ("aligned", "synchronous")]
        yield f"| {interval} s | {' | '.join(cells)} |"


def _node_rows(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "| nodes | without snapshots | ABS | over | snapshots |\n|---|---|---|---|---|"
    for base, run in zip(runs[::2], runs[1::2], strict=True):
        yield f"| {base['nodes']:,} | {base['seconds']:.1f} s | {_cells(run, base['seconds'])} |"


def _cells(run: Mapping[str, Any], base: float) -> str:
    return f"{run['seconds']:.1f} s | {_overhead(run['seconds'], base)} | {run['snapshots']}"


def _overhead(seconds: float, base: float) -> str:
    return f"{round(100 * (seconds / base - 1), 1) + 0.0:.1f} %"  # + 0.0: no minus before a zero


def _engine(engine_figures: Mapping[str, Any] | None) -> Iterator[str]:
    if engine_figures is None:
        yield "Not measured here yet: `make bench-abs` does, and writes the numbers where this page finds them."
        return
    yield (
        f"{engine_figures['rows']:,} rows of {engine_figures['keys']:,} keys "
        f"on the executor `{engine_figures['executor']}`, "
        f"{engine_figures['machine']['cores']} cores:\n"
    )
    yield "| snapshots | seconds | over | CPU seconds | over | a snapshot every |\n|---|---|---|---|---|---|"
    first = engine_figures["runs"][0]
    for run in engine_figures["runs"]:
        cells = [f"{run[name]:.1f} | {_overhead(run[name], first[name])}" for name in ("seconds", "cpu_seconds")]
        yield f"| {run['epochs']} | {' | '.join(cells)} | {run['seconds'] / run['epochs']:.1f} s |"


_PAGE = """# What snapshots cost

<!-- Made by `make figures` (scripts/abs_figures.py). -->

The paper *Lightweight Asynchronous Snapshots for Distributed Dataflows* (Carbone et al., arXiv:1506.08603), section 7,
measures what snapshots cost while a job runs. It compares two kinds of snapshots. Synchronous snapshots stop all tasks.
Asynchronous barrier snapshots (ABS) do not. This page has figures 6 and 7 of the paper again, computed by a simulator
with [our protocol](../protocol.md).

The job is that of figure 5 of the paper. It has six operators with a task on every node, three full shuffles between
them, and a billion records. The simulator computes a run event by event, with the tasks and the coordinator of the
protocol. A seed decides everything random, and time is simulated. So the same code gives the same numbers everywhere.
The steps of the job take these times:

{costs}

The sources limit the speed of the job. Other tasks are idle for a tenth of their time. Several ABS snapshots may be
under way at once, but only one synchronous snapshot.

In all tables, *over* is the additional time against the run without snapshots.

## Figure 6: the interval

Run time on {nodes_of_intervals} nodes, by the interval at which snapshots begin.

![Run time of ABS hardly grows, that of synchronous snapshots doubles at short intervals](abs_figure_06.svg)

{intervals_table}

A synchronous snapshot stops all tasks until everything is stored, here for a little more than a second. Each snapshot
costs the same, so shorter intervals cost more. If a snapshot is not done when the next one is due, the job stands still
half of its time. With ABS a task stops only to copy its state. It holds back an input only until the barrier has come
on its other inputs. It stores its part while it works. So the curve of ABS is flat. The curves of the paper have the
same shape.

## Figure 7: nodes

The same billion records on 5 to 40 nodes, with a snapshot every {interval} s.

![Run time halves with twice the nodes, with ABS as without snapshots](abs_figure_07.svg)

{nodes_table}

Both lines fall alike: snapshots do not hinder scaling.

## On to 10,000 nodes

With more nodes than in the paper, a billion records would be done before the first snapshot. So here each node has the
same work, {share} million records. A flat line is perfect. Three more things differ:

- In a shuffle a task sends to {fan_out} others. A full shuffle of 10,000 tasks would have a hundred million channels.
- A simulated batch is {coarser} times as large as above. There are few batches, and they are not spread evenly.
- So all tasks, sources too, are idle for half of their time. In this time they make up for a stop.

The question is whether barriers that wait for each other across 60,000 tasks delay the job. They do not.

![Run time stays the same up to 60,000 tasks](abs_more_nodes.svg)

{more_nodes_table}

## The real engine

In Headrace each epoch ends in a snapshot. `make bench-abs` measures what that costs. A job has three shuffles and
aggregates by key. First it runs as one epoch, with one snapshot at its end. Then the same records are cut into more and
more epochs.

{engine_table}

Snapshots are only a part of the additional time. In each of three aggregations, an epoch looks up and updates every key
that it has rows of. It also withdraws the old value of the key from the next aggregation. More epochs do this more
often. `python -m benchmarks.snapshots --workload shuffles` runs the same epochs with snapshots and without.
`benchmarks/README.md` has the result.
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """``python -m scripts.abs_figures [--draw-only] [--processes N] [--out FOLDER]``."""
    parser = argparse.ArgumentParser(description="Simulate and draw figures 6 and 7 of the ABS paper.")
    parser.add_argument("--draw-only", action="store_true", help="from the numbers that are there")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=FOLDER, help="default: docs/figures")
    options = parser.parse_args(arguments)
    if not options.draw_only:
        _simulate(options.out / SIMULATED_FILE, options.processes)
    draw(options.out)
    print(f"{len(PICTURES)} figures and {PAGE} in {options.out}")


def _simulate(file: Path, processes: int) -> None:
    runs_by_figure = runs()
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in runs_by_figure}
    for name, measure in evaluate_runs(runs_by_figure, processes):
        print(f"{name}: {measure}", file=sys.stderr, flush=True)
        results[name].append(measure.to_json())
    lines = [f'  "{name}": [\n    {_format_runs(some)}\n  ]' for name, some in results.items()]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _format_runs(runs: Sequence[Mapping[str, Any]]) -> str:
    return ",\n    ".join(map(json.dumps, runs))


def draw(folder: Path) -> None:
    """Pictures and page of the numbers in ``folder``."""
    numbers: Numbers = json.loads((folder / SIMULATED_FILE).read_text(encoding="utf-8"))
    measured_file = folder / MEASURED_FILE
    engine = json.loads(measured_file.read_text(encoding="utf-8")) if measured_file.is_file() else None
    for name, picture in pictures(numbers).items():
        (folder / name).write_text(picture, encoding="utf-8")
    (folder / PAGE).write_text(page(numbers, engine), encoding="utf-8")


if __name__ == "__main__":
    main()
