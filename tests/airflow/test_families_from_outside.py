"""Another distribution adds a family of DAGs: Airflow finds one for each pipeline, and runs its task."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.additions.test_outside import DISTRIBUTION_FOLDER
from tests.airflow.subprocesses import REPOSITORY, python, write_pipeline
from tests.distributions import write_distribution

pytestmark = pytest.mark.slow  # importing Airflow takes seconds

PARSE = f"""
import json
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.definitions._internal.dag_parsing_context import _airflow_parsing_context_manager as parsing_for
from headrace_snapshots.store import open_store
import os
bag = DagBag(dag_folder={str(REPOSITORY / "dags")!r})
found = {{"dags": sorted(name for name in bag.dags if "_clicks_" in name), "errors": [*bag.import_errors.values()]}}
if own := bag.dags.get("headrace_clicks_size_report"):
    with parsing_for(own.dag_id):  # as a task that starts does it
        found["alone"] = [*DagBag(dag_folder={str(REPOSITORY / "dags")!r}).dags]
    open_store(os.environ["HEADRACE_ROOT"]).write("clicks/some", b"12345")
    from airflow.sdk.bases.operator import ExecutorSafeguard
    ExecutorSafeguard.test_mode = True
    found["size"] = own.get_task("size").execute({{}})
    shown = bag.dags["headrace_clicks_process"].params.get_param("executor").schema
    found["executors"] = shown["enum"], shown["values_display"].get("announced")
print(json.dumps(found))
"""
OWN = [f"headrace_clicks_{family}" for family in ("backfill", "process", "recover")]


def parse_dags(tmp_path: Path, pyproject: str) -> Any:
    site = tmp_path / "site"
    write_distribution(pyproject, site)
    pipelines = tmp_path / "pipelines"
    pipelines.mkdir()
    write_pipeline(pipelines, "clicks")
    environment = {
        "PYTHONPATH": os.pathsep.join([str(site), str(DISTRIBUTION_FOLDER)]),
        "HEADRACE_PIPELINES": str(pipelines),
        "HEADRACE_ROOT": (tmp_path / "root").as_uri(),
    }
    return python(PARSE, tmp_path / "airflow", environment)


def test_each_pipeline_has_a_dag_of_a_family_from_outside(tmp_path: Path) -> None:
    answer = parse_dags(tmp_path, (DISTRIBUTION_FOLDER / "pyproject.toml").read_text())
    assert answer["dags"] == sorted([*OWN, "headrace_clicks_size_report"])
    assert (answer["errors"], answer["alone"], answer["size"]) == ([], ["headrace_clicks_size_report"], 5)
    assert answer["executors"] == [
        [None, "spark", "local", "announced", "auto"],
        "announced: a process on Acme's computers",
    ]


def test_a_family_that_cannot_be_loaded_is_an_import_error_and_takes_no_dag_with_it(tmp_path: Path) -> None:
    pyproject = (
        '[project]\nname = "torn"\nversion = "2"\n[project.entry-points."headrace.dag_families"]\nlost = "no.module:X"'
    )
    parsed_dags = parse_dags(tmp_path, pyproject)
    assert parsed_dags["dags"] == OWN
    (error,) = parsed_dags["errors"]
    assert "BrokenEntryPointError: the DAG family 'lost' cannot be loaded" in error
    assert "torn 2" in error
