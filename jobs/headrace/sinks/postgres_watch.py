"""Give up a PostgreSQL server that stops answering in the middle of a delivery, and not one that works on a long
statement. The latter takes other connections meanwhile.
"""

import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import psycopg
from psycopg.errors import ConnectionTimeout

from headrace.errors import HeadraceError
from headrace.ext.sinks import SinkUnreachableError
from headrace.this_process import Size

LOOK_SECONDS: Final = Size(30.0)
"""How long a delivery lasts before somebody looks, and between two looks."""
LOOKS: Final = 3
"""So many in a row have no answer from a server that is given up."""

Server = psycopg.Connection


@contextmanager
def watch_servers(servers: Callable[[], Iterable[Server]], connect: Callable[[], Server], place: str) -> Iterator[None]:
    """Inside, a server that does not answer any more ends what is asked of it by the connections that ``servers`` gives
    then; ``connect`` makes another one. Raises SinkUnreachableError where it was given up.
    """
    is_over, was_given_up = threading.Event(), threading.Event()

    def watch_until_over() -> None:
        silent = 0
        while silent < LOOKS:
            if is_over.wait(LOOK_SECONDS.value):
                return
            silent = 0 if _is_answering(connect) else silent + 1
        was_given_up.set()
        for server in servers():
            _cut_connection(server)

    watcher = threading.Thread(target=watch_until_over, name="watch", daemon=True)
    watcher.start()
    try:
        yield
    except HeadraceError:
        raise
    except Exception:
        if not was_given_up.is_set():
            raise
        raise SinkUnreachableError(
            f"{place}: it stopped answering, and did not answer {LOOKS} more attempts to connect. Nothing was "
            "delivered; or all of it, if only the last answer was lost. The next delivery continues from there"
        ) from None
    finally:
        is_over.set()
        watcher.join()


def _cut_connection(server: Server) -> None:
    """End a connection, also while somebody waits for its answer."""
    with (
        suppress(psycopg.OperationalError),  # it has ended by itself
        socket.socket(fileno=os.dup(server.fileno())) as shared_socket,
    ):
        shared_socket.shutdown(socket.SHUT_RDWR)


def _is_answering(connect: Callable[[], Server]) -> bool:
    try:
        connect().close()
    except ConnectionTimeout:
        return False
    except psycopg.Error:  # an answer, too: it has too many connections, or is just starting
        return True
    return True
