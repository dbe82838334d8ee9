"""A source through Spark for tests: the Parquet files of a folder, each a range, by their names."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar


class Folder:
    """The folder of the connection."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.folder = Path("/" + session.connection.database)

    def ends(self, begin: str | None) -> Iterator[str]:
        return (name for name in self.names if begin is None or name > begin)

    def read(self, begin: str | None, end: str) -> Any:
        names = [name for name in self.names if (begin is None or name > begin) and name <= end]
        return self.session.spark.read.parquet(*[f"file://{self.folder / name}" for name in names])

    @property
    def names(self) -> list[str]:
        return sorted(file.name for file in self.folder.iterdir())


class FolderAsTold(Folder):
    """A folder whose ``ends`` and ``read`` a test may say otherwise, as code of a user would have it."""

    said_ends: ClassVar[Callable[["FolderAsTold", str | None], Any] | None] = None
    said_read: ClassVar[Callable[["FolderAsTold", str | None, str], Any] | None] = None

    def ends(self, begin: str | None) -> Any:
        answer = type(self).said_ends
        return super().ends(begin) if answer is None else answer(self, begin)

    def read(self, begin: str | None, end: str) -> Any:
        answer = type(self).said_read
        return super().read(begin, end) if answer is None else answer(self, begin, end)


class WithoutRead:
    """Half of what is asked."""

    def __init__(self, session: Any) -> None:
        self.session = session

    def ends(self, begin: str | None) -> list[str]:
        return ["1"]
