"""The sink through Spark that the documentation shows, on a real PostgreSQL, by JDBC."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.connectors.spark.sink import _state_text
from headrace.ext.sinks import SinkState
from scripts.postgres_server import Postgres
from tests.with_jdbc import run_with_jdbc


@pytest.mark.slow
def test_a_jdbc_database_follows(server: Postgres, tmp_path: Path) -> None:
    module, connection = "tests.sinks.spark_sink_run", "HEADRACE_CONN_REPORTS"
    run_with_jdbc(module, server, tmp_path, connection=connection, tables="report, held")


def test_a_text_that_an_older_version_stored_is_compared_as_it_is() -> None:
    """It has no time: a target of a user's compares texts."""
    older = '{"columns": {}, "number": null, "output": "", "pipeline": "p", "root": "file:///r", "snapshot": "s"}'
    held_state = SinkState(**json.loads(older))
    assert _state_text(held_state) == older
    newer = _state_text(replace(held_state, at="2026-05-01T00:00:00Z"))
    assert _state_text(SinkState(**json.loads(newer))) == newer
