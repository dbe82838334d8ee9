"""``python -m scripts.demo_reach``: everything around Headrace follows what readers see, also when that goes back.

A topic of a real Kafka is read by a pipeline with two outputs, and the second output by another pipeline. A table of
PostgreSQL, one of Delta and one of Iceberg follow them. psql, DuckDB, pyiceberg and Spark read these, and a published
view. Then orders arrive that are wrong; they are published, seen everywhere, and rolled back. All is on loopback, and
stopped at the end, also after Ctrl-C.
"""

import asyncio
import json
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import headrace as hr
from headrace.connections import variable_name
from headrace.errors import HeadraceError
from headrace.pipeline.loading.registry import resolve_pipeline
from headrace.runs.client.handle import PipelineHandle
from scripts.airflow_env import REPOSITORY
from scripts.demo import DemoError, Stopwatch
from scripts.kafka import Kafka
from scripts.postgres_server import Postgres, binaries

if TYPE_CHECKING:
    from headrace.distribute.spark.application import SparkSession

FOLDER: Final = REPOSITORY / ".headrace" / "demo-reach"
ORDERS: Final = 5_000
WRONG: Final = 500
_BEGIN: Final = datetime(2026, 5, 4, tzinfo=UTC)
_SHOPS: Final = ("Bern", "Oslo", "Riga", "Rome")

Total = tuple[int, int]
"""How many orders, and what they amount to."""


@dataclass(frozen=True)
class Reach:
    """The systems, and the two pipelines between them."""

    folder: Path
    kafka: str
    database: str

    @cached_property
    def orders(self) -> PipelineHandle:
        """The pipeline that reads the topic."""
        return self._handle("orders")

    @cached_property
    def weekly(self) -> PipelineHandle:
        """The pipeline that reads the first one."""
        return self._handle("weekly")

    def _handle(self, name: str) -> PipelineHandle:
        pipeline = resolve_pipeline(str(REPOSITORY / "scripts" / "reach" / f"{name}.py"))
        return hr.open((self.folder / "root").as_uri(), create=True)[pipeline]

    def connections(self) -> dict[str, str]:
        """What the environment says of each."""
        lake = self.folder / "lake"
        lake.mkdir(parents=True)
        return {
            variable_name("events"): f"kafka://{self.kafka}",
            variable_name("warehouse"): self.database,
            variable_name("lake"): lake.as_uri(),
            variable_name("catalog"): f"{self.database}?warehouse={lake.as_uri()}",
        }

    def send(self, orders: Sequence[dict[str, Any]]) -> None:
        """Produce ``orders``, after making the topic if it is not there."""
        asyncio.run(_send(self.kafka, [json.dumps(order).encode() for order in orders]))

    def follow(self) -> None:
        """Run both pipelines, and deliver what they publish."""
        for handle in (self.orders, self.weekly):
            result = handle.run()
            print(f"  {result.pipeline}: {len(result.epochs)} epochs, snapshot {result.snapshot}")
            for delivery in handle.deliver():
                print(f"    {delivery.describe()}")

    def take_back(self, snapshot: str) -> None:
        """Roll the first pipeline back; the second one takes back what it had read, and all tables follow."""
        self.orders.rollback(to=snapshot, message="amounts in cents")
        for delivery in self.orders.deliver():
            print(f"    {delivery.describe()}")
        result = self.weekly.run()
        print(f"  {result.pipeline}: {len(result.epochs)} epochs take back what differs")
        for delivery in self.weekly.deliver():
            print(f"    {delivery.describe()}")

    # --- readers that know nothing of Headrace

    def totals(self, spark: "SparkSession") -> dict[str, Total]:
        """What each reader finds in its table, or view."""
        return {
            "psql: hourly in PostgreSQL": self._by_psql(),
            "DuckDB: daily in Delta": self._by_duckdb(),
            "pyiceberg: weekly in Iceberg": self._by_pyiceberg(),
            "Spark: orders.hourly as published": self._by_spark(spark),
        }

    def _by_psql(self) -> Total:
        folder = binaries()
        assert folder is not None, "the server is up"
        command = [str(folder / "psql"), "-At", self.database, "-c", "select sum(orders), sum(amount) from hourly"]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        if process.returncode != 0:
            raise DemoError(f"psql: {process.stderr}")
        return _total(process.stdout.strip().split("|"))

    def _by_duckdb(self) -> Total:
        import duckdb
        from deltalake import DeltaTable

        daily = DeltaTable(self.folder / "lake" / "daily").to_pyarrow_dataset()
        with duckdb.connect() as database:
            database.register("daily", daily)
            return _total(database.execute("select sum(orders), sum(amount) from daily").fetchall()[0])

    def _by_pyiceberg(self) -> Total:
        import pyarrow.compute as pc
        from pyiceberg.catalog import load_catalog

        uri = self.database.replace("postgresql://", "postgresql+psycopg://")
        catalog = load_catalog("catalog", type="sql", uri=uri, warehouse=(self.folder / "lake").as_uri())
        try:
            rows = catalog.load_table("reach.weekly").scan().to_arrow()
        finally:
            catalog.close()
        return _total([pc.sum(rows.column(name)).as_py() for name in ("orders", "amount")])

    def _by_spark(self, spark: "SparkSession") -> Total:
        reader: Any = hr.open((self.folder / "root").as_uri())["orders"]
        frame = reader["hourly"].current().to_spark(spark)
        return _total(frame.selectExpr("sum(orders)", "sum(amount)").collect()[0])


def _total(values: Sequence[Any]) -> Total:
    orders, amount = values
    return int(orders), int(amount)


async def _send(address: str, values: Sequence[bytes]) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic

    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    try:
        if "orders" not in await admin.list_topics():
            await admin.create_topics([NewTopic("orders", 3, 1)])
    finally:
        await admin.close()
    async with AIOKafkaProducer(bootstrap_servers=address) as producer:
        deliveries = [await producer.send("orders", value, partition=number % 3) for number, value in enumerate(values)]
        await asyncio.gather(*deliveries)


def some_orders(many: int, seed: int, factor: int = 1) -> list[dict[str, Any]]:
    """Orders of two weeks, about in the order of their times."""
    choice = random.Random(seed)
    minutes = sorted(choice.randrange(14 * 24 * 60) for _ in range(many))
    return [
        {
            "shop": choice.choice(_SHOPS),
            "amount": choice.randrange(1, 100) * factor,
            "at": (_BEGIN + timedelta(minutes=minute)).isoformat(),
        }
        for minute in minutes
    ]


def total_of(orders: Sequence[dict[str, Any]]) -> Total:
    """What every reader must find."""
    return len(orders), sum(order["amount"] for order in orders)


def check(reach: Reach, spark: "SparkSession", expected: Total) -> None:
    """Print what each reader finds. Raises DemoError if one finds anything but what is ``expected``."""
    for reader, total in reach.totals(spark).items():
        print(f"  {reader:36} {total[0]:>6,} orders  {total[1]:>10,}")
        if total != expected:
            raise DemoError(f"{reader}: it finds {total}, and {expected} were sent")


def demonstrate(clock: Stopwatch, stack: ExitStack) -> None:
    """The story of the module's docstring; what it starts is stopped when ``stack`` closes."""
    from headrace.distribute.spark.session import spark_session

    if binaries() is None:
        raise DemoError("there is no PostgreSQL: install it (on Debian: apt install postgresql)")
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    with clock.step("Kafka, PostgreSQL and Spark: start on loopback"):
        broker = stack.enter_context(Kafka(FOLDER / "kafka"))
        server = stack.enter_context(Postgres(secrets.token_hex(16)))
        spark = spark_session("headrace demo", cores=2, log=FOLDER / "spark.log")
        stack.callback(spark.stop)
        reach = Reach(FOLDER, broker.address, server.url.replace("postgresql+psycopg2", "postgresql"))
        os.environ.update(reach.connections())
    good = some_orders(ORDERS, seed=1)
    with clock.step(f"{ORDERS:,} orders: two pipelines, three tables"):
        reach.send(good)
        reach.follow()
        check(reach, spark, total_of(good))
    snapshot_before = newest_snapshot(reach.orders)
    wrong = some_orders(WRONG, seed=2, factor=100)
    with clock.step(f"{WRONG:,} orders whose amounts are wrong: published, and seen everywhere"):
        reach.send(wrong)
        reach.follow()
        check(reach, spark, total_of([*good, *wrong]))
    with clock.step("a rollback, and everything follows"):
        reach.take_back(snapshot_before)
        check(reach, spark, total_of(good))


def newest_snapshot(handle: PipelineHandle) -> str:
    """The snapshot of its last epoch."""
    return str(max(handle.snapshots().to_json(), key=lambda row: row["epoch"])["snapshot"])


def main(arguments: list[str]) -> int:
    """Exit code 0 when every reader found what it must, each time."""
    assert not arguments, __doc__
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that kill cleans up like Ctrl-C
    clock = Stopwatch()
    try:
        with ExitStack() as stack:
            demonstrate(clock, stack)
    except (DemoError, HeadraceError) as error:
        print(f"\nThe demo failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted; everything that was started is stopped.", file=sys.stderr)
        return 130
    print(f"\nWhere the time went\n{clock.table()}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
