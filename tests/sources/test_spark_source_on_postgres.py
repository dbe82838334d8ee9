"""The source through Spark that the documentation shows, on a real PostgreSQL, by JDBC."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import jdbc_driver
from scripts.postgres_server import Postgres
from tests.needed import lacks


@pytest.mark.slow
def test_a_table_is_read_once_whatever_transactions_are_open(server: Postgres, tmp_path: Path) -> None:
    if not jdbc_driver.jar().is_file():
        lacks("no JDBC driver (python -m scripts.jdbc_driver path)")
    uri = server.url.replace("postgresql+psycopg2", "postgresql")
    environment = {
        **os.environ,
        "PYSPARK_SUBMIT_ARGS": f"--jars {jdbc_driver.jar()} pyspark-shell",
        "HEADRACE_CONN_ORDERS_DB": uri,
    }
    command = [sys.executable, "-m", "tests.sources.spark_source_run", str(tmp_path), uri]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-5000:]
    finally:
        server.rows("drop table if exists orders")
