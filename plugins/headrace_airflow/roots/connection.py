"""The Airflow connection that says how the root's store is reached: its endpoint, keys, role and encryption.

What it says becomes variables, such as a deployment without a connection sets.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from airflow.sdk import BaseHook, Connection
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from headrace.errors import FixConfigError
from headrace_airflow.roots.root import STORE_CONNECTION, Root

_TYPES: Final = ("aws", "s3", "generic")
_KEYS: Final = {
    "aws_access_key_id": "AWS_ACCESS_KEY_ID",
    "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "aws_session_token": "AWS_SESSION_TOKEN",
    "profile_name": "AWS_PROFILE",
}
_ROLE: Final = {"role_arn": "HEADRACE_S3_ROLE_ARN", "external_id": "HEADRACE_S3_EXTERNAL_ID"}
_EXTRA: Final = {
    **_KEYS,
    **_ROLE,
    "endpoint_url": "AWS_ENDPOINT_URL",
    "region_name": "AWS_REGION",
    "server_side_encryption": "HEADRACE_S3_ENCRYPTION",
    "sse_kms_key_id": "HEADRACE_S3_KMS_KEY_ID",
}
"""What the field "extra" may say, named as Amazon's provider does where it knows such a thing, and its variable."""

_SECRETS: Final = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_ALONE: Final = (*_KEYS.values(), "AWS_WEB_IDENTITY_TOKEN_FILE", *_ROLE.values())
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

    def over(self, environment: Mapping[str, str]) -> dict[str, str]:
        """``environment`` with them."""
        kept = {name: value for name, value in environment.items() if name not in self.without}
        return {**kept, **self.values}


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
    without = tuple(dict.fromkeys((*variables.without, *_OTHER_ENDPOINTS)))
    return StoreVariables({**variables.values, "AWS_ENDPOINT_URL": root.endpoint}, without)


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
    return variables_of(connection)


def variables_of(connection: Connection) -> StoreVariables:
    """What ``connection`` says. Raises StoreConnectionError, which quotes no value of it."""
    where = f"the Airflow connection {connection.conn_id}"
    if connection.conn_type not in _TYPES:
        raise StoreConnectionError(f"{where} has the type {connection.conn_type}: make it one of type aws")
    extra = _extra(connection.extra, where)
    if unknown := sorted({*extra} - {*_EXTRA}):
        raise StoreConnectionError(
            f"{where} has {', '.join(unknown)} in extra, which Headrace does not know: it takes {', '.join(_EXTRA)}"
        )
    if not all(isinstance(value, str) for value in extra.values()):
        raise StoreConnectionError(f"{where} has values in extra that are no text: write each in quotes")
    values = {_EXTRA[name]: value for name, value in extra.items() if value}
    values |= {"AWS_ACCESS_KEY_ID": connection.login} if connection.login else {}
    values |= {"AWS_SECRET_ACCESS_KEY": connection.password} if connection.password else {}
    for name in _SECRETS:
        if name in values:
            mask_secret(values[name])
    if ("AWS_ACCESS_KEY_ID" in values) != ("AWS_SECRET_ACCESS_KEY" in values):
        raise StoreConnectionError(f"{where} has half a key: its login is the key's id, its password the secret")
    if "AWS_PROFILE" in values and "AWS_ACCESS_KEY_ID" in values:
        raise StoreConnectionError(f"{where} has keys and the profile {values['AWS_PROFILE']}: leave one of them out")
    has_keys = any(name in values for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE"))
    without = (*(_ALONE if has_keys else ()), *(_OTHER_ENDPOINTS if "AWS_ENDPOINT_URL" in values else ()))
    return StoreVariables(values, without)


def _extra(text: str | None, where: str) -> dict[str, Any]:
    try:
        extra = json.loads(text or "{}")
    except ValueError:
        extra = None
    if not isinstance(extra, dict):  # outside, without what was caught: that quotes the text
        raise StoreConnectionError(f"{where} has no JSON object in extra: correct it")
    return extra
