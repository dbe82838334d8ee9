"""A bucket that demands encryption, on a real MinIO with a key: every put says how, a refusal says what to set."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from catalog_helpers import commit_some

from headrace.errors import FixConfigError
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.names import MAIN
from headrace_snapshots.store import ObjectExistsError, open_store
from scripts import minio_server
from scripts.minio_server import KMS_KEY, Server

pytestmark = pytest.mark.s3

ALGORITHM, KEY = "HEADRACE_S3_ENCRYPTION", "HEADRACE_S3_KMS_KEY_ID"
HEADER = "x-amz-server-side-encryption"


def demanding(value: str) -> dict[str, Any]:
    """The policy of a user who may put objects only with ``value`` in the header. (MinIO heeds a policy of the bucket
    for anonymous requests alone.)
    """
    condition = {"StringNotEquals": {f"s3:{HEADER}": value}}
    allow = {"Effect": "Allow", "Action": ["s3:*"], "Resource": ["arn:aws:s3:::*"]}
    deny = {"Effect": "Deny", "Action": ["s3:PutObject"], "Resource": ["arn:aws:s3:::*"], "Condition": condition}
    return {"Version": "2012-10-17", "Statement": [allow, deny]}


@pytest.fixture(scope="module")
def server(minio: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that can encrypt, with a bucket; ``minio`` cannot."""
    server = minio_server.start(tmp_path_factory.mktemp("encrypting") / "data", encrypts=True)
    try:
        minio_server.client(server).make_bucket("demanding")
        yield server
    finally:
        minio_server.stop(server)


@pytest.fixture
def encrypting(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    return server


@pytest.mark.parametrize(("algorithm", "key"), [("AES256", ""), ("aws:kms", ""), ("aws:kms", KMS_KEY)])
def test_everything_is_put_as_the_bucket_demands(
    encrypting: Server, monkeypatch: pytest.MonkeyPatch, algorithm: str, key: str
) -> None:
    client = minio_server.client(encrypting)
    root = f"s3://demanding/{uuid4().hex}"
    user = minio_server.add_user(encrypting, f"u{uuid4().hex[:8]}", demanding(algorithm))
    for name, value in user.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(FixConfigError, match="HEADRACE_S3_ENCRYPTION"):
        open_store(root).write("x", b"1")
    monkeypatch.setenv(ALGORITHM, algorithm)
    monkeypatch.setenv(KEY, key)
    store = open_store(root)
    object_info = store.create("a/created", b"1")
    with pytest.raises(ObjectExistsError):
        store.create("a/created", b"2")
    large = bytes(11 * 2**20)  # more than the part of a multipart upload
    store.write("a/large", large)
    assert store.read("a/large") == large
    assert store.read_range("a/large", 10, 5) == bytes(5)
    # ETags of encrypted objects are no digests; they only have to be the same wherever they are asked for.
    assert store.stat("a/created").etag == object_info.etag
    for info in store.list("a/"):
        assert store.read_same(info) == (large if info.path == "a/large" else b"1")
    catalog = Catalog(store, "sales")
    commit_some(catalog, catalog.claim(MAIN, "run"), 1)
    for info in store.list(""):
        headers = client.stat_object("demanding", f"{root.rpartition('/')[2]}/{info.path}").metadata or {}
        assert headers[HEADER] == algorithm
        assert not key or headers[f"{HEADER}-aws-kms-key-id"].endswith(key)


@pytest.mark.parametrize(("algorithm", "key"), [("AES256", ""), ("aws:kms", "nobodys")])
def test_a_service_that_cannot_encrypt_says_so(
    minio: str, monkeypatch: pytest.MonkeyPatch, algorithm: str, key: str
) -> None:
    monkeypatch.setenv(ALGORITHM, algorithm)
    monkeypatch.setenv(KEY, key)
    store = open_store("s3://tests/plain")
    for put in (store.write, store.create):
        with pytest.raises(FixConfigError, match="asks to encrypt it") as error:
            put("x", b"1")
        assert error.value.code == "config.encryption"


def test_a_key_that_the_service_does_not_know(encrypting: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALGORITHM, "aws:kms")
    monkeypatch.setenv(KEY, "nobodys")
    with pytest.raises(FixConfigError, match="aws:kms with key nobodys") as error:
        open_store("s3://demanding/x").write("x", b"1")
    assert error.value.code == "config.encryption"


@pytest.mark.parametrize(
    ("algorithm", "key", "message"),
    [("aes", "", "use AES256, aws:kms"), ("AES256", "k", "set HEADRACE_S3_ENCRYPTION to aws:kms")],
)
def test_settings_that_say_nothing(
    minio: str, monkeypatch: pytest.MonkeyPatch, algorithm: str, key: str, message: str
) -> None:
    monkeypatch.setenv(ALGORITHM, algorithm)
    monkeypatch.setenv(KEY, key)
    with pytest.raises(FixConfigError, match=message):
        open_store("s3://tests/x")
