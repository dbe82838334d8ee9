"""Connections of sources and sinks that are Airflow's: known to a task while it runs, where Headrace looks for them.

What the environment of the worker says already counts first.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import quote, urlencode

from airflow.sdk import BaseHook, Connection
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from headrace import connections
from headrace.connections import MissingConnectionError, is_secret, variable

_SCHEMES: Final = {"postgres": "postgresql", "aws": "s3"}
"""Types of Airflow's whose systems write their URIs otherwise."""

_HOST_IS_URI: Final = ("iceberg", "http")
"""Types whose host may be a whole address: of a REST catalog, of a registry of schemas."""

_HTTP: Final = "http"
"""The type whose schema is that of its address: http or https."""


@contextmanager
def reaching_system(name: str) -> Iterator[None]:
    """Inside, the environment says what connection ``name`` is. Raises MissingConnectionError."""
    known_as = variable(name)
    if os.environ.get(known_as):
        yield
        return
    os.environ[known_as] = _of_airflow(name)
    try:
        yield
    finally:
        os.environ.pop(known_as, None)


def reached(name: str) -> connections.Connection:
    """The connection ``name``, for a process in which several things go on: its environment stays as it is. Raises
    MissingConnectionError.
    """
    known_as = variable(name)
    return connections.connection(name, {known_as: os.environ.get(known_as) or _of_airflow(name)})


def _of_airflow(name: str) -> str:
    """Airflow's connection as a URI. Raises MissingConnectionError."""
    try:
        return uri_of(BaseHook.get_connection(name))
    except AirflowNotFoundException as error:
        raise MissingConnectionError(
            f"there is no Airflow connection {name}, and {variable(name)} is not set: add the connection (Admin, "
            "Connections)"
        ) from error


def uri_of(connection: Connection) -> str:
    """The connection as a URI; what its field "extra" says are options. Raises MissingConnectionError."""
    options = _options(connection)
    for hidden in (connection.password, *(value for name, value in options.items() if is_secret(name))):
        if hidden:
            mask_secret(hidden)
    login = quote(connection.login or "", safe="")
    secret = f":{quote(connection.password, safe='')}" if connection.password else ""
    at = "@" if login or secret else ""
    port = f":{connection.port}" if connection.port else ""
    kind = connection.conn_type or ""
    scheme, address, path = _SCHEMES.get(kind, kind), connection.host or "", connection.schema or ""
    if kind == _HTTP and path in ("http", "https"):
        scheme, path = path, ""
    if kind in _HOST_IS_URI and "://" in address:
        scheme, _, address = address.partition("://")
        address, _, path = address.partition("/")
    query = f"?{urlencode(options)}" if options else ""
    host = quote(address, safe=":[]")
    return f"{scheme}://{login}{secret}{at}{host}{port}/{quote(path.strip('/'))}{query}"


def _options(connection: Connection) -> dict[str, str]:
    try:
        extra = json.loads(connection.extra or "{}")
    except ValueError:
        extra = None
    if not isinstance(extra, dict) or not all(isinstance(value, str | int) for value in extra.values()):
        raise MissingConnectionError(  # without what was caught: that quotes the text
            f"the Airflow connection {connection.conn_id} must have a JSON object of texts and numbers in extra"
        )
    return {name: str(value) for name, value in extra.items()}
