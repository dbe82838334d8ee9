"""The rows that an audit looks at: a frame of Spark's, or a table in this process."""

from collections.abc import Sequence
from typing import Any, Protocol


class Frame(Protocol):
    """Rows that are scanned several times."""

    @property
    def columns(self) -> Sequence[str]: ...

    def count(self) -> int:
        """How many rows there are."""

    def persist(self) -> Any:
        """Hold them: they are scanned again."""

    def unpersist(self) -> Any:
        """Let them go."""
