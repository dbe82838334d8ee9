"""A program of tests beside a real PostgreSQL that Spark reaches by JDBC: a process of its own, since the session has
to know the driver.
"""

import os
import subprocess
import sys
from pathlib import Path

from scripts import jdbc_driver
from scripts.postgres_server import Postgres
from tests.needed import lacks


def run_with_jdbc(module: str, server: Postgres, folder: Path, *, connection: str, tables: str) -> None:
    """Run ``module`` with a ``folder`` and the URI of ``server``, which is the ``connection``; it has to end well. Its
    ``tables`` are dropped.
    """
    if not jdbc_driver.jar().is_file():
        lacks("no JDBC driver (python -m scripts.jdbc_driver path)")
    uri = server.url.replace("postgresql+psycopg2", "postgresql")
    environment = {
        **os.environ,
        "PYSPARK_SUBMIT_ARGS": f"--jars {jdbc_driver.jar()} pyspark-shell",
        connection: uri,
    }
    command = [sys.executable, "-m", module, str(folder), uri]
    try:
        process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-5000:]
    finally:
        server.rows(f"drop table if exists {tables}")
