"""Runs over a topic that are killed while they land and while they commit, several at once, with a broker that dies,
while producers go on: in the end each record that was sent counts once.

`make kafka-kills KILLS=100 SEED=1` does more of it, with ``STORE=s3`` over MinIO.
"""

import multiprocessing
import os
import random
import secrets
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import HeadraceError
from headrace.pipeline.pipeline import Pipeline
from headrace.sources.landed.ranges import LandingPlace, unread_files
from headrace_snapshots.store import open_store
from scripts.kafka import Kafka
from tests.minio_bucket import BUCKET
from tests.sources.kafka_topics import Topics

KILLS = int(os.environ.get("HEADRACE_KAFKA_KILLS", "3"))
SEED = int(os.environ.get("HEADRACE_KILLS_SEED", "1"))
IS_ON_S3 = os.environ.get("HEADRACE_KILLS_STORE") == "s3"
SECONDS = 120
PARTITIONS = 3
USERS = 5
_PRELOAD_MODULES = [__name__, "headrace.runs.executors.on_local", "headrace.connectors.kafka.client", "pyarrow.parquet"]


def pipeline(topic: str) -> Pipeline:
    return hr.Pipeline(
        "spent",
        hr.kafka(topic, {"user": str, "amount": int}, connection="events").arrival_time(),
        key="user",
        what={"orders": hr.count(), "spent": hr.col("amount").sum()},
        where=hr.GlobalWindows(),
        when=hr.on_update(),
        executor="local",
    )


def victim(topic: str, root: str, environment: Mapping[str, str], countdown: int, *, is_done: bool) -> None:
    """A run that ends itself at its put number ``countdown``: before it, or after it if ``is_done``."""
    os.environ.update(environment)
    left = countdown

    def strike_after(put: Callable[..., Any]) -> Callable[..., Any]:
        def strike(*arguments: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0 and not is_done:
                os.kill(os.getpid(), signal.SIGKILL)
            answer = put(*arguments)
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        return strike

    kind = type(open_store(root))
    for name in ("create", "write"):
        setattr(kind, name, strike_after(getattr(kind, name)))
    try:
        hr.open(root, create=True)[pipeline(topic)].run(files_per_epoch=4)
    except HeadraceError:
        return  # another run was faster, or the broker is not there


def s3_root(request: pytest.FixtureRequest, name: str) -> str:
    """A root on a MinIO that is up."""
    request.getfixturevalue("minio")
    return f"s3://{BUCKET}/{name}"


@pytest.mark.slow
def test_each_record_counts_once(broker: Kafka, topics: Topics, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    draw = random.Random(SEED)
    topic = f"kills.{secrets.token_hex(4)}"
    root = s3_root(request, topic) if IS_ON_S3 else (tmp_path / "root").as_uri()
    topics.make(topic, PARTITIONS)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOAD_MODULES)
    sent_counts: Counter[str] = Counter()
    spent_counts: Counter[str] = Counter()
    kills = 0
    for turn in range(KILLS):
        for partition in range(PARTITIONS):
            orders = [(f"u{draw.randrange(USERS)}", draw.randrange(100)) for _ in range(draw.randrange(400))]
            sent_counts.update(user for user, _ in orders)
            spent_counts.update({user: 0 for user, _ in orders})
            for user, amount in orders:
                spent_counts[user] += amount
            topics.send_json(topic, [{"user": user, "amount": amount} for user, amount in orders], partition)
        victims = [
            context.Process(
                target=victim,
                args=(topic, root, dict(os.environ), draw.randrange(1, 25)),
                kwargs={"is_done": draw.random() < 0.5},
            )
            for _ in range(draw.choice((1, 1, 2)))
        ]
        for process in victims:
            process.start()
        if turn == KILLS // 2:
            broker.kill()
            broker.start()
        for process in victims:
            process.join(SECONDS)
            assert process.exitcode in (0, -signal.SIGKILL)
            kills += process.exitcode == -signal.SIGKILL
    assert kills >= KILLS // 3
    handle = hr.open(root)[pipeline(topic)]
    handle.run()
    rows = {row["user"]: (row["orders"], row["spent"]) for row in handle.read("current", at="main").to_json()}
    assert rows == {user: (sent_counts[user], spent_counts[user]) for user in sent_counts}
    offsets = landed_offsets(root)
    assert {partition: [*range(len(own))] for partition, own in offsets.items()} == offsets
    assert sum(map(len, offsets.values())) == sent_counts.total()
    handle.run(mode="replay", from_branch="main", branch="again")
    difference = handle.diff("main", "again").output.rows.to_json()
    assert [difference[kind] for kind in ("added", "removed", "changed")] == [0, 0, 0]
    handle.backfill(promote=True, branch="all")
    assert rows == {row["user"]: (row["orders"], row["spent"]) for row in handle.read("current", at="main").to_json()}


def landed_offsets(root: str) -> dict[int, list[int]]:
    """The offsets that were landed, by partition, in the order in which they are read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    store = open_store(root)
    offsets: dict[int, list[int]] = {}
    for info in unread_files(LandingPlace(store, "spent", "source"), ""):
        table = pq.read_table(pa.BufferReader(store.read(info.path)))
        for partition, offset in zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True):
            offsets.setdefault(partition, []).append(offset)
    return offsets
