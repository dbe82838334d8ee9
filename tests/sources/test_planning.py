"""Finding files: what is new, what changed, what the usual listing cannot find; cutting them into epochs."""

import dataclasses
import itertools
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import FileSource
from headrace.ext.sources import SourcePosition, SourceSplit
from headrace.model.expressions.data_types import DataType
from headrace.sources.file_planning import (
    ChangedFileError,
    VanishedFileError,
    advance_position,
    discover_splits,
    full_sweep,
    next_batch,
    open_source,
    taken_in,
)
from headrace_snapshots.format.codec import Fields
from headrace_snapshots.store import LocalStore, ObjectStore
from headrace_snapshots.store.local import MemoryStore

SOURCE = FileSource(path="landing", format="json", schema={"a": DataType.INT})


def land(store: ObjectStore, *names: str) -> None:
    for name in names:
        store.write(f"landing/{name}", name.encode())


def names(files: list[SourceSplit]) -> list[str]:
    return [file.path.removeprefix("landing/") for file in files]


def read_all(store: ObjectStore, offsets: SourcePosition, look_back: int) -> tuple[list[str], SourcePosition]:
    """Read everything that is found, two files an epoch."""
    files = discover_splits(store, "landing", offsets, SOURCE)
    read = names(files)
    while files:
        batch = next_batch(files, 2, 1_000_000)
        offsets, files = advance_position(offsets, batch, look_back), files[len(batch) :]
    return read, offsets


def test_new_files_come_once_in_the_order_of_their_names() -> None:
    store = MemoryStore("planning-order")
    land(store, "b.json", "a.json", "d/c.json")
    read, offsets = read_all(store, SourcePosition(), look_back=2)
    assert read == ["a.json", "b.json", "d/c.json"]
    land(store, "e.json", "bb.json")
    read, offsets = read_all(store, offsets, look_back=2)
    assert read == ["bb.json", "e.json"]
    assert read_all(store, offsets, look_back=2)[0] == []
    assert (offsets.files, offsets.bytes) == (5, len("a.jsonb.jsond/c.jsone.jsonbb.json"))


def test_what_sorts_before_the_look_back_window_is_found_by_a_full_sweep_only() -> None:
    store = MemoryStore("planning-sweep")
    land(store, *(f"{n:02}" for n in range(0, 10, 2)))
    read, offsets = read_all(store, SourcePosition(), look_back=2)
    assert names(list(offsets.recent)) == ["06", "08"]
    assert offsets.mark == "landing/04"
    land(store, "03", "05", "11", "_03", "07")
    assert names(discover_splits(store, "landing", offsets, SOURCE)) == ["05", "07", "11"]
    read_paths = [f"landing/{name}" for name in read]
    stragglers = full_sweep(store, "landing", offsets, iter(read_paths), SOURCE)
    assert names(stragglers) == ["03"]
    position_after = advance_position(offsets, stragglers, 2)
    assert (position_after.mark, position_after.recent, position_after.files) == (
        offsets.mark,
        offsets.recent,
        offsets.files + 1,
    )


def test_without_look_back_listing_starts_after_the_newest_file() -> None:
    store = MemoryStore("planning-no-look-back")
    land(store, "1", "3")
    _, offsets = read_all(store, SourcePosition(), look_back=0)
    assert (offsets.mark, offsets.recent) == ("landing/3", ())
    land(store, "2", "4")
    assert names(discover_splits(store, "landing", offsets, SOURCE)) == ["4"]


def test_a_longer_look_back_does_not_read_old_files_again() -> None:
    store = MemoryStore("planning-longer")
    land(store, *"12345")
    _, offsets = read_all(store, SourcePosition(), look_back=1)
    offsets = advance_position(offsets, [], look_back=100)
    assert discover_splits(store, "landing", offsets, SOURCE) == []


def test_a_changed_file_is_an_error_that_names_both_versions(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    land(store, "a.json", "b.json")
    (first, _) = discover_splits(store, "landing", SourcePosition(), SOURCE)
    _, offsets = read_all(store, SourcePosition(), look_back=10)
    store.write("landing/a.json", b"something longer than before")
    with pytest.raises(ChangedFileError, match=r"landing/a\.json has changed") as error:
        discover_splits(store, "landing", offsets, SOURCE)
    assert f"6 bytes with ETag {first.etag}" in str(error.value)
    assert "28 bytes with ETag" in str(error.value)


def test_of_a_local_file_the_content_decides(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    land(store, "a.json", "b.json")
    splits = [taken_in(store, file) for file in discover_splits(store, "landing", SourcePosition(), SOURCE)]
    offsets = advance_position(SourcePosition(), splits, look_back=10)
    os.utime(tmp_path / "landing/a.json", ns=(0, 0))
    assert store.stat("landing/a.json").etag != splits[0].etag
    assert discover_splits(store, "landing", offsets, SOURCE) == []
    store.write("landing/a.json", b"A.json")
    with pytest.raises(ChangedFileError, match=r"landing/a\.json has changed"):
        discover_splits(store, "landing", offsets, SOURCE)


def test_a_file_that_goes_before_it_is_taken_in_is_told(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    land(store, "a.json")
    (file,) = discover_splits(store, "landing", SourcePosition(), SOURCE)
    store.delete(file.path)
    with pytest.raises(VanishedFileError, match=r"landing/a\.json was listed and is gone"):
        taken_in(store, file)


def test_a_file_that_was_read_may_be_removed() -> None:
    store = MemoryStore("planning-removed")
    land(store, "a", "b")
    _, offsets = read_all(store, SourcePosition(), look_back=10)
    store.delete("landing/a")
    assert discover_splits(store, "landing", offsets, SOURCE) == []


def test_hidden_names_other_folders_and_other_suffixes_are_left_out() -> None:
    store = MemoryStore("planning-hidden")
    land(
        store, "_SUCCESS", ".a.json", "_tmp/a.json", "x/.y/a.json", "a.json._COPYING_", "a.json", "x/b.csv", "a_b.json"
    )
    store.write("landing2/a.json", b"")
    assert names(discover_splits(store, "landing", SourcePosition(), SOURCE)) == ["a.json", "a_b.json", "x/b.csv"]
    only_json = dataclasses.replace(SOURCE, suffixes=(".json",))
    assert names(discover_splits(store, "landing", SourcePosition(), only_json)) == ["a.json", "a_b.json"]


def test_offsets_survive_json() -> None:
    offsets = advance_position(
        SourcePosition(), [SourceSplit("landing/ü [1]", 3, "e1"), SourceSplit("landing/b", 0, "")], look_back=1
    )
    stored_document = json.loads(json.dumps(offsets.to_json()))
    assert stored_document == {"offsets": {"mark": "landing/b", "recent": 1, "files": 2, "bytes": 3}}
    assert SourcePosition.from_json(Fields(stored_document, "input"), offsets.recent) == offsets


@pytest.mark.parametrize("mark", ["some text", '{"a":{"b":[1,2]},"c":"d"}'])
def test_a_position_of_another_kind_says_of_which(mark: str) -> None:
    offsets = SourcePosition(mark, (), 2, 3, "tables", 4)
    stored_document = json.loads(json.dumps(offsets.to_json()))
    position = json.loads(mark) if mark.startswith("{") else mark
    assert stored_document["position"] == {"kind": "tables", "format": 4, "at": position}
    assert SourcePosition.from_json(Fields(stored_document, "input")) == offsets


def test_a_source_is_under_the_root_or_elsewhere(tmp_path: Path) -> None:
    root = MemoryStore("planning-root")
    assert open_source(root, "landing/flights/") == (root, "landing/flights")
    store, prefix = open_source(root, f"file://{tmp_path}")
    (tmp_path / "a.json").write_text("{}")
    assert [file.path for file in discover_splits(store, prefix, SourcePosition(), SOURCE)] == ["a.json"]


@given(sizes=st.lists(st.integers(0, 50)), max_files=st.integers(1, 5), max_bytes=st.integers(1, 60))
def test_batches_are_bounded_and_lose_nothing(sizes: list[int], max_files: int, max_bytes: int) -> None:
    files = [SourceSplit(f"{n:04}", size, "") for n, size in enumerate(sizes)]
    rest, batches = files, []
    while rest:
        batches.append(next_batch(rest, max_files, max_bytes))
        rest = rest[len(batches[-1]) :]
    assert [file for batch in batches for file in batch] == files
    for batch in batches:
        assert len(batch) <= max_files
        assert len(batch) == 1 or sum(file.size for file in batch) <= max_bytes
    for batch, following in itertools.pairwise(batches):
        full = sum(file.size for file in batch) + following[0].size > max_bytes
        assert len(batch) == max_files or full


@given(landed_by_run=st.lists(st.lists(st.integers(0, 40), max_size=6), max_size=6), look_back=st.integers(0, 10))
def test_every_file_is_read_once_by_discovery_or_by_the_sweep(landed_by_run: list[list[int]], look_back: int) -> None:
    store, offsets, read = MemoryStore(""), SourcePosition(), []
    for run in landed_by_run:
        for number in run:
            if f"{number:03}" not in read:
                land(store, f"{number:03}")
        paths, offsets = read_all(store, offsets, look_back)
        read += paths
        assert len(offsets.recent) <= look_back
    stragglers = full_sweep(store, "landing", offsets, [f"landing/{name}" for name in read], SOURCE)
    everything = read + names(stragglers)
    assert sorted(everything) == sorted({f"{number:03}" for run in landed_by_run for number in run})
