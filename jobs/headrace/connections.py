"""Systems beside the root: how one is reached, by the name of a connection, and what the answers of a database mean.

A pipeline names a connection; the environment says what it is, as a URI in ``HEADRACE_CONN_{NAME}``. So no definition,
fingerprint, manifest, log or error text has a password.

A database answers with an SQLSTATE, which says what the caller should do. Where single codes of a class mean something
else than the others, they are named; classes that are not named refuse: they would say the same again.
"""

import json
import os
import re
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from headrace.errors import FixConfigError, HeadraceError
from headrace.own_parts import CONNECTIONS

PREFIX: Final = "HEADRACE_CONN"
_SECRET: Final = re.compile(
    r"password|passfile|secret|token|key|credential|authorization|connection.string", re.IGNORECASE
)
_ANY_CONNECTION_URI: Final = "scheme://user:password@host:port/database"

_WITHOUT_HOST: Final = ("file", "sqlite")
"""Schemes of what lies on this machine."""


_NO_CONNECTIONS: Mapping[str, "Connection"] = {}
_KNOWN_CONNECTIONS: ContextVar[Mapping[str, "Connection"]] = ContextVar(
    "connections that this context knows", default=_NO_CONNECTIONS
)


class MissingConnectionError(FixConfigError, code="config.connection"):
    """The environment does not say what a connection is, or says it wrongly."""


@dataclass(frozen=True)
class Connection:
    """How a system is reached: the parts of a URI. Its text has neither password nor options.

    ``name`` is that of the connection, ``scheme`` the kind of system. ``host``, ``port``, ``user``, ``password`` and
    ``database`` are empty (``port`` None) where the URI has none; ``options`` are those behind "?".
    """

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
        for spelling in sorted({one for secret in secrets for one in _secret_spellings(secret)}, key=len, reverse=True):
            text = text.replace(spelling, "***")
        return text


def _secret_spellings(secret: str) -> set[str]:
    """How texts of others have a ``secret``: as it is, in a URI, in JSON, and as Python shows it."""
    in_json = {json.dumps(secret, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
    return {secret, quote(secret, safe=""), quote(secret), *in_json, repr(secret)[1:-1]} - {""}


def describe_failure(error: Exception, connection: Connection | None) -> str:
    """What code of a user's raised and where, in a line, without the secrets of its ``connection``."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{in_a_line(f'{type(error).__name__}: {error}', connection)}{where}"


def hide_secrets(error: HeadraceError, connection: Connection) -> None:
    """Take the secrets of a ``connection`` out of an ``error`` that a user's code has raised. The causes of the error,
    which a traceback shows, may quote secrets as well.
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


def variable_name(name: str) -> str:
    """The variable of the environment that says what connection ``name`` is."""
    return f"{PREFIX}_{name.upper()}"


@contextmanager
def use_connections(connections: "Iterable[Connection]") -> Iterator[None]:
    """While this lasts this context knows ``connections``, whatever its environment says: for a process in which
    several things go on.
    """
    token = _KNOWN_CONNECTIONS.set(
        {**_KNOWN_CONNECTIONS.get(), **{known_connection.name: known_connection for known_connection in connections}}
    )
    try:
        yield
    finally:
        _KNOWN_CONNECTIONS.reset(token)


def connection(name: str, environment: Mapping[str, str] = os.environ, *, kind: str = "") -> Connection:
    """The connection ``name`` of a ``kind`` of system, as this context knows it (``use_connections``) or the
    ``environment`` says it. Raises MissingConnectionError.
    """
    if environment is os.environ and name in _KNOWN_CONNECTIONS.get():
        return _KNOWN_CONNECTIONS.get()[name]
    uri = environment.get(variable_name(name))
    if not uri:
        raise MissingConnectionError(
            f"connection {name!r} is not known here: set {variable_name(name)} to a URI such as "
            f"{CONNECTIONS.get(kind, _ANY_CONNECTION_URI)}; in Airflow, add a connection with this id"
        )
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError as error:
        raise _unreadable_uri_error(name) from error
    is_local = parts.scheme in _WITHOUT_HOST and parts.path.startswith("/") and uri.startswith(f"{parts.scheme}:///")
    if not parts.scheme or not (parts.netloc or is_local) or _is_cut(parts):
        raise _unreadable_uri_error(name)
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


def _unreadable_uri_error(name: str) -> MissingConnectionError:
    """The URI may have a secret, so it is not quoted, nor is what the parser says of it."""
    return MissingConnectionError(
        f"{variable_name(name)} is not a URI: write scheme://user:password@host:port/database, with %40 for @, %2F for "
        "/, %3F for ? and %23 for # in the password, and %40 for @ behind the host"
    )


class SqlAnswer(StrEnum):
    """What a database says: the login is wrong; what is asked for is not there or not allowed; a value has no place; or
    it may say something else soon.
    """

    LOGIN = "login"
    REFUSED = "refused"
    DATA = "data"
    PASSING = "passing"


WRONG_LOGIN: Final = "authentication failed"
"""What libpq says of one, to which it gives no SQLSTATE."""

_ANSWER_OF_CLASS: Final = {
    "08": SqlAnswer.PASSING,  # no connection
    "22": SqlAnswer.DATA,
    "23": SqlAnswer.DATA,  # a row that is there twice, or that a constraint does not let in
    "28": SqlAnswer.LOGIN,
    "40": SqlAnswer.PASSING,  # rolled back: a deadlock, another transaction
    "44": SqlAnswer.DATA,  # a view does not let it in
    "53": SqlAnswer.PASSING,  # no resources: a full disk, no memory, too many connections
    "57": SqlAnswer.PASSING,  # an operator, a time limit
    "58": SqlAnswer.PASSING,  # the system
    "72": SqlAnswer.PASSING,  # a snapshot that is too old
}
_ANSWER_OF_CODE: Final = {
    "25P03": SqlAnswer.PASSING,  # time limits of a transaction
    "25P04": SqlAnswer.PASSING,
    "53400": SqlAnswer.REFUSED,  # a limit that somebody has set
    "54000": SqlAnswer.DATA,  # a row, or its entry in an index, is too long
    "55006": SqlAnswer.PASSING,  # in use
    "55P03": SqlAnswer.PASSING,  # locked
    "57P04": SqlAnswer.REFUSED,  # the database was dropped
    "58P01": SqlAnswer.REFUSED,  # a file that it lacks
    "58P02": SqlAnswer.REFUSED,
}
_WITHOUT_A_STATE: Final = (
    (WRONG_LOGIN, SqlAnswer.LOGIN),
    ("no password supplied", SqlAnswer.LOGIN),
    ("no pg_hba.conf entry", SqlAnswer.LOGIN),
    ("is not permitted to log in", SqlAnswer.LOGIN),
    ("does not exist", SqlAnswer.REFUSED),  # a database, a role, a file of certificates
    ("permission denied", SqlAnswer.REFUSED),
    ("certificate verify failed", SqlAnswer.REFUSED),
    ("does not support SSL", SqlAnswer.REFUSED),
    ("invalid value for parameter", SqlAnswer.REFUSED),
    (": invalid ", SqlAnswer.REFUSED),  # an option of the connection
    ("is not currently accepting connections", SqlAnswer.REFUSED),
)
"""What PostgreSQL's client says of a connection that was refused, which has no SQLSTATE; in English."""


def answer_of(state: str, text: str) -> SqlAnswer:
    """What a database means by an error: its SQLSTATE, "" where nothing was connected, and its ``text``."""
    if state:
        return _ANSWER_OF_CODE.get(state) or _ANSWER_OF_CLASS.get(state[:2], SqlAnswer.REFUSED)
    return next((answer for words, answer in _WITHOUT_A_STATE if words in text), SqlAnswer.PASSING)
