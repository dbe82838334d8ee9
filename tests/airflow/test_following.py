"""In a real Airflow all that follows a pipeline follows it by itself, after a publish and after a rollback: a sink, by
keys of an Airflow connection; a pipeline that reads it, and one that reads that; a DAG that has a partition for each
window which is complete.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from tests.airflow.conftest import QuietAirflow
from tests.airflow.runs import wait_for_success
from tests.airflow.subprocesses import write_pipeline
from tests.sinks.conftest import server, warehouse
from tests.sinks.warehouse import Warehouse

pytestmark = [pytest.mark.airflow, pytest.mark.connectors]
__all__ = ["server", "warehouse"]
SECONDS = 300
DELIVER = "headrace_carts_deliver"

READERS = """
import headrace as hr

TALLIED = {"what": {"clicks": hr.col("clicks").sum()}, "when": hr.on_update(), "how": hr.retracting("30d")}
hours = hr.Pipeline(
    "hours",
    hr.published("carts", {"user": str, "clicks": int}),
    key="user",
    where=hr.FixedWindows("1h"),
    schedule=hr.on_assets(["headrace://carts/published"]),
    executor="local",
    **TALLIED,
)
days = hr.Pipeline(
    "days",
    hr.published("hours", {"user": str, "clicks": int}),
    where=hr.CalendarWindows("day"),
    schedule=hr.on_assets(["headrace://hours/published"]),
    executor="local",
    airflow=hr.airflow(announce_windows=True),
    **TALLIED,
)
"""

REPORTS = """
from airflow.sdk import DAG, PartitionedAssetTimetable, task

from headrace.ext.airflow import windows_asset

with DAG("reports", schedule=PartitionedAssetTimetable(assets=windows_asset("days")), catchup=False):

    @task
    def report(dag_run=None):
        import os

        import headrace as hr

        day = dag_run.partition_key
        rows = hr.open(os.environ["HEADRACE_ROOT"])["days"].current(where=f"window_start = '{day}Z'").to_arrow()
        with open(os.environ["REPORTS"], "a") as file:
            file.write(f"{day} {rows['clicks'].to_pylist()}\\n")

    report()
"""


class FollowedSales:
    """The pipeline ``carts``, and all that follows it."""

    def __init__(self, warehouse: Warehouse, quiet: QuietAirflow) -> None:
        self.warehouse, self.airflow, self.root = warehouse, quiet.airflow, quiet.root
        self._reports_file = quiet.reports
        (quiet.dags / "reports.py").write_text(REPORTS)
        (quiet.pipelines / "readers.py").write_text(READERS)
        sink = f'sinks=[hr.postgres("{warehouse.schema}.clicks", connection="warehouse")]'
        write_pipeline(quiet.pipelines, "carts", options=f'executor="local", {sink}', most=None)
        host, _, rest = warehouse.uri.rpartition("@")
        login, _, self.password = host.removeprefix("postgresql://").partition(":")
        address, _, database = rest.partition("/")
        name, _, port = address.partition(":")
        reaching_fields = {"conn_type": "postgres", "host": name, "port": port, "schema": database, "login": login}
        (self.root / "landing" / "carts").mkdir(parents=True)
        quiet.see_pipelines("headrace_carts_process")
        self.airflow.api.add_connection("warehouse", **reaching_fields, password=self.password)

    def rows(self) -> list[tuple[object, ...]]:
        """What the sink has."""
        table = f"{self.warehouse.schema}.clicks"
        is_there = self.warehouse.server.rows(f"select to_regclass('{table}') is not null") == [(True,)]
        return self.warehouse.rows('"user", clicks', "clicks") if is_there else []

    def reports(self) -> list[str]:
        """What the DAG of the windows has written, in whatever order its runs came."""
        return sorted(self._reports_file.read_text().splitlines()) if self._reports_file.exists() else []

    def land(self, name: str, *clicks: tuple[str, str]) -> None:
        """A file of clicks of users at times, which is processed."""
        lines = [json.dumps({"user": user, "at": f"2026-11-{time}:00Z"}) for user, time in clicks]
        (self.root / "landing" / "carts" / name).write_text("\n".join(lines) + "\n")
        self.run("headrace_carts_process")

    def run(self, dag_id: str, form: dict[str, object] | None = None) -> None:
        """A run that ends well."""
        wait_for_success(self.airflow.api, dag_id, self.airflow.api.trigger(dag_id, form), SECONDS)


@pytest.fixture(scope="module", autouse=True)
def _last_file(quiet_airflow: QuietAirflow) -> Iterator[None]:
    """Of those of this Airflow (``tests/schedule.py``): it is not up beside that of the file which comes next."""
    yield
    quiet_airflow.airflow.stop()


@pytest.fixture
def followed_sales(warehouse: Warehouse, quiet_airflow: QuietAirflow, monkeypatch: pytest.MonkeyPatch) -> FollowedSales:
    """All DAGs are there."""
    monkeypatch.delenv("HEADRACE_CONN_WAREHOUSE")
    sales = FollowedSales(warehouse, quiet_airflow)
    names = ("carts_deliver", "rollback", "hours_process", "days_process", "days_windows")
    for dag_id in (*(f"headrace_{name}" for name in names), "reports"):
        sales.airflow.api.wait_for_dag(dag_id, SECONDS)
    return sales


def wait_until_equal(read_value: Callable[[], Any], expected: Any) -> None:
    """Wait until something is as expected."""
    patient = Retrying(
        stop=stop_after_delay(SECONDS),
        wait=wait_fixed(0.5),
        retry=retry_if_result(lambda now: now != expected),
        retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
    )
    assert patient(read_value) == expected


def test_all_that_follows_a_pipeline_follows_what_its_readers_see(followed_sales: FollowedSales) -> None:
    followed_sales.land("1.json", ("ada", "20T00:00"), ("bob", "20T00:00"), ("bob", "20T00:00"))
    wait_until_equal(followed_sales.rows, [("ada", 1), ("bob", 2)])
    followed_sales.land("2.json", ("ada", "20T00:00"), ("cyd", "22T00:05"))
    wait_until_equal(followed_sales.rows, [("ada", 2), ("bob", 2), ("cyd", 1)])
    quiet = ["2026-11-19T00:00:00 []", "2026-11-21T00:00:00 []"]  # the first watermark is a minute before the 20th
    complete = sorted([*quiet, "2026-11-20T00:00:00 [4]"])
    wait_until_equal(followed_sales.reports, complete)
    # a person has a day done again
    followed_sales.airflow.api.announce("headrace://days/windows", "2026-11-20T00:00:00")
    complete = sorted([*complete, "2026-11-20T00:00:00 [4]"])
    wait_until_equal(followed_sales.reports, complete)
    form = {"pipeline": "carts", "to": "beginning", "branch": None, "dry_run": False, "reason": "a wrong file"}
    followed_sales.run("headrace_rollback", form)
    wait_until_equal(followed_sales.rows, [])
    wait_until_equal(followed_sales.reports, sorted([*complete, "2026-11-20T00:00:00 []"]))
    api = followed_sales.airflow.api
    (run, *_) = api.runs(DELIVER)
    text = "\n".join(api.log(DELIVER, run["dag_run_id"], f"{followed_sales.warehouse.schema}.clicks"))
    assert followed_sales.password not in text
    assert "sink" in text
    assert api.import_errors() == {}
