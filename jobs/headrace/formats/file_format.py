"""What Headrace asks of a format of landed files, and no more: adding one is a subclass and its name.

A format of another distribution is an entry point of ``headrace.formats``: an instance of ``FileFormat``, or of
``text_format.TextFormat`` if its records are lines of text. Files are read by many threads at once.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.formats.required import RequiredColumns
from headrace.formats.scan import WHOLE_FILE, ScannedRecords, Span, nothing
from headrace.model.expressions.fields import SourceFields
from headrace.pipeline.csv_dialect import CsvDialect

if TYPE_CHECKING:
    from headrace.pipeline.sources import FileSource


class FileFormat(ABC):
    """A format of landed files. ``name`` is what messages call it, ``suffix`` how names of its files end (".csv")."""

    name: ClassVar[str]
    suffix: ClassVar[str]
    has_header: ClassVar[bool] = False
    """Whether files begin with a header that says where columns are: records of two files are in one only if their
    headers are equal."""

    keeps_bytes: ClassVar[bool] = True
    """Whether a record that does not parse has bytes (``ScannedRecords.raw``) that can land again in another file."""

    rules: ClassVar[int] = 0
    """The number of its rules. One that reads other records than it did has the next number, and still reads files by
    the older ones (``by_rules``): those that were read so before, in a replay.
    """

    def by_rules(self, rules: int) -> "FileFormat":
        """Give the format as it was with older rules.

        :param rules: their number.
        :returns: a format that reads as this one did then.
        :raises NotImplementedError: it never had others, as by default.
        """
        raise NotImplementedError(f"{self.name} says that it has other rules since, and does not read by rules {rules}")

    def in_dialect(self, dialect: CsvDialect) -> "FileFormat":
        """Give the format of files that are written otherwise, for those that have dialects: CSV.

        :param dialect: how they are written.
        :returns: a format that reads them.
        :raises NotImplementedError: it has none, as by default.
        """
        raise NotImplementedError(f"{self.name} has no dialects")

    @abstractmethod
    def read(
        self, data: bytes, fields: SourceFields, required: RequiredColumns, path: str, span: Span
    ) -> ScannedRecords:
        """Read the records in a part of a file. A record that does not parse is one with a reason; nothing is guessed.

        :param data: the whole content of the file, which is not empty.
        :param fields: the columns that are wanted, and where each is in a record: a format without objects has a field
            under its ``place``.
        :param required: the columns that must be there, to be held with ``required.check`` against what is there.
        :param path: the name of the file, for errors.
        :param span: the part. All parts together give what the whole file gives, positions included.
        :returns: the records.
        :raises UnreadableFileError: it is not a whole file of this format.
        :raises FileColumnsError: it lacks what is required, or a column does not fit.
        """

    def is_divisible(self, path: str) -> bool:
        """Ask whether reading a part of a file takes less work than reading all of it. It raises nothing.

        :param path: the name of the file.
        :returns: by default False: files are read whole.
        """
        return False

    def header(self, data: bytes, path: str) -> bytes:
        """Give the header of a file, for formats that have one.

        :param data: the whole content of the file.
        :param path: its name, for errors.
        :returns: the header as it stands there.
        :raises UnreadableFileError: it has none.
        """
        raise NotImplementedError(f"{self.name} says that its files have a header, and does not read it")

    def stands_alone(self, record: bytes) -> bool:
        """Ask whether a file can hold others behind a record. It raises nothing.

        :param record: its bytes, as ``ScannedRecords.raw`` gave them.
        :returns: by default True.
        """
        return True

    @abstractmethod
    def copied(self, records: Sequence[bytes], fields: SourceFields, header: bytes | None) -> bytes:
        """Write late records and dead letters that land again. It raises nothing.

        :param records: their bytes, as ``ScannedRecords.raw`` gave them; each stands alone.
        :param fields: the columns of the source.
        :param header: the header that they had; None: the format has none.
        :returns: the content of a file with them.
        """

    @abstractmethod
    def written(self, records: Sequence[Mapping[str, Any] | str], fields: SourceFields) -> bytes:
        """Write records of a unit test.

        :param records: values by column, timestamps as aware datetimes or as text; or a record as its text.
        :param fields: the columns of the source.
        :returns: the content of a file with them.
        :raises ValueError: no file of this format can hold one.
        """


def read_file(
    data: bytes,
    source: "FileSource",
    required: RequiredColumns,
    path: str,
    span: Span = WHOLE_FILE,
    *,
    rules: int | None = None,
) -> ScannedRecords:
    """The records in the ``span`` of a file with the content ``data``, which must have what is ``required``. ``rules``:
    the number of those by which it was read before.

    Raises UnreadableFileError if it is not a whole file of its format, FileColumnsError for a column that is missing or
    does not fit, LargeFileError for more text than MOST_BYTES.
    """
    form = source.file_format
    if rules is not None and rules < form.rules:
        form = form.by_rules(rules)
    return form.read(data, source.fields, required, path, span) if data else nothing(source.fields)
