"""What stays in this process as long as something lasts that needs it often (a run, a task): connections, sessions."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


class Staying:
    """What is to end once nothing lasts any more that may need it. For all threads of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._over = ExitStack()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """While this lasts, somewhere, what was ``entered`` stays; then it ends. Begins nothing itself."""
        with self._lock:
            self._users += 1
        try:
            yield
        except BaseException as error:
            try:
                self._leave()
            except Exception as left:
                error.add_note(f"and it did not end well: {left}")  # what ends the run may be why
            raise
        else:
            self._leave()

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                over, self._over = self._over, ExitStack()
                over.close()

    @contextmanager
    def entered(self) -> Iterator[ExitStack | None]:
        """What ends with the last that lasts; None where nothing does. One thread at a time is in here."""
        with self._lock:
            yield self._over if self._users else None
