"""Airflow's connections: how stores, sources and sinks are reached, and who gets what they say.

The connection of a root says how its store is reached: endpoint, keys, role and encryption. It becomes variables, such
as a deployment without a connection sets. They are those of a task while it runs, of what the task starts, and of
stores that the API server opens. It is never in arguments, templates or Spark's configuration. Connections of sources
and sinks are known to a task while it runs, where Headrace looks for them. What the environment of the worker says
counts first.
"""

import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlencode

from airflow.sdk import BaseHook, Connection
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from headrace import connections
from headrace.connections import MissingConnectionError, is_secret, variable_name
from headrace.errors import FixConfigError
from headrace.ext.stores import SCHEMES, StoreScheme
from headrace.pipeline.pipeline import Pipeline
from headrace_airflow.failures import headrace_errors
from headrace_airflow.roots import STORE_CONNECTION, Root

_CONNECTION_TYPES: Final = ("aws", "s3", "generic")
_KEY_VARIABLES: Final = {
    "aws_access_key_id": "AWS_ACCESS_KEY_ID",
    "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "aws_session_token": "AWS_SESSION_TOKEN",
    "profile_name": "AWS_PROFILE",
}
_ROLE: Final = {"role_arn": "HEADRACE_S3_ROLE_ARN", "external_id": "HEADRACE_S3_EXTERNAL_ID"}
_EXTRA: Final = {
    **_KEY_VARIABLES,
    **_ROLE,
    "endpoint_url": "AWS_ENDPOINT_URL",
    "region_name": "AWS_REGION",
    "server_side_encryption": "HEADRACE_S3_ENCRYPTION",
    "sse_kms_key_id": "HEADRACE_S3_KMS_KEY_ID",
}
"""What the field "extra" may say, named as Amazon's provider does where it knows such a thing, and its variable."""

_PREFIXES_OF_S3: Final = ("AWS_", "HEADRACE_S3_", "")
"""What Amazon has names of its own for, and what would be any variable."""

_SECRETS: Final = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_KEYS_REPLACE: Final = (*_KEY_VARIABLES.values(), "AWS_WEB_IDENTITY_TOKEN_FILE", *_ROLE.values())
"""What the environment says of keys counts no more where the connection has some."""

_OTHER_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL_STS")


class StoreConnectionError(FixConfigError, code="config.store_connection"):
    """The Airflow connection to the root's store does not exist, or says what Headrace does not understand."""


@dataclass(frozen=True)
class StoreVariables:
    """Variables that a connection sets, and those of the environment that do not count beside it."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    without: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return hash((frozenset(self.values.items()), self.without))

    def apply_to(self, environment: Mapping[str, str]) -> dict[str, str]:
        """``environment`` with them."""
        kept_variables = {name: value for name, value in environment.items() if name not in self.without}
        return {**kept_variables, **self.values}


def store_variables(root: Root) -> StoreVariables:
    """What the connection of ``root`` says, and its endpoint; nothing if it names none. Raises StoreConnectionError."""
    variables = _of_connection(root)
    if not root.endpoint:
        return variables
    other = variables.values.get("AWS_ENDPOINT_URL", root.endpoint).rstrip("/")
    if other != root.endpoint:
        raise StoreConnectionError(
            f"the Airflow connection {root.store} has the endpoint_url {other}, and root {root.name} the endpoint "
            f"{root.endpoint}: leave one of them out"
        )
    variables_without = tuple(dict.fromkeys((*variables.without, *_OTHER_ENDPOINTS)))
    return StoreVariables({**variables.values, "AWS_ENDPOINT_URL": root.endpoint}, variables_without)


def _of_connection(root: Root) -> StoreVariables:
    name = root.store
    if not name:
        return StoreVariables()
    try:
        connection = BaseHook.get_connection(name)
    except AirflowNotFoundException as error:
        setting = f"as the store of root {root.name}" if root.name else f"in {STORE_CONNECTION}"
        raise StoreConnectionError(
            f"there is no Airflow connection {name}; create it (type aws, with a key as login and its secret as "
            f"password), or name another {setting}"
        ) from error
    return variables_of(connection, SCHEMES.get(root.location.partition("://")[0]))


def variables_of(connection: Connection, scheme: StoreScheme | None = None) -> StoreVariables:
    """What ``connection`` says to stores of ``scheme``. Raises StoreConnectionError, which quotes no value of it.

    Variables of a scheme stand in the field "extra" by name. The ones of S3 stand there as Amazon calls them.
    """
    where = f"the Airflow connection {connection.conn_id}"
    prefixes = () if scheme is None else tuple(prefix for prefix in scheme.prefixes if prefix not in _PREFIXES_OF_S3)
    if connection.conn_type not in _CONNECTION_TYPES:
        wanted_type = "generic" if prefixes else "aws"
        raise StoreConnectionError(f"{where} has the type {connection.conn_type}: make it one of type {wanted_type}")
    extra = _parse_extra(connection)
    if extra is None:
        raise StoreConnectionError(f"{where} has no JSON object in extra: correct it")
    variables = {name: name for name in extra if name.isidentifier() and name.startswith(prefixes)} | _EXTRA
    if unknown := sorted({*extra} - {*variables}):
        names = [*_EXTRA, *(f"{prefix}..." for prefix in prefixes)]
        raise StoreConnectionError(
            f"{where} has {', '.join(unknown)} in extra, which Headrace does not know: it takes {', '.join(names)}"
        )
    if not all(isinstance(value, str) for value in extra.values()):
        raise StoreConnectionError(f"{where} has values in extra that are no text: write each in quotes")
    values = {variables[name]: value for name, value in extra.items() if value}
    values |= {"AWS_ACCESS_KEY_ID": connection.login} if connection.login else {}
    values |= {"AWS_SECRET_ACCESS_KEY": connection.password} if connection.password else {}
    for name in (*_SECRETS, *(scheme.secrets if scheme else ())):
        if name in values:
            mask_secret(values[name])
    if ("AWS_ACCESS_KEY_ID" in values) != ("AWS_SECRET_ACCESS_KEY" in values):
        raise StoreConnectionError(f"{where} has half a key: its login is the key's id, its password the secret")
    if "AWS_PROFILE" in values and "AWS_ACCESS_KEY_ID" in values:
        raise StoreConnectionError(f"{where} has keys and the profile {values['AWS_PROFILE']}: leave one of them out")
    has_keys = any(name in values for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE"))
    variables_without = (
        *(_KEYS_REPLACE if has_keys else ()),
        *(_OTHER_ENDPOINTS if "AWS_ENDPOINT_URL" in values else ()),
    )
    return StoreVariables(values, variables_without)


def _parse_extra(connection: Connection) -> dict[str, Any] | None:
    """The field "extra"; None if it is no JSON object. An error would quote it."""
    try:
        extra = json.loads(connection.extra or "{}")
    except ValueError:
        return None
    return extra if isinstance(extra, dict) else None


_URI_SCHEMES: Final = {"postgres": "postgresql", "aws": "s3"}
"""Types of Airflow's whose systems write their URIs otherwise."""

_HOST_IS_URI: Final = ("iceberg", "http")
"""Types whose host may be a whole address: of a REST catalog, of a registry of schemas."""

_HTTP: Final = "http"
"""The type whose schema is that of its address: http or https."""


@contextmanager
def reaching_system(name: str) -> Iterator[None]:
    """Inside, the environment says what connection ``name`` is. Raises MissingConnectionError."""
    known_as = variable_name(name)
    if os.environ.get(known_as):
        yield
        return
    os.environ[known_as] = _of_airflow(name)
    try:
        yield
    finally:
        os.environ.pop(known_as, None)


@contextmanager
def reaching_sources(pipeline: Pipeline) -> Iterator[None]:
    """Inside, the environment has all connections of the pipeline's sources. Raises MissingConnectionError."""
    names = dict.fromkeys(name for input_ in pipeline.inputs for name in input_.source.connections)
    with ExitStack() as systems:
        for name in names:
            systems.enter_context(reaching_system(name))
        yield


def find_connection(name: str) -> connections.Connection:
    """The connection ``name``, for a process in which several things go on: its environment stays as it is. Raises
    MissingConnectionError.
    """
    known_as = variable_name(name)
    return connections.connection(name, {known_as: os.environ.get(known_as) or _of_airflow(name)})


def _of_airflow(name: str) -> str:
    """Airflow's connection as a URI. Raises MissingConnectionError."""
    try:
        return uri_of(BaseHook.get_connection(name))
    except AirflowNotFoundException as error:
        raise MissingConnectionError(
            f"there is no Airflow connection {name}, and {variable_name(name)} is not set: add the connection (Admin, "
            "Connections)"
        ) from error


def uri_of(connection: Connection) -> str:
    """The connection as a URI; what its field "extra" says are options. Raises MissingConnectionError."""
    options = _connection_options(connection)
    for secret_value in (connection.password, *(value for name, value in options.items() if is_secret(name))):
        if secret_value:
            mask_secret(secret_value)
    login = quote(connection.login or "", safe="")
    secret = f":{quote(connection.password, safe='')}" if connection.password else ""
    separator = "@" if login or secret else ""
    port = f":{connection.port}" if connection.port else ""
    kind = connection.conn_type or ""
    scheme, address, path = _URI_SCHEMES.get(kind, kind), connection.host or "", connection.schema or ""
    if kind == _HTTP and path in ("http", "https"):
        scheme, path = path, ""
    if kind in _HOST_IS_URI and "://" in address:
        scheme, _, address = address.partition("://")
        address, _, path = address.partition("/")
    query = f"?{urlencode(options)}" if options else ""
    host = quote(address, safe=":[]")
    return f"{scheme}://{login}{secret}{separator}{host}{port}/{quote(path.strip('/'))}{query}"


def _connection_options(connection: Connection) -> dict[str, str]:
    extra = _parse_extra(connection)
    if extra is None or not all(isinstance(value, str | int) for value in extra.values()):
        raise MissingConnectionError(
            f"the Airflow connection {connection.conn_id} must have a JSON object of texts and numbers in extra"
        )
    return {name: str(value) for name, value in extra.items()}


_FRESH_SECONDS = 30.0


def forget_connections(roots: Iterable[Root], but: str) -> None:
    """Take the connections to the stores of ``roots`` out of the environment of this process, except that of ``but``.
    So a task and what it starts have the keys of one root alone, also where Airflow's connections are variables.
    """
    for name in _variables_of(roots) - {_variable_name(but)}:
        os.environ.pop(name, None)


@contextmanager
def without_connections(roots: Iterable[Root]) -> Iterator[None]:
    """Inside, the environment has none of the connections to the stores of ``roots``."""
    hidden_variables = {name: os.environ.pop(name) for name in _variables_of(roots) if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden_variables)


def _variables_of(roots: Iterable[Root]) -> set[str]:
    return {_variable_name(root.store) for root in roots if root.store}


def _variable_name(connection: str) -> str:
    return f"AIRFLOW_CONN_{connection.upper()}"


class reaching_store(headrace_errors):  # noqa: N801  # a context manager, called like a function
    """Inside, the environment says how the store of ``root`` is reached. Raises as ``headrace_errors`` does."""

    def __init__(self, root: Root) -> None:
        self._root = root

    def __enter__(self) -> None:
        with headrace_errors():
            variables = store_variables(self._root)
        self._environment_before = dict(os.environ)
        new_environment = variables.apply_to(self._environment_before)
        for name in variables.without:
            os.environ.pop(name, None)
        os.environ.update({name: new_environment[name] for name in variables.values})
        self._touched_names = {*variables.values, *variables.without}

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            super().__exit__(kind, error, trace)  # which takes secrets out by their variables
        finally:
            for name in self._touched_names:
                os.environ.pop(name, None)
                if name in self._environment_before:
                    os.environ[name] = self._environment_before[name]


class KeptVariables:
    """The variables of a root's connection in a process that lasts and opens stores in several threads. They are asked
    for now and then. They are never put into its environment, where others look for keys of their own.
    """

    def __init__(self, root: Root) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._kept_variables: tuple[float, StoreVariables] | None = None

    def get(self) -> StoreVariables:
        """What the connection said at most half a minute ago. Raises StoreConnectionError."""
        with self._lock:
            if self._kept_variables is None or time.monotonic() - self._kept_variables[0] > _FRESH_SECONDS:
                self._kept_variables = (time.monotonic(), store_variables(self._root))
            return self._kept_variables[1]
