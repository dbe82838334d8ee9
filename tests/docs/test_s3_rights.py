"""The policies that docs/how-to/s3.md gives are enough, and no more than enough, on a real MinIO."""

import io
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from minio import Minio, MinioAdmin
from minio.credentials import StaticProvider
from minio.error import S3Error

from headrace.cli.main import app
from scripts import minio_server
from scripts.minio_server import Server
from tests.docs.pages import DOCS, blocks
from tests.minio_bucket import need_minio

pytestmark = pytest.mark.s3

BUCKET, PREFIX = "headrace", "prod"
POLICIES = {block.directive[1]: block.text for block in blocks(DOCS / "how-to" / "s3.md") if "file" in block.directive}
PIPELINE = """
from datetime import datetime
import headrace as hr

pipeline = hr.Pipeline(
    "sales",
    hr.json("landing/sales", {"shop": str, "at": datetime}).event_time("at", bound="0s"),
    key="shop",
    what={"sales": hr.count()},
    where=hr.FixedWindows("1h"),
    when=hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1)),
    executor="local",
)
"""


@dataclass(frozen=True)
class User:
    """A user of the server who may do what a policy of the page says."""

    endpoint: str
    name: str
    password: str

    def headrace(self, *words: str) -> Result:
        """A command with this user's keys."""
        keys = {"AWS_ACCESS_KEY_ID": self.name, "AWS_SECRET_ACCESS_KEY": self.password}
        where = {"AWS_ENDPOINT_URL": self.endpoint, "HEADRACE_ROOT": f"s3://{BUCKET}/{PREFIX}"}
        return CliRunner().invoke(app, words, prog_name="headrace", env={**keys, **where})

    def succeeds(self, *words: str) -> str:
        """What a command prints that must not fail."""
        result = self.headrace(*words)
        assert result.exit_code == 0, result.output
        return result.stdout

    @property
    def client(self) -> Minio:
        """S3 with this user's keys."""
        return Minio(self.endpoint.removeprefix("http://"), self.name, self.password, secure=False, region="us-east-1")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    need_minio()
    server = minio_server.start(tmp_path / "minio")
    try:
        minio_server.client(server).make_bucket(BUCKET)
        yield server
    finally:
        minio_server.stop(server)


def user(server: Server, policy: str) -> User:
    """A new user, with the policy of the page that is called ``policy``."""
    keys = StaticProvider(server.access_key, server.secret_key)
    admin = MinioAdmin(endpoint=server.endpoint.removeprefix("http://"), credentials=keys, secure=False)
    name, password = f"who-may-{policy.partition('.')[0]}", secrets.token_hex(16)
    admin.user_add(name, password)
    admin.policy_add(name, policy=json.loads(POLICIES[policy]))
    admin.policy_set(name, user=name)
    return User(server.endpoint, name, password)


def land(server: Server, name: str, line: str) -> None:
    """A file of one line, put there by whoever owns the server."""
    data = (line + "\n").encode()
    minio_server.client(server).put_object(BUCKET, f"{PREFIX}/landing/sales/{name}", io.BytesIO(data), len(data))


def test_who_runs_need_not_delete_and_who_reads_need_not_write(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "sales.py"
    file.write_text(PIPELINE)
    runner, reader = user(server, "run.json"), user(server, "read.json")
    for hour in (9, 10):
        land(server, f"{hour}.json", json.dumps({"shop": "Oslo", "at": f"2025-05-01T{hour:02}:05:00Z"}))
        runner.succeeds("run", str(file))
        runner.succeeds("tag", str(file), f"at-{hour}", "main")
    for one in (runner, reader):
        rows = json.loads(one.succeeds("read", str(file), "--format", "json"))
        assert [row["sales"] for row in rows] == [1, 1]
    runner.succeeds("rollback", str(file), "--to", "at-9")
    runner.succeeds("run", str(file))

    land(server, "11.json", json.dumps({"shop": "Oslo", "at": "2025-05-01T11:05:00Z"}))
    log_before = runner.succeeds("log", str(file), "--format", "json")
    assert reader.headrace("run", str(file)).exit_code != 0
    assert runner.succeeds("log", str(file), "--format", "json") == log_before
    for one in (runner, reader):
        with pytest.raises(S3Error, match="Access Denied"):
            one.client.remove_object(BUCKET, f"{PREFIX}/landing/sales/9.json")
        with pytest.raises(S3Error, match="Access Denied"):
            list(one.client.list_objects(BUCKET, "elsewhere/"))
