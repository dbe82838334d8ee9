"""What Headrace asks of a format of landed files, and no more: adding one is a subclass and its name.

A format of another distribution is an entry point of ``headrace.formats``: an instance of ``FileFormat``, or of
``text_format.TextFormat`` if its records are lines of text. Files are read by many threads at once.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from headrace.model.expressions.fields import SourceFields
from headrace.pipeline.csv_dialect import CsvDialect
from headrace.sources.formats.scan import Scanned
from headrace.sources.formats.spans import Span
from headrace.sources.required_columns import Required


class FileFormat(ABC):
    """A format of landed files. ``name`` is what messages call it, ``suffix`` how names of its files end (".csv")."""

    name: ClassVar[str]
    suffix: ClassVar[str]
    has_header: ClassVar[bool] = False
    """Whether files begin with a header that says where columns are: records of two files are in one only if their
    headers are equal."""

    keeps_bytes: ClassVar[bool] = True
    """Whether a record that does not parse has bytes (``Scanned.raw``) that can land again in another file."""

    rules: ClassVar[int] = 0
    """The number of its rules. One that reads other records than it did has the next number, and still reads files by
    the older ones (``by_rules``): those that were read so before, in a replay.
    """

    def by_rules(self, rules: int) -> "FileFormat":
        """The format as it was with an older number of ``rules``."""
        raise NotImplementedError(f"{self.name} says that it has other rules since, and does not read by rules {rules}")

    def in_dialect(self, dialect: CsvDialect) -> "FileFormat":
        """The format of files that are written otherwise, for those that have dialects: CSV."""
        raise NotImplementedError(f"{self.name} has no dialects")

    @abstractmethod
    def read(self, data: bytes, fields: SourceFields, required: Required, path: str, span: Span) -> Scanned:
        """The records in the ``span`` of a file with the content ``data``, which is not empty: the columns that
        ``fields`` names. A format without objects has a field under its ``place``.

        A record that does not parse is one with a reason; nothing is guessed. Pieces together give what the whole file
        gives, positions included. Raises UnreadableFileError if it is not a whole file of this format,
        FileColumnsError for a column that is ``required`` and missing, or does not fit.
        """

    def is_divisible(self, path: str) -> bool:
        """Whether reading a piece of the file takes less work than reading all of it; if not, files are read whole."""
        return False

    def header(self, data: bytes, path: str) -> bytes:
        """The header of a file, for formats that have one. Raises UnreadableFileError."""
        raise NotImplementedError(f"{self.name} says that its files have a header, and does not read it")

    def stands_alone(self, record: bytes) -> bool:
        """Whether a file can hold others behind a ``record``, which is as ``Scanned.raw`` gave it."""
        return True

    @abstractmethod
    def copied(self, records: Sequence[bytes], fields: SourceFields, header: bytes | None) -> bytes:
        """The content of a file with ``records``, which are as ``Scanned.raw`` gave them and stand alone, and the
        header that they had: late records and dead letters that land again.
        """

    @abstractmethod
    def written(self, records: Sequence[Mapping[str, Any] | str], fields: SourceFields) -> bytes:
        """The content of a file with ``records``, as a unit test has them: values by column, timestamps as aware
        datetimes or as text; or a record as its text. Raises ValueError for what no file of this format can hold.
        """
