"""The source through Spark that the documentation shows, on a real PostgreSQL, by JDBC."""

from pathlib import Path

import pytest

from scripts.postgres_server import Postgres
from tests.with_jdbc import run_with_jdbc


@pytest.mark.slow
def test_a_table_is_read_once_whatever_transactions_are_open(server: Postgres, tmp_path: Path) -> None:
    module, connection = "tests.sources.spark_source_run", "HEADRACE_CONN_ORDERS_DB"
    run_with_jdbc(module, server, tmp_path, connection=connection, tables="orders")
