"""What schedules and options of a pipeline become in Airflow."""

from pathlib import Path
from typing import Any

import pytest

from tests.airflow.subprocesses import REPOSITORY, python, write_pipeline

pytestmark = pytest.mark.slow  # importing Airflow takes seconds

PARSE = f"""
import json
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization
bag = DagBag(dag_folder={str(REPOSITORY / "dags")!r})
def about(dag):
    DagSerialization.to_dict(dag)
    backfill = DagSerialization.to_dict(bag.dags[dag.dag_id.replace("_process", "_backfill")])
    process = dag.get_task("process")
    return {{
        "timetable": type(dag.timetable).__name__, "backfill": backfill["dag"]["timetable"], "tags": sorted(dag.tags),
        "start": dag.start_date.isoformat(), "run_types": sorted(dag.allowed_run_types),
        "owner": process.owner, "retries": process.retries, "timeout": str(process.execution_timeout),
        "queue": process.queue, "pools": {{task.task_id: task.pool for task in dag.tasks}},
        "shown": dag.fileloc, "weight": process.priority_weight, "conn": process.conn_id, "env": process.env_vars,
        "deadline": [str(alert.interval) + " " + alert.callback.path for alert in dag.deadline or []],
        "fails": [callback.args[0] for callback in process.on_failure_callback or []],
    }}
found = {{dag_id: about(dag) for dag_id, dag in bag.dags.items() if dag_id.endswith("_process")}}
print(json.dumps({{"dags": found, "errors": bag.import_errors}}, default=str))
"""
OPTIONS = """airflow=hr.airflow(
    owner="sales", tags=["sales"], retries=5, execution_timeout="2h", queue="large", pool="audits", conn_id="my_spark",
    deadline="1h", on_deadline="acme.alerts:late", on_failure="acme.alerts:page", env={"TZ": "UTC"},
    default_args={"priority_weight": 7},
)"""
DEFAULTS = """
import headrace as hr

airflow = hr.airflow(owner="data", tags=["all"], retries=1)
"""


@pytest.fixture(scope="module")
def parsed_dags(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The process DAGs of pipelines with options and schedules of all kinds, under defaults of the deployment."""
    folder: Path = tmp_path_factory.mktemp("options")
    (folder / "pipelines").mkdir()
    for name, options in {
        "plain": "",
        "own": OPTIONS,
        "zoned": 'schedule=hr.cron("0 6 * * *", zone="Europe/Berlin")',
        "nightly": 'backfill=hr.Backfill(hr.cron("0 3 * * *", zone="Europe/Berlin"), last="7d")',
        "every": "schedule=__import__('datetime').timedelta(minutes=10)",
        "after": 'schedule=hr.on_assets(["headrace://plain/published"])',
        "either": 'schedule=hr.on_assets(["headrace://plain/published"], or_at="@hourly")',
        "watched": 'schedule=hr.on_files("1m")',
        "watched_too": 'schedule=hr.on_files("1m", or_at="@hourly")',
    }.items():
        write_pipeline(folder / "pipelines", name, options=options)
    file = write_pipeline(folder / "pipelines", "accented")
    file.write_bytes(b"# -*- coding: latin-1 -*-\n# caf\xe9\n" + file.read_bytes())
    (folder / "defaults.py").write_text(DEFAULTS)
    environment = {
        "HEADRACE_PIPELINES": str(folder / "pipelines"),
        "HEADRACE_AIRFLOW_DEFAULTS": str(folder / "defaults.py"),
    }
    found_answer = python(PARSE, folder / "home", environment)
    assert found_answer["errors"] == {}
    return {
        dag_id.removeprefix("headrace_").removesuffix("_process"): dag for dag_id, dag in found_answer["dags"].items()
    }


def test_defaults_hold_where_a_pipeline_says_nothing(parsed_dags: Any) -> None:
    plain = parsed_dags["plain"]
    assert (plain["owner"], plain["retries"], plain["deadline"], plain["fails"]) == ("data", 1, [], [])
    assert "all" in plain["tags"]


def test_a_pipeline_says_how_its_tasks_run(parsed_dags: Any) -> None:
    own = parsed_dags["own"]
    assert (own["owner"], own["retries"], own["timeout"], own["queue"]) == ("sales", 5, "2:00:00", "large")
    assert (own["weight"], own["conn"], own["env"]) == (7, "my_spark", {"TZ": "UTC"})
    assert {"all", "sales"} <= {*own["tags"]}
    assert own["deadline"] == ["1:00:00 acme.alerts.late"]
    assert own["fails"] == ["acme.alerts:page"]


def test_tasks_that_write_state_keep_their_own_pool(parsed_dags: Any) -> None:
    pools = parsed_dags["own"]["pools"]
    assert pools.pop("preconditions") == "audits"
    assert set(pools.values()) == {"headrace_own"}


@pytest.mark.parametrize(
    ("pipeline", "timetable"),
    [
        ("plain", "NullTimetable"),
        ("zoned", "CronTriggerTimetable"),
        ("every", "DeltaTriggerTimetable"),
        ("after", "AssetTriggeredTimetable"),
        ("either", "AssetOrTimeSchedule"),
        ("watched", "AssetTriggeredTimetable"),
        ("watched_too", "AssetOrTimeSchedule"),
    ],
)
def test_a_schedule_becomes_a_timetable(parsed_dags: Any, pipeline: str, timetable: str) -> None:
    dag = parsed_dags[pipeline]
    assert dag["timetable"] == timetable
    assert ("asset_triggered" in dag["run_types"]) is (timetable.startswith("Asset"))
    assert ("scheduled" in dag["run_types"]) is (pipeline != "plain")


def test_the_tab_code_shows_the_file_of_a_pipeline_if_airflow_can_read_it(parsed_dags: Any) -> None:
    assert Path(parsed_dags["own"]["shown"]).name == "own.py"
    assert Path(parsed_dags["accented"]["shown"]).name == "headrace_pipelines.py"


def test_a_backfill_follows_the_clock_of_a_zone(parsed_dags: Any) -> None:
    timetable = parsed_dags["nightly"]["backfill"]["__var"]
    assert (timetable["expression"], timetable["timezone"]) == ("0 3 * * *", "Europe/Berlin")


def test_defaults_that_are_none_are_an_import_error(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    write_pipeline(tmp_path / "pipelines", "plain")
    (tmp_path / "defaults.py").write_text("airflow = 5\n")
    environment = {
        "HEADRACE_PIPELINES": str(tmp_path / "pipelines"),
        "HEADRACE_AIRFLOW_DEFAULTS": str(tmp_path / "defaults.py"),
    }
    found_answer = python(PARSE, tmp_path / "home", environment)
    assert "which must hold airflow = hr.airflow(...)" in str(found_answer["errors"])
