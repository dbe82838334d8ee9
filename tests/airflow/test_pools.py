"""What a DAG run says about its pool before anything starts, against a server that answers as Airflow's REST API."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.subprocesses import python, write_pipeline

pytestmark = pytest.mark.slow  # importing Airflow takes seconds

POOLS = {
    "headrace_good": (200, {"slots": 1}),
    "headrace_two": (200, {"slots": 2}),
    "headrace_none": (200, {"slots": 0}),
    "headrace_endless": (200, {"slots": -1}),
    "headrace_missing": (404, {}),
    "headrace_unmakeable": (404, {}),
    "headrace_raced": (404, {}),
    "headrace_forbidden": (403, {}),
    "headrace_down": (503, {}),
}

MADE_POOLS: list[str] = []
"""Pools that somebody asked to make."""

CHECK = """
import json, os
from headrace_airflow.failures import TypedRetries
from headrace_airflow.publishing import PreconditionsOperator
from headrace_airflow.roots import Root
from airflow.sdk.bases.operator import ExecutorSafeguard
ExecutorSafeguard.test_mode = True
def check(rooted):
    try:
        return PreconditionsOperator(rooted=rooted, names=()).execute({})
    except Exception as error:
        return [TypedRetries().evaluate(error, 1, 3).action.value, str(error)]
root = Root.of_environment()
pools = json.loads(os.environ["POOLS"])
print(json.dumps({pool: check(root.pipeline(pool.removeprefix("headrace_"))) for pool in pools}))
"""


REQUEST_PATHS: list[str] = []
"""Whole addresses, where this server is asked as a proxy."""

ADDRESSES = """
import json, os
from headrace_airflow.publishing import ensure_pool
for settings in json.loads(os.environ["SETTINGS"]):
    os.environ.update(settings)
    ensure_pool("headrace_good")
    for name in settings:
        del os.environ[name]
print("null")
"""


class Api(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        REQUEST_PATHS.append(self.path)
        status, content = POOLS.get(self.path.rpartition("/")[2], (200, {"access_token": "token"}))
        self.answer(status, content)

    def do_POST(self) -> None:
        new = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert (self.path, new["slots"], new["include_deferred"]) == ("/api/v2/pools", 1, True)
        MADE_POOLS.append(new["name"])
        self.answer({"headrace_unmakeable": 403, "headrace_raced": 409}.get(new["name"], 201), {})

    def answer(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def api() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the first task of a DAG raised for each pool; None: nothing."""
    folder: Path = tmp_path_factory.mktemp("pools")
    for pool in POOLS:
        write_pipeline(folder, pool.removeprefix("headrace_"))
    with api() as address:
        environment = {
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{address}/execution/",
            "HEADRACE_ROOT": folder.as_uri(),
            "HEADRACE_PIPELINES": str(folder),
            "POOLS": json.dumps([*POOLS]),
        }
        return python(CHECK, folder, environment)


def test_one_slot_is_right(answers: Any) -> None:
    assert answers["headrace_good"] is None


@pytest.mark.parametrize(("pool", "slots"), [("headrace_two", 2), ("headrace_none", 0), ("headrace_endless", -1)])
def test_any_other_number_of_slots_fails_at_once_and_says_what_to_do(answers: Any, pool: str, slots: int) -> None:
    kind, message = answers[pool]
    assert kind == "fail"
    assert f"config.pool: pool {pool} has {slots} slots and must have 1" in message
    assert "Set it to 1 under Admin, Pools" in message


def test_a_missing_pool_is_made(answers: Any) -> None:
    assert answers["headrace_missing"] is None
    assert answers["headrace_raced"] is None
    assert MADE_POOLS == ["headrace_missing", "headrace_unmakeable", "headrace_raced"]


@pytest.mark.parametrize(("pool", "what"), [("headrace_unmakeable", "making"), ("headrace_forbidden", "reading")])
def test_who_may_not_look_at_a_pool_or_make_one_hears_what_to_do(answers: Any, pool: str, what: str) -> None:
    kind, message = answers[pool]
    assert kind == "fail"
    assert f"{what} pool {pool} was refused" in message
    assert "the Airflow connection headrace_api" in message


def test_an_api_that_is_down_is_asked_again(answers: Any) -> None:
    kind, message = answers["headrace_down"]
    assert kind == "retry"
    assert message.startswith("retry.airflow_api")


def test_without_a_connection_tasks_ask_where_airflow_says_that_its_api_server_is_or_where_it_is_by_default(
    tmp_path: Path,
) -> None:
    execution, base = "AIRFLOW__CORE__EXECUTION_API_SERVER_URL", "AIRFLOW__API__BASE_URL"
    expected: list[tuple[dict[str, str], str]] = [
        ({}, "http://localhost:8080"),
        ({base: "/flow/"}, "http://localhost:8080/flow"),
        ({base: "http://air.example:81/flow"}, "http://air.example:81/flow"),
        ({base: "http://air.example", execution: "http://inside:9090/execution/"}, "http://inside:9090"),
    ]
    with api() as proxy:
        settings = json.dumps([each for each, _ in expected])
        REQUEST_PATHS.clear()
        python(ADDRESSES, tmp_path, {"SETTINGS": settings, "http_proxy": proxy, "no_proxy": "", "NO_PROXY": ""})
    pools = [address for address in REQUEST_PATHS if "/pools/" in address]
    assert pools == [f"{address}/api/v2/pools/headrace_good" for _, address in expected]
