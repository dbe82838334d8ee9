"""A schema of a PostgreSQL server, for tests of PostgreSQL alone."""

from dataclasses import dataclass
from typing import Any

from scripts.postgres_server import Postgres
from tests.sinks.worlds import PostgresWorld


@dataclass(frozen=True)
class Warehouse:
    """A ``schema`` of a ``server``."""

    server: Postgres
    schema: str

    @property
    def uri(self) -> str:
        """How the server is reached."""
        return self.server.url.replace("postgresql+psycopg2", "postgresql")

    @property
    def world(self) -> PostgresWorld:
        """A target for the kit."""
        return PostgresWorld(self.uri, self.schema)

    def rows(self, columns: str = "*", table: str = "sales") -> list[tuple[Any, ...]]:
        """What a table holds, in order."""
        return sorted(self.server.rows(f"select {columns} from {self.schema}.{table}"), key=str)
