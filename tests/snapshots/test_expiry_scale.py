"""With expiry nothing grows: after 10,000 epochs objects, bytes and requests are what they were after 1,000.

``make test-long`` runs as many epochs; CI a part of them, which are more than anything is kept for.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256

import pytest
from catalog_helpers import manifest_for

from headrace_snapshots.catalog import Catalog, Claim
from headrace_snapshots.expiry import KEPT_ENTRIES, expire
from headrace_snapshots.format.files import RADIX, DataFile, FileLog, FileRecord, InputFile, Layer, plan_merge
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.fsck import fsck
from headrace_snapshots.gc_roots import Keep
from headrace_snapshots.holds import DeletionList
from headrace_snapshots.names import ObjectKind
from headrace_snapshots.store.local import MemoryStore

EPOCHS = max(2_500, int(os.environ.get("HEADRACE_EPOCHS", "0")))
EARLY = 1_000
EPOCHS_A_RUN = 10
EVERY = 100
"""Epochs from one expiry to the next."""

KEEP_LAST = 20
NOW = datetime(2026, 1, 1, tzinfo=UTC)
OUTPUT = ("panes", "late")


class Pipeline:
    """Runs of a few epochs, each of which stores a file of each kind. Every tenth run is killed and leaves garbage."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.head: Manifest | None = None
        self.runs = 0

    def run(self) -> None:
        """A process of its own."""
        self.runs += 1
        catalog = Catalog(self.store, "p")
        claim = catalog.claim("main", f"run {self.runs}")
        floor = claim.floor
        for _ in range(EPOCHS_A_RUN):
            manifest = self.epoch(catalog, claim, floor)
            floor = catalog.commit(claim, manifest).floor("main")
            self.head = catalog.manifest(manifest.snapshot_id)
        assert self.head is not None
        published_snapshot = catalog.head().refs.get("published")
        self.store.write(f"p/audits/{published_snapshot or 'none'}--{self.head.snapshot_id}/result.json", b"{}")
        catalog.publish(self.head.snapshot_id, published_snapshot)
        if self.runs % 10 == 0:
            self.store.write(catalog.data_prefix(self.head.epoch + 1, f"{self.runs:016x}") + "/panes.parquet", b"rows")

    def epoch(self, catalog: Catalog, claim: Claim, floor: int) -> Manifest:
        parent = self.head
        manifest = manifest_for(catalog, claim, None if parent is None else parent.snapshot_id)
        epoch, prefix = manifest.epoch, catalog.data_prefix(manifest.epoch, manifest.snapshot_id)
        layers = parent.tables["current"] if parent else ()
        layers = (*layers, Layer.from_files((self.file(f"{prefix}/current"),), epoch, epoch))
        start = plan_merge([layer.rows for layer in layers])
        if start is not None:  # the same windows again: a merge makes no more of them
            layers = (
                *layers[:start],
                Layer.from_files((self.file(f"{prefix}/merged"),), layers[start].first_epoch, epoch),
            )
        logs = {name: catalog.cut(parent.logs[name], floor) if parent else FileLog.empty() for name in OUTPUT}
        logs = {
            name: catalog.append_record(log, FileRecord(epoch, (self.file(f"{prefix}/{name}"),)))
            for name, log in logs.items()
        }
        inputs = parent.logs["inputs"] if parent else FileLog.empty()
        read = InputFile(f"landing/{epoch:08d}", 10, "etag", "source")
        logs["inputs"] = catalog.append_record(inputs, FileRecord(epoch, (read,)))
        return manifest.replace(tables={"current": layers}, logs=logs)

    def file(self, path: str) -> DataFile:
        data = path.encode()
        self.store.write(f"{path}.parquet", data)
        return DataFile(f"{path}.parquet", 1_000, len(data), sha256(data).hexdigest())


@dataclass(frozen=True)
class Figures:
    """What there is, and what it costs to be used."""

    objects: dict[str, int]
    bytes: dict[str, int]
    requests: dict[str, int]
    manifest: int


def requests_of(store: MemoryStore, action: Callable[[], object]) -> int:
    requests_before = store.requests.snapshot()
    action()
    return sum(store.requests.since(requests_before).values())


def figures(pipeline: Pipeline) -> Figures:
    """Right after an expiry."""
    store = pipeline.store
    sizes_by_kind: dict[str, list[int]] = {}
    for info in store.list("p/"):
        sizes_by_kind.setdefault(info.path.split("/")[1], []).append(info.size)

    def read() -> None:
        catalog = Catalog(store, "p")
        manifest = catalog.manifest(catalog.head().refs["published"])
        for name in OUTPUT:
            for record in catalog.file_records(manifest.logs[name]):
                for file in record.files:
                    assert isinstance(file, DataFile)
                    store.read(file.path)

    assert pipeline.head is not None
    head = pipeline.head.snapshot_id
    requests = {
        "log": requests_of(store, lambda: Catalog(store, "p").list_entries()),
        "show": requests_of(store, lambda: Catalog(store, "p").manifest(Catalog(store, "p").head().refs["main"])),
        "whole lineage": requests_of(store, lambda: [*Catalog(store, "p").lineage(head)]),
        "read all panes and late records": requests_of(store, read),
    }
    return Figures(
        {kind: len(sizes) for kind, sizes in sizes_by_kind.items()},
        {kind: sum(sizes) for kind, sizes in sizes_by_kind.items()},
        requests,
        len(pipeline.head.to_bytes()),
    )


def run_and_expire(pipeline: Pipeline, epochs: int) -> tuple[int, int]:
    """So many epochs; the requests of the last run, and those of the last expiry, of which nothing waits for long."""
    of_run = of_expiry = 0
    for _ in range(epochs // EVERY):
        for _ in range(EVERY // EPOCHS_A_RUN):
            of_run = requests_of(pipeline.store, pipeline.run)
        of_expiry = requests_of(pipeline.store, lambda: _expire(pipeline))
    return of_run, of_expiry


def _expire(pipeline: Pipeline) -> None:
    def audits(infos: object, kept_ids: object, notes: object) -> set[str]:
        return {info.path for info in infos if info.path.split("/")[2].rpartition("--")[2] in kept_ids}  # type: ignore[attr-defined, operator]

    expire(Catalog(pipeline.store, "p"), Keep(KEEP_LAST), NOW, beside={ObjectKind.AUDITS: audits})


@pytest.mark.slow
def test_many_epochs_leave_what_a_thousand_leave() -> None:
    pipeline = Pipeline(MemoryStore())
    early_run, early_expiry = run_and_expire(pipeline, EARLY)
    early = figures(pipeline)
    late_run, late_expiry = run_and_expire(pipeline, EPOCHS - EARLY)
    late = figures(pipeline)
    print(f"\n{'after so many epochs':>45} {EARLY:>10,} {EPOCHS:>10,}")
    for name in early.objects:
        print(f"{'objects of ' + name:>45} {early.objects[name]:>10} {late.objects[name]:>10}")
        print(f"{'bytes of ' + name:>45} {early.bytes[name]:>10} {late.bytes[name]:>10}")
    for name in early.requests:
        print(f"{'requests: ' + name:>45} {early.requests[name]:>10} {late.requests[name]:>10}")
    print(f"{'requests: run of ten epochs':>45} {early_run:>10} {late_run:>10}")
    print(f"{'requests: expire':>45} {early_expiry:>10} {late_expiry:>10}")
    print(f"{'bytes of the manifest':>45} {early.manifest:>10} {late.manifest:>10}")

    # Names of input files are never left out: a leaf for RADIX of them, and a node above for as many leaves.
    input_nodes = (EPOCHS - EARLY) // (RADIX.value - 1) + (EPOCHS - EARLY) // (RADIX.value - 1) ** 2 + 2
    # A leaf of a file log is kept until the last of its records goes; from expiry to expiry EVERY epochs gather.
    slack = {"data": len(OUTPUT) * RADIX.value, "index": input_nodes + 2 * len(OUTPUT), "log": EVERY}
    assert set(late.objects) == set(early.objects)
    for kind, count in late.objects.items():
        assert count <= early.objects[kind] + slack.get(kind, 2), kind
    assert late.objects["data"] <= (KEEP_LAST + 2 * EVERY + RADIX.value) * (len(OUTPUT) + 2)
    assert late.objects["log"] <= KEPT_ENTRIES.value + 2 * EVERY
    assert late.bytes["index"] <= early.bytes["index"] + input_nodes * 8_192 + slack["data"] * 256
    assert late.bytes["manifests"] <= early.bytes["manifests"] * 1.5
    assert late.bytes["data"] <= early.bytes["data"] * 1.5
    for name, count in late.requests.items():
        assert count <= early.requests[name] + len(OUTPUT) * (RADIX.value + 2), name
    assert late_run <= early_run + 10
    assert late_expiry <= early_expiry * 1.2 + 2 * input_nodes
    assert max(early.manifest, late.manifest) < 10_000
    report = fsck(Catalog(pipeline.store, "p"), deep=True)
    assert report.problems == ()
    print(f"{'needed by no kept snapshot':>45} {'':>10} {report.unreferenced:>10}")


@pytest.mark.slow
def test_an_expiry_asks_for_what_has_come_since_the_last_one_however_much_is_kept() -> None:
    pipeline = Pipeline(MemoryStore())
    get_counts = []
    for _ in range(EPOCHS // 2 // EVERY):
        for _ in range(EVERY // EPOCHS_A_RUN):
            pipeline.run()
        requests_before = pipeline.store.requests.snapshot()
        expire(Catalog(pipeline.store, "p"), Keep(1_000), NOW)
        get_counts.append(pipeline.store.requests.since(requests_before).get("get", 0))
    print(f"\nobjects read by expiries, {EVERY} epochs apart: {get_counts}")
    nodes = (len(OUTPUT) + 1) * (EVERY // RADIX.value + 2)
    assert max(get_counts[1:]) <= EVERY + nodes + 30  # the log, by bisection, and the mark
    Catalog(pipeline.store, "p").marks.write(
        DeletionList(current_mark(pipeline), ())
    )  # without facts, as before there were any
    requests_before = pipeline.store.requests.snapshot()
    expire(Catalog(pipeline.store, "p"), Keep(1_000), NOW)
    assert pipeline.store.requests.since(requests_before)["get"] >= 1_000


def current_mark(pipeline: Pipeline) -> str:
    """The id of the mark that counts."""
    horizon = Catalog(pipeline.store, "p").head().horizon
    assert horizon is not None
    return horizon.mark
