"""Answers that are lost or bad, as the S3 adapter and the catalog take them: a proxy before a real MinIO."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
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
from tests.s3_proxy import Proxy, proxying

pytestmark = pytest.mark.s3


@pytest.fixture
def proxy(minio: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    with proxying(minio) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        yield server


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
