"""What seals of landed ranges cost: runs that land what a source has, in pairs, with seals and without.

``python -m benchmarks.seals --runs 7 --messages 20000 --stores local minio``: each run lands new messages of the outbox
of ``tests/additions/outside``, in files of 1,000. Without, what a seal says is in memory alone: nothing is stored, read
or digested for it.
"""

import argparse
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import headrace as hr
from benchmarks.traffic import BUCKET, minio
from headrace.sources.landed.ranges import LandingPlace, RangeSeal, SealedFile
from headrace_snapshots.store import RequestCounts
from tests.distributions import write_distribution

OUTSIDE = Path(__file__).resolve().parents[1] / "tests" / "additions" / "outside"
_COLUMNS = {"number": int, "text": str, "at": datetime}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--stores", nargs="+", choices=["local", "minio"], default=["local", "minio"])
    parser.add_argument("--folder", type=Path, default=None)
    given = parser.parse_args()
    for kind in given.stores:
        with tempfile.TemporaryDirectory(dir=given.folder) as name, ExitStack() as until:
            folder = Path(name)
            write_distribution((OUTSIDE / "pyproject.toml").read_text(), folder / "site")
            sys.path[:0] = [str(OUTSIDE), str(folder / "site")]
            root = (folder / "root").as_uri()
            if kind == "minio":
                until.enter_context(minio(folder / "minio"))
                root = f"s3://{BUCKET}/root"
            print(json.dumps({"store": kind, **measured(root, folder / "outbox.db", given.runs, given.messages)}))


def measured(root: str, database: Path, runs: int, messages: int) -> dict[str, object]:
    """The medians of ``runs`` with seals and without, one after the other; the first of each is not counted."""
    handles = {
        is_sealed: hr.open(f"{root}-{is_sealed}", create=True)[pipeline(database)] for is_sealed in (True, False)
    }
    without = without_seals()
    taken: dict[bool, list[dict[str, float]]] = {True: [], False: []}
    for number in range(runs + 1):
        _send(database, messages)
        for is_sealed in (True, False) if number % 2 else (False, True):
            with requests_counted() as requests, ExitStack() as until:
                if not is_sealed:
                    until.enter_context(without)
                    until.enter_context(without_digests())
                begun, cpu = time.perf_counter(), time.process_time()
                handles[is_sealed].run()
                took = {"seconds": time.perf_counter() - begun, "cpu_seconds": time.process_time() - cpu}
            taken[is_sealed].append({**took, **requests})
    return {
        "sealed" if is_sealed else "unsealed": {
            name: round(statistics.median(run.get(name, 0) for run in each[1:]), 3)
            for name in sorted({name for run in each for name in run})
        }
        for is_sealed, each in taken.items()
    }


def pipeline(database: Path) -> hr.Pipeline:
    """Messages by day."""
    from acme_headrace.outbox import Outbox

    source = Outbox(str(database), _COLUMNS)
    what, where = {"n": hr.count()}, hr.FixedWindows("1d")
    return hr.Pipeline(
        "counting",
        source.event_time("at", bound="1h"),
        key="text",
        what=what,
        where=where,
        when=hr.on_update(),
        executor="local",
    )


def without_seals() -> Any:
    """They are kept in memory alone, so that nothing is stored of a range once it is whole, nor read."""
    kept: dict[tuple[str, int], RangeSeal] = {}

    def put(place: LandingPlace, seal: RangeSeal) -> None:
        kept[place.store.uri, seal.range.number] = seal

    return patch.multiple(
        LandingPlace, put_seal=put, read_seal=lambda place, number: kept.get((place.store.uri, number))
    )


def without_digests() -> Any:
    """No digest is taken of a file."""
    return patch.object(SealedFile, "from_data", lambda data: SealedFile(len(data), ""))


@contextmanager
def requests_counted() -> Iterator[dict[str, float]]:
    """What all stores of this process ask meanwhile, by kind."""
    counted: dict[str, float] = {}
    add = RequestCounts.add

    def counting(counts: RequestCounts, kind: str) -> None:
        counted[kind] = counted.get(kind, 0) + 1
        add(counts, kind)

    with patch.object(RequestCounts, "add", counting):
        yield counted


def _send(database: Path, messages: int) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS outbox (number INTEGER PRIMARY KEY AUTOINCREMENT, message)")
        rows = [
            (json.dumps({"number": n, "text": f"t{n % 100}", "at": "2026-05-01T00:00:00Z"}),) for n in range(messages)
        ]
        connection.executemany("INSERT INTO outbox (message) VALUES (?)", rows)


if __name__ == "__main__":
    main()
