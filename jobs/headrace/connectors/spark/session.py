"""What code of users gets that reads or writes through Spark: a connection, and a session once it asks for one."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headrace.connections import Connection
from headrace.staying import Staying

if TYPE_CHECKING:
    from headrace.distribute.spark.types import SparkSession


@dataclass
class ConnectedSession:
    """A ``connection``, if one is named, and a session of Spark; ``purpose`` is in the name of a new one."""

    connection: Connection | None
    purpose: str = field(repr=False)
    _borrowed: "list[tuple[SparkSession, Callable[[], object]]]" = field(default_factory=list, repr=False)

    @property
    def spark(self) -> "SparkSession":
        """The session of this process, or a new one, which ends with ``stop``. Raises what ``spark_session`` raises."""
        if not self._borrowed:
            from headrace.distribute.spark.session import borrowed_session

            self._borrowed.append(borrowed_session(self.purpose))
        session, _ = self._borrowed[0]
        return session

    def leave(self) -> None:
        """Nobody needs the session for now: it ends, or stays as long as ``SESSIONS`` are kept."""
        with SESSIONS.entered() as over:
            if over is not None:
                over.callback(self.stop)
                return
        self.stop()

    def stop(self) -> None:
        """End the session, if it was started here."""
        while self._borrowed:
            _, end = self._borrowed.pop()
            end()


SESSIONS: Final = Staying()
"""A session that lands stays as long as a run lasts: for all ranges, and for epochs that are Spark jobs."""
