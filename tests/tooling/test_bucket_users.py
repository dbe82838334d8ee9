"""The users that docker/make_bucket.py makes on a real MinIO: what Headrace does they may do, and no more."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from minio import Minio
from minio.error import S3Error

from scripts import minio_server
from scripts.minio_server import Server
from tests.minio_bucket import need_minio
from tests.tooling.test_compose import DOCKER

pytestmark = pytest.mark.s3

BUCKET = "headrace"
USERS = {"BUCKET_USER": "headrace", "BUCKET_READER": "headrace-reader"}
PASSWORDS = {f"{variable}_PASSWORD": f"password-of-{user}" for variable, user in USERS.items()}
SALES = DOCKER.parent / "examples" / "shop_sales" / "sales.py"


def make_bucket(server: Server, **variables: str) -> "subprocess.CompletedProcess[str]":
    """What the service `bucket` of the compose file does."""
    parts = {**os.environ, **server.environment(), "BUCKET": BUCKET, **USERS, **PASSWORDS, **variables}
    command = [sys.executable, DOCKER / "make_bucket.py"]
    return subprocess.run(command, env=parts, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A MinIO on which the service has run twice, as after a second start."""
    need_minio()
    server = minio_server.start(tmp_path_factory.mktemp("bucket") / "minio")
    try:
        for text in ("made bucket headrace", "bucket headrace is there"):
            bucket = make_bucket(server)
            assert bucket.returncode == 0, bucket.stderr
            assert text in bucket.stdout
            assert not [password for password in PASSWORDS.values() if password in bucket.stdout + bucket.stderr]
        minio_server.client(server).make_bucket("elsewhere")
        yield server
    finally:
        minio_server.stop(server)


def run(server: Server, user: str, *command: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    """A command with the keys of ``user``."""
    keys = {"AWS_ACCESS_KEY_ID": user, "AWS_SECRET_ACCESS_KEY": f"password-of-{user}"}
    parts = {**os.environ, **server.environment(), **keys, "HEADRACE_ROOT": f"s3://{BUCKET}/root"}
    return subprocess.run(command, env=parts, input=stdin, capture_output=True, check=False)


def headrace(server: Server, user: str, *words: str) -> str:
    """What a command of ``headrace`` prints that must not fail."""
    result = run(server, user, str(Path(sys.executable).with_name("headrace")), *words)
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout.decode()


def land(server: Server, path: str, data: bytes) -> "subprocess.CompletedProcess[bytes]":
    """What `headrace-land` does in the container of the scheduler."""
    return run(server, "headrace", sys.executable, str(DOCKER / "land.py"), path, stdin=data)


def client(server: Server, user: str) -> Minio:
    """S3 with the keys of ``user``."""
    address = server.endpoint.removeprefix("http://")
    return Minio(address, user, f"password-of-{user}", secure=False, region="us-east-1")


def test_a_pipeline_lands_runs_publishes_and_expires_with_the_user_and_is_read_with_the_reader(server: Server) -> None:
    data = SALES.parent / "data"
    files = sorted((data / "landing" / "sales").iterdir())
    assert len(files) > 2
    for file in files:
        landed_text = str(file.relative_to(data))
        landing = land(server, landed_text, file.read_bytes())
        assert landing.returncode == 0, landing.stderr.decode()
        headrace(server, "headrace", "run", str(SALES), "--executor", "local")
    landing_again = land(server, landed_text, b"something else")
    assert landing_again.returncode == 1
    assert b"has landed already" in landing_again.stderr
    for user in USERS.values():
        assert json.loads(headrace(server, user, "read", str(SALES), "--format", "json"))

    def manifests() -> int:
        listed_objects = client(server, "headrace-reader").list_objects(BUCKET, "root/sales/manifests/")
        return len(list(listed_objects))

    count_before = manifests()
    assert count_before == len(files)
    for _ in range(2):
        headrace(server, "headrace", "expire", str(SALES), "--keep-last", "1")
    assert manifests() < count_before
    headrace(server, "headrace", "fsck", str(SALES))


@pytest.mark.parametrize("user", USERS.values())
def test_nobody_touches_another_bucket_or_what_has_landed_or_makes_buckets(server: Server, user: str) -> None:
    owner, one = minio_server.client(server), client(server, user)
    names_by_bucket = {BUCKET: ["root/landing/sales/kept.json", "root/landing/x/data/kept.json", "elsewhere.json"]}
    names_by_bucket["elsewhere"] = ["root/sales/data/kept.json"]
    for bucket, names in names_by_bucket.items():
        for name in names:
            owner.put_object(bucket, name, io.BytesIO(b"{}"), 2)
            with pytest.raises(S3Error, match="Access Denied"):
                one.remove_object(bucket, name)
            assert owner.stat_object(bucket, name).size == 2
    for bucket, name in (("elsewhere", "root/sales/data/kept.json"), (BUCKET, "elsewhere.json")):
        with pytest.raises(S3Error, match="Access Denied"):
            one.get_object(bucket, name)
        with pytest.raises(S3Error, match="Access Denied"):
            one.put_object(bucket, name, io.BytesIO(b"{}"), 2)
    for bucket in ("elsewhere", BUCKET):
        with pytest.raises(S3Error, match="Access Denied"):
            list(one.list_objects(bucket, ""))
        with pytest.raises(S3Error, match="Access Denied"):
            one.remove_bucket(bucket)
    with pytest.raises(S3Error, match="Access Denied"):
        one.make_bucket("mine")
    listed_names = {bucket.name for bucket in owner.list_buckets()}
    assert listed_names - {minio_server.PROBE} == {
        BUCKET,
        "elsewhere",
    }  # a busy MinIO may still list what its start removed


def test_the_reader_writes_nothing(server: Server) -> None:
    reader = client(server, "headrace-reader")
    for name in ("root/landing/sales/new.json", "root/sales/data/new.json"):
        with pytest.raises(S3Error, match="Access Denied"):
            reader.put_object(BUCKET, name, io.BytesIO(b"{}"), 2)


def test_the_user_is_not_the_root_of_the_server(server: Server) -> None:
    bucket = make_bucket(server, BUCKET_USER=server.access_key)
    assert bucket.returncode != 0
    assert "another name" in bucket.stderr
