"""A root that is copied to another store: files of input are what they were, though their ETags are others."""

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from minio import Minio
from minio.datatypes import Part

import headrace as hr
from headrace.ext.sources import SourcePosition, SourceSplit
from headrace.runs.client.handle import open as open_root
from headrace.sources import content_marks
from headrace.sources.file_planning import ChangedFileError, KnownNames, is_unchanged, list_unread, read_content
from headrace_lab.sizes import set_sizes
from headrace_snapshots.store import open_store
from tests.minio_bucket import BUCKET
from tests.process.clicks import CLICKS

FOLDER, PUT, IN_PARTS = "folder", "put", "in parts"
"""Places of a root: a local folder; a bucket, each object put at once, or in parts, as tools put large ones."""


def _click(number: int) -> bytes:
    return json.dumps({"user": "ada", "at": f"2026-11-20T00:0{number}:00Z"}).encode()


def _root_of(place: str, folder: Path, name: str) -> str:
    path = folder / name
    return path.as_uri() if place == FOLDER else f"s3://{BUCKET}/{folder.name}/{name}"


def _write(root: str, place: str, path: str, data: bytes) -> None:
    if place == IN_PARTS:
        _upload_in_parts(f"{root.removeprefix(f's3://{BUCKET}/')}/{path}", [data])
    else:
        open_store(root).write(path, data)


def _upload_in_parts(key: str, parts: list[bytes]) -> None:
    keys = (os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])
    host = os.environ["AWS_ENDPOINT_URL"].removeprefix("http://")
    client = Minio(host, access_key=keys[0], secret_key=keys[1], secure=False, region="us-east-1")
    upload_id = client._create_multipart_upload(BUCKET, key, {"Content-Type": "application/octet-stream"})
    uploaded_parts = [
        Part(number, client._upload_part(BUCKET, key, part, {}, upload_id, number))
        for number, part in enumerate(parts, start=1)
    ]
    client._complete_multipart_upload(BUCKET, key, upload_id, uploaded_parts)


@pytest.mark.parametrize(("from_place", "to_place"), [(FOLDER, PUT), (PUT, FOLDER), (PUT, IN_PARTS), (IN_PARTS, PUT)])
def test_a_run_and_a_recovery_go_on_in_a_copy_of_the_root(
    minio: str, tmp_path: Path, from_place: str, to_place: str
) -> None:
    old_root, new_root = (_root_of(place, tmp_path, name) for place, name in ((from_place, "old"), (to_place, "new")))
    snapshots: list[str] = []
    for number in (1, 2):
        _write(old_root, from_place, f"landing/clicks/{number}.json", _click(number))
        snapshots.append(str(open_root(old_root, create=True)[CLICKS].run(executor="local").snapshot))
    _copy_root(old_root, new_root, to_place)
    copied_handle = open_root(new_root)[CLICKS]
    assert copied_handle.run(executor="local").counts.get("input_files", 0) == 0
    _write(new_root, to_place, "landing/clicks/3.json", _click(3))
    assert copied_handle.run(executor="local").counts["input_files"] == 1
    assert copied_handle.recover(snapshots[0], executor="local").counts["input_files"] == 2
    assert sum(row["clicks"] for row in copied_handle.current().to_json()) == 3

    _write(new_root, to_place, "landing/clicks/1.json", _click(4))  # as long as it was
    with pytest.raises(ChangedFileError, match=r"1\.json has changed"):
        copied_handle.run(executor="local")


def test_a_large_file_that_was_uploaded_in_other_parts_has_the_content_that_it_had(minio: str, tmp_path: Path) -> None:
    store, data = open_store(f"s3://{BUCKET}/{tmp_path.name}"), os.urandom(12 << 20)
    key, splits = f"{tmp_path.name}/large", []
    for part_bytes in (5 << 20, 8 << 20):
        _upload_in_parts(key, [data[start : start + part_bytes] for start in range(0, len(data), part_bytes)])
        info = store.stat("large")
        splits.append(SourceSplit("large", info.size, info.etag))
    assert splits[0] != splits[1]
    assert is_unchanged(store, splits[0], splits[1])
    assert read_content(store, splits[0]) == data
    store.write("large", data[::-1])
    with pytest.raises(ChangedFileError):
        read_content(store, splits[0])


def _clicks(names: str) -> hr.Pipeline:
    source = hr.json("landing/clicks", {"user": str, "at": datetime}, names=names, max_files=1)
    return hr.Pipeline("clicks", source.event_time("at", bound="1h"), rows=["user"], executor="local")


@pytest.fixture
def compared_paths(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files of input whose contents are read to compare them."""
    paths: list[str] = []
    marks_now = content_marks._marks_now

    def record(store: Any, now: Any, hashers: Any) -> Any:
        paths.append(now.path)
        return marks_now(store, now, hashers)

    monkeypatch.setattr(content_marks, "_marks_now", record)
    return paths


@pytest.mark.parametrize("names", ["any", "ordered"])
@pytest.mark.parametrize("places", [(FOLDER, PUT), (PUT, FOLDER)])
def test_the_first_run_that_commits_in_a_copy_compares_each_file_and_no_later_one_does(
    minio: str, tmp_path: Path, compared_paths: list[str], places: tuple[str, str], names: str
) -> None:
    pipeline, (from_place, to_place) = _clicks(names), places
    old_root, new_root = (_root_of(place, tmp_path, name) for place, name in ((from_place, "old"), (to_place, "new")))
    for number in (1, 2):
        _write(old_root, from_place, f"landing/clicks/{number}.json", _click(number))
    open_root(old_root, create=True)[pipeline].run()
    _copy_root(old_root, new_root, to_place)
    copied_handle = open_root(new_root)[pipeline]
    for number in (3, 4, 5):
        _write(new_root, to_place, f"landing/clicks/{number}.json", _click(number))
        assert copied_handle.run().counts["input_files"] == 1
        assert compared_paths == ["landing/clicks/1.json", "landing/clicks/2.json"]
    if to_place == FOLDER:  # a copy of the copy: its digests were taken
        file = tmp_path / "new/landing/clicks/1.json"
        os.utime(file, ns=(1, 1))
        assert copied_handle.run().counts.get("input_files", 0) == 0


def test_a_run_behind_a_rollback_compares_no_files_that_the_rollback_gave_up(
    minio: str, tmp_path: Path, compared_paths: list[str]
) -> None:
    pipeline = _clicks("any")
    old_root, new_root = (_root_of(place, tmp_path, name) for place, name in ((FOLDER, "old"), (PUT, "new")))
    for number in (1, 2):
        _write(old_root, FOLDER, f"landing/clicks/{number}.json", _click(number))
    handle = open_root(old_root, create=True)[pipeline]
    handle.run()
    handle.rollback(to="beginning", message="all of it")
    _copy_root(old_root, new_root, PUT)
    result = open_root(new_root)[pipeline].run()
    assert (result.counts["input_files"], result.warnings) == (2, ())
    assert compared_paths == []


def _copy_root(old_root: str, new_root: str, to_place: str) -> None:
    old_store = open_store(old_root)
    for info in [*old_store.list("")]:
        _write(new_root, to_place, info.path, old_store.read(info.path))


@pytest.mark.parametrize("size", [0, 1, (5 << 20) - 1, 5 << 20, (11 << 20) + 7])
def test_a_file_in_parts_is_compared_piece_by_piece(minio: str, tmp_path: Path, size: int) -> None:
    store, data = open_store(f"s3://{BUCKET}/{tmp_path.name}"), os.urandom(size)
    part_bytes, splits = 5 << 20, []
    parts = [data[start : start + part_bytes] for start in range(0, size, part_bytes)] or [b""]
    _upload_in_parts(f"{tmp_path.name}/clicks/1", parts)
    splits.append(store.stat("clicks/1"))
    store.write("clicks/1", data)
    splits.append(store.stat("clicks/1"))
    old, new = (SourceSplit("clicks/1", info.size, info.etag) for info in splits)
    assert old.etag != new.etag
    with set_sizes(compared_piece_bytes=3 << 20):
        assert is_unchanged(store, old, new)
        position, known_names = SourcePosition(recent=(old,)), KnownNames()
        assert [*list_unread(store, "clicks", position, (), lambda: known_names)] == []
        assert [*known_names.confirmed_splits] == ["clicks/1"]
        if size:
            store.write("clicks/1", data[:-1] + bytes([data[-1] ^ 1]))
            info = store.stat("clicks/1")
            assert not is_unchanged(store, old, SourceSplit("clicks/1", info.size, info.etag))
