"""What a run costs that has read a million names before, and finds a thousand new ones.

``python -m benchmarks.names --names 1000000 --new 1000 --stores local minio``: the history is written as runs write it
(a log of inputs of epochs of 1,000 files, names files beside it), the files are empty, and each look is a process of
its own. ``first`` has read nothing yet, ``any`` is the default, ``old`` a root without names files, as one of before
0.2.0, ``ordered`` lists behind the mark alone. On MinIO objects are links to one object on the disk of the server: to
put a million takes an hour, to link it two minutes.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import headrace as hr
from benchmarks.traffic import minio
from headrace.read.snapshots.progress import progress_of, unread_files
from headrace.runs.commits import NamesFiles
from headrace.sources.landing import Landing
from headrace.sources.progress import PipelineProgress
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import FileLog, FileRecord, InputFile
from headrace_snapshots.format.manifest import INPUTS
from headrace_snapshots.store import ObjectStore, open_store

SHOPS, EPOCH = 400, 1_000
BUCKET = "names"
LINKS = 50_000
TIME = 1_700_000_000_000_000_000
"""When each local file was written, in nanoseconds."""


def main() -> None:
    """Command line; with ``--look`` one look, in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--names", type=int, default=1_000_000)
    parser.add_argument("--new", type=int, default=1_000)
    parser.add_argument("--stores", nargs="+", choices=["local", "minio"], default=["local", "minio"])
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--look", nargs=2, metavar=("ROOT", "HOW"))
    given = parser.parse_args()
    if given.look:
        print(json.dumps(_look(*given.look)))
        return
    for kind in given.stores:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            for line in _measured(kind, Path(folder), given.names, given.new):
                print(json.dumps({"store": kind, **line}), flush=True)


def pipeline(names: str = "any") -> hr.Pipeline:
    """Receipts by shop."""
    source = hr.json("landing", {"shop": str, "at": datetime}, max_files=EPOCH, names=names)
    return hr.Pipeline(
        "receipts",
        source.event_time("at", bound="1h"),
        key="shop",
        what={"n": hr.count()},
        where=hr.FixedWindows("1d"),
        when=hr.on_update(),
        how=hr.retracting("90d"),
        executor="local",
    )


def paths(begin: int, end: int) -> Iterator[str]:
    """Names in the order of their arrival: a day of all shops after the other, in a folder for each shop."""
    for number in range(begin, end):
        yield f"landing/shop={number % SHOPS:03}/day={number // SHOPS:06}-{number * 2654435761 % 2**32:08x}.json"


def _measured(kind: str, folder: Path, names: int, new: int) -> Iterator[dict[str, object]]:
    if kind == "local":
        yield from _of_root(folder.as_uri(), folder, names, new, "")
        return
    data = folder / "minio"
    with minio(data) as server:
        os.environ.update(server.environment())
        root = f"s3://{BUCKET}"
        from scripts.minio_server import client

        client(server).make_bucket(BUCKET)
        yield from _of_root(root, data / BUCKET, names, new, "xl.meta")


def _of_root(root: str, folder: Path, names: int, new: int, meta: str) -> Iterator[dict[str, object]]:
    store, made = open_store(root), pipeline()
    first, *rest = paths(0, names)
    store.write(first, b"")
    if not meta:
        os.utime(folder / first, ns=(0, TIME))
    hr.open(root, create=True)[made].run()
    _land(folder, first, rest, meta)
    catalog = Catalog(store, made.name)
    _record(catalog, [first, *rest], store, folder / first, is_local=not meta)
    _land(folder, first, [*paths(names, names + new)], meta)
    for how in ("first", "any", "old", "ordered"):
        if how == "old":
            _without_names(catalog)
        found = subprocess.run(
            [sys.executable, "-m", "benchmarks.names", "--look", root, how],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        yield {"how": how, **json.loads(found.stdout)}


def _land(folder: Path, first: str, names: list[str], meta: str) -> None:
    """Files as empty as the ``first``; of MinIO links to what is on its disk, of which a file system has a number."""
    made: set[Path] = set()
    for number, name in enumerate(names):
        file = folder / name
        if meta:
            file.mkdir(parents=True)
            if number % LINKS == 0:
                linked = Path(shutil.copy(folder / first / meta, file / meta))
            else:
                os.link(linked, file / meta)
            continue
        if file.parent not in made:
            file.parent.mkdir(parents=True, exist_ok=True)
            made.add(file.parent)
        file.touch()
        os.utime(file, ns=(0, TIME))


def _record(catalog: Catalog, names: list[str], store: ObjectStore, first: Path, *, is_local: bool) -> None:
    """A snapshot that has read ``names``, as epochs of so many files leave it."""
    head = catalog.manifest(catalog.head().refs["main"])
    claim = catalog.claim("main", owner="benchmark")
    etag = f"0-{TIME}" if is_local else store.stat(names[0]).etag
    log, files = FileLog.empty(), NamesFiles(catalog, {"source"})
    named = 0.0
    for epoch in range(0, len(names), EPOCH):
        batch = tuple(
            InputFile(name, 0, etag, "source", f"xxh3-{hash(name) % 2**64:016x}" if is_local else None)
            for name in names[epoch : epoch + EPOCH]
        )
        log = catalog.append_record(log, FileRecord(epoch // EPOCH, batch))
        started = time.perf_counter()
        log = files.update_log(log, catalog.data_prefix(epoch // EPOCH, catalog.new_snapshot_id()))
        named += time.perf_counter() - started
    assert log.names is not None
    written = [one.file.bytes for one in log.names.files]
    print(
        json.dumps({"epochs": len(names) // EPOCH, "names_files_seconds": round(named, 1), "bytes": written}),
        file=sys.stderr,
    )
    progress = dict(head.progress)
    offsets = {"mark": max(names), "recent": 0, "files": len(names), "bytes": 0}
    progress["inputs"] = {"source": {**progress["inputs"]["source"], "offsets": offsets}}
    _commit(catalog, claim, head, log, progress)


def _without_names(catalog: Catalog) -> None:
    head = catalog.manifest(catalog.head().refs["main"])
    log = head.logs[INPUTS]
    _commit(catalog, catalog.claim("main", owner="benchmark"), head, FileLog(log.tail, log.levels), head.progress)


def _commit(catalog: Catalog, claim, head, log: FileLog, progress) -> None:  # type: ignore[no-untyped-def]
    catalog.commit(
        claim,
        head.replace(
            snapshot_id=catalog.new_snapshot_id(),
            parent=head.snapshot_id,
            epoch=head.epoch + 1,
            generation=claim.generation,
            logs={**head.logs, INPUTS: log},
            progress=progress,
            skips=(),
        ),
    )


def _look(root: str, how: str) -> dict[str, object]:
    """Find what is new, as a run does before its first epoch."""
    made = pipeline("ordered" if how == "ordered" else "any")
    store = open_store(root)
    catalog, landing = Catalog(store, made.name), Landing(made, store)
    begun, cpu = time.perf_counter(), time.process_time()
    manifest = None if how == "first" else catalog.manifest(catalog.head().refs["main"])
    progress = PipelineProgress() if manifest is None else progress_of(catalog, manifest)
    found = unread_files(catalog, landing, manifest, progress, full_sweep=False)
    seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    requests = {kind: count for kind, count in store.requests.snapshot().items() if count}
    return {
        "new": sum(map(len, found.values())),
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu, 3),
        "requests": requests,
        "peak_mb": _peak(),
    }


def _peak() -> int:
    """The most memory that this process had, in MB: what its parent had counts in what ``resource`` says."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024


if __name__ == "__main__":
    main()
