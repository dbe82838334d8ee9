"""What can be wrong with a landed file."""

from headrace.errors import FixDataError


class UnreadableFileError(FixDataError):
    """An input file cannot be read. ``path`` is the file in its store, ``reason`` why in a few words, as it would stand
    in a dead letter."""

    code = "data.unreadable_file"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"file {path} cannot be read: {reason}. Land a corrected file under a new name and remove this one, "
            "or set on_unreadable=DEAD_LETTER on the source"
        )
        self.path, self.reason = path, reason


class FileColumnsError(UnreadableFileError):
    """A file lacks a column that it must have, or holds it in a type that is not that of the source's schema."""

    code = "data.file_columns"


class LargeFileError(FixDataError):
    """A text file is larger than what is read as one piece in this process."""

    code = "data.large_file"

    def __init__(self, path: str, size: int) -> None:
        super().__init__(
            f"file {path} holds {size} bytes of text, and the executor local reads at most 2 GB of one file: "
            "land it in several files, or run the pipeline with --executor spark"
        )
