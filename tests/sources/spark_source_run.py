"""The source through Spark that the documentation shows, on a real PostgreSQL with transactions that stay open: a
process of its own, since the session has to know the driver. Its arguments are a folder and the URI of the server.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

import headrace as hr
from headrace.connectors.spark.definition import RangeColumnsError, RangeFailedError, RangeRefusedError
from headrace.runs.client.handle import PipelineHandle
from tests.docs.pages import DOCS, blocks

PAGE = DOCS / "how-to" / "spark-source.md"


class Shop:
    """The pipeline of the page in a folder, and the table that it reads."""

    def __init__(self, folder: Path, uri: str) -> None:
        from headrace.pipeline.loading.registry import resolve_pipeline

        self.folder, self.uri = folder, uri
        for block in blocks(PAGE):
            if block.directive[:1] == ("file",):
                (folder / block.directive[1]).write_text(block.text)
        with psycopg.connect(uri) as database:
            database.execute("create table orders (id serial, shop text, amount int, at timestamptz)")
            for block in blocks(PAGE):
                if block.language == "sql":
                    database.execute(block.text.encode())
        self.handle: PipelineHandle = hr.open(folder.as_uri(), create=True)[resolve_pipeline(str(folder / "sales.py"))]
        self.committed_counts: Counter[str] = Counter()
        self.naive = 0
        self.seen_by_id: Counter[str] = Counter()

    def counts(self) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for row in self.handle.read("current", at="main").to_json():
            counts[row["shop"]] += row["orders"]
        return dict(counts)

    def by_largest_id(self) -> None:
        """What a reader that remembers the largest id finds."""
        with psycopg.connect(self.uri) as database:
            rows = database.execute("select id, shop from orders where id > %s", [self.naive]).fetchall()
        self.naive = max((number for number, _ in rows), default=self.naive)
        self.seen_by_id.update(shop for _, shop in rows)


class Writers:
    """Transactions beside each other, each of which stays open for some turns."""

    def __init__(self, shop: Shop, seed: int) -> None:
        self.shop, self.choice = shop, random.Random(seed)
        self.open: list[tuple[psycopg.Connection[Any], Counter[str]]] = []

    def turn(self) -> None:
        for _ in range(self.choice.randrange(1, 4)):
            self.open.append((psycopg.connect(self.shop.uri), Counter()))
        for database, rows in self.open:
            for _ in range(self.choice.randrange(3)):
                name = self.choice.choice(("Oslo", "Rome", "Riga"))
                time = f"2026-05-01T{self.choice.randrange(24):02}:00:00Z"
                database.execute("insert into orders (shop, amount, at) values (%s, 1, %s)", [name, time])
                rows[name] += 1
        self.end(lambda: self.choice.random() < 0.4)

    def end(self, is_over: Any) -> None:
        open_sessions = []
        for database, rows in self.open:
            if not is_over():
                open_sessions.append((database, rows))
            elif self.choice.random() < 0.2:
                database.rollback()
                database.close()
            else:
                database.commit()
                database.close()
                self.shop.committed_counts += rows
        self.open = open_sessions


def follows(shop: Shop) -> None:
    """Each committed row counts once, whichever transactions are open when a run lands."""
    from headrace.distribute.spark.session import is_running, spark_session

    assert shop.handle.run().epochs == ()
    assert not is_running(), "what is not asked of Spark starts none, and what is started ends"
    session = spark_session("a test")
    try:
        writers = Writers(shop, seed=7)
        for _ in range(8):
            writers.turn()
            shop.handle.run()
            shop.by_largest_id()
            assert shop.counts() == dict(shop.committed_counts)
        writers.end(lambda: True)
        shop.handle.run()
        shop.by_largest_id()
        assert shop.counts() == dict(shop.committed_counts)
        assert sum(shop.seen_by_id.values()) < sum(shop.committed_counts.values()), "the way that loses rows"
        assert shop.handle.run().epochs == ()
        the_next_lands_what_one_that_is_killed_has_left(shop)
        what_is_landed_needs_no_database(shop)
        what_the_database_refuses_is_to_be_put_right(shop)
        changed_columns_are_named(shop)
    finally:
        session.stop()
    one_session_lands_and_computes(shop)


def one_session_lands_and_computes(shop: Shop) -> None:
    """Where no session is there, a run on Spark starts one, for both, and ends it."""
    from pyspark import SparkContext

    from headrace.distribute.spark.session import is_running

    with psycopg.connect(shop.uri) as database:
        database.execute("delete from orders where amount = 'many'")
        database.execute("alter table orders alter amount type int using amount::int")
        for _ in range(3):
            database.execute("insert into orders (shop, amount, at) values ('Oslo', 1, '2026-05-01T12:00:00Z')")
    shop.committed_counts["Oslo"] += 3
    session_starts: list[None] = []
    begin = SparkContext._do_init
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            SparkContext,
            "_do_init",
            lambda *arguments, **more: session_starts.append(None) or begin(*arguments, **more),
        )
        shop.handle.run(executor="spark")
    assert len(session_starts) == 1
    assert not is_running()
    assert shop.counts() == dict(shop.committed_counts)


def the_next_lands_what_one_that_is_killed_has_left(shop: Shop) -> None:
    """It is killed once files of it are there; whether it had claimed them shows afterwards."""
    with psycopg.connect(shop.uri) as database:
        for shop_name, many in (("Oslo", 300), ("Bern", 200)):
            database.execute(
                "insert into orders (shop, amount, at) select %s, 1, '2026-05-01T12:00:00Z' "
                "from generate_series(1, %s)",
                [shop_name, many],
            )
            shop.committed_counts[shop_name] += many
    files_before = {*written_files(shop)}
    run = subprocess.Popen(
        [Path(sys.executable).with_name("headrace"), "run", shop.folder / "sales.py", "--root", shop.folder.as_uri()],
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 120
        while {*written_files(shop)} == files_before and run.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
        assert {*written_files(shop)} != files_before, f"it ended with {run.poll()}"
    finally:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    shop.handle.run()
    assert shop.counts() == dict(shop.committed_counts)
    assert shop.handle.fsck().damage == ()


def written_files(shop: Shop) -> Iterator[Path]:
    return shop.folder.glob("sales/landed/source/_written/*/*.parquet")


def what_is_landed_needs_no_database(shop: Shop) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_CONN_ORDERS_DB", "postgresql://user:planted-secret@127.0.0.1:1/nothing")
        with pytest.raises(RangeFailedError, match=r"\(connection orders_db .*Nothing of it was landed") as error:
            shop.handle.run()
        assert "planted-secret" not in str(error.value)
        shop.handle.run(mode="replay", from_branch="main", branch="again")
        difference = shop.handle.diff("main", "again").output.rows.to_json()
        assert [difference[kind] for kind in ("added", "removed", "changed")] == [0, 0, 0]


ASKS_NOBODY = """
import orders_table


class Orders(orders_table.Orders):
    def ends(self, begin):
        return ["9:9:"]
"""


def what_the_database_refuses_is_to_be_put_right(shop: Shop) -> None:
    """What does not answer is asked again by the next run; both where Python asks, and where Spark does by JDBC."""
    from headrace.pipeline.loading.registry import resolve_pipeline

    (shop.folder / "asks_nobody.py").write_text(ASKS_NOBODY)
    by_jdbc = (
        (shop.folder / "sales.py").read_text().replace('"sales"', '"by_jdbc"').replace("orders_table", "asks_nobody")
    )
    (shop.folder / "by_jdbc.py").write_text(by_jdbc)
    through_spark = hr.open(shop.folder.as_uri())[resolve_pipeline(str(shop.folder / "by_jdbc.py"))]
    address = urlsplit(shop.uri)
    nobody = f"postgresql://nobody:planted-secret@{address.hostname}"
    for handle in (shop.handle, through_spark):
        for uri, error, words in (
            (f"{nobody}:1{address.path}", RangeFailedError, "refused"),
            (f"{nobody}:{address.port}{address.path}", RangeRefusedError, "failed for user"),
        ):
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("HEADRACE_CONN_ORDERS_DB", uri)
                with pytest.raises(
                    error, match=rf"\(connection orders_db .*{words}.*Nothing of it was landed"
                ) as error_info:
                    handle.run()
            assert "planted-secret" not in str(error_info.value)
    with psycopg.connect(shop.uri) as connection:
        connection.execute("alter table orders rename amount to paid")
    with pytest.raises(RangeRefusedError, match=r'the database refuses: ERROR: column "amount" does not exist'):
        through_spark.run()
    with psycopg.connect(shop.uri) as connection:
        connection.execute("alter table orders rename paid to amount")


def changed_columns_are_named(shop: Shop) -> None:
    with psycopg.connect(shop.uri) as database:
        database.execute("alter table orders alter amount type text")
        database.execute("insert into orders (shop, amount, at) values ('Oslo', 'many', '2026-05-01T12:00:00Z')")
    files_before = {*written_files(shop)}
    with pytest.raises(RangeColumnsError, match=r"its column amount is string, and the source says int"):
        shop.handle.run()
    assert {*written_files(shop)} == files_before
    assert shop.counts() == dict(shop.committed_counts)


if __name__ == "__main__":
    follows(Shop(Path(sys.argv[1]), sys.argv[2]))
