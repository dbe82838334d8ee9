"""Many files of a layer are in a node: stored once, by the epoch that made it, and read by who needs them."""

import pickle
from datetime import UTC, datetime
from hashlib import sha256

import pytest
from catalog_helpers import manifest_for

from headrace.errors import RestoreError
from headrace_lab.catalog_checks import check_catalog
from headrace_lab.sizes import set_sizes
from headrace_snapshots.catalog import Catalog, Claim
from headrace_snapshots.errors import FencedError
from headrace_snapshots.expiry import expire
from headrace_snapshots.format import codec
from headrace_snapshots.format.codec import BrokenObjectError, NewerFormatError
from headrace_snapshots.format.files import DataFile, Layer, UnfinishedMerge
from headrace_snapshots.format.manifest import MANY, Manifest
from headrace_snapshots.fsck import fsck
from headrace_snapshots.gc_roots import Keep
from headrace_snapshots.names import ObjectKind, object_folder
from headrace_snapshots.store import StoreUnavailableError
from headrace_snapshots.store.local import MemoryStore
from headrace_snapshots.testing import Fault, FaultyStore

NOW = datetime(2026, 1, 1, tzinfo=UTC)
INDEX = object_folder("p", ObjectKind.INDEX)


class Line:
    """A pipeline whose epochs change state, and what its catalog holds."""

    def __init__(self, store: "ObservedStore") -> None:
        self.store = store
        self.catalog = Catalog(store, "p")
        self.claim = self.catalog.claim("main", "run")
        self.head: Manifest | None = None
        self.layers: tuple[Layer, ...] = ()

    def files(self, count: int, epoch: int, snapshot: str) -> tuple[DataFile, ...]:
        prefix = f"{self.catalog.data_prefix(epoch, snapshot)}/state"
        data = b"rows"
        for number in range(count):
            self.store.write(f"{prefix}-{number}.parquet", data)
        digest = sha256(data).hexdigest()
        return tuple(DataFile(f"{prefix}-{number}.parquet", 2, len(data), digest) for number in range(count))

    def prepare_manifest(self, files: int, claim: Claim | None = None) -> Manifest:
        """The next epoch, whose layer has so many files; the layers are as the engine holds them, none in a node."""
        manifest = manifest_for(self.catalog, claim or self.claim, None if self.head is None else self.head.snapshot_id)
        layer = Layer.from_files(
            self.files(files, manifest.epoch, manifest.snapshot_id), manifest.epoch, manifest.epoch, 7
        )
        self.layers = (*self.layers, layer)
        return manifest.replace(tables={"state": self.layers})

    def commit(self, *files: int) -> Manifest:
        """Epochs whose layers have so many files; the newest as a reader sees it."""
        for count in files:
            self.head = self.prepare_manifest(count)
            self.catalog.commit(self.claim, self.head)
            self.catalog.publish(self.head.snapshot_id, self.head.parent)
        assert self.head is not None
        return self.reader().manifest(self.head.snapshot_id)

    def reader(self) -> Catalog:
        return Catalog(self.store, "p")

    @property
    def nodes(self) -> list[str]:
        return [info.path for info in self.store.list(INDEX)]


@pytest.fixture
def line() -> Line:
    return Line(ObservedStore())


def collect_all(line: Line) -> None:
    """Expire all but the newest snapshot: what nobody named waits until who may have written it is fenced."""
    for owner in ("next", "the one after"):
        expire(line.reader(), Keep(1), NOW)
        line.reader().claim("main", owner)
    expire(line.reader(), Keep(1), NOW)


def test_few_files_stand_in_the_manifest_as_ever(line: Line) -> None:
    manifest = line.commit(MANY.value)
    assert (manifest.format, line.nodes) == (1, [])
    assert "node" not in str(manifest.to_json())


def test_a_layer_of_many_files_is_stored_once_and_said_whole(line: Line) -> None:
    manifest = line.commit(MANY.value + 1, MANY.value + 1, 3)
    first, second, third = manifest.tables["state"]
    assert (manifest.format, len(line.nodes)) == (6, 2)
    assert (first.own, second.own, len(third.own)) == ((), (), 3)
    assert manifest.tables["state"] != line.layers
    for layer, whole_layer in zip(manifest.tables["state"], line.layers, strict=True):
        assert layer.files == whole_layer.files
        for name in ("rows", "bytes", "file_count", "identity", "first_epoch", "last_epoch", "expires"):
            assert getattr(layer, name) == getattr(whole_layer, name), name
    assert [layer.node for layer in line.commit(1).tables["state"][:2]] == [first.node, second.node]
    assert len(line.nodes) == 2
    check_catalog(line.store, "p")


def test_manifests_are_read_without_their_nodes(line: Line) -> None:
    line.commit(*[MANY.value + 1] * 4)
    line.store.reads.clear()
    catalog = line.reader()
    links = [*catalog.lineage(catalog.head().refs["main"])]
    assert [link.problem for link in links] == [None] * 4
    assert [layer.rows for layer in catalog.manifest(links[0].snapshot_id).tables["state"]] == [
        2 * (MANY.value + 1)
    ] * 4
    assert line.store.read_of("/index/") == []


def test_a_writer_reads_no_node_that_it_wrote_and_a_reader_each_once(line: Line) -> None:
    manifest = line.commit(MANY.value + 1, MANY.value + 1, MANY.value + 1)
    assert line.store.read_of("/index/") == []
    catalog = line.reader()
    assert manifest.parent is not None
    for snapshot in (manifest.snapshot_id, manifest.parent, manifest.snapshot_id):
        assert all(layer.files for layer in catalog.layers(catalog.manifest(snapshot), ["state"]))
    assert sorted(line.store.read_of("/index/")) == line.nodes


@set_sizes(files_in_a_node=10)
def test_a_layer_of_very_many_files_has_them_in_several_nodes(line: Line) -> None:
    (layer,) = line.commit(MANY.value + 3).tables["state"]
    assert layer.node is not None
    root = line.catalog.read_node(layer.node.id)
    assert ([ref.files for ref in root.refs], root.records, len(line.nodes)) == ([10, 10, 10, 5], (), 5)
    assert layer.files == line.layers[0].files
    check_catalog(line.store, "p")


def test_a_long_node_is_packed(line: Line) -> None:
    (layer,) = line.commit(1_000).tables["state"]
    content = line.store.read(line.nodes[0])
    assert content.startswith(b'{"format":5,"kind":"index"')
    assert len(content) < len(codec.canonical_json([file.to_json() for file in layer.files])) / 3


def test_another_process_gets_the_files_with_a_layer(line: Line) -> None:
    (layer,) = line.commit(MANY.value + 1).tables["state"]
    copy_there = pickle.loads(pickle.dumps(layer))
    line.store.delete(line.nodes[0])
    assert (copy_there, copy_there.files) == (layer, line.layers[0].files)


def test_an_older_version_says_that_it_must_be_upgraded(line: Line) -> None:
    manifest = line.commit(MANY.value + 1)
    long = manifest.replace(progress={"x": "y" * 10_000})
    with set_sizes(newest_format=5):
        for one in (manifest, long):
            with pytest.raises(NewerFormatError, match="x has format 6, this Headrace reads up to 5: upgrade it"):
                Manifest.from_bytes(one.to_bytes(), "x")


@pytest.mark.parametrize("is_there", [True, False])
def test_a_node_that_is_gone_or_another_is_named_by_who_asks_for_the_files(line: Line, *, is_there: bool) -> None:
    head = line.commit(MANY.value + 1, MANY.value + 1)
    other, path = (f"{INDEX}{layer.node.id}.json" for layer in head.tables["state"] if layer.node is not None)
    if is_there:
        line.store.write(path, line.store.read(other))
    else:
        line.store.delete(path)
    manifest = line.reader().manifest(head.snapshot_id)
    assert manifest.tables["state"][0].files == line.layers[0].files
    with pytest.raises(BrokenObjectError, match=f"{path} is {'another node' if is_there else 'missing'}"):
        line.reader().layers(manifest, ["state"])
    (problem,) = fsck(line.reader(), deep=True).problems
    assert (problem.path, "rollback" in problem.remedy) == (path, True)


def test_two_writers_share_no_node(line: Line) -> None:
    """Both prepare the same layer; one is fenced, and its node is its own."""
    manifest = line.prepare_manifest(MANY.value + 1)
    late = line.claim
    line.claim = line.catalog.claim("main", "another")
    with pytest.raises(FencedError):
        line.catalog.commit(late, manifest)
    (lost_node,) = line.nodes
    line.layers = ()
    line.catalog.commit(line.claim, line.prepare_manifest(MANY.value + 1))
    assert len(line.nodes) == 2
    collect_all(line)
    assert lost_node not in line.nodes
    assert len(line.nodes) == 1
    check_catalog(line.store, "p")


@pytest.mark.parametrize("effect", ["/index/", "/manifests/"])
@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.LOSE_ANSWER])
def test_what_a_crash_leaves_is_garbage(line: Line, effect: str, fault: Fault) -> None:
    line.commit(MANY.value + 1, 2)
    faulty = FaultyStore(line.store, lambda one: fault if one.kind == "put" and effect in one.path else None)
    with pytest.raises(StoreUnavailableError, match="on purpose"):
        Catalog(faulty, "p").commit(line.claim, line.prepare_manifest(MANY.value + 1))
    restarted_line = Line(line.store)
    restarted_line.head = restarted_line.catalog.manifest(restarted_line.claim.snapshot_id or "")
    restarted_line.layers = restarted_line.head.tables["state"]
    restarted_line.commit(MANY.value + 1)
    collect_all(line)
    head = line.reader().manifest(line.reader().head().refs["main"])
    assert {*line.nodes} == {f"{INDEX}{node.id}.json" for node in head.nodes}
    check_catalog(line.store, "p")


def test_a_node_goes_with_the_last_snapshot_that_names_it(line: Line) -> None:
    line.commit(MANY.value + 1)
    line.layers = ()  # merged into what comes next
    line.commit(MANY.value + 1)
    expire(line.catalog, Keep(2), NOW)
    assert len(line.nodes) == 2
    for _ in range(2):
        expire(line.catalog, Keep(1), NOW)
    (left,) = line.nodes
    (layer,) = line.reader().manifest(line.reader().head().refs["main"]).tables["state"]
    assert layer.node is not None
    assert left == f"{INDEX}{layer.node.id}.json"
    assert len([*line.store.list("p/data/")]) == MANY.value + 1


def test_a_branch_names_the_nodes_of_main_and_keeps_them(line: Line) -> None:
    snapshot_id = line.commit(MANY.value + 1).snapshot_id
    line.catalog.fork("fix", snapshot_id, "to try")
    line.layers = ()
    line.commit(1, 1)
    for _ in range(2):
        expire(line.catalog, Keep(1), NOW)
    claim = line.catalog.claim("fix", "run")
    fixed_manifest = line.catalog.manifest(snapshot_id)
    manifest = manifest_for(line.catalog, claim, snapshot_id).replace(tables=fixed_manifest.tables)
    line.catalog.commit(claim, manifest)
    (layer,) = line.reader().manifest(manifest.snapshot_id).tables["state"]
    assert len(layer.files) == MANY.value + 1
    assert line.nodes == [f"{INDEX}{layer.node.id}.json"]  # type: ignore[union-attr]
    check_catalog(line.store, "p")


def test_a_lost_node_of_what_is_kept_stops_an_expiry_and_one_of_what_has_expired_does_not(line: Line) -> None:
    line.commit(MANY.value + 1)
    line.layers = ()
    line.commit(1, 1)
    line.store.delete(line.nodes[0])
    with pytest.raises(RestoreError, match="is missing"):
        expire(line.catalog, Keep(3), NOW)
    collect_all(line)
    assert len([*line.store.list("p/data/")]) == 2, "what the lost node named has waited for its writer, and is gone"
    assert fsck(line.reader(), deep=True).problems == ()


def parts(line: Line, count: int, begin: int = 0) -> tuple[tuple[DataFile, ...], ...]:
    return tuple(line.files(2, 9, f"{part:016x}") for part in range(begin, begin + count))


def test_parts_of_a_merge_are_stored_once_and_go_on(line: Line) -> None:
    line.commit(1, 1)
    merge = UnfinishedMerge.from_layers(line.layers, 100, is_lowest=True)
    stored_unfinished_merges: list[UnfinishedMerge] = []
    for step in (10, 20, 5, 30):
        merge = merge.with_next(parts(line, step, merge.parts_done))
        line.head = line.prepare_manifest(1).replace(merges={"state": (merge,)})
        line.catalog.commit(line.claim, line.head)
        stored_unfinished_merges += line.reader().manifest(line.head.snapshot_id).merges["state"]
    assert [len(one.nodes) for one in stored_unfinished_merges] == [0, 1, 1, 2]
    assert [len(one.own) for one in stored_unfinished_merges] == [10, 0, 5, 0]
    assert [(one.parts_done, one.left, one.rows) for one in stored_unfinished_merges] == [
        (parts_done, range(parts_done, 100), 4 * parts_done) for parts_done in (10, 30, 35, 65)
    ]
    assert stored_unfinished_merges[-1].files == merge.files
    assert stored_unfinished_merges[-1].nodes[:1] == stored_unfinished_merges[1].nodes
    going_on = stored_unfinished_merges[-1].with_next(parts(line, 1, 65))
    assert (going_on.parts_done, going_on.files[:65]) == (66, merge.files)
    assert fsck(line.reader(), deep=True).problems == ()


def test_a_merge_that_begins_again_has_none_of_its_nodes(line: Line) -> None:
    line.commit(1, 1)
    merge = UnfinishedMerge.from_layers(line.layers, 100, is_lowest=True)
    for begin in (0, 50):
        line.head = line.prepare_manifest(1).replace(merges={"state": (merge.with_next(parts(line, 20, begin)),)})
        line.catalog.commit(line.claim, line.head)
    (state_again,) = line.reader().manifest(line.head.snapshot_id).merges["state"]
    assert state_again.files == parts(line, 20, 50)
    assert len(line.nodes) == 2


def test_a_lost_node_of_a_merge_costs_only_the_merge(line: Line) -> None:
    line.commit(1, 1)
    merge = UnfinishedMerge.from_layers(line.layers, 100, is_lowest=True).with_next(parts(line, 20))
    line.head = line.prepare_manifest(1).replace(merges={"state": (merge,)})
    line.catalog.commit(line.claim, line.head)
    line.store.delete(line.nodes[0])
    (problem,) = fsck(line.reader(), deep=True).problems
    assert "do without: the merge that it is a part of begins again" in problem.remedy


class ObservedStore(MemoryStore):
    """Remembers what was read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    def read(self, path: str) -> bytes:
        self.reads.append(path)
        return super().read(path)

    def read_of(self, kind: str) -> list[str]:
        return [path for path in self.reads if kind in path]
