"""The sink through Spark that the documentation shows, on a real PostgreSQL, by JDBC."""

from pathlib import Path

import pytest

from scripts.postgres_server import Postgres
from tests.with_jdbc import run_with_jdbc


@pytest.mark.slow
def test_a_jdbc_database_follows(server: Postgres, tmp_path: Path) -> None:
    module, connection = "tests.sinks.spark_sink_run", "HEADRACE_CONN_REPORTS"
    run_with_jdbc(module, server, tmp_path, connection=connection, tables="report, held")
