"""Tasks whose applications are processes of their own: real runs without Spark, without an Airflow that runs.

``spark-submit`` is a script that counts and then dies, so that what goes to Spark is seen and no JVM starts.
"""

import json
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.airflow.subprocesses import TASKS, python, write_pipeline

pytestmark = pytest.mark.slow  # importing Airflow takes seconds

SPARK_SUBMIT = """#!/bin/sh
echo "$@" >> "$SUBMITTED"
exit 137
"""

SHOT = """
import os, signal, sys
if sys.argv[0].endswith("submit.py"):
    print("shot", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""

NIGHTLY = 'executor="local", backfill=hr.Backfill("0 3 * * *", last="7d")'

LIMITED_OPTIONS = """
    executor="local",
    limits=hr.Limits(rejected="1%", watermark_age="1h", newest_file=hr.limit(fail="1us")),
    usual=[hr.usual_volume(within=2, severity="warn", min_versions=1)],
    airflow=hr.airflow(on_warning="tests.airflow.subprocesses:write_warning"),
"""

STORY = (
    TASKS
    + """
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics.stats_utils import get_stats_factory
stats.initialize(factory=get_stats_factory(), export_legacy_names=False)  # as Airflow does before it executes a task
import headrace as hr
from headrace.pipeline.loading.registry import resolve_pipeline
from headrace.runs.publishing.publish import publish_audited
from headrace_snapshots.catalog import Catalog
done = {}
land("a.jsonl", 1, "quick")
os.environ["HEADRACE_LOCAL_MEMORY"] = "20m"
done["too little memory"] = execute("process", "process", "quick")
del os.environ["HEADRACE_LOCAL_MEMORY"]
done["little to do"] = execute("process", "process", "quick")
for number, publish in enumerate((True, False)):
    land(f"{number}.jsonl", number, "checked")
    hr.open(os.environ["HEADRACE_ROOT"], create=True)[resolve_pipeline("checked")].run(publish=publish)
done["readers of checked"] = Catalog(store, "checked").head().refs["published"]
done["forgotten audits"] = forget_audits("checked")
done["local audit"] = execute("process", "audit", "checked")

land("c.jsonl", 3, "quick")
land("d.jsonl", 4, "quick")
execute("process", "process", "quick", files_per_epoch=1)
publish_audited("quick", os.environ["HEADRACE_ROOT"], last_announced=None, run_id="told")
def retained(**form):
    task = build_dags(Root.of_environment()).dags["headrace_maintain-daily"].get_task("maintain")
    return task.execute({"params": {"dry_run": False, **form}})

done["expired"] = [retained(dry_run=True), retained(), retained()]
land("a.jsonl", 1, "lost")
execute("process", "process", "lost")
store.write(max(one.path for one in store.list("lost/log/")), b"no entry")
try:
    retained()
except Exception as error:
    done["one is lost"] = str(error)
done["failed"] = Path(os.environ["FAILED"]).read_text().splitlines()

from datetime import UTC, datetime, timedelta
land("a.jsonl", 1, "nightly")
execute("process", "process", "nightly")
tonight = datetime(2026, 11, 21, 3, tzinfo=UTC)
earlier = Catalog(store, "nightly", now=lambda: tonight - timedelta(days=5))
for night in range(4):
    earlier.fork(f"backfill-scheduled__2026-11-{night + 16}T03-00-00-00-00-{night:08x}", None)
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import GetTaskStates, TaskStatesResult
from headrace_airflow.run_ids import branch_of_run
waiting, over = "scheduled__2026-11-15T03:00:00+00:00", {"rehearse": "success", "approve": "success"}
asked = f"backfill-scheduled__2026-11-14T03-00-00-00-00-{14:08x}"
for name in (asked, branch_of_run(waiting)):
    earlier.fork(name, None)
class Airflow:
    STATES = {
        "headrace_nightly_backfill": {waiting: {"audit": "success", "approve": "awaiting_input"}, "done": over},
        "headrace_promote": {
            "asks": {"rehearse": "success", "approve": None}, "done": over, "other": {"approve": None}
        },
    }
    FORMS = {
        waiting: None,
        "asks": {"pipeline": "nightly", "branch": asked},
        "other": {"pipeline": "clicks", "branch": f"backfill-scheduled__2026-11-16T03-00-00-00-00-{0:08x}"},
    }
    def send(self, message):
        if isinstance(message, GetTaskStates):
            return TaskStatesResult(task_states=self.STATES[message.dag_id])
        return types.SimpleNamespace(conf=self.FORMS[message.run_id])
task_runner.SUPERVISOR_COMMS = Airflow()
done["nights"] = execute("backfill", "replay", "nightly", due=tonight)
done["nights' branches"] = sorted(earlier.head().generations)
done["by hand"] = {
    str(reason): execute("backfill", "replay", "nightly", run_id=f"hand{reason}", branch="hand", reason=reason)
    for reason in (None, "a mistake")
}
del task_runner.SUPERVISOR_COMMS
done["night before anything landed"] = execute("backfill", "replay", "early", due=tonight)

land("a.jsonl", 1, "exact", "no JSON")
done["bad data"] = execute("process", "process", "exact", executor="local")

os.environ["WARNED"] = os.environ["SUBMITTED"] + ".warned"
land("a.jsonl", 1, "limited", "no JSON")
done["limited"] = [execute("process", task, "limited") for task in ("process", "audit")]
catalog = Catalog(store, "limited")
from headrace.runs.reporting.summary import read_summary
done["limited's run"] = read_summary(store, "limited").to_json()["run"]
done["limited's results"] = [
    json.loads(store.read(one.path)) for one in store.list("limited/runs/headrace_limited_process.manual.audit.")
]
done["readers of limited"] = catalog.head().refs.get("published")
catalog.release(catalog.head().refs["main"], "ada: a test")
done["stale"] = [execute("process", task, "limited") for task in ("process", "audit")]
done["warned"] = Path(os.environ["WARNED"]).read_text().splitlines()
from headrace.audit.store import write_history
from headrace.audit.store import VersionMeasure
usual = catalog.head().refs["published"]
write_history(store, "limited", usual, [VersionMeasure(usual, 600, 3_600_000_000)])
land("b.jsonl", 5, "limited", "no JSON")
done["few"] = [execute("process", task, "limited") for task in ("process", "audit")]
done["warned of few"] = Path(os.environ["WARNED"]).read_text().splitlines()[len(done["warned"]):]
done["killed"] = execute("process", "process", "shot")
os.environ["HEADRACE_AUTO_INPUT"] = "10"
land("a.jsonl", 1, "large")
done["much to do"] = execute("process", "process", "large")
print(json.dumps(done))
"""
)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What each task of the story returned or raised, and how many applications it submitted."""
    folder = tmp_path_factory.mktemp("local")
    write_pipeline(folder, "quick", options='executor="auto", retention=hr.Retention(keep_last=1)', most=None)
    write_pipeline(folder, "checked", options='executor="auto"')
    airflow_text = 'airflow=hr.airflow(on_failure="tests.airflow.subprocesses:write_failure")'
    write_pipeline(folder, "lost", options=f'executor="local", retention=hr.Retention(), {airflow_text}', most=None)
    write_pipeline(folder, "nightly", options=NIGHTLY, most=None)
    write_pipeline(folder, "early", options=NIGHTLY, most=None)
    write_pipeline(folder, "large", options='executor="auto"', most=None)
    write_pipeline(folder, "exact", source="max_rejected=0,", most=None)
    write_pipeline(folder, "limited", options=LIMITED_OPTIONS, most=None)
    shot = write_pipeline(folder, "shot", options='executor="local"', most=None)
    shot.write_text(shot.read_text() + SHOT)
    binary = folder / "bin" / "spark-submit"
    binary.parent.mkdir()
    binary.write_text(SPARK_SUBMIT)
    binary.chmod(binary.stat().st_mode | stat.S_IXUSR)
    environment = {
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "SUBMITTED": str(folder / "submitted"),
        "FAILED": str(folder / "failed"),
        "HEADRACE_PIPELINES": str(folder),
        "HEADRACE_ROOT": (folder / "root").as_uri(),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
    }
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        environment |= {
            "AIRFLOW__METRICS__STATSD_ON": "True",
            "AIRFLOW__METRICS__STATSD_HOST": "127.0.0.1",
            "AIRFLOW__METRICS__STATSD_PORT": str(server.getsockname()[1]),
            "AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED": "True",  # tags after the name
        }
        airflow_text = python(STORY, folder / "airflow", environment)
        server.setblocking(False)
        return airflow_text | {"metrics": list(_datagrams(server))}


def _datagrams(server: socket.socket) -> Iterator[str]:
    """What has been sent to ``server`` until now, all of it on this machine."""
    with suppress(BlockingIOError):
        while True:
            yield server.recv(2**16).decode()


def test_epochs_are_metrics_in_airflows_own_channel(answers: Any) -> None:
    def metrics_of(pipeline: str) -> list[tuple[str, str]]:
        sent_metrics = (
            line.partition(":") for line in answers["metrics"] if f",pipeline={pipeline},branch=main:" in line
        )
        return [(name.partition(",")[0].removeprefix("airflow.headrace."), value) for name, _, value in sent_metrics]

    metrics = dict(metrics_of("limited"))
    assert {name: metrics[name] for name in ("epochs", "records", "rejected", "late")} == {
        "epochs": "1|c",
        "records": "2|c",
        "rejected": "1|c",
        "late": "0|c",
    }
    assert float(metrics["epoch_duration"].removesuffix("|ms")) > 0
    assert int(metrics["written_bytes"].removesuffix("|c")) > 0
    assert int(metrics["requests"].removesuffix("|c")) > 0
    assert float(metrics["watermark_lag_seconds"].removesuffix("|g")) > 0
    assert [value for name, value in metrics_of("quick") if name == "epochs"] == ["1|c"] * 3, "each epoch once"
    assert metrics_of("shot") == [], "killed before it began"


def test_a_pipeline_under_auto_with_little_to_do_needs_no_spark(answers: Any) -> None:
    answer = answers["little to do"]
    assert answer["submitted"] == 0
    assert (answer["xcom"]["executor"], answer["xcom"]["epochs"]) == ("local", 1)
    assert answer["reason"].startswith("auto: 46 bytes of new input and 0 bytes of state need no Spark")
    assert answers["forgotten audits"] > 0
    audited_answer = answers["local audit"]
    assert (audited_answer["submitted"], audited_answer["xcom"]["from"]) == (0, answers["readers of checked"])


def test_a_pipeline_under_auto_with_much_to_do_is_submitted(answers: Any) -> None:
    answer = answers["much to do"]
    assert answer["submitted"] == 1
    assert "exit code 137" in answer["message"]


def test_what_one_expiry_marks_the_next_deletes(answers: Any) -> None:
    assert all({*text} == {"quick", "lost"} for text in answers["expired"]), "those whose retention has that schedule"
    dry, first, second = (text["quick"][0].replace("would be", "are") for text in answers["expired"])
    assert dry == first
    marked_count = first.partition(" are marked")[0].rpartition(" ")[2]
    assert int(marked_count) > 2
    assert first.startswith("0 objects are deleted")
    assert second.startswith(f"{marked_count} objects are deleted")
    assert first.endswith("; 1 snapshots are kept")


def test_whose_retention_fails_is_told_and_the_others_have_their_turn(answers: Any) -> None:
    assert answers["one is lost"].startswith("restore.")
    assert answers["failed"] == ["lost restore.damaged_log"]


def test_a_backfill_by_hand_without_a_reason_warns_in_its_result_and_one_of_the_schedule_does_not(answers: Any) -> None:
    (warning,) = answers["by hand"]["None"]["warnings"]
    assert "From 0.4.0 on its form requires one" in warning
    assert answers["by hand"]["a mistake"]["warnings"] == answers["nights"]["warnings"] == []


def test_a_run_of_the_schedule_drops_what_failed_nights_have_left(answers: Any) -> None:
    assert "xcom" in answers["nights"], answers["nights"]
    own, *others = answers["nights' branches"][::-1][1:]  # before main
    assert own.startswith("backfill-scheduled__2026-11-21T03-00-00-00-00-")
    assert [name[28:30] for name in others] == ["19", "18", "17", "15", "14"], "somebody is asked about the last two"


def test_a_backfill_of_the_schedule_is_skipped_until_something_has_landed(answers: Any) -> None:
    answer = answers["night before anything landed"]
    assert (answer["raised"], answer["submitted"]) == ("AirflowSkipException", 0)
    assert answer["message"] == "nothing has landed yet: there is nothing to compute again"


def test_a_limit_that_is_exceeded_fails_the_audit_and_nothing_is_published(answers: Any) -> None:
    process, audit = answers["limited"]
    assert process["xcom"]["counts"]["rejected"] == 1, "what was computed stays"
    assert (audit["raised"], audit["submitted"]) == ("fail", 0)
    assert audit["message"].startswith("data.limit_exceeded: pipeline limited: 2 of 3 limits are exceeded on ")
    assert "dead letters: 1 of 2 records (50.00%); the limit is 1%" in audit["message"]
    assert answers["readers of limited"] is None


def test_an_audit_that_failed_is_the_last_run_and_leaves_its_result_and_the_address_of_the_page(answers: Any) -> None:
    _, audit = answers["limited"]
    *_, last = audit["message"].splitlines()
    assert last == "http://localhost:8080/dags/headrace_limited_process/plugin/headrace_dag?view=quality"
    assert "`headrace " not in audit["message"], "people who read this have no shell"
    (left,) = answers["limited's results"]
    assert (left["action"], left["status"], left["error"]["code"]) == ("audit", "failed", "data.limit_exceeded")
    assert left["audit"]["to"] == left["snapshot"]
    run = answers["limited's run"]
    assert (run["action"], run["status"], run["error_code"]) == ("audit", "failed", "data.limit_exceeded")


def test_what_is_not_as_usual_is_told_to_those_whom_the_pipeline_names(answers: Any) -> None:
    assert answers["few"][1]["submitted"] == 0
    expected_text = "records for each hour of event time: 30.0, usually 600.0 (one version); the limit is a factor of 2"
    assert [warning for warning in answers["warned of few"] if "usually" in warning] == [expected_text]


def test_a_producer_that_has_stopped_fails_the_audit_of_a_run_that_found_nothing(answers: Any) -> None:
    process, audit = answers["stale"]
    assert process["xcom"]["epochs"] == 0
    assert audit["raised"] == "fail"
    assert audit["message"].startswith("data.stale: pipeline limited: nothing new has come")


def test_limits_that_warn_are_told_to_whom_the_pipeline_names(answers: Any) -> None:
    assert [warning.partition(", held")[0].partition(", which")[2] for warning in answers["warned"]] == [
        " is at 2026-11-20T00:00:00Z"
    ] * 2


def test_too_little_memory_is_a_matter_of_configuration_and_loses_nothing(answers: Any) -> None:
    answer = answers["too little memory"]
    assert answer["raised"] == "fail"
    assert answer["message"].startswith("config.local_memory: the run took ")
    assert "HEADRACE_LOCAL_MEMORY allows 20 MB: raise it" in answer["message"]
    assert answers["little to do"]["xcom"]["counts"]["records"] == 1


def test_errors_of_a_process_of_the_tasks_own_are_typed(answers: Any) -> None:
    answer = answers["bad data"]
    assert answer["submitted"] == 0
    assert answer["raised"] == "fail"
    assert answer["message"].startswith("data")
    assert "max_rejected" in answer["message"]


def test_a_process_that_is_killed_is_worth_another_attempt(answers: Any) -> None:
    answer = answers["killed"]
    assert answer["raised"] == "retry"
    assert (
        "ended with signal SIGKILL (the operating system ends processes so when memory runs out)" in answer["message"]
    )
    assert "its last output: shot" in answer["message"]
