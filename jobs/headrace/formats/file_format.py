"""What Headrace asks of a format of landed files, and no more: it finds spans of a file, and scans records from them.

A format is a subclass of ``FileFormat``, or of ``formats.lines.TextFormat`` if its records are lines of text. One of
another distribution is an entry point of ``headrace.formats``. Files are read by many threads at once. What is read
(``ScannedRecords``) are columns of the source's schema, before anybody judges them.

``RequiredColumns`` are those that a file must have. A column that something reads is one, unless the source takes a
missing column for NULL. A column without which every record would be a dead letter always is. What can be wrong with a
file is an error of its own.
"""

import difflib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from headrace.errors import FixDataError
from headrace.kernel.columns import Ints, arrow_type
from headrace.model.expressions.columns import SourceField, SourceFields
from headrace.model.expressions.data_types import DataType, MapType, NestedType, in_words
from headrace.model.expressions.expr import Binary, Expr, Function
from headrace.model.expressions.typing import columns_of
from headrace.pipeline.sources import CsvDialect

if TYPE_CHECKING:
    from headrace.pipeline.sources import FilesSource


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
    """A CSV file is written in another way than it is read. Its header names columns of the source only if it is read
    otherwise; or its first records show it.
    """

    what_to_do = (
        "Options of csv(...) say how files are written: delimiter, quote, escape, encoding, skip_lines; "
        "or set on_unreadable=DEAD_LETTER on the source"
    )


class LargeFileError(FixDataError, code="data.large_file"):
    """A text file that cannot be read in pieces holds more than one piece can."""

    def __init__(self, path: str, size: int) -> None:
        super().__init__(
            f"file {path} holds {size} bytes of text, and at most 2 GB of a compressed file can be read. Land it in "
            "several files, or uncompressed"
        )


NOT_UTF8 = "not UTF-8"

NO_VALUE = "no value"
"""Why a message without a value does not parse: a tombstone."""

NOUNS = {
    DataType.STRING: "a string",
    DataType.INT: "an int",
    DataType.FLOAT: "a float",
    DataType.BOOL: "a bool",
    DataType.TIMESTAMP: "a timestamp",
    DataType.DATE: "a date",
    DataType.BYTES: "base64",
    DataType.DECIMAL: "a decimal",
}
"""What a value is that fits a column."""


@dataclass(frozen=True)
class ScannedRecords:
    """Records of one file, in order. ``unparsed`` says why a record does not parse (its columns are NULL then), NULL if
    it does; ``position`` is the number of its line (row, in Parquet) in the file, from 0. ``raw`` gives the bytes of
    those records that it is asked for. ``lacks`` has columns that no record has though something reads them, each with
    the most similar name in the file, or None. Only JSON has them; other formats say so at once. It is None if no
    record parses. ``has_text``: whether those bytes are text.
    """

    columns: Mapping[str, pa.Array]
    unparsed: pa.Array
    position: Ints
    raw: Callable[[Ints], pa.Array]
    lacks: Mapping[str, str | None] | None = None
    has_text: bool = True

    def __len__(self) -> int:
        return len(self.position)

    def take_rows(self, rows: Ints) -> "ScannedRecords":
        """Take some of these, in the order of ``rows``. It raises nothing.

        :param rows: their numbers.
        :returns: the records.
        """
        indices = pa.array(rows)
        return replace(
            self,
            columns={name: values.take(indices) for name, values in self.columns.items()},
            unparsed=self.unparsed.take(indices),
            position=self.position[rows],
            raw=lambda places: self.raw(rows[places]),
        )


@dataclass(frozen=True)
class ScannedFiles:
    """Records of several whole files, one file behind the other. ``lengths``: how many each file has. ``lacks``: what
    ``ScannedRecords.lacks`` says of each alone. A file that is ``unreadable``, by its number, has no record here.
    """

    records: ScannedRecords
    lengths: Ints
    lacks: tuple[Mapping[str, str | None] | None, ...]
    unreadable: Mapping[int, UnreadableFileError] = field(default_factory=dict)


def _one_below_the_other(parts: Sequence[ScannedRecords]) -> ScannedRecords:
    """The records of several files, of which at least one is asked for."""
    nonempty = [part for part in parts if len(part)] or parts[:1]
    starts = np.cumsum([0, *(len(part) for part in nonempty)])[:-1]

    def raw_records(rows: Ints) -> pa.Array:
        part = np.searchsorted(starts, rows, "right") - 1
        texts = [nonempty[number].raw(rows[part == number] - starts[number]) for number in np.unique(part).tolist()]
        # where each stands in what the parts give one after the other
        place = np.argsort(np.argsort(part, kind="stable"), kind="stable")
        return pa.concat_arrays(texts).take(pa.array(place)) if texts else pa.nulls(0, pa.binary())

    return ScannedRecords(
        {name: pa.concat_arrays([part.columns[name] for part in nonempty]) for name in nonempty[0].columns},
        pa.concat_arrays([part.unparsed for part in nonempty]),
        np.concatenate([part.position for part in nonempty]),
        raw_records,
        has_text=nonempty[0].has_text,
    )


def join_scanned_files(parts: Sequence[tuple[Sequence[int], ScannedFiles]]) -> ScannedFiles:
    """Files that were read in several ``parts``, one at least, in the order of their numbers, which each part says."""
    numbers = np.concatenate([np.array(own, np.int64) for own, _ in parts])
    own_lengths = np.concatenate([part.lengths for _, part in parts])
    lengths = own_lengths[np.argsort(numbers)]
    records = _one_below_the_other([part.records for _, part in parts])
    if (np.diff(numbers) < 0).any():
        records = records.take_rows(np.argsort(np.repeat(numbers, own_lengths), kind="stable"))
    lacks: list[Mapping[str, str | None] | None] = [None] * len(numbers)
    unreadable: dict[int, UnreadableFileError] = {}
    for own, part in parts:
        for number, lacking in zip(own, part.lacks, strict=True):
            lacks[number] = lacking
        unreadable |= {own[place]: error for place, error in part.unreadable.items()}
    return ScannedFiles(records, lengths, tuple(lacks), unreadable)


def nothing(fields: SourceFields) -> ScannedRecords:
    """Give no record. It raises nothing.

    :param fields: the columns of the source.
    :returns: columns of their types, without a value.
    """
    columns = {name: pa.nulls(0, arrow_type(field.type)) for name, field in fields.items()}
    return ScannedRecords(columns, pa.nulls(0, pa.string()), np.zeros(0, np.int64), lambda _: pa.nulls(0, pa.binary()))


def misfit(name: str, field: SourceField) -> str:
    """Say why a record whose column holds something else is a dead letter. It raises nothing.

    :param name: the column.
    :param field: where it is in a record, and what it should hold.
    :returns: the reason, for ``ScannedRecords.unparsed``.
    """
    kind = field.type
    each_key_once = " that has each key once" if isinstance(kind, MapType) else ""
    what = f"a {in_words(kind)}{each_key_once}" if isinstance(kind, NestedType) else NOUNS[kind]
    return f"column {field.named(name)}: not {what}"


@dataclass(frozen=True)
class Span:
    """A part of a file: pieces ``first`` to before ``after``, of ``of`` pieces of nearly one size."""

    first: int = 0
    after: int = 1
    of: int = 1

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole file. It raises nothing.

        :returns: True if nothing is left out.
        """
        return self.after - self.first == self.of

    def bounds(self, length: int) -> tuple[int, int]:
        """Find a part of something that is counted. It raises nothing.

        :param length: how long all of it is: bytes, or rows.
        :returns: where the part begins and ends.
        """
        return length * self.first // self.of, length * self.after // self.of

    def lines(self, data: bytes) -> tuple[int, int]:
        """Find the lines of a part: parts end after the first newline at or after their share. It raises nothing.

        :param data: the whole text.
        :returns: where the lines begin and end in it.
        """
        return self._line_start(data, self.first), self._line_start(data, self.after)

    def _line_start(self, data: bytes, number: int) -> int:
        place = len(data) * number // self.of
        if place in {0, len(data)}:
            return place
        # from the byte before on: a newline there says that a line begins just here
        return data.find(b"\n", place - 1) + 1 or len(data)


WHOLE_FILE = Span()


@dataclass(frozen=True)
class RequiredColumns:
    """What a file of an input must have. ``identities``: expressions that must not be NULL for want of a column, by
    purpose ("event time"). ``columns``: those that must be there, and what reads them. ``fields`` of the source: where
    its columns are in a file, if not under their own names.
    """

    identities: Mapping[str, Expr] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    fields: SourceFields = field(default_factory=dict)

    def check(self, names: Sequence[str], filled: Collection[str], path: str, where: str) -> None:
        """Hold a file to the columns that must be there.

        :param names: the places of the columns that it has.
        :param filled: the columns of the source of which it has values.
        :param path: the name of the file, for errors.
        :param where: what says which columns it has: "header", "schema".
        :raises FileColumnsError: it lacks one.
        """
        for purpose, expr in self.identities.items():
            missing = sorted(nulling_columns(expr) - {*filled})
            if missing:
                why = f"without which every record has no {purpose}"
                raise FileColumnsError(path, f"its {where} lacks {self._describe_missing(missing[0], why, names)}")
        for name, reader in self.columns.items():
            if self._column_place(name) not in names:
                why = f"which {reader} reads"
                raise MissingColumnError(path, f"its {where} lacks {self._describe_missing(name, why, names)}")

    def _column_place(self, name: str) -> str:
        return self.fields[name].place if name in self.fields else name

    def _describe_missing(self, name: str, why: str, names: Sequence[str]) -> str:
        place = self._column_place(name)
        column = f"column {place}" if place == name else f"column {place} ({name} in the source)"
        suggestion = "; it is there, and of type null" if place in names else _name_suggestion(place, names)
        return f"{column}, {why}{suggestion}"


def nearest_name(name: str, names: Collection[str]) -> str | None:
    """Which of ``names`` is most like ``name``; None if none is."""
    candidates = {candidate.casefold(): candidate for candidate in names}
    close = difflib.get_close_matches(name.casefold(), candidates, 1)
    return candidates[close[0]] if close else None


def _name_suggestion(name: str, names: Collection[str]) -> str:
    nearest = nearest_name(name, names)
    return "" if nearest is None else f"; it has {nearest!r}, which is spelled much like it"


def nulling_columns(expr: Expr) -> frozenset[str]:
    """Columns whose NULL alone makes ``expr`` NULL: ``a + b`` needs both, ``coalesce(a, b)`` needs neither."""
    match expr:
        case Binary("and" | "or", _, _) | Function("is_null", _):
            return frozenset()
        case Function("coalesce" | "least" | "greatest", args) | Function("if", (_, *args)):
            return frozenset.intersection(*(nulling_columns(arg) for arg in args))
        case Function(_, args):
            return frozenset().union(*(nulling_columns(arg) for arg in args))
        case Binary(_, left, right):
            return nulling_columns(left) | nulling_columns(right)
    return columns_of(expr)


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
    """The number of its rules. A format that changes which records it reads has the next number. It still reads files
    by older rules (``by_rules``): in a replay, those that were read so before.
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

    def read_together(
        self, files: Sequence[tuple[str, bytes]], fields: SourceFields, required: RequiredColumns
    ) -> ScannedFiles:
        """Read several small files. By default one after the other; a format may do it at once. It raises nothing.

        :param files: name and whole content of each.
        :param fields: the columns that are wanted, as ``read`` takes them.
        :param required: the columns that must be there.
        :returns: what ``read`` gives of each, and why it cannot.
        """
        parts: list[ScannedRecords] = []
        unreadable: dict[int, UnreadableFileError] = {}
        for number, (path, data) in enumerate(files):
            part = nothing(fields)
            try:
                part = self.read(data, fields, required, path, WHOLE_FILE) if data else part
            except UnreadableFileError as error:
                unreadable[number] = error
            parts.append(part)
        lengths = np.array([len(part) for part in parts], np.int64)
        return ScannedFiles(_one_below_the_other(parts), lengths, tuple(part.lacks for part in parts), unreadable)

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
    source: "FilesSource",
    required: RequiredColumns,
    path: str,
    span: Span = WHOLE_FILE,
    *,
    rules: int | None = None,
) -> ScannedRecords:
    """Read records of a file, as a run does.

    :param data: its whole content.
    :param source: the files that it is one of: its format, and columns.
    :param required: what must be there.
    :param path: what errors call it.
    :param span: the part to read.
    :param rules: the number of those by which it was read before; None: the newest.
    :returns: its records; none of a file that is empty.
    :raises UnreadableFileError: it is not a whole file of its format.
    :raises FileColumnsError: a column is missing or does not fit.
    :raises LargeFileError: it has more text than MOST_BYTES.
    """
    form = source.file_format
    if rules is not None and rules < form.rules:
        form = form.by_rules(rules)
    return form.read(data, source.fields, required, path, span) if data else nothing(source.fields)
