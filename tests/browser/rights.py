"""Who may ask what: every route of the pages' app, and every route of Airflow's API that writes.

Whoever adds a route to the app says here what asks it; ``undeclared_routes`` names those that nobody has told of.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from headrace_snapshots.store import LocalStore, open_store
from scripts.airflow_api import AirflowApi
from scripts.airflow_env import LocalAirflow
from tests.airflow.subprocesses import python
from tests.browser.deployment import sales_root

_DAG = "headrace/api/dags/headrace_{pipeline}_process"
_SHOP = "headrace/api/dags/headrace_shop_process"
"""A pipeline with several outputs."""

_PIPELINES = ("clicks", "orders", "visits", "trips", "sales.clicks")
_ANYWHERE = "GET /api/dags/{dag_id}"
_TASK = "/api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}"

READS = {
    "GET /static/{name}": ("headrace/static/console.js",),
    "GET /api/pipelines": ("headrace/api/pipelines",),
    "GET /api/lineage": ("headrace/api/lineage",),
    f"{_ANYWHERE}": (_DAG,),
    f"{_ANYWHERE}/lineage": (f"{_DAG}/lineage",),
    f"{_ANYWHERE}/history": (f"{_DAG}/history",),
    f"{_ANYWHERE}/epochs": (f"{_DAG}/epochs",),
    f"{_ANYWHERE}/epochs/runs": (f"{_DAG}/epochs/runs",),
    f"{_ANYWHERE}/graph": (f"{_DAG}/graph", f"{_SHOP}/graph"),
    f"{_ANYWHERE}/lateness": (f"{_DAG}/lateness", f"{_SHOP}/lateness?output=hourly"),
    f"{_ANYWHERE}/audits": (f"{_DAG}/audits",),
    f"{_ANYWHERE}/diff": (
        f"{_DAG}/diff?before=published&after=main",
        f"{_SHOP}/diff?before=published&after=main&output=hourly",
    ),
    f"{_ANYWHERE}/rehearsals/release": (f"{_DAG}/rehearsals/release?snapshot=main",),
    f"{_ANYWHERE}/rehearsals/rollback": (f"{_DAG}/rehearsals/rollback?to=beginning",),
    f"{_ANYWHERE}/recovery-targets": (f"{_DAG}/recovery-targets",),
    f"{_ANYWHERE}/rehearsals/recover": (f"{_DAG}/rehearsals/recover?to=published",),
    f"{_ANYWHERE}/rehearsals/promote": (
        "headrace/api/dags/headrace_clicks_process/rehearsals/promote?branch=again",
        "headrace/api/dags/headrace_clicks_process/rehearsals/promote?branch=again&patch=true",
    ),
    f"{_ANYWHERE}/snapshots/{{at}}": (f"{_DAG}/snapshots/main",),
    f"{_ANYWHERE}/runs/{{run_id:path}}": (f"{_DAG}/runs/manual",),
}
"""Routes that everybody is answered who may read the DAG, and what asks them."""

VALUES = {
    f"{_ANYWHERE}/audits/{{until}}/docs/{{view}}": (
        "headrace/api/dags/headrace_orders_process/audits/main/docs/current?after=published",
    ),
    f"{_ANYWHERE}/rows/{{view}}": (
        f"{_DAG}/rows/current?at=main",
        f"{_DAG}/rows/rejected?at=main",
        f"{_SHOP}/rows/current?at=main&output=daily",
    ),
    f"{_ANYWHERE}/panes": (f"{_DAG}/panes?key=ada", f"{_SHOP}/panes?key=ada&output=visits"),
    f"{_ANYWHERE}/panes/keys": (f"{_DAG}/panes/keys", f"{_SHOP}/panes/keys?output=visits"),
    f"{_ANYWHERE}/explain": (
        "headrace/api/dags/headrace_clicks_process/explain?key=ada",
        f"{_SHOP}/explain?key=ada&output=hourly",
    ),
}
"""Routes whose answers are keys, rows and records: for those who may edit the DAG. One that writes belongs here too."""

PLANTED_VALUES = ("ada", "oops", "Oslo", "Rome")
"""Keys and records of the pipelines."""

_ID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|[0-9a-f]{16,}")
"""A UUID, a snapshot or a digest: it may have any three of these letters in it."""

_ROUTES = """
import json
from headrace_airflow.pages.app import pages_app
from headrace_airflow.pages.opened_roots import OpenedRoots
app = pages_app(OpenedRoots())
print(json.dumps([f"{method} {route.path}" for route in app.routes for method in getattr(route, "methods", ["ANY"])]))
"""

OWN = {"POST /api/v2/dags/{dag_id}/favorite", "POST /api/v2/dags/{dag_id}/unfavorite"}
"""What viewers may write: which DAGs they like."""

LISTS = {
    "POST /api/v2/dags/{dag_id}/dagRuns/list",
    "POST /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/list",
}
"""What is asked with a body, and writes nothing."""

NOT_THERE = {f"PUT /api/v2/backfills/{{backfill_id}}/{verb}" for verb in ("pause", "unpause", "cancel")}
"""Airflow looks for a backfill of its own before it asks who may; no DAG here has one."""

_SETTINGS = {"pools": "name", "variables": "key", "connections": "connection_id"}
_CONNECTION = {"connection_id": "planted", "conn_type": "http"}


NEW_SETTINGS: Mapping[str, Any] = {
    "/api/v2/pools": {"name": "planted", "slots": 1},
    "/api/v2/variables": {"key": "planted", "value": "1"},
    "/api/v2/connections": _CONNECTION,
}
"""What the role op may make, by where it is posted."""


@dataclass(frozen=True)
class Question:
    """A request to the pages' app; ``is_for_editors``: nobody else is answered."""

    path: str
    is_for_editors: bool


@dataclass(frozen=True)
class Everything:
    """All that a person could have changed: objects under the roots by their digests, runs of DAGs with their states,
    tasks of a run, names of pools, variables and connections.
    """

    objects: Mapping[str, str]
    runs: Mapping[str, Mapping[str, str]]
    tasks: Mapping[str, str]
    settings: Mapping[str, Collection[str]]

    @classmethod
    def read_now(cls, airflow: LocalAirflow, dag_id: str, run_id: str) -> "Everything":
        """As it is now; the tasks are those of that run."""
        api = airflow.api
        dags = [dag["dag_id"] for dag in api.request("GET", "/api/v2/dags?limit=100").json()["dags"]]
        return cls(
            _digests(airflow.root) | _digests(sales_root(airflow.root)),
            {dag: {run["dag_run_id"]: run["state"] for run in api.runs(dag)} for dag in dags},
            api.task_states(dag_id, run_id),
            {name: _names(api, name, key) for name, key in _SETTINGS.items()},
        )


def _digests(root: str) -> dict[str, str]:
    store = open_store(root)
    assert isinstance(store, LocalStore)
    return {f"{root}/{info.path}": store.sha256(info.path)[1] for info in store.list("")}


def _names(api: AirflowApi, name: str, key: str) -> list[str]:
    return [one[key] for one in api.request("GET", f"/api/v2/{name}").json()[name]]


def questions() -> list[Question]:
    """Every route of the pages' app, asked of each pipeline of the deployment that has an answer."""
    return [
        Question(path, table is VALUES)
        for table in (READS, VALUES)
        for templates in table.values()
        for path in dict.fromkeys(
            template.replace("{pipeline}", pipeline) for template in templates for pipeline in _PIPELINES
        )
    ]


def undeclared_routes(home: Path) -> set[str]:
    """The routes of the app that the tables do not have, and those of the tables that the app does not have."""
    environment = {"HEADRACE_ROOT": home.as_uri(), "PYTHONPATH": str(Path(__file__).parents[2] / "plugins")}
    routes = python(_ROUTES, home, environment)
    return {route for route in routes if not route.startswith("HEAD ")} ^ {*READS, *VALUES}


def values_in(text: str) -> set[str]:
    """The planted values that an answer shows."""
    shown_text = _ID.sub("ID", text).replace("metadata", "")
    return {value for value in PLANTED_VALUES if value in shown_text}


def writes(api: AirflowApi, dag_id: str, run_id: str, task_id: str) -> Iterator[tuple[str, httpx.Response]]:
    """Each writing route of Airflow's API but ``OWN`` and ``LISTS``, and what it answers a user: about a task where it
    is about one.
    """
    token = api.request("GET", f"/api/v2/dags/{dag_id}/details").json()["file_token"]
    places = {
        "dag_id": dag_id, "dag_run_id": run_id, "task_id": task_id, "map_index": "-1", "asset_id": "1",
        "backfill_id": "1", "file_token": token,
    }  # fmt: skip
    bodies = _bodies(run_id)
    spec = api.request("GET", "/openapi.json").json()
    for path, methods in spec["paths"].items():
        for method in (one.upper() for one in methods if one != "get"):
            name = f"{method} {path}"
            if name not in OWN | LISTS:
                filled_text = re.sub(r"\{(\w+)\}", lambda match: places.get(match[1], "planted"), path)
                yield name, api.request(method, filled_text, bodies.get(name, {}))


def _bodies(run_id: str) -> Mapping[str, Any]:
    """Bodies without which Airflow says what is missing before it says who may not, and some that would change much."""
    return {
        "POST /api/v2/connections/enqueue-test": _CONNECTION,
        **{
            f"PATCH {path}": {"actions": [{"action": "create", "entities": [one]}]}
            for path, one in NEW_SETTINGS.items()
        },
        "POST /api/v2/dags/{dag_id}/dagRuns": {"logical_date": None},
        "POST /api/v2/dags/{dag_id}/clearDagRuns": {"dry_run": False, "dag_runs": [{"dag_run_id": run_id}]},
        "PATCH /api/v2/dags/{dag_id}/dagRuns": {"actions": [{"action": "delete", "entities": [run_id]}]},
        "PATCH /api/v2/dags/{dag_id}/dagRuns/{dag_run_id}": {"state": "failed"},
        f"PATCH {_TASK}": {"new_state": "success"},
        f"PATCH {_TASK}/{{map_index}}/hitlDetails": {"chosen_options": ["Approve"]},
    }
