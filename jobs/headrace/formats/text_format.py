"""Formats of text, whose records are lines: decompressed and cut here, so that one bad line never fails a block."""

from abc import abstractmethod
from collections.abc import Sequence

from headrace.formats.compression import is_packed_by_name, unpacked, unpacked_by_name
from headrace.formats.errors import LargeFileError, UnreadableFileError
from headrace.formats.file_format import WHOLE_FILE, FileFormat, RequiredColumns, ScannedRecords, Span, nothing
from headrace.formats.lines import LINES, TextLayout, TextLines, bounds, cut, first_line
from headrace.model.expressions.columns import SourceFields
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
        """How lines are told apart. It raises nothing.

        :returns: by default lines of UTF-8 without quotes.
        """
        return LINES

    @property
    def is_as_before(self) -> bool:
        """Whether files are read as up to 0.1.2: names say what is compressed, timestamps are ISO 8601 alone, and lines
        are all that a file is looked at for.
        """
        return False

    @abstractmethod
    def read_lines(
        self, lines: TextLines, header: bytes | None, fields: SourceFields, required: RequiredColumns, path: str
    ) -> ScannedRecords:
        """Make records of lines.

        :param lines: the lines of a part of a file. Those that equal a header are no records; it may be among them.
        :param header: the first line of the file that is not blank; None: the format has no header.
        :param fields: the columns that are wanted, and where each is in a record.
        :param required: the columns that must be there.
        :param path: the name of the file, for errors.
        :returns: the records.
        :raises UnreadableFileError: the header is none.
        :raises FileColumnsError: the file lacks what is required.
        """

    def read(
        self, data: bytes, fields: SourceFields, required: RequiredColumns, path: str, span: Span
    ) -> ScannedRecords:
        """Take a file out of its compression, cut the lines of a part, and make records of them.

        :param data: the whole content of the file.
        :param fields: the columns that are wanted.
        :param required: the columns that must be there.
        :param path: the name of the file, for errors.
        :param span: the part.
        :returns: the records.
        :raises UnreadableFileError: it is not a whole file of this format.
        :raises FileColumnsError: it lacks what is required.
        :raises LargeFileError: there are more than 2 GB of text.
        """
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
        """Take a file out of its compression.

        :param data: the whole content of the file.
        :param path: its name, for errors.
        :returns: the text in it.
        :raises UnreadableFileError: it is damaged.
        """
        return unpacked_by_name(data, path) if self.is_as_before else unpacked(data, path)

    def check_lines(self, lines: TextLines, first: TextLines, path: str) -> None:
        """Look whether lines can be records of this format, each at most one; by default they can.

        :param lines: the lines of a part of a file.
        :param first: its first line that is not blank.
        :param path: the name of the file, for errors.
        :raises UnreadableFileError: they cannot.
        """

    def check_beginning(self, text: bytes, header: bytes, fields: SourceFields, path: str) -> None:
        """Look whether the beginning of a file whose header is right says that it is written in another way; by default
        it does not. Each part of the file is asked, and has the same answer.

        :param text: the whole text of the file.
        :param header: its header.
        :param fields: the columns that are wanted.
        :param path: the name of the file, for errors.
        :raises UnreadableFileError: it is written in another way.
        """

    def is_divisible(self, path: str) -> bool:
        """Ask whether a name does not say that its file is compressed, and lines can be cut before they are decoded. It
        raises nothing.

        :param path: the name of the file.
        :returns: whether parts can be read.
        """
        return self.layout.is_divisible and not is_packed_by_name(path)

    def header(self, data: bytes, path: str) -> bytes:
        """Give the first line that is not blank.

        :param data: the whole content of the file.
        :param path: its name, for errors.
        :returns: the line without its break.
        :raises UnreadableFileError: there is none.
        """
        lines = first_line(self.layout.whole(self.unpacked(data, path), path), self.layout)
        if not len(lines):
            raise UnreadableFileError(path, "it has no header")
        return _line(lines)

    def copied(self, records: Sequence[bytes], fields: SourceFields, header: bytes | None) -> bytes:
        """Write lines as they were. It raises nothing.

        :param records: the lines.
        :param fields: the columns of the source.
        :param header: the header that they had.
        :returns: the content of a file with them.
        """
        lines = records if header is None else [header, *records]
        return self.layout.stored(b"".join(line + b"\n" for line in lines))


def _line(lines: TextLines) -> bytes:
    line: bytes = lines.text[0].as_py()
    return line
