"""What can be wrong with a landed file."""

from typing import ClassVar

from headrace.errors import FixDataError


class UnreadableFileError(FixDataError, code="data.unreadable_file"):
    """An input file cannot be read. ``path`` is the file in its store, ``reason`` why in a few words, as it would stand
    in a dead letter."""

    what_to_do: ClassVar[str] = (
        "Land a corrected file under a new name and remove this one, or set on_unreadable=DEAD_LETTER on the source"
    )

    path: str
    reason: str

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"file {path} cannot be read: {reason}. {self.what_to_do}")
        self.path, self.reason = path, reason


class DividedFileError(FixDataError, code="data.divided_file"):
    """A piece of a file cannot be read: the file has to be read as a whole to say whether it can."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"a piece of file {path} cannot be read: {reason}")


class FileColumnsError(UnreadableFileError, code="data.file_columns"):
    """A file lacks a column that it must have, or holds it in a type that is not that of the source's schema."""


class MissingColumnError(FileColumnsError, code="data.missing_column"):
    """The header of a CSV file, or the schema of a Parquet file, lacks a column that the pipeline reads."""

    what_to_do = (
        "Correct the name in the schema of the source; or land a corrected file under a new name and remove this one; "
        'or, if files may lack the column, write missing="null" in the source: it is NULL in such files then'
    )


class DialectError(FileColumnsError, code="data.csv_dialect"):
    """A CSV file is written in another way than it is read: by its header, which names columns of the source otherwise
    and none as it is, or by its first records.
    """

    what_to_do = (
        "Options of csv(...) say how files are written: delimiter, quote, escape, encoding, skip_lines; "
        "or set on_unreadable=DEAD_LETTER on the source"
    )


class LargeFileError(FixDataError, code="data.large_file"):
    """A text file that cannot be read in pieces holds more than one piece can."""

    def __init__(self, path: str, size: int) -> None:
        super().__init__(
            f"file {path} holds {size} bytes of text, and at most 2 GB of a compressed file can be read: land it in "
            "several files, or uncompressed"
        )
