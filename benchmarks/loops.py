"""Connected components by a loop, epoch after epoch, against computing all of it again each time.

``python -m benchmarks.loops --graph sparse|skewed|grid --edges 5000000 --new 50000 --epochs 5``. Edges are drawn, all
but the last of them land at once, and then ``--new`` an epoch in Parquet files; a last file has none that counts. On
the executor ``local`` the time is CPU of this process between two commits, reading and storing included; on ``spark``,
which has processes of its own, it is what passes between them. There are two peers over all edges so far, both in CPU.
*Again* is one call of scipy's, of edges in memory whose vertices are numbered already: nothing is read or stored. *As a
job* is what somebody schedules who has no loop: read all files, number the vertices, the same call, store the label of
each. Labels are compared after the last epoch.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from rich.console import Console

import headrace as hr
from benchmarks.comparison import FOLDER, workplace
from headrace import col
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from headrace.runs.reporting.listener import Silent
from headrace_snapshots.format.manifest import Manifest

Edges = NDArray[np.int64]
"""Two columns: the ends of each edge."""

SEED = 7
AT = datetime(2026, 1, 1, tzinfo=UTC)
PER_VERTEX = 2
"""Edges of a sparse or a skewed graph for each vertex, about."""


def drawn(graph: str, number: int) -> Edges:
    """So many edges of a graph, in the order in which they come."""
    rolled = np.random.default_rng(SEED)
    vertices = max(number // PER_VERTEX, 2)
    match graph:
        case "sparse":
            return rolled.integers(0, vertices, (number, 2))
        case "skewed":
            hubs = np.minimum(vertices * rolled.random(number) ** 4, vertices - 1).astype(np.int64)
            return np.stack([hubs, rolled.integers(0, vertices, number)], axis=1)
    side = int(np.sqrt(number / 2)) + 1
    places = np.arange(side * side, dtype=np.int64)
    across = places[places % side < side - 1]
    down = places[places < side * (side - 1)]
    edges = np.concatenate([np.stack([across, across + 1], axis=1), np.stack([down, down + side], axis=1)])
    numbers = rolled.permutation(places)  # numbered row by row, each round would make every vertex better
    return numbers[rolled.permutation(edges)[:number]]


def pipeline(landing: Path) -> hr.Pipeline:
    """The least vertex that can be reached, of each."""
    schema = {"a": int, "b": int, "at": datetime}
    source = hr.parquet(landing.as_uri(), schema, max_files=1, max_bytes=2**40)
    return hr.Pipeline(
        "components",
        source.event_time("at", bound="1h"),
        key=["a", "b"],
        filter=col("a") >= 0,
        loop=hr.Loop(start=col("vertex"), step=col("value"), combine="least", both_ways=True, rounds=None),
        where=hr.GlobalWindows(),
        when=hr.Repeatedly(hr.AfterCount(1)),
        how=hr.accumulating(),
    )


def land(landing: Path, number: int, edges: Edges) -> None:
    """A file of edges."""
    landing.mkdir(parents=True, exist_ok=True)
    at = pa.repeat(pa.scalar(AT, pa.timestamp("us", "UTC")), len(edges))
    pq.write_table(pa.table({"a": edges[:, 0], "b": edges[:, 1], "at": at}), landing / f"{number:04}.parquet")


@dataclass
class Clock(Silent):
    """Seconds at each commit, by what ``reads`` them."""

    reads: Callable[[], float]
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.seconds.append(self.reads())

    def committed(self, manifest: Manifest) -> None:
        """Called for each snapshot."""
        del manifest
        self.seconds.append(self.reads())


CLOCKS: Mapping[str, Callable[[], float]] = {"local": time.process_time, "spark": time.monotonic}
"""What time of each executor counts."""


def again(edges: Edges) -> tuple[float, NDArray[np.int64]]:
    """CPU seconds of all components of ``edges``, and the least vertex that each vertex can reach."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    size = int(edges.max()) + 1
    began = time.process_time()
    matrix = coo_matrix((np.ones(len(edges), np.int8), (edges[:, 0], edges[:, 1])), shape=(size, size))
    _, labels = connected_components(matrix, directed=False)
    seconds = time.process_time() - began
    least = np.full(labels.max() + 1, size)
    np.minimum.at(least, labels, np.arange(size))
    return seconds, least[labels]


def as_a_job(landing: Path, files: int, to: Path) -> float:
    """CPU seconds of all components of the first ``files``, read, and of storing the least vertex that each reaches."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    began = time.process_time()
    names = [landing / f"{number:04}.parquet" for number in range(files)]
    read = pa.concat_tables(pq.read_table(name, columns=["a", "b"]) for name in names)
    ends = pa.chunked_array([*read.column("a").chunks, *read.column("b").chunks]).combine_chunks().dictionary_encode()
    vertices, (a, b) = ends.dictionary.to_numpy(), np.split(ends.indices.to_numpy(), 2)
    matrix = coo_matrix((np.ones(len(a), np.int8), (a, b)), shape=(len(vertices), len(vertices)))
    count, labels = connected_components(matrix, directed=False)
    least = np.full(count, vertices.max())
    np.minimum.at(least, labels, vertices)
    pq.write_table(pa.table({"vertex": vertices, "value": least[labels]}), to, compression="zstd")
    return time.process_time() - began


@dataclass(frozen=True)
class Trial:
    """A graph of so many ``edges``, the last of which come in ``epochs`` of ``new`` ones each."""

    executor: str
    graph: str
    edges: int
    new: int
    epochs: int


def measured(trial: Trial, work: Path) -> dict[str, Any]:
    """Milliseconds of an epoch with new edges, of one without, and of the peers."""
    new, epochs = trial.new, trial.epochs
    every = drawn(trial.graph, trial.edges)
    landing, root = work / "landing", (work / "root").as_uri()
    cuts = [*range(len(every) - epochs * new, len(every) + 1, new)]
    land(landing, 0, every[: cuts[0]])
    for number, (begin, end) in enumerate(pairwise(cuts), 1):
        land(landing, number, every[begin:end])
    land(landing, epochs + 1, np.full((1, 2), -1))
    made, clock = pipeline(landing), Clock(CLOCKS[trial.executor])
    process(made, root, RunOptions("measured", executor=trial.executor, files_per_epoch=1), listener=clock)
    first, *later, empty = (1000 * float(took) for took in np.diff(clock.seconds))
    peer = [again(every[:cut])[0] * 1000 for cut in cuts[1:]]
    jobs = [as_a_job(landing, files, work / "labels.parquet") * 1000 for files in range(2, epochs + 2)]
    _, labels = again(every)
    rows = hr.open(root)["components"].current(at="main").to_arrow()
    vertices = rows.column("vertex").to_numpy()
    is_right = labels[vertices] == rows.column("value").to_numpy()
    agrees = bool(is_right.all()) and len(vertices) == len(np.unique(every))
    ours, theirs, job = statistics.median(later), statistics.median(peer), statistics.median(jobs)
    return {
        **asdict(trial),
        "begin_ms": round(first),
        "epoch_ms": round(ours, 1),
        "epochs_ms": [round(took, 1) for took in later],
        "empty_ms": round(empty, 1),
        "again_ms": round(theirs, 1),
        "ratio": round(theirs / ours, 2),
        "job_ms": round(job, 1),
        "job_ratio": round(job / ours, 2),
        "agrees": agrees,
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", nargs="+", choices=["sparse", "skewed", "grid"], default=["sparse"])
    parser.add_argument("--edges", nargs="+", type=int, default=[1_000_000])
    parser.add_argument("--new", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--executor", choices=[*CLOCKS], default="local")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--format", choices=["text", "json"], default="text")
    given, _ = parser.parse_known_args()
    results = []
    for graph in given.graph:
        for edges in given.edges:
            with workplace(given.folder) as work:
                results.append(measured(Trial(given.executor, graph, edges, given.new, given.epochs), work))
            if given.format == "text":
                Console().print_json(json.dumps(results[-1]))
    if given.format == "json":
        print(json.dumps({"results": results}))
    if not all(result["agrees"] for result in results):
        raise SystemExit("the results differ")


if __name__ == "__main__":
    main()
