"""Connections by name: how a system beside the root is reached, known only to the process that needs it.

A pipeline names a connection; the environment says what it is, as a URI in ``HEADRACE_CONN_{NAME}``. So no definition,
fingerprint, manifest, log or error text has a password.
"""

import os
import re
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from headrace.errors import FixConfigError

PREFIX: Final = "HEADRACE_CONN"
_SECRET: Final = re.compile(
    r"password|passfile|secret|token|key|credential|authorization|connection.string", re.IGNORECASE
)
_WITHOUT_HOST: Final = ("file", "sqlite")
"""Schemes of what lies on this machine."""


class MissingConnectionError(FixConfigError):
    """The environment does not say what a connection is, or says it wrongly."""

    code = "config.connection"


@dataclass(frozen=True)
class Connection:
    """How a system is reached: the parts of a URI. Its text has neither password nor options."""

    name: str
    scheme: str
    host: str = ""
    port: int | None = None
    user: str = ""
    database: str = ""
    password: str = field(default="", repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        port = "" if self.port is None else f":{self.port}"
        return f"connection {self.name} ({self.scheme}://{self.host}{port}/{self.database})"

    def without_secrets(self, text: str) -> str:
        """``text`` of somebody else's, without the secrets of this connection."""
        secrets = [self.password, *(value for name, value in self.options.items() if is_secret(name))]
        for secret in filter(None, secrets):
            for written in (secret, quote(secret, safe=""), quote(secret)):  # clients quote URIs too
                text = text.replace(written, "***")
        return text


def failure(error: Exception, connection: Connection | None) -> str:
    """What code of a user's raised and where, in a line, without the secrets of its ``connection``."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{in_a_line(f'{type(error).__name__}: {error}', connection)}{where}"


def in_a_line(text: str, connection: Connection | None) -> str:
    """``text`` of somebody else's, without line breaks and the secrets of a ``connection``."""
    return " ".join((text if connection is None else connection.without_secrets(text)).split())


def is_secret(option: str) -> bool:
    """Whether an option of that name has a value that nobody may see."""
    return _SECRET.search(option) is not None


def variable(name: str) -> str:
    """The variable of the environment that says what connection ``name`` is."""
    return f"{PREFIX}_{name.upper()}"


def connection(name: str, environment: Mapping[str, str] = os.environ) -> Connection:
    """The connection ``name``, as the ``environment`` says it. Raises MissingConnectionError."""
    uri = environment.get(variable(name))
    if not uri:
        raise MissingConnectionError(
            f"connection {name!r} is not known here: set {variable(name)} to a URI such as "
            "postgresql://user:password@host:5432/database; in Airflow, add a connection with this id"
        )
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError as error:
        raise _unreadable(name) from error
    is_local = parts.scheme in _WITHOUT_HOST and parts.path.startswith("/") and uri.startswith(f"{parts.scheme}:///")
    if not parts.scheme or not (parts.netloc or is_local):
        raise _unreadable(name)
    return Connection(
        name,
        parts.scheme,
        unquote(parts.hostname or ""),
        port,
        unquote(parts.username or ""),
        unquote(parts.path.lstrip("/")),
        unquote(parts.password or ""),
        dict(parse_qsl(parts.query)),
    )


def _unreadable(name: str) -> MissingConnectionError:
    """The URI may have a secret, so it is not quoted, nor is what the parser says of it."""
    return MissingConnectionError(
        f"{variable(name)} is not a URI: write scheme://user:password@host:port/database, with %40 for @ and %2F for / "
        "in the password"
    )
