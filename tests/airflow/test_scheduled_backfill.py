"""A real Airflow in which a pipeline runs each minute, and the last days are computed anew each minute beside it; and
then, what docs/fifteen-minutes.md says: a pipeline of one's own that runs each minute, and an alert.
"""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from tenacity import Retrying, retry_if_exception_type, retry_if_result, stop_after_delay, wait_fixed

from headrace.pipeline.loading.registry import resolve_pipeline
from headrace_lab.catalog_checks import check_catalog
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.protocol.moves import Kind
from headrace_snapshots.store import open_store
from scripts.airflow_env import LocalAirflow
from tests.airflow.conftest import QuietAirflow
from tests.airflow.subprocesses import write_pipeline
from tests.docs.pages import DOCS, blocks
from tests.docs.running import Reader
from tests.reading import read

pytestmark = pytest.mark.airflow

_SECONDS = 600
_EVERY_MINUTE = 'schedule="* * * * *", backfill=hr.Backfill("* * * * *", last="7d"), executor="local"'


class Lanes:
    """A pipeline with both lanes, in an Airflow that is up."""

    def __init__(self, airflow: LocalAirflow, file: Path) -> None:
        self.airflow, self.file = airflow, file
        self.store = open_store(airflow.root)
        self.catalog = Catalog(self.store, "clicks")

    def land(self, name: str, before_now: timedelta, clicks: int) -> None:
        """A file with clicks of one user in one minute."""
        moment = (datetime.now(UTC) - before_now).replace(second=0, microsecond=0)
        line = json.dumps({"user": "ada", "at": moment.isoformat()}) + "\n"
        self.store.write(f"landing/clicks/{name}", line.encode() * clicks)

    def published_snapshots(self) -> list[Manifest]:
        """The snapshots that readers have seen, oldest first."""
        head = self.catalog.head().refs.get("published")
        return [] if head is None else [*self.catalog.ancestry(head)][::-1]

    def promotions(self) -> int:
        """How many backfills have been promoted."""
        return sum(entry.kind is Kind.PROMOTE for entry in self.catalog.entries())

    def clicks(self) -> list[int]:
        """What readers see, window by window."""
        rows = read(resolve_pipeline(str(self.file)), self.airflow.root).to_pylist()
        return [row["clicks"] for row in sorted(rows, key=lambda row: row["window_start"])]


@pytest.fixture(scope="module")
def lanes(quiet_airflow: QuietAirflow) -> Iterator[Lanes]:
    """Nothing of it is scheduled any more when others have the Airflow."""
    file = write_pipeline(quiet_airflow.pipelines, "clicks", options=_EVERY_MINUTE, most=None)
    own_lanes = Lanes(quiet_airflow.airflow, file)
    own_lanes.land("a.jsonl", timedelta(days=30), 1)
    quiet_airflow.see_pipelines("headrace_clicks_process")
    yield own_lanes
    for lane in ("process", "backfill"):
        patiently(quiet_airflow.airflow.api.pause, f"headrace_clicks_{lane}")


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until that is so."""
    Retrying(stop=stop_after_delay(_SECONDS), wait=wait_fixed(1), retry=retry_if_result(lambda is_so: not is_so))(
        condition
    )


# SQLite lets one write at a time: another one may take longer than Airflow waits
patiently = Retrying(
    stop=stop_after_delay(_SECONDS),
    wait=wait_fixed(1),
    retry=retry_if_exception_type(httpx.HTTPStatusError),
    reraise=True,
)


def test_the_last_days_are_computed_anew_beside_the_live_lane(lanes: Lanes) -> None:
    wait_until(lambda: lanes.promotions() > 0)  # the first may have begun before anything was published, with nothing
    (old,) = lanes.published_snapshots()
    lanes.land("b.jsonl", timedelta(hours=5), 2)
    wait_until(lambda: sum(m.counts["input_files"] for m in lanes.published_snapshots()) == 2)
    lanes.land("b.jsonl", timedelta(hours=4), 3)  # a correction, over which the live lane stops
    wait_until(lambda: lanes.clicks() == [1, 3])
    first, *later_snapshots = lanes.published_snapshots()
    assert first == old, "nothing before the last days is computed again"
    assert {m.branch[:18] for m in later_snapshots} == {"backfill-scheduled"}
    lanes.land("c.jsonl", timedelta(hours=3), 4)
    wait_until(lambda: lanes.clicks() == [1, 3, 4])
    assert lanes.published_snapshots()[0] == old
    check_catalog(lanes.store, "clicks")


def test_a_backfill_by_hand_says_where_it_begins_and_may_stay_unpublished(lanes: Lanes) -> None:
    dag, api = "headrace_clicks_backfill", lanes.airflow.api
    patiently(api.pause, "headrace_clicks_process")  # nothing lands any more
    since_yesterday = (datetime.now(UTC) - timedelta(days=1)).isoformat()
    whole = patiently(api.trigger, dag, {"promote": "never"})
    ranged_run = patiently(api.trigger, dag, {"from": since_yesterday, "branch": "by-hand", "promote": "never"})
    snapshot = lanes.published_snapshots()[0].snapshot_id
    for run_id, beginning in (
        (whole, "nothing: all input is read again"),
        (ranged_run, f"snapshot {snapshot} (epoch 0)"),
    ):
        ended_run = api.wait_for_run(dag, run_id, _SECONDS)
        log = "\n".join(api.log(dag, run_id, "replay"))
        assert (ended_run.state, ended_run.tasks["cut_over"]) == ("success", "skipped"), log
        assert f"the backfill begins with {beginning}" in log


def test_airflows_own_backfill_of_the_live_lane_is_refused(lanes: Lanes) -> None:
    answer = lanes.airflow.api.own_backfill("headrace_clicks_process", "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z")
    assert answer.is_client_error
    assert "does not allow backfill runs" in answer.text


def test_a_run_with_a_logical_date_of_long_ago_has_all_tasks(lanes: Lanes) -> None:
    dag_id, api = "headrace_clicks_process", lanes.airflow.api
    api.wait_for_dag(dag_id, _SECONDS)
    patiently(api.pause, dag_id)
    answer = api.request("POST", f"/api/v2/dags/{dag_id}/dagRuns", {"logical_date": "2001-01-01T00:00:00Z"})
    answer.raise_for_status()
    run_id = answer.json()["dag_run_id"]
    assert set(api.task_states(dag_id, run_id)) == {"preconditions", "process", "audit", "publish"}
    patiently(api.mark_run, dag_id, run_id, "failed")


def test_a_reader_of_the_page_has_a_pipeline_on_a_schedule_and_an_alert(
    lanes: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for lane in ("process", "backfill"):
        lanes.airflow.api.wait_for_dag(f"headrace_clicks_{lane}", _SECONDS)
        patiently(lanes.airflow.api.pause, f"headrace_clicks_{lane}")  # the machine is the reader's
    reader = Reader(lanes.airflow.home.parent, monkeypatch)
    reader.start()
    for block in blocks(DOCS / "fifteen-minutes.md"):
        reader.follow(block)

    def runs(what: str) -> set[str]:
        return {str(run[what]) for run in lanes.airflow.api.runs("headrace_tills_process")}

    wait_until(lambda: {"failed", "success"} <= runs("state"))
    assert runs("run_type") == {"scheduled"}
    patiently(lanes.airflow.api.pause, "headrace_tills_process")
