"""A pipeline inside the image of Spark that reads a topic where it is (``land="never"``), from a broker beside it."""

import asyncio
import json
from pathlib import Path
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from headrace.connections import PREFIX
from scripts.image_container import CheckFailedError, Container, give, new_folder
from scripts.kafka import Kafka

_TOPIC: Final = "clicks"
_PIPELINE: Final = f"""
from datetime import datetime
import headrace as hr

clicks = hr.Pipeline(
    "clicks",
    hr.kafka("{_TOPIC}", {{"page": str, "at": datetime}}, connection="events", land="never").event_time(
        "at", bound="0s"
    ),
    key="page",
    what={{"clicks": hr.count()}},
    where=hr.FixedWindows("1h"),
    when=hr.on_update(),
    how=hr.accumulating(),
)
"""
_MANY: Final = 1_000


def check(spark: Container, **variables: str) -> None:
    """Executors fetch the records themselves, and each counts once. Raises CheckFailedError."""
    folder = new_folder(spark.folder / "topic")
    (folder / "clicks.py").write_text(_PIPELINE)
    give(folder)
    broker_folder = spark.folder / "broker"
    broker_folder.mkdir()
    with Kafka(broker_folder) as broker:
        asyncio.run(_send(broker.address))
        where = {
            "HEADRACE_ROOT": f"file:///data/{folder.name}",
            f"{PREFIX}_EVENTS": f"kafka://{broker.address}",
            **variables,
        }
        pipeline = f"/data/{folder.name}/clicks.py"
        spark.run("headrace", "run", pipeline, "--executor", "spark", **where)
        output = spark.run("headrace", "read", pipeline, "--at", "main", "--format", "json", **where)
    if landed_files := [*Path(folder).glob("clicks/landed/**/*.parquet")]:
        raise CheckFailedError(f"{spark.name}: a topic that is not to be landed was: {landed_files[0].name}")
    rows: list[dict[str, Any]] = json.loads(output)
    counts = {row["page"]: row["clicks"] for row in rows}
    if counts != {f"page{number}": _MANY // 10 for number in range(10)}:
        raise CheckFailedError(f"{spark.name}: a topic of {_MANY} clicks on ten pages gave {counts}")
    print(f"{_MANY} records of a topic, read where they are")


async def _send(address: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    await admin.create_topics([NewTopic(_TOPIC, 4, 1)])
    await admin.close()
    async with AIOKafkaProducer(bootstrap_servers=address) as producer:
        for number in range(_MANY):
            record = {"page": f"page{number % 10}", "at": "2026-05-01T09:05:00Z"}
            await producer.send(_TOPIC, json.dumps(record).encode())
        await producer.flush()
