"""What a snapshot remembers of its input: files by their content wherever they lie now, and each name stored once."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.ext.sources import SourcePosition, SourceSplit
from headrace.pipeline.endpoints import OWN
from headrace.read.snapshots.progress import progress_of
from headrace.runs.options import Mode, RunOptions
from headrace.runs.restore import restore_head
from headrace.sources.file_planning import ChangedFileError, advance_position
from headrace.sources.progress import InputProgress, PipelineProgress
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format import files as stored
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.files import RADIX, FileLog, FileRecord
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store.local import MemoryStore
from tests.manifests import new_manifest
from tests.process.clicks import CLICKS, land, truth
from tests.process.executors import ExecutorUnderTest
from tests.process.test_fallback import flip, newest_state_file
from tests.process.test_process import current
from tests.stored_progress import progress_fields

LOOK_BACK = 1000


def copy_root(root: Path, target: Path) -> Path:
    """``root`` as ``cp -r`` copies it, or a backup brings it back: the same bytes, and every time a new one."""
    shutil.copytree(root, target, copy_function=shutil.copyfile)
    for file in target.rglob("*"):
        os.utime(file, ns=(10**18, 10**18))
    return target


def test_a_copy_of_a_root_goes_on_as_the_root_would(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    original = tmp_path / "original"
    land(original, 0, 3)
    executor.process(CLICKS, original.as_uri(), RunOptions("first", publish=True))
    root = copy_root(original, tmp_path / "copy")
    land(root, 3, 4)
    executor.process(CLICKS, root.as_uri(), RunOptions("goes-on"))
    assert current(CLICKS, root) == truth(4)
    flip(newest_state_file(root))
    land(root, 4, 5)
    fell_back = executor.process(CLICKS, root.as_uri(), RunOptions("falls-back"))
    assert fell_back.warnings
    assert current(CLICKS, root) == truth(5)
    replayed_result = executor.process(CLICKS, root.as_uri(), RunOptions("again", mode=Mode.REPLAY, branch="again"))
    assert len(replayed_result.epochs) == 5
    file = next((root / "landing" / "clicks").iterdir())
    file.write_bytes(file.read_bytes().replace(b"1", b"2"))
    with pytest.raises(ChangedFileError, match=file.name):
        executor.process(CLICKS, root.as_uri(), RunOptions("changed"))


class Reader:
    """A pipeline that reads ``per_epoch`` files in each epoch and does nothing else."""

    def __init__(self, per_epoch: int = 2, inputs: tuple[str, ...] = (OWN,)) -> None:
        self.store = MemoryStore()
        self.catalog = Catalog(self.store, "p")
        self.claim = self.catalog.claim("main", "test")
        self.per_epoch = per_epoch
        self.offsets = {name: SourcePosition() for name in inputs}
        self.head: Manifest | None = None
        self.bytes: list[int] = []

    def epoch(self) -> Manifest:
        number = 0 if self.head is None else self.head.epoch + 1
        first = number * self.per_epoch
        files = {
            name: [SourceSplit(f"landing/{name}/2026-01-01/part-{n:06d}.json", n, f"{n}-{10**18 + n}", f"xxh3-{n:016x}")
                   for n in range(first, first + self.per_epoch)]
            for name in self.offsets
        }  # fmt: skip
        self.offsets = {name: advance_position(self.offsets[name], some, LOOK_BACK) for name, some in files.items()}
        log = FileLog.empty() if self.head is None else self.head.logs["inputs"]
        read = [stored.InputFile(f.path, f.size, f.etag, name, f.digest) for name, some in files.items() for f in some]
        self.head = new_manifest(
            snapshot_id=self.catalog.new_snapshot_id(),
            pipeline="p",
            fingerprint="f",
            branch="main",
            epoch=number,
            parent=None if self.head is None else self.head.snapshot_id,
            generation=self.claim.generation,
            created_at="2026-01-01T00:00:00Z",
            progress=progress_fields(
                PipelineProgress({name: InputProgress(each) for name, each in self.offsets.items()})
            ),
            logs={"inputs": self.catalog.append_record(log, FileRecord(number, tuple(read)))},
        )
        self.catalog.commit(self.claim, self.head)
        self.bytes.append(len(self.store.read(f"p/manifests/{self.head.snapshot_id}.json")))
        return self.head

    def newcomer(self) -> Catalog:
        return Catalog(self.store, "p")


@pytest.mark.slow
@pytest.mark.parametrize("inputs", [(OWN,), (OWN, "other")])
def test_a_manifest_does_not_repeat_the_names_of_files(inputs: tuple[str, ...]) -> None:
    reader = Reader(inputs=inputs)
    for _ in range(800):
        manifest = reader.epoch()
        assert len(reader.offsets[OWN].recent) == min(LOOK_BACK, reader.offsets[OWN].files)
    assert progress_of(reader.newcomer(), manifest).offsets == reader.offsets
    print(f"\nmanifests of {len(inputs)} inputs: {min(reader.bytes)} to {max(reader.bytes)} bytes")
    assert max(reader.bytes) < 20_000
    newcomer, requests_before = reader.newcomer(), reader.store.requests.snapshot()
    progress_of(newcomer, manifest)
    nodes = reader.store.requests.since(requests_before)["get"]
    assert nodes <= LOOK_BACK * len(inputs) // RADIX.value + 9
    progress_of(newcomer, manifest)
    assert reader.store.requests.since(requests_before)["get"] == nodes, "what does not change was read again"


def test_only_what_is_behind_the_mark_is_read_back() -> None:
    reader = Reader(per_epoch=60)
    for _ in range(6):
        manifest = reader.epoch()
    offsets = reader.offsets[OWN]
    kept_offsets = replace(offsets, mark=offsets.recent[-11].path, recent=offsets.recent[-10:])
    progress = progress_fields(PipelineProgress({OWN: InputProgress(kept_offsets)}))
    assert progress_of(reader.newcomer(), manifest.replace(progress=progress)).offsets == {OWN: kept_offsets}


def test_a_snapshot_whose_log_names_too_few_files_is_broken() -> None:
    reader = Reader()
    manifest = reader.epoch()
    with pytest.raises(BrokenObjectError, match=r"epoch 0\) remembers 2 files more than its log of inputs names"):
        progress_of(reader.newcomer(), manifest.replace(logs={"inputs": FileLog.empty()}))


def test_a_lost_part_of_the_log_of_inputs_costs_a_fall_back() -> None:
    reader = Reader(per_epoch=RADIX.value // 2 - 1)
    ids = [reader.epoch().snapshot_id for _ in range(4)]
    (node,) = (info.path for info in reader.store.list("p/index/"))
    reader.store.delete(node)
    catalog = reader.newcomer()
    restored_run = restore_head(
        catalog, catalog.claim("main", "next"), lambda manifest: manifest, lambda *_: None, lambda *_: []
    )
    assert restored_run.claim.snapshot_id == ids[1]
    assert restored_run.warning is not None
    assert f"{node} is missing" in restored_run.warning
    assert "cannot tell whether all of it is still there" in restored_run.warning
