"""The sink through Spark that the documentation shows, on a real PostgreSQL, by JDBC: a process of its own, since the
session has to know the driver. Its arguments are a folder and the URI of the server.
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from headrace.ext.sinks import ChangeSource, SinkRefusedError, SinkUnreachableError
from headrace.pipeline.pipeline import Pipeline
from headrace.read.views.arrow_types import zoneless_rows
from headrace.runs.client.handle import PipelineHandle
from headrace.runs.client.handle import open as open_root
from headrace.runs.delivering.deliver import Delivery
from headrace.sinks.failures import SinkFailedError
from headrace.testing.connectors.worlds import plain
from headrace_lab.sink_plans import act_meanwhile
from tests.docs.pages import DOCS, blocks

COLUMN_LIST = "shop, window_start, window_end, orders, amount"


class Shop:
    """The pipeline of the page in a folder, and the table that it delivers to."""

    def __init__(self, folder: Path, uri: str) -> None:
        from headrace.pipeline.loading.registry import resolve_pipeline

        self.folder, self.uri = folder, uri
        for block in blocks(DOCS / "how-to" / "spark-sink.md"):
            if block.directive[:1] == ("file",):
                (folder / block.directive[1]).write_text(block.text)
        self.pipeline: Pipeline = replace(resolve_pipeline(str(folder / "sales.py")), executor="local")
        self.handle: PipelineHandle = open_root(folder.as_uri(), create=True)[self.pipeline]

    def land(self, name: str, *orders: tuple[str, str, int]) -> None:
        landing = self.folder / "landing" / "sales"
        landing.mkdir(parents=True, exist_ok=True)
        lines = [
            f'{{"shop": "{shop}", "at": "2026-05-01T{time}:00Z", "amount": {amount}}}\n'
            for shop, time, amount in orders
        ]
        (landing / f"{name}.json").write_text("".join(lines))

    def deliver(self) -> Delivery:
        (delivery,) = self.handle.deliver()
        return delivery

    def rows_in_table(self) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.uri) as database:
            rows = database.execute(f"select {COLUMN_LIST} from report").fetchall()
        return sorted(tuple(map(plain, row)) for row in rows)

    def published_rows(self) -> list[tuple[Any, ...]]:
        rows = zoneless_rows(self.handle.current(columns=COLUMN_LIST.split(", ")).to_arrow())
        return sorted(tuple(map(plain, row.values())) for row in rows)


def follows(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishes, a rollback, and a delivery that is overtaken."""
    from headrace.distribute.spark.session import spark_session

    shop.land("1", ("Oslo", "09:05", 20), ("Rome", "09:10", 12))
    first = shop.handle.run()
    with_one_session = spark_session("a test")  # a delivery leaves the application of its process alone
    try:
        delivery = shop.deliver()
        assert (delivery.source, delivery.written, delivery.after) == (ChangeSource.ALL_ROWS, 2, first.snapshot)
        assert shop.rows_in_table() == shop.published_rows()
        assert shop.deliver().source is None

        shop.land("2", ("Oslo", "09:15", 5), ("Riga", "10:30", 1))
        shop.handle.run()
        assert shop.deliver().source is ChangeSource.PANES
        assert shop.rows_in_table() == shop.published_rows()
        assert len(shop.rows_in_table()) == 3

        shop.handle.rollback(to=str(first.snapshot), message="a wrong file")
        delivery = shop.deliver()
        assert (delivery.source, delivery.written, delivery.removed) == (ChangeSource.DIFFERENCE, 1, 1)
        assert shop.rows_in_table() == shop.published_rows()

        target = with_one_session.sparkContext
        assert target._jsc is not None, "the session is still there"
        overtaken_by_another(shop)
        a_database_that_does_not_answer_passes(shop)
        shop.handle.rollback(to="beginning", message="all of it")
        assert shop.deliver().source is ChangeSource.ALL_ROWS
        assert shop.rows_in_table() == []
    finally:
        with_one_session.stop()
    with psycopg.connect(shop.uri) as database:
        database.execute("update held set said = 'of somebody else'")
    with pytest.raises(SinkRefusedError, match="It must give what apply"):
        shop.deliver()


def overtaken_by_another(shop: Shop) -> None:
    """A delivery that another one overtakes changes nothing."""
    shop.handle.run()
    with act_meanwhile("spark", "apply", shop.deliver):
        assert shop.deliver().source is None, "it is refused, looks again, and finds nothing to do"
    assert shop.rows_in_table() == shop.published_rows()


def a_database_that_does_not_answer_passes(shop: Shop) -> None:
    """One that refuses the login does not."""
    address = urlsplit(shop.uri)
    for port, error in ((1, SinkUnreachableError), (address.port, SinkFailedError)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(
                "HEADRACE_CONN_REPORTS", f"postgresql://nobody:planted@{address.hostname}:{port}{address.path}"
            )
            with pytest.raises(error, match="connection reports") as error_info:
                shop.deliver()
        assert "planted" not in str(error_info.value)


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        follows(Shop(Path(sys.argv[1]), sys.argv[2]), patch)
