"""Connections by name: how a system beside the root is reached, known only to the process that needs it.

A pipeline names a connection; the environment says what it is, as a URI in ``HEADRACE_CONN_{NAME}``. So no definition,
fingerprint, manifest, log or error text has a password.
"""

import json
import os
import re
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from headrace.errors import FixConfigError, HeadraceError

PREFIX: Final = "HEADRACE_CONN"
_SECRET: Final = re.compile(
    r"password|passfile|secret|token|key|credential|authorization|connection.string", re.IGNORECASE
)
_EXAMPLES: Final = {
    "delta": "s3://key:secret@bucket/prefix?region=eu-west-1, or file:///folder",
    "iceberg": "https://client:secret@host/path?warehouse=NAME, or postgresql://user:password@host/database?warehouse=...",
    "kafka": "kafka://host:9092, or kafka://user:password@host:9092",
    "postgres": "postgresql://user:password@host:5432/database",
    "registry": "https://user:password@host:8081",
}
"""How connections of sinks and sources are written, by kind."""
_ANY: Final = "scheme://user:password@host:port/database"

_WITHOUT_HOST: Final = ("file", "sqlite")
"""Schemes of what lies on this machine."""


_NOTHING: Mapping[str, "Connection"] = {}
_KNOWN: ContextVar[Mapping[str, "Connection"]] = ContextVar("connections that this context knows", default=_NOTHING)


class MissingConnectionError(FixConfigError, code="config.connection"):
    """The environment does not say what a connection is, or says it wrongly."""


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
        for written in sorted({one for secret in secrets for one in _written(secret)}, key=len, reverse=True):
            text = text.replace(written, "***")
        return text


def _written(secret: str) -> set[str]:
    """How texts of others have a ``secret``: as it is, in a URI, in JSON, and as Python shows it."""
    in_json = {json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
    return {secret, quote(secret, safe=""), quote(secret), *in_json, repr(secret)[1:-1]} - {""}


def failure(error: Exception, connection: Connection | None) -> str:
    """What code of a user's raised and where, in a line, without the secrets of its ``connection``."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{in_a_line(f'{type(error).__name__}: {error}', connection)}{where}"


def hide_secrets(error: HeadraceError, connection: Connection) -> None:
    """Take the secrets of its ``connection`` out of an ``error`` that code of a user's has raised: what it was raised
    from, which a traceback shows, may quote them as well.
    """
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None:
        causes.append(cause)
    texts = [str(text) for one in causes for text in (one, *getattr(one, "__notes__", ()))]
    if any(connection.without_secrets(text) != text for text in texts):
        error.args = (connection.without_secrets(str(error)),)
        error.__notes__ = [connection.without_secrets(note) for note in getattr(error, "__notes__", ())]
        error.__cause__, error.__suppress_context__ = None, True


def in_a_line(text: str, connection: Connection | None) -> str:
    """``text`` of somebody else's, without line breaks and the secrets of a ``connection``."""
    return " ".join((text if connection is None else connection.without_secrets(text)).split())


def is_secret(option: str) -> bool:
    """Whether an option of that name has a value that nobody may see."""
    return _SECRET.search(option) is not None


def variable(name: str) -> str:
    """The variable of the environment that says what connection ``name`` is."""
    return f"{PREFIX}_{name.upper()}"


@contextmanager
def knowing(connections: "Iterable[Connection]") -> Iterator[None]:
    """While this lasts this context knows ``connections``, whatever its environment says: for a process in which
    several things go on.
    """
    before = _KNOWN.set({**_KNOWN.get(), **{known.name: known for known in connections}})
    try:
        yield
    finally:
        _KNOWN.reset(before)


def connection(name: str, environment: Mapping[str, str] = os.environ, *, kind: str = "") -> Connection:
    """The connection ``name`` of a ``kind`` of system, as this context knows it (``knowing``) or the ``environment``
    says it. Raises MissingConnectionError.
    """
    if environment is os.environ and name in _KNOWN.get():
        return _KNOWN.get()[name]
    uri = environment.get(variable(name))
    if not uri:
        raise MissingConnectionError(
            f"connection {name!r} is not known here: set {variable(name)} to a URI such as "
            f"{_EXAMPLES.get(kind, _ANY)}; in Airflow, add a connection with this id"
        )
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError as error:
        raise _unreadable(name) from error
    is_local = parts.scheme in _WITHOUT_HOST and parts.path.startswith("/") and uri.startswith(f"{parts.scheme}:///")
    if not parts.scheme or not (parts.netloc or is_local) or _is_cut(parts):
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


def _is_cut(parts: SplitResult) -> bool:
    """Whether a password with a /, a ? or a # in it, which end what is before the host, seems to have cut a URI."""
    options, _, _ = parts.query.partition("=")
    return bool(parts.netloc and "@" in parts.path) or "@" in options or bool(parts.fragment)


def _unreadable(name: str) -> MissingConnectionError:
    """The URI may have a secret, so it is not quoted, nor is what the parser says of it."""
    return MissingConnectionError(
        f"{variable(name)} is not a URI: write scheme://user:password@host:port/database, with %40 for @, %2F for /, "
        "%3F for ? and %23 for # in the password, and %40 for @ behind the host"
    )
