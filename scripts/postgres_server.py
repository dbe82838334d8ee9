"""A real PostgreSQL on this machine: a cluster of its own on loopback, for one user with a password.

    with Postgres(password) as postgres:
        postgres.url            # as SQLAlchemy takes it

Debian's package ``postgresql`` has what it takes. It runs as the user ``postgres`` where this process is root's, whom
PostgreSQL refuses to serve, and is gone afterwards.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import psycopg

from scripts.airflow_env import free_port

USER = "airflow"
_OF_ROOT = "postgres"
_DEBIAN = Path("/usr/lib/postgresql")


def binaries() -> Path | None:
    """The folder of PostgreSQL's programs, if they are here."""
    if program := shutil.which("initdb"):
        return Path(program).resolve().parent  # beside it is what it starts
    return max(_DEBIAN.glob("*/bin"), default=None)


class Postgres:
    """A server, once entered, with a database and its owner, both named ``airflow``."""

    def __init__(self, password: str) -> None:
        binaries_folder = binaries()
        assert binaries_folder is not None, "no PostgreSQL (on Debian: apt install postgresql)"
        self._binaries = binaries_folder
        self._user = _OF_ROOT if os.geteuid() == 0 else None
        self._folder = Path()
        self._address: dict[str, Any] = {"host": "127.0.0.1", "port": free_port(), "user": USER, "password": password}
        self.url = f"postgresql+psycopg2://{USER}:{quote(password, safe='')}@127.0.0.1:{self._address['port']}/{USER}"

    def __enter__(self) -> Self:
        # not below pytest's folder, which is closed to the server's user
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-postgres-"))
        secret = self._folder / "password"
        secret.write_text(str(self._address["password"]))
        try:
            if self._user is not None:
                for each in (self._folder, secret):
                    shutil.chown(each, self._user)
            self._run("initdb", f"--username={USER}", "--auth=scram-sha-256", f"--pwfile={secret}", "--no-sync")
            settings = f"-c listen_addresses=127.0.0.1 -c port={self._address['port']} -c unix_socket_directories=''"
            self._run("pg_ctl", "start", "--wait", "--log", str(self._folder / "log"), "--options", settings)
            self._execute("postgres", f"create database {USER}")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What ``query`` finds in the database."""
        return self._execute(USER, query)

    def _execute(self, database: str, statement: str) -> list[tuple[Any, ...]]:
        # a database is made outside of transactions
        with psycopg.connect(dbname=database, **self._address, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._binaries / program), *arguments, "--pgdata", str(self._folder / "data")]
        process = subprocess.run(
            command,
            user=self._user,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # a server that is started keeps what it is given
            stderr=subprocess.DEVNULL,
            check=False,
        )
        log = self._folder / "log"
        log_text = log.read_text() if log.exists() else ""
        assert process.returncode == 0, f"{program} ended with {process.returncode}: {log_text}"

    def _end(self) -> None:
        if (self._folder / "data" / "postmaster.pid").exists():
            self._run("pg_ctl", "stop", "--wait", "--mode", "fast")
        shutil.rmtree(self._folder)
