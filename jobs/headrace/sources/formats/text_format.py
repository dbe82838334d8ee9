"""Formats of text, whose records are lines: decompressed and cut here, so that one bad line never fails a block."""

from abc import abstractmethod
from collections.abc import Sequence

from headrace.model.expressions.fields import SourceFields
from headrace.sources.formats.compression import is_packed_by_name, unpacked, unpacked_by_name
from headrace.sources.formats.errors import LargeFileError, UnreadableFileError
from headrace.sources.formats.file_format import FileFormat
from headrace.sources.formats.lines import LINES, TextLines, bounds, cut, first_line
from headrace.sources.formats.scan import Scanned, nothing
from headrace.sources.formats.spans import WHOLE_FILE, Span
from headrace.sources.formats.text_layout import TextLayout
from headrace.sources.required_columns import Required
from headrace_snapshots.layout import relanded

MOST_BYTES = 2**31 - 16
"""How much text is cut into lines as one piece: offsets of Arrow's strings have 32 bits."""


class TextFormat(FileFormat):
    """A format whose records are lines of UTF-8, compressed or not, whatever the file is called. The header, if files
    have one, is the first line that is not blank. A file of records that landed again is never refused for its records:
    those that are none stay dead letters.
    """

    @property
    def layout(self) -> TextLayout:
        """How lines are told apart."""
        return LINES

    @property
    def is_as_before(self) -> bool:
        """Whether files are read as up to 0.1.2: names say what is compressed, timestamps are ISO 8601 alone, and lines
        are all that a file is looked at for.
        """
        return False

    @abstractmethod
    def read_lines(
        self, lines: TextLines, header: bytes | None, fields: SourceFields, required: Required, path: str
    ) -> Scanned:
        """``lines`` as records of ``fields``. With a ``header`` those that equal it are no records; it may be among
        them. Raises UnreadableFileError for a header that is none, and FileColumnsError.
        """

    def read(self, data: bytes, fields: SourceFields, required: Required, path: str, span: Span) -> Scanned:
        """The records in the lines of ``span``. Raises LargeFileError for more text than MOST_BYTES, too."""
        text = self.unpacked(data, path)
        if text is not data and not span.is_whole:  # its name did not say so: the first piece has all of it
            if span.first:
                return nothing(fields)
            span = WHOLE_FILE
        text = self.layout.whole(text, path)
        begin, end = bounds(text, span, self.layout)
        if end - begin > MOST_BYTES:
            raise LargeFileError(path, end - begin)
        lines = cut(text, (begin, end), self.layout)
        first = lines.first(1) if span.first == 0 and len(lines) else first_line(text, self.layout)
        is_judged = not self.is_as_before and relanded(path) is None  # whose records were judged one by one
        if is_judged:
            self.check_lines(lines, first, path)
        if not self.has_header:
            return self.read_lines(lines, None, fields, required, path) if len(lines) else nothing(fields)
        if not len(first):
            return nothing(fields)
        records = self.read_lines(lines, _line(first), fields, required, path)
        if is_judged:
            self.check_beginning(text, _line(first), fields, path)
        return records

    def unpacked(self, data: bytes, path: str) -> bytes:
        """The text in a file. Raises UnreadableFileError."""
        return unpacked_by_name(data, path) if self.is_as_before else unpacked(data, path)

    def check_lines(self, lines: TextLines, first: TextLines, path: str) -> None:
        """Raise UnreadableFileError if ``lines`` of a file, whose ``first`` line that is not blank is given too, are
        not records of this format, each at most one.
        """

    def check_beginning(self, text: bytes, header: bytes, fields: SourceFields, path: str) -> None:
        """Raise UnreadableFileError if the beginning of a file whose ``header`` is right says that it is written in
        another way. Each piece of it is asked, and has the same answer.
        """

    def is_divisible(self, path: str) -> bool:
        """Whether its name does not say that it is compressed, and pieces can be cut before they are decoded."""
        return self.layout.is_divisible and not is_packed_by_name(path)

    def header(self, data: bytes, path: str) -> bytes:
        """The first line that is not blank. Raises UnreadableFileError."""
        lines = first_line(self.layout.whole(self.unpacked(data, path), path), self.layout)
        if not len(lines):
            raise UnreadableFileError(path, "it has no header")
        return _line(lines)

    def copied(self, records: Sequence[bytes], fields: SourceFields, header: bytes | None) -> bytes:
        """The lines as they were."""
        lines = records if header is None else [header, *records]
        return self.layout.stored(b"".join(line + b"\n" for line in lines))


def _line(lines: TextLines) -> bytes:
    line: bytes = lines.text[0].as_py()
    return line
