"""Targets of Headrace's own sinks, for the conformance kit and the tests of each. Clients are imported here, once for
all deliveries that are killed.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
import pyarrow.parquet as pq
from aiokafka.client import AIOKafkaClient
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io.pyarrow import PyArrowFile

import headrace as hr
from headrace.connections import connection
from headrace.connectors.iceberg.sink import catalog_properties
from headrace.connectors.postgres.target import PostgresTarget
from headrace.pipeline.endpoints import Sink
from headrace.read.views.arrow_types import zoneless_rows
from headrace.testing.connectors import ChangeLogWorld, SinkWorld
from tests.s3_proxy import Proxy
from tests.sources.kafka_topics import Topics


@dataclass(frozen=True)
class PostgresWorld(SinkWorld):
    """A schema of a server."""

    uri: str
    schema: str

    @property
    def sink(self) -> Sink:
        return hr.postgres(f"{self.schema}.sales", connection="warehouse")

    @property
    def environment(self) -> Mapping[str, str]:
        return {"HEADRACE_CONN_WAREHOUSE": self.uri}

    def rows(self) -> list[dict[str, Any]]:
        with psycopg.connect(self.uri, row_factory=psycopg.rows.dict_row) as connection:
            if connection.execute("select to_regclass(%s)", [f"{self.schema}.sales"]).fetchone() == {
                "to_regclass": None
            }:
                return []
            return connection.execute(f"select * from {self.schema}.sales").fetchall()

    def lose_a_row(self) -> bool:
        with psycopg.connect(self.uri) as connection:
            connection.execute(f"""delete from {self.schema}.sales where "user" = 'bob'""")
        return True

    def before_each_request(self, act: Callable[[], None]) -> None:
        for name in ("_execute", "_copy"):
            setattr(PostgresTarget, name, _act_before(act, getattr(PostgresTarget, name)))


@dataclass(frozen=True)
class PostgresChangesWorld(ChangeLogWorld):
    """A table of changes in a schema of a server."""

    uri: str
    schema: str

    @property
    def sink(self) -> Sink:
        return hr.postgres(f"{self.schema}.sales", connection="warehouse", changes=True)

    @property
    def environment(self) -> Mapping[str, str]:
        return {"HEADRACE_CONN_WAREHOUSE": self.uri}

    def records(self) -> list[dict[str, Any]]:
        return sorted(self._rows_world.rows(), key=lambda record: record["_change"])

    def before_each_request(self, act: Callable[[], None]) -> None:
        self._rows_world.before_each_request(act)

    @property
    def _rows_world(self) -> PostgresWorld:
        return PostgresWorld(self.uri, self.schema)


@dataclass(frozen=True)
class KafkaWorld(ChangeLogWorld):
    """A topic of changes, of the broker at ``address``."""

    address: str
    topic: str

    @property
    def sink(self) -> Sink:
        return hr.kafka_sink(self.topic, connection="events")

    @property
    def environment(self) -> Mapping[str, str]:
        return {"HEADRACE_CONN_EVENTS": f"kafka://{self.address}"}

    def records(self) -> list[dict[str, Any]]:
        """As a consumer reads them that sees no transaction which was not committed."""
        documents = [
            json.loads(value)
            for _, _, value in Topics(self.address).committed_records(self.topic, patience=1)
            if value is not None
        ]
        by_number = {record["_change"]: record for record in documents}
        assert all(record["_sign"] == 0 for record in documents if record is not by_number[record["_change"]])
        return [_type_record(by_number[number]) for number in sorted(by_number)]

    def before_each_request(self, act: Callable[[], None]) -> None:
        AIOKafkaClient.send = _act_before(act, AIOKafkaClient.send)


def _type_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record with times where its window is and its event time, its columns by name."""
    time_columns = ("window_start", "window_end", "event_time")
    times = {name: record[name] for name in time_columns if record.get(name) is not None}
    values = {**record, **{name: datetime.fromisoformat(time) for name, time in times.items()}}
    return dict(sorted(values.items()))  # an object has no order


class _ProxyOfAProcess(Proxy):
    """Ends with the process that started it."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self._parent_pid = os.getpid()

    def service_actions(self) -> None:
        if os.getppid() != self._parent_pid:
            os._exit(0)


@dataclass(frozen=True)
class DeltaWorld(SinkWorld):
    """A table in a folder, or below a bucket of a MinIO at ``endpoint``."""

    place: str
    endpoint: str | None = None

    @property
    def sink(self) -> Sink:
        return hr.delta("reports/sales", connection="lake")

    @property
    def environment(self) -> Mapping[str, str]:
        return {"HEADRACE_CONN_LAKE": self.uri(self.endpoint)}

    def uri(self, endpoint: str | None) -> str:
        if endpoint is None:
            return Path(self.place).as_uri()
        key, secret = (quote(os.environ[name], safe="") for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
        options = urlencode({"endpoint_url": endpoint, "region": "us-east-1"})
        return f"s3://{key}:{secret}@{self.place}?{options}"

    def rows(self) -> list[dict[str, Any]]:
        try:
            table = self._table()
        except TableNotFoundError:
            return []
        return zoneless_rows(table.to_pyarrow_table())

    def _table(self) -> DeltaTable:
        options = (
            {}
            if self.endpoint is None
            else {"aws_endpoint": self.endpoint, "aws_allow_http": "true", "aws_region": "us-east-1"}
        )
        prefix = self.place if self.endpoint is None else f"s3://{self.place}"
        return DeltaTable(f"{prefix}/reports/sales", storage_options=options)

    def lose_a_row(self) -> bool:
        self._table().delete("user = 'bob'")
        return True

    def before_each_request(self, act: Callable[[], None]) -> None:
        """Requests go through another process: the client holds the interpreter's lock while some of them last."""
        if self.endpoint is None:
            return
        server = _ProxyOfAProcess(self.endpoint)
        server.before_each = act
        os.environ["HEADRACE_CONN_LAKE"] = self.uri(server.endpoint)
        if os.fork() == 0:
            server.serve_forever(poll_interval=0.05)


@dataclass(frozen=True)
class IcebergWorld(SinkWorld):
    """A table of the catalog that ``uri`` names."""

    uri: str
    namespace: str = "reports"

    @property
    def sink(self) -> Sink:
        return hr.iceberg(f"{self.namespace}.sales", connection="lake")

    @property
    def environment(self) -> Mapping[str, str]:
        return {"HEADRACE_CONN_LAKE": self.uri}

    @contextmanager
    def catalog(self) -> Iterator[Catalog]:
        """A client of our own."""
        with closing(load_catalog("lake", **catalog_properties(connection("lake", self.environment)))) as catalog:
            yield catalog

    def rows(self) -> list[dict[str, Any]]:
        with self.catalog() as catalog:
            try:
                table = catalog.load_table(f"{self.namespace}.sales")
            except (NoSuchTableError, NoSuchNamespaceError):
                return []
            return zoneless_rows(table.scan().to_arrow())

    def lose_a_row(self) -> bool:
        with self.catalog() as catalog:
            catalog.load_table(f"{self.namespace}.sales").delete("user == 'bob'")
        return True

    def before_each_request(self, act: Callable[[], None]) -> None:
        for owner, names in (
            (SqlCatalog, ("load_table", "commit_table")),
            (RestCatalog, ("load_table", "commit_table")),
            (PyArrowFile, ("open", "create")),
        ):
            for name in names:
                setattr(owner, name, _act_before(act, getattr(owner, name)))


@dataclass(frozen=True)
class SparkWorld(SinkWorld):
    """A folder that Spark writes to, by a class of a user's."""

    folder: Path

    @property
    def sink(self) -> Sink:
        return hr.spark_sink("tests.sinks.spark_targets:Folder", connection="files")

    @property
    def environment(self) -> Mapping[str, str]:
        return {"HEADRACE_CONN_FILES": self.folder.as_uri()}

    def rows(self) -> list[dict[str, Any]]:
        state = state_of(self.folder)
        if state is None:
            return []
        # times of Spark have 96 bits, in which Arrow sees nanoseconds if nobody says otherwise
        return zoneless_rows(pq.read_table(self.folder / state["version"], coerce_int96_timestamp_unit="us"))


def state_of(folder: Path) -> dict[str, Any] | None:
    """Which version of the table in a folder counts, and what it holds; None: there is none."""
    state = folder / "state.json"
    return json.loads(state.read_text()) if state.exists() else None


def _act_before(act: Callable[[], None], step: Callable[..., Any]) -> Callable[..., Any]:
    def act_and_step(*arguments: Any, **options: Any) -> Any:
        act()
        return step(*arguments, **options)

    return act_and_step
