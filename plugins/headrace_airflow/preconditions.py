"""What must hold before a task of a pipeline may start.

Airflow leaves tasks of a pool that does not exist in ``scheduled`` for ever, with a line in the scheduler's log alone;
and a pool with two slots lets two writers run. A task cannot see the metadata database, so the first task of every
DAG asks the REST API, from the default pool.
"""

from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx
from airflow.sdk import BaseHook, BaseOperator, Connection, Context, conf
from airflow.sdk.exceptions import AirflowNotFoundException

from headrace.errors import FixConfigError, RetryError
from headrace_airflow.failures import headrace_errors
from headrace_airflow.settings import api_connection, pool_name, root

_TIMEOUT_SECONDS = 30.0
_SLOTS = 1


class PoolError(FixConfigError):
    """The pool that keeps two writers of one pipeline apart is missing, has not one slot, or cannot be looked at."""

    code = "config.pool"


class ApiUnavailableError(RetryError):
    """Airflow's REST API did not answer."""

    code = "retry.airflow_api"


class PreconditionsOperator(BaseOperator):
    """Fails, saying what to do, when the pipeline's pool or the deployment's root is not as it must be."""

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> None:
        """Check root and pool; returns nothing."""
        with headrace_errors():
            root()
            check_pool(pool_name(self.pipeline))


def check_pool(pool: str) -> None:
    """Raise PoolError unless ``pool`` exists with exactly one slot, ApiUnavailableError when nobody can say."""
    connection = _connection()
    address = _own_url() if connection is None else _url(connection)
    try:
        with httpx.Client(base_url=address, timeout=_TIMEOUT_SECONDS) as api:
            api.headers["Authorization"] = f"Bearer {_token(api, connection)}"
            answer = _checked(f"reading pool {pool}", api.get(f"/api/v2/pools/{quote(pool, safe='')}"))
    except httpx.TransportError as error:
        raise ApiUnavailableError(f"Airflow's REST API at {address} did not answer: {error}") from error
    command = "run `python -m headrace_airflow.pools create`"
    if answer.status_code == HTTPStatus.NOT_FOUND:
        raise PoolError(f"there is no pool {pool}, so no task of this pipeline could ever start; {command}")
    if (slots := answer.json()["slots"]) != _SLOTS:
        raise PoolError(f"pool {pool} has {slots} slots and must have 1, or two writers could run at once; {command}")


def _token(api: httpx.Client, connection: Connection | None) -> str:
    """A token of the connection's user, or where Airflow asks for no login, of nobody."""
    if connection is None:
        answer = api.get("/auth/token")
    else:
        answer = api.post("/auth/token", json={"username": connection.login, "password": connection.password})
    return str(_checked("logging in", answer).json()["access_token"])


def _checked(what: str, answer: httpx.Response) -> httpx.Response:
    """``answer`` if the API did what was asked, or found nothing."""
    if answer.is_server_error:
        raise ApiUnavailableError(f"{what} failed: Airflow's REST API answered {answer.status_code}")
    if answer.is_error and answer.status_code != HTTPStatus.NOT_FOUND:
        raise PoolError(
            f"{what} was refused by Airflow's REST API ({answer.status_code}), so the pool cannot be checked; give the "
            f"Airflow connection {api_connection()} the login and password of a user who may read pools"
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
    """Where this Airflow's API server is, as its own configuration says."""
    execution = conf.get("core", "execution_api_server_url", fallback="")
    return execution.rstrip("/").removesuffix("/execution") or conf.get("api", "base_url")
