"""What every store promises, on memory, local files and a real MinIO."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.errors import FixConfigError, RetryError
from headrace_lab.sizes import set_sizes
from headrace_snapshots.store import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    ObjectPathError,
    ObjectStore,
    StoreUnavailableError,
    folders_in,
    open_store,
)
from headrace_snapshots.store.local import UNNAMED_FOLDER

NAMES = ["plain", "with space", "a[1].json", "grüße/ü.json", "100%/50%25.txt", "a+b&c=d?e#f", "日本/データ", "k=v/*.x"]


def paths(store: ObjectStore, prefix: str, start_after: str = "") -> list[str]:
    return [info.path for info in store.list(prefix, start_after)]


def test_what_was_written_is_read_back_under_any_name(store: ObjectStore) -> None:
    for name in NAMES:
        written_info = store.write(name, name.encode())
        assert store.read(name) == name.encode()
        assert store.stat(name) == written_info
        assert (written_info.path, written_info.size) == (name, len(name.encode()))
    assert list(store.list("")) == [store.stat(name) for name in sorted(NAMES, key=str.encode)]


def test_a_part_of_an_object_is_read_with_one_request(store: ObjectStore) -> None:
    store.write("x", b"0123456789")
    requests_before = store.requests.snapshot()
    assert store.read_range("x", 2, 3) == b"234"
    assert sum(store.requests.since(requests_before).values()) == 1
    assert store.read_range("x", 8, 5) == b"89", "it ends before"
    assert store.read_range("x", 20, 5) == b""
    with pytest.raises(ObjectNotFoundError):
        store.read_range("y", 0, 1)


def test_a_write_replaces_and_changes_the_etag(store: ObjectStore) -> None:
    info_before = store.write("x", b"1")
    info_after = store.write("x", b"22")
    assert store.read("x") == b"22"
    assert info_before.etag != info_after.etag


def test_what_was_looked_at_is_read_or_nothing(store: ObjectStore) -> None:
    store.write("x", b"1")
    looks = (store.stat, lambda path: store.digested(path) or store.stat(path), lambda path: next(store.list(path)))
    for look in looks:
        info = look("x")
        requests_before = store.requests.snapshot()
        assert store.read_same(info) == b"1"
        assert sum(store.requests.since(requests_before).values()) == 1
        store.write("x", b"22")
        with pytest.raises(ObjectChangedError, match="x"):
            store.read_same(info)
        store.delete("x")
        with pytest.raises(ObjectNotFoundError, match="x"):
            store.read_same(info)
        store.write("x", b"1")


def test_a_local_file_is_told_by_its_content_once_that_was_looked_at(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    store.write("x", b"1")
    info = store.digested("x")
    assert info is not None
    status = (tmp_path / "x").stat()
    (tmp_path / "x").write_bytes(b"2")
    os.utime(tmp_path / "x", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert store.stat("x").etag == info.etag
    with pytest.raises(ObjectChangedError, match="x"):
        store.read_same(info)
    (tmp_path / "x").write_bytes(b"1")
    assert store.stat("x").etag != info.etag
    assert store.read_same(info) == b"1"


def test_empty_and_large_objects(store: ObjectStore) -> None:
    large = bytes(range(256)) * 4 * 6 * 1024  # 6 MiB: more than one part of a multipart upload
    requests_before = store.requests.snapshot()
    store.write("empty", b"")
    store.write("large", large)
    assert store.requests.since(requests_before)["put"] == 2
    assert store.read("empty") == b""
    assert store.read("large") == large


def test_what_is_not_there(store: ObjectStore) -> None:
    store.write("folder/file", b"")
    for path in ("nothing", "folder", "folder/file/below", "nothing/at/all"):
        with pytest.raises(ObjectNotFoundError, match=path):
            store.read(path)
        with pytest.raises(ObjectNotFoundError, match=path):
            store.stat(path)
        assert paths(store, f"{path}/x") == []
    store.delete("nothing")
    store.delete("folder/file")
    with pytest.raises(ObjectNotFoundError):
        store.stat("folder/file")


def test_create_happens_once(store: ObjectStore) -> None:
    first = store.create("a b/[1].json", b"first")
    with pytest.raises(ObjectExistsError, match=r"\[1\]\.json"):
        store.create("a b/[1].json", b"second")
    assert store.read("a b/[1].json") == b"first"
    assert store.stat("a b/[1].json") == first


def test_of_many_concurrent_creates_exactly_one_succeeds(root: str, store: ObjectStore) -> None:
    writers = 8
    for turn in range(5):
        ready = threading.Barrier(writers)

        def attempt(writer: int, path: str = f"race/{turn}", ready: threading.Barrier = ready) -> bytes | None:
            own = open_store(root)
            ready.wait()
            try:
                own.create(path, f"{writer}".encode())
            except ObjectExistsError:
                return None
            return f"{writer}".encode()

        with ThreadPoolExecutor(writers) as pool:
            winners = [w for w in pool.map(attempt, range(writers)) if w is not None]
        assert winners == [store.read(f"race/{turn}")]


def test_one_store_serves_many_threads(store: ObjectStore) -> None:
    def round_trip(number: int) -> bool:
        store.write(f"t/{number:03d}", str(number).encode())
        return store.read(f"t/{number:03d}") == str(number).encode()

    requests_before = store.requests.snapshot()
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(round_trip, range(64)))
    requests = store.requests.since(requests_before)
    assert (requests["put"], requests["get"]) == (64, 64)
    assert len(paths(store, "t/")) == 64


def test_listing_is_in_byte_order_whatever_the_folders(store: ObjectStore) -> None:
    names = ["a", "b-c/1", "b.txt", "b/1", "b/2/x", "b/2.x", "b0", "ba", "B", "é", "z", "\U0001f600", "\uffee"]
    for name in names:
        store.write(f"p/{name}", b"x")
    paths_in_order = sorted((f"p/{n}" for n in names), key=str.encode)
    assert paths(store, "p/") == paths_in_order
    for mark in [*paths_in_order, "p/b/", "p/b/2", "p/b/2/", "p/b/zzz", "p/b!", "p/b0/1", "p/", "o", "p/c", "q"]:
        assert paths(store, "p/", mark) == [p for p in paths_in_order if p.encode() > mark.encode()], mark


def test_a_listing_says_when_objects_were_written_if_the_store_knows(store: ObjectStore) -> None:
    store.write("a/1", b"x")
    (info,) = store.list("a/")
    if store.uri.startswith(("file:", "s3:")):
        assert info.modified is not None
        assert abs(time.time() - info.modified / 1_000_000) < 3600
    else:
        assert info.modified is None


def test_what_a_file_system_will_say_again_is_no_reason_to_try_again(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    with pytest.raises(FixConfigError, match="too long"):
        store.write("x" * 300, b"")
    with pytest.raises(FixConfigError, match="too long"):
        store.read("x" * 300)
    (tmp_path / "loop").symlink_to("loop")
    for operation in (
        lambda: store.write("loop/x", b""),
        lambda: list(store.list("")),
        lambda: store.create("loop/x", b""),
    ):
        with pytest.raises(FixConfigError, match="loop"):
            operation()


def test_a_prefix_is_any_string(store: ObjectStore) -> None:
    for path in ("log/001", "log/002", "log-hint", "logs/x", "other/log/1"):
        store.write(path, b"")
    assert paths(store, "log") == ["log-hint", "log/001", "log/002", "logs/x"]
    assert paths(store, "log/00") == ["log/001", "log/002"]
    assert paths(store, "nothing/") == []


@pytest.mark.parametrize("path", ["", "/x", "x/", "a//b", "../x", "a/../b", "./x", "a\0b"])
def test_paths_that_could_leave_the_root_are_refused(store: ObjectStore, path: str) -> None:
    for operation in (store.read, store.stat, store.delete):
        with pytest.raises(ObjectPathError):
            operation(path)
    for put in (store.write, store.create):
        with pytest.raises(ObjectPathError):
            put(path, b"")


def test_the_uri_opens_the_same_store(store: ObjectStore) -> None:
    store.write("x", b"1")
    assert open_store(store.uri).read("x") == b"1"


@pytest.mark.parametrize("uri", ["", "/tmp/x", "ftp://x/y", "file://host/x", "file:relative", "s3://", "s3://A_b/x"])
def test_what_is_no_root_is_refused(uri: str) -> None:
    with pytest.raises(FixConfigError, match=r"use|three slashes"):
        open_store(uri)


@pytest.mark.parametrize("uri", ["s3://AKIA:hush/hush@tests/x", "https://AKIA:hush@host/x", "file://AKIA:hush@host/x"])
def test_what_is_refused_is_told_without_its_secret(uri: str) -> None:
    with pytest.raises(FixConfigError) as error:
        open_store(uri)
    assert "hush" not in str(error.value)


@pytest.mark.s3
def test_long_listings_cost_one_request_per_page(minio: str) -> None:
    store = open_store("s3://tests/long")
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda n: store.write(f"{n:05d}", b""), range(2_100)))
    requests_before = store.requests.snapshot()
    assert len(paths(store, "")) == 2_100
    assert store.requests.since(requests_before)["list"] == 3


@pytest.mark.s3
def test_s3_says_what_is_missing(minio: str, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = open_store("s3://no-such-bucket/x")
    with pytest.raises(FixConfigError, match="no-such-bucket does not exist"):
        absent.read("x")
    with pytest.raises(FixConfigError, match="no-such-bucket does not exist"):
        absent.create("x", b"")
    with pytest.raises(FixConfigError, match="no-such-bucket does not exist"):
        list(absent.list(""))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret-value")
    with pytest.raises(FixConfigError, match="SignatureDoesNotMatch") as error:
        open_store("s3://tests/x").write("x", b"")
    assert "wrong-secret-value" not in repr(error.value)


def test_s3_needs_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", "/nonexistent")
    with pytest.raises(FixConfigError, match="AWS_ENDPOINT_URL"):
        open_store("s3://bucket/x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(FixConfigError, match="AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
        open_store("s3://bucket/x")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    assert "hush" not in repr(vars(open_store("s3://bucket/x")))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://user:pass@127.0.0.1:1")
    with pytest.raises(FixConfigError, match="without user") as error:
        open_store("s3://bucket/x")
    assert "pass@" not in str(error.value)


@set_sizes(s3_attempts=2)
def test_an_unreachable_s3_is_a_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    store = open_store("s3://bucket/x")
    with pytest.raises(StoreUnavailableError, match=r"127\.0\.0\.1:1"):
        store.read("x")
    with pytest.raises(RetryError):
        store.create("x", b"")
    assert (store.requests.snapshot()["get"], store.requests.snapshot()["create"]) == (2, 2)


def test_a_local_root_must_be_usable(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FixConfigError, match="cannot be used"):
        open_store((tmp_path / "file").as_uri()).write("x", b"")
    assert list(open_store((tmp_path / "absent").as_uri()).list("")) == []
    assert not (tmp_path / "absent").exists()


def test_a_local_file_without_a_name_is_not_listed(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    store.write("x", b"1")
    unnamed_folders = next(folder for folder in tmp_path.iterdir() if folder.is_dir())
    assert list(unnamed_folders.iterdir()) == []
    (unnamed_folders / "of-a-killed-process").write_bytes(b"half")
    assert paths(store, "") == ["x"]


KILLED_PROGRAM = """
import os, signal, stat, sys
from headrace_snapshots.store import open_store
def die(what, *_):
    if not isinstance(what, int) or stat.S_ISREG(os.fstat(what).st_mode):
        os.kill(os.getpid(), signal.SIGKILL)
os.{step} = die
open_store(sys.argv[1]).create("killed", b"half of it")
"""


@pytest.mark.parametrize("step", ["fsync", "link"])
def test_what_a_killed_process_left_goes_with_the_next_put(tmp_path: Path, step: str) -> None:
    open_store(tmp_path.as_uri()).write("before", b"")
    for _ in range(2):
        result = subprocess.run(
            [sys.executable, "-c", KILLED_PROGRAM.format(step=step), tmp_path.as_uri()], check=False
        )
        assert result.returncode == -signal.SIGKILL
    left = list((tmp_path / UNNAMED_FOLDER).iterdir())
    assert left
    open_store(tmp_path.as_uri()).write("after", b"")
    assert list((tmp_path / UNNAMED_FOLDER).iterdir()) == []
    assert paths(open_store(tmp_path.as_uri()), "") == ["after", "before"]


INTERRUPTED_PROGRAM = """
import fcntl, sys
from pathlib import Path
from headrace_snapshots.store import open_store
from headrace_snapshots.store.local import UNNAMED_FOLDER
step, root = sys.argv[1:]
seen = []
def pause(event, arguments):
    if not seen and event == step and (event != "fcntl.flock" or arguments[1] == fcntl.LOCK_EX):
        seen.append(event)
        open_store(root).write("in-between", b"")
        print(len([*Path(root.removeprefix("file://"), UNNAMED_FOLDER).iterdir()]))
sys.addaudithook(pause)
open_store(root).create("slow", b"whole")
"""
"""Python tells its auditors of a step before it is made; they stay as long as the process."""


@pytest.mark.parametrize(("step", "left"), [("os.link", 1), ("fcntl.flock", 0)])
def test_a_file_is_whole_though_another_sweeps_before_it_is_named_or_locked(
    tmp_path: Path, step: str, left: int
) -> None:
    """What is locked stays until it has its name. What was swept before is written again."""
    arguments = [sys.executable, "-c", INTERRUPTED_PROGRAM, step, tmp_path.as_uri()]
    result = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{left}\n", "files without a name, once another has swept"
    assert open_store(tmp_path.as_uri()).read("slow") == b"whole"
    assert paths(open_store(tmp_path.as_uri()), "") == ["in-between", "slow"]


def test_what_names_an_object_is_flushed_before_the_put_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, flushes = os.fsync, []

    def note_call(descriptor: int) -> None:
        fsync(descriptor)
        folder = Path(f"/proc/self/fd/{descriptor}").readlink()
        flushes.append((folder, [path_below.name for path_below in folder.iterdir()] if folder.is_dir() else []))

    monkeypatch.setattr(os, "fsync", note_call)
    root = tmp_path / "new" / "root"
    for store in (open_store(root.as_uri()), open_store(root.as_uri())):  # the second finds all folders made
        flushes.clear()
        (root / "p/data/1/a").unlink(missing_ok=True)
        store.create("p/data/1/a", b"rows")
        names_and_folders = [("p", root), ("data", root / "p"), ("1", root / "p/data"), ("a", root / "p/data/1")]
        if not (root / "p/log").exists():
            names_and_folders += [("new", tmp_path), ("root", tmp_path / "new")]
        for name, folder in names_and_folders:
            assert any(where == folder and name in names for where, names in flushes), f"{folder} before {name}"
        store.create(f"p/log/{len(flushes)}", b"entry")
        number_once = len(flushes)
        store.write("p/data/1/b", b"rows")
        assert len(flushes) == number_once + 2, "a folder above was flushed again"


def test_folders_are_told_apart_from_objects(store: ObjectStore) -> None:
    for path in ("b/1", "b/c/2", "a", "a.b/3", "ä/4", "z/5/6", "z/7"):
        store.write(path, b"")
    assert folders_in(store) == ["a.b", "b", "z", "ä"]
    assert folders_in(store, "z/") == ["5"]
    assert folders_in(store, "none/") == []
