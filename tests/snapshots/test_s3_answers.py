"""Answers that are lost or bad, as the S3 adapter and the catalog take them: a proxy before a real MinIO."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from catalog_helpers import commit_some

from headrace_lab.catalog_checks import check_catalog
from headrace_lab.sizes import set_sizes
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import (
    ObjectNotFoundError,
    ObjectStore,
    StoreUnavailableError,
    UnknownOutcomeError,
    open_store,
)
from tests.s3_proxy import Answer, Proxy, proxying

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


TIMEOUT = b"<Error><Code>RequestTimeout</Code><Message>Your socket connection was not read from</Message></Error>"
PAGE = b"<html><body><h1>Please log in</h1></body></html>"
ODD = [
    Answer(400, TIMEOUT),
    Answer(408, TIMEOUT),
    Answer(408, b""),
    Answer(400, TIMEOUT[:30]),
    Answer(503, b"<Error><Code>SlowDown</Code>"),
    *(Answer(status, PAGE, "text/html; charset=utf-8") for status in (200, 302, 403, 404, 408, 502)),
]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: f"{odd.status}-{odd.type}-{len(odd.body)}")
def test_answers_that_are_not_what_s3_says_are_tried_again(proxy: Proxy, s3: ObjectStore, odd: Answer) -> None:
    proxy.spoil = [odd]
    s3.write("x", b"1")
    proxy.spoil = [odd, odd]
    assert s3.read("x") == b"1"
    proxy.spoil = [odd]
    assert [info.path for info in s3.list("")] == ["x"]
    proxy.spoil = [odd]
    with pytest.raises(UnknownOutcomeError):
        s3.create("x", b"2")
    proxy.spoil = [odd]
    s3.delete("x")
    with pytest.raises(ObjectNotFoundError):
        s3.read("x")


@pytest.mark.parametrize("odd", [odd for odd in ODD if odd.type != "application/xml" or odd.status == 408])
def test_so_are_those_to_a_question_without_a_body(proxy: Proxy, s3: ObjectStore, odd: Answer) -> None:
    s3.write("x", b"1")
    proxy.spoil = [odd]
    assert s3.stat("x").size == 1


def test_answers_that_are_cut_off_are_tried_again(proxy: Proxy, s3: ObjectStore) -> None:
    s3.write("x", b"0123456789")
    proxy.spoil = ["cut"]
    assert s3.read("x") == b"0123456789"
    proxy.spoil = ["cut", "cut"]
    assert [info.path for info in s3.list("")] == ["x"]


@set_sizes(s3_attempts=2)
def test_an_endpoint_that_is_no_s3_service_is_told(proxy: Proxy, s3: ObjectStore) -> None:
    proxy.spoil = [Answer(200, PAGE, "text/html")] * 2
    with pytest.raises(StoreUnavailableError, match="HTTP 200, text/html, which is not what an S3 service says"):
        list(s3.list(""))


@set_sizes(s3_attempts=3)
def test_a_store_that_stays_down_is_unavailable(proxy: Proxy, s3: ObjectStore) -> None:
    proxy.spoil = [503] * 3
    with pytest.raises(StoreUnavailableError, match="no usable answer for s3"):
        s3.read("x")


def test_commits_happen_once_when_answers_are_lost(proxy: Proxy, s3: ObjectStore) -> None:
    catalog = Catalog(s3, "p")
    claim = catalog.claim("main", "run")
    spoiled_pairs = [(n, what) for n in range(5) for what in ("lose", 503, Answer(400, TIMEOUT))]
    ids: list[str] = []
    for good, spoil in spoiled_pairs:
        proxy.spoil = [*["pass"] * good, spoil]
        ids += commit_some(catalog, claim, 1)
        proxy.spoil = []
    assert [m.snapshot_id for m in catalog.ancestry(ids[-1])] == ids[::-1]
    assert catalog.head().entry == 1 + len(ids)
    check_catalog(s3, "p")
