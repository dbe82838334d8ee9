"""The session of Spark that lands stays as long as a run lasts: for all ranges, and for epochs that are Spark jobs."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from headrace.distribute.spark.connected_session import ConnectedSession


class KeptSession:
    """What is to end in this process once nothing lasts any more that may need the session."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._over = ExitStack()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """While this lasts, somewhere, sessions that are ``ended`` stay; then they end. Starts none itself."""
        with self._lock:
            self._users += 1
        try:
            yield
        except BaseException as error:
            try:
                self._leave()
            except Exception as left:
                error.add_note(f"the session did not end well: {left}")  # what ends the run may be why
            raise
        else:
            self._leave()

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                over, self._over = self._over, ExitStack()
                over.close()

    def ended(self, session: ConnectedSession) -> None:
        """Nobody needs ``session`` for now: it ends, unless sessions are kept."""
        with self._lock:
            if self._users:
                self._over.callback(session.stop)
                return
        session.stop()


SESSIONS: Final = KeptSession()
