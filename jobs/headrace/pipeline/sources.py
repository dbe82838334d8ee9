"""Sources of files: what runs, watchers, checks and unit tests know of one, whose records land as files."""

from enum import StrEnum
from typing import Any, ClassVar, Final

from headrace.entry_points import EntryPointGroup
from headrace.moved import moved
from headrace.pipeline import source
from headrace.pipeline.csv_dialect import CsvDialect

__getattr__ = moved(__name__)

FORMAT_NAMES: Final[EntryPointGroup[Any]] = EntryPointGroup("headrace.formats", "file format")
"""The formats of files; ``headrace.ext.formats`` has them with their type."""


class NameOrder(StrEnum):
    """In which order of their names files land: in any, so that a run looks at all names; or each behind those that
    landed before it.
    """

    ANY = "any"
    ORDERED = "ordered"


class FilesSource(source.Source):
    """A source of files below ``path`` in one ``format``, in a ``dialect`` if they are CSV that is written otherwise.

    Only names that end in one of ``suffixes`` are input, if any are given. ``names`` says in which order they land, and
    ``look_back`` how many of the newest are listed again where that is their order.
    """

    kind: ClassVar[str] = "files"

    path: str
    format: str
    names: NameOrder
    suffixes: tuple[str, ...]
    look_back: int
    dialect: CsvDialect | None

    @property
    def place(self) -> str:
        """The path."""
        return self.path

    @property
    def file_format(self) -> Any:
        """What reads its files, and writes those of late records, dead letters and unit tests: a ``FileFormat``."""
        form = FORMAT_NAMES[self.format]
        return form if self.dialect is None else form.in_dialect(self.dialect)

    @property
    def is_watched(self) -> bool:
        """A watcher lists the path."""
        return True

    def __str__(self) -> str:
        return f"{self.format} files under {self.path}"
