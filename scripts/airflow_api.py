"""The few calls of Airflow's REST API that the demo, ``make up`` and the tests need, as one of its users."""

from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx
from tenacity import (
    Retrying,
    retry_if_exception_type,
    retry_if_result,
    stop_after_attempt,
    stop_after_delay,
    wait_fixed,
)

_HEALTHY = ("metadatabase", "scheduler", "dag_processor")
_END_STATES = ("success", "failed")
_ATTEMPTS = 3


class NotReadyError(Exception):
    """What was asked about is not so yet."""


@dataclass(frozen=True)
class EndedRun:
    """A DAG run that ended: ``state`` is success or failed, ``tasks`` maps task ids to states."""

    dag_id: str
    run_id: str
    state: str
    tasks: dict[str, str]


class AirflowApi:
    """Airflow at ``url``; every call raises httpx.HTTPError when the API refuses or does not answer."""

    def __init__(self, url: str, user: str, password: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=120)
        self._login = {"username": user, "password": password}

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def check_health(self, *others: str) -> None:
        """Raise NotReadyError unless the API answers and every component is healthy, ``others`` among them."""
        health = self.health()
        bad = [name for name in (*_HEALTHY, *others) if health[name]["status"] != "healthy"]
        if bad:
            raise NotReadyError(f"not healthy yet: {', '.join(bad)}")

    def health(self) -> dict[str, Any]:
        """What the API server says of each component. Raises NotReadyError if it does not answer."""
        try:
            health: dict[str, Any] = self._get("/api/v2/monitor/health")
        except httpx.HTTPError as error:
            raise NotReadyError(f"the API server does not answer: {error!r}") from error
        return health

    def wait_for_dag(self, dag_id: str, seconds: float) -> None:
        """Wait until the DAG processor has found a DAG. Raises NotReadyError after ``seconds``, with import errors."""
        for attempt in _retry_for(seconds):
            with attempt:
                if self._authorised_client().get(f"/api/v2/dags/{dag_id}").status_code != HTTPStatus.OK:
                    raise NotReadyError(f"no DAG {dag_id}; import errors: {self.import_errors()}")

    def import_errors(self) -> dict[str, str]:
        """Stack traces of files that could not be imported, by file name."""
        errors = self._get("/api/v2/importErrors")["import_errors"]
        return {one["filename"]: one["stack_trace"] for one in errors}

    def trigger(self, dag_id: str, conf: dict[str, Any] | None = None) -> str:
        """Start a run now; its id. On SQLite the API server of Airflow 3.3 may wait for its own lock, and fails after
        half a minute. Then it is asked again for the same run.
        """
        run_id = f"manual__{datetime.now(UTC).isoformat()}"
        body = {"dag_run_id": run_id, "logical_date": None, "conf": conf or {}}
        retrying = Retrying(
            stop=stop_after_attempt(_ATTEMPTS),
            wait=wait_fixed(1),
            retry=retry_if_result(lambda answer: answer.is_server_error),
            retry_error_callback=lambda state: state.outcome and state.outcome.result(),
        )
        answer = retrying(lambda: self._authorised_client().post(f"/api/v2/dags/{dag_id}/dagRuns", json=body))
        is_there = answer.status_code == HTTPStatus.CONFLICT and retrying.statistics["attempt_number"] > 1
        if not is_there:
            answer.raise_for_status()
        return run_id

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        """The runs of a DAG as Airflow tells them, oldest first; each has ``dag_run_id``, ``conf`` and ``run_type``."""
        answer = self._get(f"/api/v2/dags/{dag_id}/dagRuns", order_by="id", limit=100)
        return list(answer["dag_runs"])

    def run(self, dag_id: str, run_id: str) -> dict[str, Any]:
        """One run of a DAG as Airflow tells it; it has ``queued_at``, ``start_date`` and ``end_date``."""
        return dict(self._get(f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id)}"))

    def own_backfill(self, dag_id: str, start: str, end: str) -> httpx.Response:
        """What Airflow answers who asks for a backfill of its own."""
        body = {"dag_id": dag_id, "from_date": start, "to_date": end}
        return self._authorised_client().post("/api/v2/backfills", json=body)

    def wait_for_run(self, dag_id: str, run_id: str, seconds: float) -> EndedRun:
        """Wait until a run ended, well or badly. Raises NotReadyError after ``seconds``."""
        path = f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id)}"
        ended_run = None
        try:
            for attempt in _retry_for(seconds):
                with attempt:
                    state = str(self._get(path)["state"])
                    if state not in _END_STATES:
                        raise NotReadyError(f"{dag_id} {run_id} is {state} after {seconds} s")
                    ended_run = EndedRun(dag_id, run_id, state, self.task_states(dag_id, run_id))
        except NotReadyError as error:
            raise NotReadyError(f"{error}: {self.task_states(dag_id, run_id)}") from error
        assert ended_run is not None
        return ended_run

    def task_state(self, dag_id: str, run_id: str, task_id: str) -> str:
        """The state that a task is in."""
        path = f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id)}/taskInstances/{task_id}"
        return str(self._get(path)["state"])

    def first_try_state(self, dag_id: str, run_id: str, task_id: str) -> str:
        """The state in which a task's first try is or ended, whatever became of tries after it."""
        path = f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id)}/taskInstances/{task_id}/tries/1"
        return str(self._get(path)["state"])

    def log(self, dag_id: str, run_id: str, task_id: str) -> list[str]:
        """Lines of the log of a task's last try."""
        path = f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id)}/taskInstances/{task_id}"
        attempt = self._get(path)["try_number"]
        content = self._get(f"{path}/logs/{attempt}", full_content=True)["content"]
        return [_line(entry) for entry in content]

    def asset_events(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """Extras of the asset events that a run made, oldest first."""
        answer = self._get("/api/v2/assets/events", source_dag_id=dag_id, source_run_id=run_id, order_by="timestamp")
        return [one["extra"] for one in answer["asset_events"]]

    def mark(self, dag_id: str, run_id: str, task_id: str, state: str) -> None:
        """Say that a task is a ``success`` or ``failed``, as a person does in the UI: one that runs is ended; behind a
        success those that failed run again.
        """
        path = f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id)}/taskInstances/{task_id}"
        self._authorised_client().patch(path, json={"new_state": state}).raise_for_status()

    def task_states(self, dag_id: str, run_id: str) -> dict[str, str]:
        """The state of each task of a run."""
        task_instances = self._get(f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id)}/taskInstances")["task_instances"]
        return {one["task_id"]: str(one["state"]) for one in task_instances}

    def task_instances(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """The tasks of a run as Airflow tells them; each has ``task_id``, ``queued_when``, ``start_date``."""
        answer = self._get(f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id)}/taskInstances")
        return list(answer["task_instances"])

    def clear(self, dag_id: str, run_id: str) -> None:
        """Have every task of a run done again, as a person does in the UI."""
        body = {"dry_run": False, "dag_run_id": run_id, "only_failed": False, "reset_dag_runs": True}
        self._authorised_client().post(f"/api/v2/dags/{dag_id}/clearTaskInstances", json=body).raise_for_status()

    def mark_run(self, dag_id: str, run_id: str, state: str) -> None:
        """Say that a whole run is a ``success`` or ``failed``: its tasks that run are ended."""
        path = f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id)}"
        self._authorised_client().patch(path, json={"state": state}).raise_for_status()

    def delete_run(self, dag_id: str, run_id: str) -> None:
        """Forget a run that is not marked as running, whatever its tasks do."""
        self._authorised_client().delete(f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id)}").raise_for_status()

    def approve(self, dag_id: str, run_id: str, task_id: str) -> None:
        """Answer a task that asks a person, as one who approves."""
        self.answer(dag_id, run_id, task_id, "Approve")

    def answer(self, dag_id: str, run_id: str, task_id: str, option: str) -> None:
        """Answer a task that asks a person."""
        path = f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id)}/taskInstances/{task_id}/-1/hitlDetails"
        self._authorised_client().patch(path, json={"chosen_options": [option]}).raise_for_status()

    def pause(self, dag_id: str, *, is_paused: bool = True) -> None:
        """Let no more runs of a DAG begin; or again, if not ``is_paused``."""
        self._authorised_client().patch(f"/api/v2/dags/{dag_id}", json={"is_paused": is_paused}).raise_for_status()

    def parse(self, dag_id: str) -> None:
        """Have the DAG processor look at the file of a DAG next, before its interval is over."""
        token = self.dag(dag_id)["file_token"]
        self._authorised_client().put(f"/api/v2/parseDagFile/{token}").raise_for_status()

    def source(self, dag_id: str) -> str:
        """What the tab "Code" of a DAG shows."""
        return str(self._get(f"/api/v2/dagSources/{dag_id}")["content"])

    def dag(self, dag_id: str) -> dict[str, Any]:
        """A DAG as Airflow tells of it."""
        return dict(self._get(f"/api/v2/dags/{dag_id}"))

    def add_connection(self, name: str, **fields: str) -> None:
        """Make a connection, with ``conn_type`` and others of its fields, as a person does in the UI."""
        body = {"connection_id": name, **fields}
        self._authorised_client().post("/api/v2/connections", json=body).raise_for_status()

    def asset(self, uri: str) -> dict[str, Any]:
        """An asset as Airflow tells of it: ``watchers`` are those that look for it now."""
        (asset,) = self._get("/api/v2/assets", uri_pattern=uri)["assets"]
        return dict(asset)

    def announce(self, uri: str, partition: str) -> None:
        """An event of a partition of an asset, as a person makes it."""
        body = {"asset_id": self.asset(uri)["id"], "partition_key": partition}
        self._authorised_client().post("/api/v2/assets/events", json=body).raise_for_status()

    def asset_state(self, uri: str) -> dict[str, Any]:
        """What the state store of an asset holds, by key."""
        asset = self.asset(uri)
        state_entries = self._get(f"/api/v2/assets/{asset['id']}/state-store")["asset_state_store"]
        return {one["key"]: one["value"] for one in state_entries}

    def pools(self) -> dict[str, int]:
        """The slots of every pool, by name."""
        return {one["name"]: one["slots"] for one in self._get("/api/v2/pools")["pools"]}

    def set_slots(self, pool: str, slots: int) -> None:
        """Give a pool another number of slots."""
        body = {"pool": pool, "slots": slots, "include_deferred": True}  # it wants all, and changes what the mask says
        path = f"/api/v2/pools/{quote(pool)}"
        self._authorised_client().patch(path, params={"update_mask": "slots"}, json=body).raise_for_status()

    def delete_pool(self, name: str) -> None:
        """Remove a pool."""
        self._authorised_client().delete(f"/api/v2/pools/{quote(name)}").raise_for_status()

    def page(self, path: str) -> Any:
        """What Headrace's pages ask of their app."""
        return self._get(f"/headrace/{path}")

    def token(self) -> str:
        """What shows who the user is, as the value of Airflow's cookie, too."""
        return str(self._authorised_client().headers["Authorization"]).removeprefix("Bearer ")

    def request(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """What Airflow answers the user, whatever that is."""
        return self._authorised_client().request(method, path, json=body)

    def _get(self, path: str, **params: Any) -> Any:
        answer = self._authorised_client().get(path, params=params)
        answer.raise_for_status()
        return answer.json()

    def _authorised_client(self) -> httpx.Client:
        """The client, with a token from the first call on."""
        if "Authorization" not in self._client.headers:
            answer = self._client.post("/auth/token", json=self._login)
            answer.raise_for_status()
            self._client.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"
        return self._client


def _retry_for(seconds: float) -> Retrying:
    """Ask until then, also where a busy machine takes too long for an answer. A question is 15 ms of a core."""
    condition = retry_if_exception_type((NotReadyError, httpx.TimeoutException))
    return Retrying(stop=stop_after_delay(seconds), wait=wait_fixed(1), retry=condition, reraise=True)


def _line(entry: Any) -> str:
    """One log entry as text: the message, and what it says of an exception."""
    if isinstance(entry, str):
        return entry
    errors = [f"{one['exc_type']}: {one['exc_value']}" for one in entry.get("error_detail") or ()]
    return "\n  ".join([str(entry.get("event", "")), *errors])
