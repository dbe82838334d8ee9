"""No secret is where it does not belong: tasks of Airflow read a real topic, and deliver to one, with a right password
that becomes a wrong one; then a search of all that they printed, returned and stored.
"""

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.kafka import PASSWORD, USER, Kafka
from tests.airflow.subprocesses import TASKS
from tests.secret_forms import forms_of
from tests.sources.kafka_topics import Topics

pytestmark = [pytest.mark.connectors, pytest.mark.slow]

PIPELINE = """
from datetime import datetime
import headrace as hr

events = hr.kafka("{topic}", {{"shop": str, "at": datetime}}, connection="stream", land="{land}")
{name} = hr.Pipeline(
    "{name}",
    events.event_time("at", bound="1h"),
    key="shop",
    what={{"n": hr.count()}},
    where=hr.FixedWindows("1d"),
    when=hr.on_update(),
    how=hr.retracting(allowed_lateness="30d"),
    executor="local",
    sinks=[hr.kafka_sink("{topic}.{name}", connection="stream")],
)
"""

STORY = (
    TASKS
    + """
def tried(run_id):
    return {
        f"{name} {family}": execute(family, task, name, run_id=run_id)
        for name in ("landed", "kept")
        for family, task in (("process", "process"), ("deliver", f"{os.environ['TOPIC']}.{name}"))
    }

done = {"right": tried("one")}
right = json.loads(os.environ["AIRFLOW_CONN_STREAM"])
os.environ["AIRFLOW_CONN_STREAM"] = json.dumps(right | {"password": os.environ["WRONG"]})
done["wrong"] = tried("two")
print(json.dumps(done))
"""
)


def files_below(folder: Path) -> dict[str, str]:
    return {str(file): file.read_bytes().decode(errors="replace") for file in folder.rglob("*") if file.is_file()}


def test_tasks_with_right_and_wrong_passwords_leave_no_secret_anywhere(
    broker: Kafka, topics: Topics, tmp_path: Path
) -> None:
    topic = f"topic.{secrets.token_hex(4)}"
    for name in (topic, f"{topic}.landed", f"{topic}.kept"):
        topics.make(name)
    topics.send_json(topic, [{"shop": "a", "at": "2026-05-01T00:00:00Z"}])
    folder = tmp_path / "pipelines"
    folder.mkdir()
    for name, land in (("landed", "always"), ("kept", "never")):
        (folder / f"{name}.py").write_text(PIPELINE.format(topic=topic, name=name, land=land))
    wrong = f"wrong/{secrets.token_hex(8)}@%2F"
    host, port = broker.with_password.split(":")
    reached = {"conn_type": "kafka", "host": host, "port": int(port), "login": USER, "password": PASSWORD}
    environment = {
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW_CONN_STREAM": json.dumps(reached),
        "WRONG": wrong,
        "TOPIC": topic,
        "SUBMITTED": str(tmp_path / "submitted"),
        "HEADRACE_PIPELINES": str(folder),
        "HEADRACE_ROOT": (tmp_path / "root").as_uri(),
    }
    ran = subprocess.run(
        [sys.executable, "-c", STORY], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    done = json.loads(ran.stdout.splitlines()[-1])
    assert [one.get("message") for one in done["right"].values()] == [None] * 4
    assert ["HEADRACE_CONN_STREAM right" in one.get("message", "") for one in done["wrong"].values()] == [True] * 4

    places = {
        "stdout": ran.stdout,
        "stderr": ran.stderr,
        **files_below(tmp_path / "root"),
        **files_below(tmp_path / "airflow"),
    }
    places["planted"] = environment["AIRFLOW_CONN_STREAM"]
    forms = [form for secret in (PASSWORD, wrong) for form in forms_of(secret)]
    assert [place for place, content in places.items() if any(form in content for form in forms)] == ["planted"]
