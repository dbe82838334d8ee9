"""Control objects that older versions wrote (tests/golden) are read for ever, every field of them."""

import hashlib
import json
from pathlib import Path

import pytest

from headrace_lab.sizes import set_sizes
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format import codec
from headrace_snapshots.format.codec import NewerFormatError, StoredObject
from headrace_snapshots.format.files import IndexNode
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.holds import DeletionList
from headrace_snapshots.log import Entry
from headrace_snapshots.protocol.moves import Kind
from headrace_snapshots.store import LocalStore

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
ROOT = GOLDEN / "format-1" / "root"
FOLDERS = {"log", "manifests", "marks", "objects"}
CONTROL = sorted(path for path in GOLDEN.rglob("*.json") if path.parent.name in FOLDERS)
RECORDS: dict[str, type[StoredObject]] = {record.KIND: record for record in (Manifest, Entry, IndexNode, DeletionList)}


def test_nothing_that_was_written_is_ever_changed() -> None:
    """SHA256SUMS gets a line for a new file; none is ever changed."""
    paths_there = [path for path in GOLDEN.rglob("*") if path.is_file() and path.parent != GOLDEN]
    digests = {str(path.relative_to(GOLDEN)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths_there}
    lines = (GOLDEN / "SHA256SUMS").read_text().splitlines()
    assert digests == {name: digest for digest, name in (line.split("  ") for line in lines)}


@pytest.mark.parametrize("path", CONTROL, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_every_object_is_written_as_it_was_read(path: Path) -> None:
    """Packed is what the content says, not how zlib spells it; and what was stored in one piece may be packed now."""
    stored_bytes = path.read_bytes()
    record = RECORDS[json.loads(stored_bytes)["kind"]].from_bytes(stored_bytes, path.name)
    assert type(record).from_bytes(record.to_bytes(), path.name) == record
    if json.loads(stored_bytes)["format"] < 5:
        assert codec.encode_object(record.KIND, record.to_json(), record.format) == stored_bytes


def test_a_node_is_read() -> None:
    path = GOLDEN / "format-1" / "objects" / "index.json"
    node = IndexNode.from_bytes(path.read_bytes(), path.name)
    assert node.id == "f2badee43048445443b7d8fe6e1c3423"
    assert (node.ref.files, node.ref.first_epoch, node.ref.last_epoch) == (64, 0, 63)


def test_a_node_with_a_writer_is_read() -> None:
    path = GOLDEN / "format-2" / "objects" / "index-with-a-writer.json"
    node = IndexNode.from_bytes(path.read_bytes(), path.name)
    assert (node.format, node.ref.files, node.ref.first_epoch, node.ref.last_epoch) == (2, 64, 0, 63)


def test_an_entry_after_the_log_was_folded_is_read() -> None:
    path = GOLDEN / "format-2" / "objects" / "entry-after-folding.json"
    entry = Entry.from_bytes(path.read_bytes(), path.name)
    assert entry.horizon is not None
    assert (entry.format, entry.base, entry.horizon.folded, entry.floor("main")) == (2, 112, 112, 68)
    assert entry.horizon.grafts == {"80891b13c3ce4ee8": None}


def test_the_line_of_snapshots_without_skips_is_walked() -> None:
    catalog = Catalog(LocalStore(ROOT), "clicks")
    main = catalog.head().refs["main"]
    line = list(catalog.lineage(main))
    assert [(link.epoch, link.problem) for link in line] == [(2, None), (1, None), (0, None)]
    assert not any(link.manifest.skips for link in line if link.manifest)
    assert all(catalog.is_ancestor(link.snapshot_id, main) for link in line)


def test_merges_that_go_on_are_read() -> None:
    path = GOLDEN / "format-5" / "objects" / "manifest-with-merges.json"
    manifest = Manifest.from_bytes(path.read_bytes(), path.name)
    assert manifest.merges.keys() == {"state", "current"}
    for table, (merge,) in manifest.merges.items():
        assert (merge.first_epoch, merge.last_epoch, len(merge.layers), merge.is_lowest) == (0, 3, 4, True)
        assert 0 < len(merge.files) < merge.parts
        assert merge.source_layers(manifest.tables[table]) == manifest.tables[table][:4]


def test_a_patch_is_read() -> None:
    path = GOLDEN / "format-1" / "objects" / "manifest-of-a-patch.json"
    manifest = Manifest.from_bytes(path.read_bytes(), path.name)
    assert manifest.patch is not None
    assert (manifest.is_patch, manifest.patch.epoch, manifest.patch.branch) == (True, 3, "fix")
    assert [layer.first_epoch for layer in manifest.tables["current"]] == [0, 1, 3]


def test_skips_are_read() -> None:
    path = GOLDEN / "format-1" / "objects" / "manifest-with-skips.json"
    skips = Manifest.from_bytes(path.read_bytes(), path.name).skips
    assert [(skip.epoch, skip.snapshot_id) for skip in skips] == [
        (66, "0000000000000042"),
        (63, "000000000000003f"),
        (0, "0000000000000000"),
    ]


def test_an_entry_after_a_delivery_is_read_and_refused_by_what_does_not_know_it() -> None:
    path = GOLDEN / "format-4" / "objects" / "entry-after-a-delivery.json"
    entry = Entry.from_bytes(path.read_bytes(), path.name)
    assert (entry.format, entry.kind) == (4, Kind.DELIVERED)
    assert entry.refs["delivering/bills"] == entry.refs["delivered/bills"] == entry.refs["published"]
    with (
        set_sizes(newest_format=3),
        pytest.raises(NewerFormatError, match="has format 4, this Headrace reads up to 3: upgrade it"),
    ):
        Entry.from_bytes(path.read_bytes(), path.name)


def test_a_packed_manifest_is_read_and_refused_by_what_does_not_know_it() -> None:
    path = GOLDEN / "format-5" / "objects" / "manifest-packed.json"
    manifest = Manifest.from_bytes(path.read_bytes(), path.name)
    assert (manifest.pipeline, manifest.epoch, manifest.format) == ("sales", 60, 1)
    assert (manifest.logs["panes"].files, manifest.logs["panes"].rows, len(manifest.tables["current"])) == (61, 366, 16)
    with (
        set_sizes(newest_format=4),
        pytest.raises(NewerFormatError, match="has format 5, this Headrace reads up to 4: upgrade it"),
    ):
        Manifest.from_bytes(path.read_bytes(), path.name)


def test_a_manifest_that_names_nodes_of_layers_is_read_with_them_and_refused_by_what_does_not_know_them() -> None:
    folder = GOLDEN / "format-6" / "objects"
    stored_bytes = (folder / "manifest-with-nodes.json").read_bytes()
    manifest = Manifest.from_bytes(stored_bytes, "x")
    assert (manifest.pipeline, manifest.epoch, manifest.format) == ("clicks", 6, 6)
    of_layer, of_merge = (
        IndexNode.from_bytes((folder / f"node-of-a-{what}.json").read_bytes(), what) for what in ("layer", "merge")
    )
    (layer,) = (
        state_layer
        for state_layer in manifest.tables["state"]
        if state_layer.node is not None and state_layer.node.id == of_layer.id
    )
    assert (layer.file_count, layer.rows) == (of_layer.ref.files, of_layer.ref.rows)
    (merge,) = manifest.merges["state"]
    assert [(node.id, node.files, node.rows) for node in merge.nodes] == [
        (of_merge.id, of_merge.ref.files, of_merge.ref.rows)
    ]
    assert merge.parts_done == len(of_merge.records) == 36
    assert merge.layers == tuple(state_layer.identity for state_layer in manifest.tables["state"][:4])
    with (
        set_sizes(newest_format=5),
        pytest.raises(NewerFormatError, match="has format 6, this Headrace reads up to 5: upgrade it"),
    ):
        Manifest.from_bytes(stored_bytes, "x")
