"""At 10,000 epochs everything that is asked often costs what it costs at 100."""

import pytest
from catalog_helpers import manifest_for

from headrace_snapshots.catalog import Catalog, Claim
from headrace_snapshots.format.files import RADIX, DataFile, FileLog, FileRecord, Layer, plan_merge
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store.local import MemoryStore

ROWS = 1_000
FILES = {"panes": 1, "inputs": 2}


def next_manifest(catalog: Catalog, claim: Claim, parent: Manifest | None) -> Manifest:
    """A synthetic epoch: a layer of ``current``, a pane file, two inputs; layers are merged as the policy says."""
    manifest = manifest_for(catalog, claim, None if parent is None else parent.snapshot_id)
    epoch = manifest.epoch
    file = DataFile(f"p/data/{epoch:08d}-x/current.parquet", ROWS, 100 * ROWS, "0" * 64)
    layers = (*(parent.tables["current"] if parent else ()), Layer.from_files((file,), epoch, epoch))
    start = plan_merge([layer.rows for layer in layers])
    if start is not None:
        rows = sum(layer.rows for layer in layers[start:])
        merged_layer = Layer.from_files((file.replace(rows=rows),), layers[start].first_epoch, epoch)
        layers = (*layers[:start], merged_layer)
    logs = {
        name: catalog.append_record(
            parent.logs[name] if parent else FileLog.empty(), FileRecord(epoch, (file,) * count)
        )
        for name, count in FILES.items()
    }
    return manifest.replace(tables={"current": layers}, logs=logs)


def costs(store: MemoryStore) -> dict[str, int]:
    """What a newcomer pays, in requests, and what is in the manifest it finds."""
    catalog, figures = Catalog(store, "p"), {}
    requests_before = store.requests.snapshot()
    head = catalog.head()
    figures["requests for the head"] = sum(store.requests.since(requests_before).values())
    requests_before = store.requests.snapshot()
    manifest = catalog.manifest(head.refs["main"])
    figures["requests for the manifest"] = sum(store.requests.since(requests_before).values())
    requests_before = store.requests.snapshot()
    assert len(catalog.list_entries(limit=20)) == 20
    figures["requests for a page of the log"] = sum(store.requests.since(requests_before).values())
    requests_before = store.requests.snapshot()
    assert [r.epoch for r in catalog.file_records(manifest.logs["panes"], manifest.epoch - 10)] == [
        *range(manifest.epoch - 9, manifest.epoch + 1)
    ]
    figures["requests for the panes of ten epochs"] = sum(store.requests.since(requests_before).values())
    figures["layers of current"] = len(manifest.tables["current"])
    figures["references and records of file logs"] = sum(
        len(log.tail) + len([*log.refs]) for log in manifest.logs.values()
    )
    figures["bytes of the manifest"] = len(manifest.to_bytes())
    requests_before = store.requests.snapshot()
    catalog.claim("probe", "probe")
    figures["requests for a claim"] = sum(store.requests.since(requests_before).values())
    catalog.drop("probe")
    return figures


@pytest.mark.slow
def test_ten_thousand_epochs_cost_what_a_hundred_cost() -> None:
    store = MemoryStore()
    catalog = Catalog(store, "p")
    claim = catalog.claim("main", "run")
    manifest: Manifest | None = None
    costs_by_epoch: dict[int, dict[str, int]] = {}
    per_commit: list[int] = []
    for epoch in range(10_000):
        requests_before = store.requests.snapshot()
        manifest = next_manifest(catalog, claim, manifest)
        catalog.commit(claim, manifest)
        per_commit.append(sum(store.requests.since(requests_before).values()))
        if epoch + 1 in {100, 10_000}:
            costs_by_epoch[epoch + 1] = costs(store)
    few, many = costs_by_epoch[100], costs_by_epoch[10_000]
    few["requests of 100 commits"] = sum(per_commit[:100])
    many["requests of 100 commits"] = sum(per_commit[-100:])
    print(f"\n{'after so many epochs':>40} {'100':>8} {'10,000':>8}")
    for name, figure in many.items():
        print(f"{name:>40} {few[name]:>8} {figure:>8}")
    assert many["requests for the head"] <= 9  # hint, its entry, at most seven probes over what was written since
    assert few["requests for the head"] <= 9
    for name in ("requests for the manifest", "requests for a page of the log"):
        assert many[name] == few[name]
    assert many["requests for a claim"] <= few["requests for a claim"] + 2
    assert many["requests for the panes of ten epochs"] <= few["requests for the panes of ten epochs"] + 2
    assert many["requests of 100 commits"] <= few["requests of 100 commits"] + 10
    assert many["layers of current"] <= 7 * 8
    assert many["references and records of file logs"] <= len(FILES) * (RADIX.value - 1) * 3
    assert many["bytes of the manifest"] < 10_000
