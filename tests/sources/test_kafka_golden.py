"""Roots that older versions wrote (``tests/golden``) go on with their topic, which a real broker has."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace as hr
from headrace.connectors.kafka.source import KAFKA
from headrace.ext.sources import SourcePosition
from headrace.sources.landed.ranges import LandedDamagedError
from headrace_snapshots.format.codec import encode_object
from headrace_snapshots.store.local import MemoryStore
from tests.process.golden_roots import copy_root, values
from tests.process.golden_sales import CLAIMING_SALES, SALES, SENT_MESSAGES
from tests.sources.kafka_topics import Topics


class Sold:
    """The topic ``sales``."""

    def __init__(self, topics: Topics) -> None:
        self.topics = topics
        topics.make("sales", 2)

    def send(self, time: int) -> None:
        for partition, contents in enumerate(SENT_MESSAGES[time]):
            self.topics.send("sales", [(None, value) for value in contents], partition)

    def lose(self) -> None:
        """The first record of a partition is gone before anybody has read it."""
        self.topics.send("sales", [(None, b"gone")], 1)
        self.topics.delete_before("sales", 1, 1)

    def becomes_that_of(self, root: Path) -> None:
        """The root has the id of this topic where it has that of its own, which no broker gives twice."""
        claims = sorted(root.glob("sales/landed/source/_ranges/*.json"))  # and their seals
        own = json.loads(claims[0].read_bytes())["content"]["splits"][0]["etag"]
        split, *_ = KAFKA.open(SALES.inputs[0].source, MemoryStore()).enumerator.unread(SourcePosition())
        for path in (*claims, *root.glob("sales/manifests/*.json")):
            stored_document = json.loads(path.read_text().replace(own, split.etag))
            path.write_bytes(
                encode_object(stored_document["kind"], stored_document["content"], stored_document["format"])
            )


@pytest.fixture
def sold(topics: Topics) -> Iterator[Sold]:
    yield Sold(topics)
    topics.remove("sales")


@pytest.mark.parametrize(
    ("name", "pipeline"),
    [
        ("format-1-landed", SALES),
        ("format-3-landed", SALES),
        ("format-3-sealed", SALES),
        ("format-3-claimed", CLAIMING_SALES),
    ],
    ids=["landed", "landed by 0.1.1", "sealed", "claimed"],
)
def test_a_root_goes_on_with_its_topic(sold: Sold, tmp_path: Path, name: str, pipeline: hr.Pipeline) -> None:
    if name in {"format-3-landed", "format-3-sealed"}:
        sold.lose()
    for time in range(3):
        sold.send(time)
    root = copy_root(name, tmp_path)
    sold.becomes_that_of(root)
    sales = hr.open(root.as_uri())[pipeline]
    pipeline_before = values(sales, pipeline)
    assert [(row["user"], row["amount"]) for row in pipeline_before] == [("ann", 5), ("ann", 9), ("bob", 1), ("bob", 2)]
    assert sales.panes().count() == 10
    assert sales.run().counts["input_files"] == 2, "one of each partition, new or left by a run that was killed"
    sold.send(3)
    sales.run()
    sales.run(mode="replay", from_branch="main", branch="again")
    from_nothing = hr.open((tmp_path / "nothing").as_uri(), create=True)[pipeline]
    from_nothing.run()
    assert len(pipeline_before) < len(values(sales, pipeline))
    assert values(sales, pipeline) == values(sales, pipeline, "again") == values(from_nothing, pipeline)
    assert [row["raw"] for row in sales.rejected().to_json()] == ["no record"]
    sales.drop("again")
    for _ in range(2):
        sales.expire(keep_last=1)
    assert sales.run().epochs == ()
    assert sales.fsck(deep=True).damage == ()


def test_a_sealed_file_that_is_another_is_refused_until_it_is_back(sold: Sold, tmp_path: Path) -> None:
    """One that no run has read yet, so nothing but its seal says what it was."""
    sold.lose()
    for time in range(3):
        sold.send(time)
    root = copy_root("format-3-sealed", tmp_path)
    sold.becomes_that_of(root)
    sales = hr.open(root.as_uri())[SALES]
    pipeline_before, landed_path = values(sales, SALES), root / "sales" / "landed" / "source"
    mine, other = (
        landed_path / f"{2:020}-00000-00001-sales-0-3-4.parquet",
        landed_path / f"{1:020}-00000-00001-sales-0-2-3.parquet",
    )
    was = mine.read_bytes()
    mine.write_bytes(other.read_bytes())
    with pytest.raises(LandedDamagedError, match=mine.name):
        sales.run()
    assert values(sales, SALES, "main") == pipeline_before
    mine.write_bytes(was)
    assert sales.run().counts["input_files"] == 2
    assert sales.fsck(deep=True).damage == ()
