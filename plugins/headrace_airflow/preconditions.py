"""What must hold before a task of a pipeline may start.

Airflow leaves tasks of a pool that does not exist in ``scheduled`` for ever, with a line in the scheduler's log alone;
and a pool with two slots lets two writers run. A task cannot see the metadata database, so the first task of every
DAG asks the REST API, from the default pool, and makes a pool that is missing: a new pipeline needs nobody.
"""

from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx
from airflow.sdk import BaseHook, BaseOperator, Connection, Context, conf
from airflow.sdk.exceptions import AirflowNotFoundException

from headrace.errors import FixConfigError, RetryError
from headrace_airflow.forms import Form
from headrace_airflow.roots.root import RootedPipeline
from headrace_airflow.roots.store import reaching_store
from headrace_airflow.settings import api_connection

_TIMEOUT_SECONDS = 30.0
_SLOTS = 1
_MISSING = HTTPStatus.NOT_FOUND
_THERE_ALREADY = HTTPStatus.CONFLICT
_ABOUT = "One writer at a time of a Headrace pipeline: keep one slot"


class PoolError(FixConfigError, code="config.pool"):
    """The pool that keeps two writers of one pipeline apart cannot be looked at or made, or does not have one slot."""


class ApiUnavailableError(RetryError, code="retry.airflow_api"):
    """Airflow's REST API did not answer."""


class PreconditionsOperator(BaseOperator):
    """Makes the pipeline's pool if that is missing; fails, and says what to do, where it, form or root is wrong."""

    def __init__(self, *, rooted: RootedPipeline, form: Form, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rooted, self.form = rooted, form

    def execute(self, context: Context) -> None:
        """Check form, root and pool; returns nothing."""
        pool = self.rooted.pool
        with reaching_store(self.rooted.root):
            self.form.check(context)
            _ = self.rooted.root.uri
            if ensure_pool(pool):
                self.log.info("made pool %s with one slot", pool)


def ensure_pool(pool: str) -> bool:
    """Make ``pool`` with one slot unless it is there; whether it was made.

    Raises PoolError when it has another number of slots or may not be made, ApiUnavailableError when nobody can say.
    """
    connection = _connection()
    address = _own_url() if connection is None else _url(connection)
    try:
        with httpx.Client(base_url=address, timeout=_TIMEOUT_SECONDS) as api:
            api.headers["Authorization"] = f"Bearer {_token(api, connection)}"
            answer = _checked(api.get(f"/api/v2/pools/{quote(pool, safe='')}"), f"reading pool {pool}", _MISSING)
            if answer.status_code == _MISSING:
                new = {"name": pool, "slots": _SLOTS, "description": _ABOUT, "include_deferred": True}
                response = _checked(api.post("/api/v2/pools", json=new), f"making pool {pool}", _THERE_ALREADY)
                return response.status_code != _THERE_ALREADY  # another pipeline run may have been quicker
    except httpx.TransportError as error:
        raise ApiUnavailableError(f"Airflow's REST API at {address} did not answer: {error}") from error
    if (slots := answer.json()["slots"]) != _SLOTS:
        raise PoolError(
            f"pool {pool} has {slots} slots and must have 1, or two writers could run at once: set it to 1 under "
            "Admin, Pools in Airflow's UI"
        )
    return False


def _token(api: httpx.Client, connection: Connection | None) -> str:
    """A token of the connection's user, or where Airflow asks for no login, of nobody."""
    if connection is None:
        answer = api.get("/auth/token")
    else:
        answer = api.post("/auth/token", json={"username": connection.login, "password": connection.password})
    return str(_checked(answer, "logging in").json()["access_token"])


def _checked(answer: httpx.Response, what: str, expected: HTTPStatus | None = None) -> httpx.Response:
    """``answer`` if the API did what was asked, or said ``expected``."""
    if answer.is_server_error:
        raise ApiUnavailableError(f"{what} failed: Airflow's REST API answered {answer.status_code}")
    if answer.is_error and answer.status_code != expected:
        raise PoolError(
            f"{what} was refused by Airflow's REST API ({answer.status_code}). Give the Airflow connection "
            f"{api_connection()} the login and password of a user who may read and make pools (role op). Or make the "
            "pool by hand, with one slot, under Admin, Pools in Airflow's UI; then a user who may read pools is "
            "enough"
        )
    return answer


def _connection() -> Connection | None:
    try:
        return BaseHook.get_connection(api_connection())
    except AirflowNotFoundException:
        return None


def _url(connection: Connection) -> str:
    if not connection.host:
        return _own_url()
    return f"{connection.schema or 'http'}://{connection.host}:{connection.port or 8080}"


def _own_url() -> str:
    """Where this Airflow's API server is by its own configuration, read (and where empty, guessed) as Airflow does."""
    execution: str = conf.get("core", "execution_api_server_url", fallback="")
    if execution:
        return execution.rstrip("/").removesuffix("/execution")
    base: str = conf.get("api", "base_url", fallback="") or "/"
    return (f"http://localhost:8080{base}" if base.startswith("/") else base).rstrip("/")
