"""Answers that are lost or bad, as the S3 adapter and the catalog take them: a proxy before a real MinIO."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import uuid4

import pytest
import urllib3
from catalog_helpers import commit_some

from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import (
    ObjectNotFoundError,
    ObjectStore,
    StoreUnavailableError,
    UnknownOutcomeError,
    open_store,
)
from headrace_snapshots.testing import check_catalog

pytestmark = pytest.mark.s3


class Proxy(ThreadingHTTPServer):
    """Forwards to ``upstream``. ``spoil``: what the next requests meet: a status as answer, ``lose`` or ``pass``."""

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), Forward)
        self.upstream = upstream
        self.pool = urllib3.PoolManager(retries=False)
        self.spoil: list[int | str] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Forward(BaseHTTPRequestHandler):
    """One request: forwarded as it is, so that its signature stays right."""

    server: Proxy

    def forward(self) -> None:
        self.close_connection = True
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        spoil = self.server.spoil.pop(0) if self.server.spoil else None
        if isinstance(spoil, int):
            # S3 explains its refusals in XML; what stands in front of it breaks down without a word.
            words = b"<Error><Code>ConditionalRequestConflict</Code></Error>" if spoil < 500 else b""
            self.send_response(spoil)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(words)))
            self.end_headers()
            self.wfile.write(words)
            return
        answer = self.server.pool.urlopen(
            self.command, self.server.upstream + self.path, body=body, headers=dict(self.headers.items())
        )
        if spoil == "lose":
            return
        self.send_response_only(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.data)

    do_GET = do_PUT = do_HEAD = do_DELETE = forward  # noqa: N815 - the names that http.server looks for

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def proxy(minio: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    with Proxy(minio) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        yield server
        server.shutdown()
        thread.join()
        server.pool.clear()


@pytest.fixture
def s3(proxy: Proxy) -> ObjectStore:
    return open_store(f"s3://tests/{uuid4().hex}")


def test_a_create_whose_answer_is_lost_is_unknown_and_not_repeated(proxy: Proxy, s3: ObjectStore) -> None:
    proxy.spoil = ["lose"]
    with pytest.raises(UnknownOutcomeError, match=r"whether s3://tests/.*/x at http.* was created is unknown"):
        s3.create("x", b"mine")
    assert s3.requests.snapshot()["create"] == 1
    assert s3.read("x") == b"mine"


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_server_error_leaves_a_create_unknown(proxy: Proxy, s3: ObjectStore, status: int) -> None:
    proxy.spoil = [status]
    with pytest.raises(UnknownOutcomeError):
        s3.create("x", b"mine")
    with pytest.raises(ObjectNotFoundError):
        s3.read("x")


@pytest.mark.parametrize("status", [409, 429])
def test_a_conflict_or_too_many_requests_is_tried_again(proxy: Proxy, s3: ObjectStore, status: int) -> None:
    proxy.spoil = [status, status]
    s3.create("x", b"mine")
    assert s3.requests.snapshot()["create"] == 3


def test_operations_that_may_be_repeated_are(proxy: Proxy, s3: ObjectStore) -> None:
    proxy.spoil = ["lose", 503]
    s3.write("x", b"1")
    proxy.spoil = [503, "lose"]
    assert s3.read("x") == b"1"
    proxy.spoil = ["lose", 500]
    assert s3.stat("x").size == 1
    proxy.spoil = ["lose", 503]
    assert [info.path for info in s3.list("")] == ["x"]
    proxy.spoil = ["lose"]
    s3.delete("x")
    counts = s3.requests.snapshot()
    assert counts == {"get": 3, "put": 3, "create": 0, "list": 3, "stat": 3, "delete": 2}


def test_a_store_that_stays_down_is_unavailable(proxy: Proxy, s3: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace_snapshots.store.s3.ATTEMPTS", 3)
    proxy.spoil = [503] * 3
    with pytest.raises(StoreUnavailableError, match="no usable answer for s3"):
        s3.read("x")


def test_commits_happen_once_when_answers_are_lost(proxy: Proxy, s3: ObjectStore) -> None:
    catalog = Catalog(s3, "p")
    claim = catalog.claim("main", "run")
    spoiled: list[tuple[int, int | str]] = [(n, what) for n in range(5) for what in ("lose", 503, "lose")]
    ids: list[str] = []
    for good, spoil in spoiled:
        proxy.spoil = [*["pass"] * good, spoil]
        ids += commit_some(catalog, claim, 1)
        proxy.spoil = []
    assert [m.snapshot_id for m in catalog.ancestry(ids[-1])] == ids[::-1]
    assert catalog.head().entry == 1 + len(ids)
    check_catalog(s3, "p")
