"""A small deployment that has an object of each kind that Headrace stores, and the ways in which one is spoilt."""

import os
import random
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import headrace as hr
from headrace import col
from headrace.runs.client.handle import PipelineHandle
from headrace.runs.client.handle import open as open_root
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from headrace.runs.reporting import results
from headrace.runs.reporting.results import RunResult
from headrace.state.file_cache import FOLDER_VARIABLE, default_cache
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.gc_roots import files_of
from headrace_snapshots.names import manifest_path, node_path
from headrace_snapshots.store import open_store
from tests.faults.scenarios import land_file, pipeline

NAME = "rotten"
PIPELINE = pipeline(
    NAME,
    deduplicate=hr.Deduplicate("id", "2h"),
    then=[
        hr.Aggregation(
            key="clicks",
            what={"users": hr.count(), "spent": col("spent").sum()},
            where=hr.FixedWindows("2h"),
            how=hr.retracting("1h"),
        )
    ],
    expectations=[hr.expect("column_values_to_be_between", column="spent", min_value=0)],
)
FIRST, PUBLISHED_FILES, FILES = 4, 8, 10
"""Input files that are read by each run; those of the last are not published."""
ENTRIES_BACK = 5
"""Of the entries of the log, that many before the newest one is damaged too."""
OLDER = "older"
"""A tag: of what the second run published."""


@dataclass(frozen=True)
class Deployment:
    """What is under ``root``; ``whole`` is a copy of it, and ``cache`` of the rows of its state."""

    root: Path
    whole: Path
    cache: Path
    first_epoch: int = 0
    """From which on panes, late rows and dead letters are kept."""
    then: str = ""
    """When the victim ``older entry`` was stored."""

    @property
    def uri(self) -> str:
        return self.root.as_uri()

    @property
    def history(self) -> PipelineHandle:
        """As a process finds it that has read nothing yet."""
        return open_root(self.uri)[NAME]

    @property
    def catalog(self) -> Catalog:
        return Catalog(open_store(self.uri), NAME)

    def run(self, name: str, *, publish: bool = False, audits: bool = True) -> RunResult:
        """A run of the pipeline; without its expectations if not ``audits``: these take half of its time."""
        definition = PIPELINE if audits else replace(PIPELINE, expectations=())
        result = process(definition, self.uri, RunOptions(name, executor="local", publish=publish))
        results.write_run_result(open_store(self.uri), result)
        return result

    def mend(self) -> None:
        """Make all as it was."""
        shutil.rmtree(self.root)
        shutil.copytree(self.whole, self.root)  # with the times of files, of which local files have their ETags

    @contextmanager
    def caching(self, *, warm: bool) -> Iterator[Path]:
        """Runs find the rows of state in a cache, or nothing."""
        folder, folder_before = self.cache.with_name("cache in use"), os.environ.get(FOLDER_VARIABLE)
        shutil.rmtree(folder, ignore_errors=True)
        if warm:
            shutil.copytree(self.cache, folder)
        os.environ[FOLDER_VARIABLE] = str(folder)
        default_cache.cache_clear()
        try:
            yield folder
        finally:
            default_cache.cache_clear()
            if folder_before is not None:
                os.environ[FOLDER_VARIABLE] = folder_before


def build_deployment(folder: Path) -> Deployment:
    """Epochs on main, the last of which are not published; a tag, expired snapshots, audits, results of runs; a file
    that is still to be read.
    """
    deployment = Deployment(folder / "root", folder / "whole", folder / "cache")
    landed_files = iter(range(FILES + 1))

    def land(end: int) -> None:
        for file in landed_files:
            land_file(deployment.root, "clicks", file)
            if file + 1 == end:
                break

    with deployment.caching(warm=False) as cache:
        land(FIRST)
        deployment.run("first", publish=True)
        land(PUBLISHED_FILES)
        deployment.run("second", publish=True)
        deployment.history.expire(keep_last=2)
        deployment.catalog.tag(OLDER, deployment.catalog.head().refs["main"])
        land(FILES)
        deployment.run("third")
        land(FILES + 1)
        shutil.copytree(cache, deployment.cache)
    shutil.copytree(deployment.root, deployment.whole)
    head = deployment.catalog.head()
    assert head.horizon is not None
    entry = next(deployment.catalog.entries(head.entry - ENTRIES_BACK + 1))
    return replace(deployment, first_epoch=head.horizon.floor, then=entry.at)


TABLES = ("state", "state_1", "ids", "current", "panes", "late", "rejected")
KINDS = {
    "entry": r"log/\d{20}\.json",
    "hint": r"log-hint\.json",
    "manifest": r"manifests/\w+\.json",
    "node": r"index/\w+\.json",
    **{table: rf"data/\d{{8}}-\w+/{table}-\d+-\w+-\d+\.parquet" for table in TABLES},
    "audit": r"audits/\w+--\w+/result\.json",
    "data docs": r"audits/\w+--\w+/docs/\w+\.html",
    "result": r"runs/\w+\.json",
    "mark": r"marks/\d{20}-\w+\.json",
}
"""What is stored below the folder of a pipeline, by regular expressions that match whole paths."""


def kind_of(path: str) -> str:
    """The one kind that a path below the folder of the pipeline is of. Raises AssertionError for any other number."""
    (kind,) = [kind for kind, pattern in KINDS.items() if re.fullmatch(pattern, path)]
    return kind


def victims(whole: Deployment) -> dict[str, tuple[str, str | None]]:
    """Objects that are needed, and another one of the kind of each, the newest one's older. Paths are relative to the
    root.
    """
    paths = sorted(str(path.relative_to(whole.root)) for path in (whole.root / NAME).rglob("*") if path.is_file())
    of_kind: dict[str, list[str]] = {}
    for path in paths:
        of_kind.setdefault(kind_of(path.removeprefix(f"{NAME}/")), []).append(path)
    assert of_kind.keys() == KINDS.keys()
    chosen_objects = dict(_needed_objects(whole))
    chosen_objects |= {kind: of_kind[kind][-1] for kind in ("hint", "mark", "result", "data docs")}
    (chosen_objects["audit"],) = [
        path for path in of_kind["audit"] if f"--{whole.catalog.head().refs['published']}/" in path
    ]
    needed_objects: dict[str, tuple[str, str | None]] = {}
    for each, path in chosen_objects.items():
        alike_objects = of_kind[kind_of(path.removeprefix(f"{NAME}/"))]
        needed_objects[each] = path, next((other for other in alike_objects if other != path), None)
    return {**needed_objects, "input": (f"landing/clicks/{PUBLISHED_FILES:03}.jsonl", "landing/clicks/000.jsonl")}


def _needed_objects(whole: Deployment) -> Iterator[tuple[str, str]]:
    """What the log, the newest snapshot and the tagged one need."""
    catalog = whole.catalog
    head = catalog.head()
    newest, tagged_manifest = (catalog.manifest(head.refs[ref]) for ref in ("main", f"tags/{OLDER}"))
    assert newest.parent is not None
    yield "entry", f"{NAME}/log/{head.entry:020d}.json"
    yield "older entry", f"{NAME}/log/{head.entry - ENTRIES_BACK:020d}.json"
    yield "manifest", manifest_path(NAME, newest.snapshot_id)
    yield "older manifest", manifest_path(NAME, newest.parent)
    yield "tagged manifest", manifest_path(NAME, tagged_manifest.snapshot_id)
    for manifest, prefix in ((newest, ""), (tagged_manifest, "older ")):
        files = [*files_of(manifest)]
        records = [record for log in manifest.logs.values() for record in catalog.file_records(log)]
        files += [file for record in records for file in record.files if isinstance(file, DataFile)]
        for kind in TABLES:
            named_paths = [file.path for file in files if f"/{kind}-" in file.path]
            yield prefix + kind, named_paths[0] if prefix else named_paths[-1]
    for log in ("inputs", "panes", "late", "rejected"):
        yield f"node of {log}", node_path(NAME, newest.logs[log].levels[0].refs[0].id)


def _flip_bit_of(part: int) -> Callable[[bytes, random.Random], bytes]:
    """One bit, in the beginning, middle or end of the data."""

    def flip(data: bytes, dice: random.Random) -> bytes:
        third = len(data) // 3
        spoilt = bytearray(data)
        spoilt[part * third + dice.randrange(third)] ^= 1 << dice.randrange(8)
        return bytes(spoilt)

    return flip


CHANGES: Mapping[str, Callable[[bytes, random.Random], bytes]] = {
    "a bit of its beginning": _flip_bit_of(0),
    "a bit of its middle": _flip_bit_of(1),
    "a bit of its end": _flip_bit_of(2),
    "truncated": lambda data, dice: data[: dice.randrange(len(data))],
}
DAMAGES = (*CHANGES, "deleted", "replaced by another one")


def spoil(path: Path, damage: str, older: Path | None, dice: random.Random) -> None:
    """Damage ``path``. Changed bits leave the time of the file as it was, as a failing disk does."""
    if damage == "deleted":
        path.unlink()
        return
    if damage == "replaced by another one":
        assert older is not None
        path.write_bytes(older.read_bytes())
        return
    status = path.stat()
    path.write_bytes(CHANGES[damage](path.read_bytes(), dice))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
