"""A root that is copied to another store: files of input are what they were, though their ETags are others."""

import json
import os
from pathlib import Path

import pytest
from minio import Minio
from minio.datatypes import Part

from headrace.ext.sources import SourceSplit
from headrace.runs.client.handle import open as open_root
from headrace.sources.file_planning import ChangedFileError, is_unchanged, read_content
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
    old_store = open_store(old_root)
    for info in [*old_store.list("")]:
        _write(new_root, to_place, info.path, old_store.read(info.path))
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
