"""No secret is where it does not belong: runs on a real MinIO with a right key that becomes a wrong one, deliveries to
a real PostgreSQL with a right password that becomes a wrong one, topics of a real Kafka with both, then a search
everywhere. Two roots have a pipeline of one name; the user of each may use its bucket alone.

What is searched: all files of Airflow (the logs of tasks and of components, settings), its metadata database table by
table (XCom and rendered templates among them), all objects of the root (manifests, results, audits), and what the
command line printed.
"""

import base64
import json
import os
import secrets
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import pytest
from minio import MinioAdmin
from minio.credentials import StaticProvider
from sqlalchemy import make_url

from headrace.ext.sinks import SinkRefusedError
from headrace.ext.stores import ObjectStore, open_store
from headrace_airflow import processes
from scripts import minio_server
from scripts.airflow_api import AirflowApi, EndedRun
from scripts.airflow_env import LocalAirflow
from scripts.minio_server import Server
from scripts.nosy_code import NOSY
from scripts.postgres_server import Postgres, binaries
from tests.airflow.runs import CALM, first_run
from tests.airflow.streams import Streams, streams
from tests.airflow.subprocesses import write_pipeline
from tests.needed import lacks
from tests.secret_forms import forms_of
from tests.tooling.test_compose import DOCKER

pytestmark = [pytest.mark.airflow, pytest.mark.s3]

_SECONDS = 900
ODD = "odd/Secret+Key=of nobody 4711"
ODD_PASSWORD = "odd@Pass/word:of ?nobody& 0815"
DELIVER = "headrace_clicks_deliver"
BUCKET, OTHER_BUCKET = "secrets", "others"
ROOT, OTHER_ROOT = f"s3://{BUCKET}/root", f"s3://{OTHER_BUCKET}/root"
KEYS = """
import sys

if sys.argv[0].endswith("submit.py"):
    connections = sorted({{"AIRFLOW_CONN_KEYS", "AIRFLOW_CONN_OTHERS"}} & {{*os.environ}})
    with open("{seen}", "a") as file:
        file.write(f"{{os.environ['AWS_ACCESS_KEY_ID']}} {{connections}}\\n")
"""
"""What a run of a pipeline has of keys: the id of one, and names of connections to stores."""


class Deployment:
    """An Airflow home, a root on MinIO, what the command line printed; and the secrets that were used.

    An Airflow connection has the keys of a user of MinIO, whose secret is ODD until ``rotate``. In the environment are
    none.
    """

    def __init__(self, folder: Path, server: Server, warehouse: Postgres, topics: Streams) -> None:
        self.home = folder / "home"
        self.printed_file = folder / "printed"
        self.pipelines = folder / "pipelines"
        self.right = server.environment()
        extra = {"endpoint_url": server.endpoint, "region_name": self.right.get("AWS_REGION", "us-east-1")}
        reaching_fields = {"conn_type": "aws", "login": "airflow", "password": ODD, "extra": extra}
        others = {"conn_type": "aws", "login": "others", "password": secrets.token_hex(20), "extra": extra}
        self.wrong = {**self.right, "AWS_ACCESS_KEY_ID": "airflow", "AWS_SECRET_ACCESS_KEY": ODD}
        self.airflows = {
            "HEADRACE_STORE_CONN": "keys",
            "HEADRACE_ROOTS": str(folder / "roots.toml"),
            "AIRFLOW_CONN_KEYS": json.dumps(reaching_fields),
            "AIRFLOW_CONN_OTHERS": json.dumps(others),
            **topics.connections(),
        }
        self.topics = topics
        self._new = secrets.token_hex(20)
        self.secrets = [self.right["AWS_SECRET_ACCESS_KEY"], ODD, self._new, str(others["password"])]
        self.pipelines.mkdir()
        self.seen_file = folder / "seen"
        address = make_url(warehouse.url)
        sink = {"conn_type": "postgres", "host": address.host, "port": address.port, "schema": address.database}
        options = {"extra": {"application_name": "headrace", "sslpassword": secrets.token_hex(20)}}
        sink |= {"login": address.username, "password": ODD_PASSWORD, **options}
        self.airflows["AIRFLOW_CONN_WAREHOUSE"] = json.dumps(sink)
        self.secrets += [ODD_PASSWORD, options["extra"]["sslpassword"], *topics.secrets]
        self.warehouse = warehouse
        self.wrong_warehouse = {
            **self.right,
            "HEADRACE_CONN_WAREHOUSE": f"postgresql://{address.username}:{quote(ODD_PASSWORD, safe='')}@{address.host}:"
            f"{address.port}/{address.database}?sslpassword={options['extra']['sslpassword']}",
        }
        clicks = write_pipeline(
            self.pipelines, "clicks", options='sinks=[hr.postgres("clicks", connection="warehouse")],'
        )
        clicks.write_text(clicks.read_text() + NOSY.format(seen=self.seen_file) + KEYS.format(seen=folder / "keys"))
        self.keys = folder / "keys"
        topics.write_pipelines(self.pipelines)
        (folder / "others").mkdir()
        theirs = write_pipeline(folder / "others", "clicks", options='executor="local"', most=None)
        theirs.write_text("import os\n" + theirs.read_text() + KEYS.format(seen=self.keys))
        (folder / "roots.toml").write_text(
            f'[[root]]\nname = "others"\nuri = "{OTHER_ROOT}"\npipelines = ["others"]\nstore = "others"\n'
        )
        marked_secrets = [f"confined-{secrets.token_hex(12)}" for _ in range(4)]
        (folder / marked_secrets[0]).mkdir()
        self._own = {
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder}/{marked_secrets[0]}/../home/airflow.db?timeout=30",
            "AIRFLOW__CORE__FERNET_KEY": f"{marked_secrets[1]}{'A' * 10}=",
            "AIRFLOW__API_AUTH__JWT_SECRET": marked_secrets[2] * 2,
            "AIRFLOW__API__SECRET_KEY": marked_secrets[3],
        }
        self.secrets += marked_secrets[1:]
        keys = StaticProvider(server.access_key, server.secret_key)
        self._admin = MinioAdmin(endpoint=server.endpoint.removeprefix("http://"), credentials=keys, secure=False)
        for user, secret, bucket in (("airflow", ODD, BUCKET), ("others", others["password"], OTHER_BUCKET)):
            self._admin.user_add(user, secret)
            self._admin.policy_add(user, policy=all_of(bucket))
            self._admin.policy_set(user, user=user)

    def rotate(self) -> None:
        """Give Airflow's user another secret: the one that Airflow has is wrong from now on."""
        self._admin.user_add("airflow", self._new)

    def change_password(self) -> None:
        """Give the user of the warehouse another password: the one that Airflow has is wrong from now on."""
        self.warehouse.rows(f"alter role {make_url(self.warehouse.url).username} password '{secrets.token_hex(20)}'")

    @contextmanager
    def airflow(self) -> Iterator[LocalAirflow]:
        """An Airflow with its keys, up."""
        # as in the compose file: code of users is kept from Airflow's own secrets
        isolating_variables = {"PYTHONPATH": str(DOCKER)} if processes.can_confine() else {}
        environment = {
            **CALM,
            **self.airflows,
            **self._own,
            **isolating_variables,
            "HEADRACE_PIPELINES": str(self.pipelines),
        }
        airflow = LocalAirflow(self.home, ROOT, environment)
        self.secrets += airflow.passwords.values()
        try:
            airflow.start()
            airflow.api.wait_for_dag("headrace_clicks_process", _SECONDS)
            yield airflow
        finally:
            airflow.stop()

    def command(self, keys: Mapping[str, str], *arguments: str) -> int:
        """The exit code of a command of ``headrace``; what it prints is kept."""
        with self.printed_file.open("ab") as stream:
            return subprocess.run(
                [str(Path(sys.executable).with_name("headrace")), *arguments, "--root", ROOT],
                env={**os.environ, **keys, "HEADRACE_PIPELINES": str(self.pipelines)},
                stdout=stream,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode

    def store(self, monkeypatch: pytest.MonkeyPatch, root: str = ROOT) -> ObjectStore:
        """The root, with the right keys, which the environment has no more then."""
        with monkeypatch.context() as set_for_now:
            for name, value in self.right.items():
                set_for_now.setenv(name, value)
            return open_store(root)

    def tell_tales(self, *stores: ObjectStore) -> set[str]:
        """Every place that has a secret, in any of the forms in which one may travel."""
        forms = {form for secret in self.secrets for form in forms_of(secret)}
        return {place for place, content in self._contents(stores) if any(form in content for form in forms)}

    def _contents(self, stores: Sequence[ObjectStore]) -> Iterator[tuple[str, str]]:
        yield "printed", self.printed_file.read_text(errors="replace")
        for file in self.home.rglob("*"):
            if file.is_file() and file.name != "passwords.json":  # where Airflow looks them up
                yield str(file.relative_to(self.home)), file.read_text(errors="replace")
        with closing(sqlite3.connect(self.home / "airflow.db")) as database:
            for line in database.iterdump():
                yield f"table {line.split()[2]}" if line.startswith("INSERT") else "schema", line
        for store in stores:
            for info in store.list(""):
                yield info.path, store.read(info.path).decode(errors="replace")


def run(
    api: AirflowApi, executor: str, dag_id: str = "headrace_clicks_process", task_id: str = "process"
) -> tuple[EndedRun, str]:
    """A run of a process DAG on ``executor``, or of another one, and the log of its task."""
    run_id = api.trigger(dag_id, {"executor": executor} if task_id == "process" else {})
    ended_run = api.wait_for_run(dag_id, run_id, _SECONDS)
    return ended_run, "\n".join(api.log(ended_run.dag_id, ended_run.run_id, task_id))


def await_delivery(api: AirflowApi) -> str:
    """How the first delivery ended, which begins by itself."""
    return api.wait_for_run(DELIVER, first_run(api, DELIVER, _SECONDS), _SECONDS).state


def all_of(bucket: str) -> dict[str, object]:
    """A policy: everything with the objects of a bucket, and nothing with those of others."""
    resources = [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]
    return {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": ["s3:*"], "Resource": resources}]}


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A deployment without any run."""
    if binaries() is None:
        lacks("no PostgreSQL (on Debian: apt install postgresql)")
    folder = tmp_path_factory.mktemp("secrets")
    server = minio_server.start(folder / "minio")
    try:
        for bucket in (BUCKET, OTHER_BUCKET):
            minio_server.client(server).make_bucket(bucket)
        with Postgres(ODD_PASSWORD) as warehouse, streams(folder / "kafka") as topics:
            yield Deployment(folder, server, warehouse, topics)
    finally:
        minio_server.stop(server)


def test_runs_with_right_and_wrong_keys_leave_no_secret_anywhere(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = deployment.store(monkeypatch)
    start = datetime(2026, 11, 20, tzinfo=UTC)
    clicks = [json.dumps({"user": "ada", "at": (start + timedelta(minutes=m)).isoformat()}) for m in range(5)]
    store.write("landing/clicks/a.jsonl", "\n".join([*clicks, "no JSON", ""]).encode())
    others = deployment.store(monkeypatch, OTHER_ROOT)
    others.write("landing/clicks/a.jsonl", f"{clicks[0]}\n".encode())

    with deployment.airflow() as airflow:
        airflow.api.wait_for_dag(DELIVER, _SECONDS)
        airflow.api.pause(DELIVER, is_paused=False)
        succeeded_run, log = run(airflow.api, "spark")
        assert succeeded_run.state == "success", log
        page = airflow.api.page("api/dags/headrace_clicks_process")
        assert page["pipeline"] == "clicks", "the API server reaches the store, too"
        succeeded_run, log = run(airflow.api, "local", "headrace_others.clicks_process")
        assert succeeded_run.state == "success", log
        records = {
            name: airflow.api.page(f"api/dags/headrace_{name}_process")["totals"]["records"]
            for name in ("clicks", "others.clicks")
        }
        assert records == {"clicks": 6, "others.clicks": 1}
        assert await_delivery(airflow.api) == "success"
        assert deployment.warehouse.rows("select sum(clicks) from clicks") == [(5,)]
        deployment.topics.run(airflow.api)
        deployment.change_password()
        failed_run, log = run(airflow.api, "local", DELIVER, "clicks")
        assert failed_run.tasks["clicks"] == "failed"
        assert "HEADRACE_CONN_WAREHOUSE" in log
        deployment.rotate()
        failed_run, log = run(airflow.api, "local")
        assert failed_run.tasks["process"] == "failed"
        assert "AWS_SECRET_ACCESS_KEY" in log  # which says where to look
    assert deployment.command(deployment.right, "log", "clicks") == 0
    for command in (("log", "clicks"), ("read", "clicks"), ("run", "clicks")):
        assert deployment.command(deployment.wrong, *command) != 0
    assert deployment.command(deployment.wrong_warehouse, "deliver", "clicks") == SinkRefusedError.exit_code

    assert deployment.tell_tales(store, others) == set()
    assert {*deployment.keys.read_text().splitlines()} == {
        "airflow ['AIRFLOW_CONN_KEYS']", "others ['AIRFLOW_CONN_OTHERS']"
    }  # fmt: skip
    if processes.can_confine():
        assert set(deployment.seen_file.read_text().splitlines()) == {"parses 0", "runs 0"}


def test_the_code_that_looks_for_airflows_secrets_finds_one_that_is_there(tmp_path: Path) -> None:
    code = NOSY.format(seen=tmp_path / "seen")
    for extra_variables in ({}, {"SECRET": f"confined-{secrets.token_hex(12)}"}):
        subprocess.run([sys.executable, "-c", code], env={**os.environ, "CONTROL": "1", **extra_variables}, check=True)
    assert (tmp_path / "seen").read_text().splitlines() == ["runs 0", "runs 1"]


def test_the_search_finds_a_planted_secret_wherever_it_is(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = deployment.store(monkeypatch)
    right = deployment.right["AWS_SECRET_ACCESS_KEY"]
    objects = {"clicks/manifests/x.json", "clicks/runs/x.json", "clicks/audits/a--b/result.json"}
    for path, form in zip(sorted(objects), (right, quote(ODD), base64.b64encode(right.encode()).decode()), strict=True):
        store.write(path, json.dumps({"error": f"GET https://x?sig={form} failed"}).encode())
    task_log = next(deployment.home.glob("logs/dag_id=*/**/*.log"))
    with task_log.open("a") as log:
        log.write(json.dumps({"event": f"the key is {ODD}"}))
    tables = {"xcom": "value", "rendered_task_instance_fields": "rendered_fields", "log": "extra"}
    with closing(sqlite3.connect(deployment.home / "airflow.db")) as database, database:
        for table, column in tables.items():
            assert database.execute(f"UPDATE {table} SET {column} = ?", [json.dumps({"key": right})]).rowcount > 0
    with deployment.printed_file.open("a") as stream:
        stream.write(deployment.secrets[-1])

    tale_tellers = deployment.tell_tales(store)
    expected_tellers = {
        *objects,
        str(task_log.relative_to(deployment.home)),
        "printed",
        *(f'table "{name}"' for name in tables),
    }
    assert tale_tellers - {"airflow.db"} == expected_tellers
