"""What a run and a look cost on a root on which many tiny runs were made, and nothing expired.

``python -m benchmarks.long_run --at 100 500 1500 --names any|ordered``: each run finds a new JSON file of twelve rows
of a few keys, in one process, on ``local``. After each number of runs the next twenty are measured, and looks that
begin without a cache: CPU milliseconds (medians), requests to the store, bytes of the newest manifest.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import headrace as hr

ROWS, RUNS, LOOKS = 12, 20, 5
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--at", type=int, nargs="+", default=[100, 500, 1500])
    parser.add_argument("--keys", type=int, default=6)
    parser.add_argument("--names", choices=["any", "ordered"], default="any", help="whether names of files ascend")
    parser.add_argument("--folder", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        for line in measured(Path(folder), given.at, given.keys, given.names):
            print(json.dumps(line), flush=True)


def measured(folder: Path, at: list[int], keys: int, names: Literal["any", "ordered"]) -> Iterator[dict[str, Any]]:
    """The figures after each number ``at`` of runs on a root in ``folder``."""
    made, number = pipeline(names), 0
    handle = hr.open(folder.as_uri(), create=True)[made]
    for runs in at:
        while number < runs:
            run(handle, folder, number, keys)
            number += 1
        told = []
        for _ in range(RUNS):
            told.append(_cost(lambda: run(handle, folder, number, keys)))  # noqa: B023
            number += 1
        yield {"runs": runs, "manifest": _manifest_bytes(folder), "run": _middle(told), **_looks(folder, made)}


def pipeline(names: Literal["any", "ordered"] = "any") -> hr.Pipeline:
    """Sums by shop and hour."""
    landed = hr.json("landing", {"shop": str, "amount": int, "at": datetime}, names=names)
    return hr.Pipeline(
        "sales",
        landed.event_time("at", bound="10m"),
        key="shop",
        what={"amount": hr.col("amount").sum(), "records": hr.count()},
        where=hr.FixedWindows("1h"),
        when=hr.on_update(),
        how=hr.accumulating("1d"),
        executor="local",
    )


def run(handle: Any, folder: Path, number: int, keys: int) -> None:
    """Land file ``number``, of one minute, and run."""
    landing = folder / "landing"
    landing.mkdir(exist_ok=True)
    at = BEGIN + timedelta(minutes=number)
    rows = ({"shop": f"shop {row % keys}", "amount": number + row, "at": at.isoformat()} for row in range(ROWS))
    (landing / f"{number:08d}.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    handle.run()


def _looks(folder: Path, made: hr.Pipeline) -> dict[str, Mapping[str, float]]:
    one = "shop = 'shop 1'"

    def fresh() -> Any:
        return hr.open(folder.as_uri())[made]

    looks: dict[str, Callable[[], object]] = {
        "read": lambda: fresh().current(where=one).to_arrow(),
        "panes": lambda: fresh().panes(where=one).to_arrow(),
        "explain": lambda: str(fresh().explain("shop 1")),
        "log": lambda: [*fresh().log()],
        "expire": lambda: fresh().expire(dry_run=True),
        "show": lambda: fresh().show("main"),
    }
    return {name: _middle([_cost(look) for _ in range(LOOKS)]) for name, look in looks.items()}


def _cost(what: Callable[[], object]) -> dict[str, float]:
    """CPU milliseconds of this process, and requests to any store."""
    from headrace.ext.stores import RequestCounts

    counted, added = 0, RequestCounts.add

    def add(self: RequestCounts, kind: str) -> None:
        nonlocal counted
        counted += 1
        added(self, kind)

    RequestCounts.add = add  # type: ignore[method-assign]
    try:
        begun = time.process_time()
        what()
        return {"ms": round((time.process_time() - begun) * 1000, 1), "requests": counted}
    finally:
        RequestCounts.add = added  # type: ignore[method-assign]


def _middle(costs: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(cost[name] for cost in costs) for name in costs[0]}


def _manifest_bytes(folder: Path) -> int:
    return max((folder / "sales" / "manifests").iterdir(), key=lambda path: path.stat().st_mtime_ns).stat().st_size


if __name__ == "__main__":
    main()
