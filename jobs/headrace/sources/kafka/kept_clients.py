"""Clients that stay connected as long as something lasts which asks a cluster often: a run, a task."""

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from headrace.connections import Connection

if TYPE_CHECKING:  # which what reads landed files does without
    from headrace.sources.kafka.client import KafkaClient


class KeptClients:
    """The clients of this process, one for each connection, for all of its threads."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        """Know no client: also in a process that was forked, where those of the other one have no thread."""
        self._lock = threading.Lock()
        self._users = 0
        self._clients: list[tuple[Connection, KafkaClient]] = []
        self._open = ExitStack()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """While this lasts, somewhere, clients stay; then they are closed. Nothing is connected before it is asked."""
        with self._lock:
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    over, self._open, self._clients = self._open, ExitStack(), []
                    over.close()

    @contextmanager
    def client(self, connection: Connection) -> "Iterator[KafkaClient]":
        """A client of ``connection``: the one that is kept, or one of its own. Raises what KafkaClient raises."""
        from headrace.sources.kafka.client import KafkaClient

        kept = self._kept(connection)
        if kept is not None:
            yield kept
            return
        with KafkaClient(connection) as client:
            yield client

    def _kept(self, connection: Connection) -> "KafkaClient | None":
        from headrace.sources.kafka.client import KafkaClient

        with self._lock:
            if not self._users:
                return None
            for known, client in self._clients:
                if known == connection:
                    return client
            client = self._open.enter_context(KafkaClient(connection))
            self._clients.append((connection, client))
            return client


CLIENTS: Final = KeptClients()
os.register_at_fork(after_in_child=CLIENTS._begin)
