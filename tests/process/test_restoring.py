"""What a restore continues from, on a catalog whose state files are a few bytes: no Spark."""

import hashlib
import json
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path

import pytest

import headrace as hr
from headrace.errors import FixConfigError
from headrace.ext.sources import SourceSplit
from headrace.model.triggers import Signal
from headrace.pipeline.endpoints import OWN
from headrace.runs.restore import BelowPublishedError, InputGoneError, RestoredRun, Verify, restore_head
from headrace.sources.progress import PipelineProgress
from headrace_lab.catalog_checks import check_catalog
from headrace_snapshots.catalog import Catalog, Claim
from headrace_snapshots.datafiles import read_verified
from headrace_snapshots.errors import FencedError, MissingSnapshotError, RefusedError
from headrace_snapshots.format import files as format_files
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.files import DataFile, FileLog, FileRecord, Layer
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store import StoreUnavailableError
from headrace_snapshots.store.local import MemoryStore
from headrace_snapshots.testing import Fault, FaultyStore
from tests.manifests import new_manifest
from tests.stored_progress import progress_fields

EPOCHS = 4


class Line:
    """A pipeline of ``EPOCHS`` epochs on main, each with one input file and one layer of state on those before."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.catalog = Catalog(self.store, "p")
        self.claim = self.catalog.claim("main", "test")
        self.ids: list[str] = []
        self.states: list[DataFile] = []
        self.inputs = [SourceSplit(f"landing/{epoch}", 10 + epoch, f"etag-{epoch}") for epoch in range(EPOCHS)]
        inputs, layers = FileLog.empty(), ()
        for epoch in range(EPOCHS):
            snapshot = self.catalog.new_snapshot_id()
            file, taken_inputs = self.state(epoch, snapshot), self.inputs[epoch]
            layers = (*layers, Layer.from_files((file,), epoch, epoch))
            record = FileRecord(
                epoch, (format_files.InputFile(taken_inputs.path, taken_inputs.size, taken_inputs.etag, OWN),)
            )
            inputs = self.catalog.append_record(inputs, record)
            manifest = new_manifest(
                snapshot_id=snapshot,
                pipeline="p",
                fingerprint="f",
                branch="main",
                epoch=epoch,
                parent=self.ids[-1] if self.ids else None,
                generation=self.claim.generation,
                created_at="2026-01-01T00:00:00Z",
                progress=progress_fields(PipelineProgress(), Signal(f"go-{epoch}")),
                tables={"state": layers},
                logs={"inputs": inputs},
            )
            self.catalog.commit(self.claim, manifest)
            self.ids.append(snapshot)

    def state(self, epoch: int, snapshot: str) -> DataFile:
        data = f"state of epoch {epoch}".encode()
        file = DataFile(
            f"p/data/{epoch:08d}-{snapshot}/state-0.parquet", 1, len(data), hashlib.sha256(data).hexdigest()
        )
        self.store.write(file.path, data)
        self.states.append(file)
        return file

    def manifest_path(self, epoch: int) -> str:
        return f"p/manifests/{self.ids[epoch]}.json"

    def newcomer(self) -> tuple[Catalog, Claim]:
        """The next application: it has read nothing yet."""
        catalog = Catalog(self.store, "p")
        return catalog, catalog.claim("main", "next")

    def missing_files(self, head: Manifest | None, files: Iterable[format_files.InputFile]) -> list[str]:
        inputs_left = self.inputs[0 if head is None else head.epoch + 1 :]
        return [file.path for file in files if SourceSplit(file.path, file.size, file.etag) not in inputs_left]

    def restore(self) -> RestoredRun:
        catalog, claim = self.newcomer()
        return restore_head(catalog, claim, lambda manifest: manifest, verifier_with(catalog), self.missing_files)

    def main(self) -> str | None:
        return Catalog(self.store, "p").head().refs.get("main")


@pytest.fixture
def line() -> Line:
    return Line()


def verifier_with(catalog: Catalog) -> Verify:
    """As an executor does that keeps nothing."""

    def whole(_: Manifest, __: str, file: DataFile, ___: object = None) -> None:
        read_verified(catalog.store, file)

    return whole


def flip(store: MemoryStore, path: str) -> None:
    data = bytearray(store.read(path))
    data[len(data) // 2] ^= 0xFF
    store.write(path, bytes(data))


def cut(store: MemoryStore, path: str) -> None:
    store.write(path, store.read(path)[:-5])


def remove(store: MemoryStore, path: str) -> None:
    store.delete(path)


DAMAGE = pytest.mark.parametrize("damage", [flip, cut, remove])
Damage = Callable[[MemoryStore, str], None]


def test_a_whole_head_is_what_it_goes_on_from(line: Line) -> None:
    restored_run = line.restore()
    assert restored_run.head is not None
    assert (restored_run.head.snapshot_id, restored_run.warning) == (line.ids[-1], None)
    assert line.main() == line.ids[-1]


@DAMAGE
def test_a_broken_state_file_is_named_and_the_newest_snapshot_without_it_restored(line: Line, damage: Damage) -> None:
    broken_state = line.states[2]  # the layer of epoch 2, which snapshots 2 and 3 read
    line.catalog.publish(line.ids[1], None)
    damage(line.store, broken_state.path)
    restored_run = line.restore()
    assert restored_run.head is not None
    assert restored_run.head.snapshot_id == line.ids[1] == line.main()
    assert restored_run.warning is not None
    assert broken_state.path in restored_run.warning
    assert line.ids[3] in restored_run.warning
    assert "epoch 1" in restored_run.warning
    (entry,) = line.catalog.list_entries(limit=1)
    assert entry.kind == "rollback"
    assert broken_state.path in entry.message
    assert entry.refs["published"] == line.ids[1]
    assert restored_run.claim == Claim("main", entry.number, line.ids[1])
    check_catalog(line.store, "p")


@DAMAGE
def test_so_is_a_broken_manifest(line: Line, damage: Damage) -> None:
    line.catalog.publish(line.ids[1], None)
    damage(line.store, line.manifest_path(3))
    restored_run = line.restore()
    assert restored_run.head is not None
    assert restored_run.head.snapshot_id == line.ids[2] == line.main()
    assert restored_run.warning is not None
    assert line.manifest_path(3) in restored_run.warning
    assert "cannot tell whether all of it is still there" in restored_run.warning


def test_several_broken_things_on_the_way_back(line: Line) -> None:
    remove(line.store, line.manifest_path(2))
    flip(line.store, line.states[3].path)
    flip(line.store, line.states[1].path)
    restored_run = line.restore()
    assert restored_run.head is not None
    assert restored_run.head.snapshot_id == line.ids[0]
    assert restored_run.warning is not None
    assert line.states[1].path in restored_run.warning
    assert "cannot tell" not in restored_run.warning  # the manifest of epoch 3 names the input of all


def test_signals_of_a_broken_manifest_may_be_lost(line: Line) -> None:
    remove(line.store, line.manifest_path(EPOCHS - 1))
    warning = line.restore().warning
    assert warning is not None
    assert "if signals were given to an epoch whose manifest is broken, give them again" in warning


def test_signals_come_again_with_the_epochs_that_are_read_again(tmp_path: Path) -> None:
    root = tmp_path / "root"
    pipeline = hr.Pipeline(
        "clicks",
        hr.json("landing/clicks", {"user": str, "at": datetime}).event_time("at", bound="10m"),
        key="user",
        what={"clicks": hr.count()},
        where=hr.FixedWindows("1d"),
        when=hr.Repeatedly(hr.AfterSignal("go")),
        executor="local",
    )
    (root / "landing" / "clicks").mkdir(parents=True)
    handle = hr.open(root.as_uri(), create=True)[pipeline]

    def land(minute: int) -> None:
        record = {"user": "ada", "at": f"2026-05-01T09:0{minute}:00Z"}
        (root / "landing" / "clicks" / f"{minute}.jsonl").write_text(f"{json.dumps(record)}\n")

    for minute, signals in enumerate([(), [hr.Signal("go")], ()]):
        land(minute)
        handle.run(signals=signals, publish=False)
    (state_file,) = root.glob("clicks/data/00000001-*/state-*.parquet")
    state_file.unlink()
    land(3)

    (warning,) = handle.run().warnings
    assert "fell back" in warning
    assert "give them again" not in warning
    assert handle.read().to_arrow()["clicks"].to_pylist() == [2]


def test_no_state_file_is_read_twice(line: Line) -> None:
    flip(line.store, line.states[3].path)
    catalog, claim = line.newcomer()
    requests_before = line.store.requests.snapshot()
    restore_head(catalog, claim, lambda manifest: manifest, verifier_with(catalog), line.missing_files)
    manifests, entries = EPOCHS - 1, 4
    assert line.store.requests.since(requests_before)["get"] <= EPOCHS + manifests + entries


def test_without_a_whole_snapshot_it_begins_again(line: Line) -> None:
    remove(line.store, line.states[0].path)
    restored_run = line.restore()
    assert restored_run.head is None
    assert line.main() is None
    assert restored_run.warning is not None
    assert "its beginning" in restored_run.warning


@pytest.mark.parametrize("published_epoch", [1, 2, 3])
def test_readers_are_never_moved_back(line: Line, published_epoch: int) -> None:
    line.catalog.publish(line.ids[published_epoch], None)
    flip(line.store, line.states[1].path)
    with pytest.raises(BelowPublishedError) as error:
        line.restore()
    for words in (
        line.states[1].path,
        f"Readers see snapshot {line.ids[published_epoch]}",
        f"rollback p --to {line.ids[0]}",
    ):
        assert words in str(error.value)
    assert line.main() == line.ids[3]
    assert Catalog(line.store, "p").head().refs["published"] == line.ids[published_epoch]


def test_a_branch_beside_main_has_no_readers(line: Line) -> None:
    line.catalog.publish(line.ids[3], None)
    line.catalog.fork("backfill", line.ids[3])
    flip(line.store, line.states[1].path)
    catalog = Catalog(line.store, "p")
    restored_run = restore_head(
        catalog,
        catalog.claim("backfill", "next"),
        lambda manifest: manifest,
        verifier_with(catalog),
        line.missing_files,
    )
    assert restored_run.claim.snapshot_id == line.ids[0] == catalog.head().refs["backfill"]
    assert line.main() == line.ids[3]


@pytest.mark.parametrize(
    "changed_source", [None, SourceSplit("landing/2", 12, "another etag"), SourceSplit("landing/2", 1, "etag-2")]
)
def test_input_that_could_not_be_read_again_is_not_given_up(line: Line, changed_source: SourceSplit | None) -> None:
    flip(line.store, line.states[2].path)
    line.inputs[2:3] = [] if changed_source is None else [changed_source]
    with pytest.raises(InputGoneError, match="landing/2") as error:
        line.restore()
    assert line.states[2].path in str(error.value)
    assert line.main() == line.ids[3]


def test_input_that_the_whole_snapshot_holds_may_be_gone(line: Line) -> None:
    flip(line.store, line.states[2].path)
    line.inputs[1] = SourceSplit("landing/1", 0, "gone")
    assert line.restore().claim.snapshot_id == line.ids[1]


def test_a_store_that_does_not_answer_has_lost_nothing(line: Line) -> None:
    faulty = FaultyStore(line.store, lambda operation: Fault.FAIL if "state" in operation.path else None)
    catalog = Catalog(faulty, "p")
    claim = catalog.claim("main", "next")
    with pytest.raises(StoreUnavailableError):
        restore_head(catalog, claim, lambda manifest: manifest, verifier_with(catalog), line.missing_files)
    assert line.main() == line.ids[3]


def test_a_writer_that_was_replaced_does_not_move_the_branch(line: Line) -> None:
    flip(line.store, line.states[3].path)
    catalog, claim = line.newcomer()
    Catalog(line.store, "p").claim("main", "a third")
    with pytest.raises(FencedError):
        restore_head(catalog, claim, lambda manifest: manifest, verifier_with(catalog), line.missing_files)
    assert line.main() == line.ids[3]


def test_a_changed_pipeline_is_no_damage(line: Line) -> None:
    flip(line.store, line.states[3].path)
    catalog, claim = line.newcomer()

    def refuse_change(manifest: Manifest) -> Manifest:
        raise FixConfigError("the pipeline has changed")

    with pytest.raises(FixConfigError, match="has changed"):
        restore_head(catalog, claim, refuse_change, verifier_with(catalog), line.missing_files)
    assert line.main() == line.ids[3]


@pytest.mark.parametrize("damage", [flip, remove])
def test_a_person_can_roll_back_past_a_broken_manifest(line: Line, damage: Damage) -> None:
    line.catalog.publish(line.ids[0], None)
    line.catalog.publish(line.ids[3], line.ids[0])
    damage(line.store, line.manifest_path(3))
    damage(line.store, line.manifest_path(2))
    catalog = Catalog(line.store, "p")
    with pytest.raises((BrokenObjectError, MissingSnapshotError)):
        catalog.manifest(line.ids[3])
    entry = catalog.rollback("main", line.ids[1], "by hand")
    assert entry.refs == {"main": line.ids[1], "published": line.ids[0]}


def test_what_readers_never_saw_is_released_before_a_person_rolls_back_to_it(line: Line) -> None:
    """Also past a manifest that nobody can read."""
    line.catalog.publish(line.ids[3], None)
    remove(line.store, line.manifest_path(3))
    with pytest.raises(RefusedError, match=f"`headrace release p {line.ids[1]}`"):
        Catalog(line.store, "p").rollback("main", line.ids[1], "by hand")
    assert Catalog(line.store, "p").release(line.ids[1], "looked at").moves == {}
    entry = Catalog(line.store, "p").rollback("main", line.ids[1], "by hand")
    assert entry.refs == {"main": line.ids[1], "published": line.ids[1]}
