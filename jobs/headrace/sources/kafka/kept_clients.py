"""Clients that stay connected as long as something lasts which asks a cluster often: a run, a task."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from headrace.connections import Connection
from headrace.staying import Staying

if TYPE_CHECKING:  # which what reads landed files does without
    from headrace.sources.kafka.client import KafkaClient


class KeptClients:
    """The clients of this process, one for each connection, for all of its threads."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        """Know no client: also in a process that was forked, where those of the other one have no thread."""
        self._staying = Staying()
        self._clients: list[tuple[Connection, KafkaClient]] = []

    def kept(self) -> AbstractContextManager[None]:
        """While this lasts, somewhere, clients stay; then they are closed. Nothing is connected before it is asked."""
        return self._staying.kept()

    @contextmanager
    def client(self, connection: Connection) -> "Iterator[KafkaClient]":
        """A client of ``connection``: the one that is kept, or one of its own. Raises what KafkaClient raises."""
        from headrace.sources.kafka.client import KafkaClient

        with self._staying.entered() as over:
            kept = None if over is None else self._known(connection) or self._entered(over, connection)
        if kept is not None:
            yield kept
            return
        with KafkaClient(connection) as client:
            yield client

    def _known(self, connection: Connection) -> "KafkaClient | None":
        return next((client for known, client in self._clients if known == connection), None)

    def _entered(self, over: ExitStack, connection: Connection) -> "KafkaClient":
        from headrace.sources.kafka.client import KafkaClient

        client = over.enter_context(KafkaClient(connection))
        self._clients.append((connection, client))
        over.callback(self._clients.remove, (connection, client))
        return client


CLIENTS: Final = KeptClients()
os.register_at_fork(after_in_child=CLIENTS._begin)
