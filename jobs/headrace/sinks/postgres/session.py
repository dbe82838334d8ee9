"""Sessions of PostgreSQL in which values mean what we say, whatever the environment, the role, the database and the
server have set: PGCLIENTENCODING, PGOPTIONS, ``alter role ... set``, ``alter database ... set``, postgresql.conf.

What other people's triggers may go by (search_path, TimeZone) is left as it is where we write.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg

from headrace.connections import Connection

_CONNECT_SECONDS: Final = 10

_WRITING: Final = (
    "set local array_nulls to on",  # else NULL in a list is a text
    "set local standard_conforming_strings to on",
    "set local datestyle to 'ISO, YMD'",
    "set local row_security to off",  # else rows that a policy hides are left out without a word
)
_READING: Final = (
    *_WRITING,
    "set local timezone to 'UTC'",
    "set local intervalstyle to 'postgres'",
    "set local extra_float_digits to 1",
    "set local bytea_output to 'hex'",
)


def connect(connection: Connection) -> psycopg.Connection:
    """A session whose texts are UTF-8 on the way, also if the environment or the connection says otherwise."""
    own: dict[str, Any] = {
        "connect_timeout": _CONNECT_SECONDS,
        "application_name": "headrace",
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
    }
    if connection.host:
        own["hostaddr"] = ""  # PGHOSTADDR would lead to another server than the one that is named
    server = psycopg.connect(
        host=connection.host or None,
        port=connection.port,
        user=connection.user or None,
        dbname=connection.database or None,
        password=connection.password or None,
        **{**own, **connection.options, "client_encoding": "utf8"},
    )
    # a delivery compares inside of its transaction what others have committed meanwhile
    server.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    return server


@contextmanager
def writing(server: psycopg.Connection) -> Iterator[None]:
    """A transaction whose input means what it says."""
    with server.transaction():
        server.execute("; ".join(_WRITING).encode())
        yield


@contextmanager
def reading(server: psycopg.Connection) -> Iterator[None]:
    """A transaction that sees one version of all rows, writes nothing, and whose values have one text."""
    with server.transaction():
        server.execute("set transaction isolation level repeatable read, read only")
        server.execute("; ".join(_READING).encode())
        yield
