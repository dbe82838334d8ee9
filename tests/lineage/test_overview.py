"""The graph of pipelines in several roots, for people: each is read once, and what cannot be read hides no other."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import RetryError
from headrace.model.time import to_instant
from headrace.read.lineage.cut import KeptCatalogs, PlacedPipeline
from headrace.read.lineage.lineage import read_lineage
from headrace.read.lineage.waits import LineageOverview, WaitKind, lineage_overview
from headrace_snapshots.store import LocalStore, open_store
from headrace_snapshots.testing import Operation, disturb_stores
from tests.lineage.test_lineage import chain_in
from tests.process.chains import Chain


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Chain]:
    """Three pipelines that read each other, in a root each; the first has published more than the second has read."""
    chain = chain_in(tmp_path, roots=3)
    chain.run_all()
    chain.drain()
    chain.now += 300
    chain.land()
    chain.handles[0].run(files_per_epoch=100)
    return chain


def read_overview(chain: Chain, open_root: Any = open_store) -> LineageOverview:
    """What is seen by somebody who knows the root of the first pipeline alone."""
    stores = KeptCatalogs(open_store(chain.folders[0].as_uri()), open_root)
    return lineage_overview(stores, [PlacedPipeline("", "first")], to_instant(datetime(2026, 1, 1, tzinfo=UTC)))


def test_readers_in_other_roots_are_seen_with_their_lag(chain: Chain) -> None:
    graph = read_overview(chain)
    assert {head.name for head in graph.heads} == {"first", "second", "third"}
    assert {(one.reader.name, one.upstream.name): one.lag for one in graph.readings} == {
        ("third", "second"): "up to date",
        ("second", "first"): "1 epoch behind",
    }
    assert (graph.unseen, graph.problems) == ((), {})
    assert {one.kind for one in graph.waits} >= {WaitKind.PUBLISHED}
    third = read_lineage(open_store(chain.folders[2].as_uri()), ["third"])
    assert [one.lag for one in third.readings] == ["up to date", "1 epoch behind"]


def test_what_cannot_be_read_hides_nothing_else(chain: Chain) -> None:
    def open_object(uri: str) -> LocalStore:
        if uri.endswith("root2"):
            raise RetryError(f"nobody may read {uri}")
        return open_store(uri)  # type: ignore[return-value]

    graph = read_overview(chain, open_object)
    assert [(one.reader.name, one.lag) for one in graph.readings] == [("second", "1 epoch behind")]
    (unseen,) = graph.unseen
    assert (unseen.reader.name, unseen.upstream.name) == ("third", "second")
    assert "nobody may read" in unseen.why
    assert [problem.name for problem in graph.problems] == ["third"]


def test_head_and_manifest_of_a_pipeline_are_read_once(chain: Chain) -> None:
    listed_counts: Counter[str] = Counter()
    manifests: Counter[str] = Counter()

    def count(operation: Operation) -> None:
        listed_counts[operation.path] += operation.kind == "list" and operation.path.endswith("/log/")
        manifests[operation.path] += operation.kind == "get" and "/manifests/" in operation.path

    with disturb_stores(count):
        read_overview(chain)
    assert +listed_counts == {"first/log/": 1, "second/log/": 1, "third/log/": 1}
    assert set(manifests.values()) == {0, 1}
