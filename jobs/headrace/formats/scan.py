"""What reading a part of a file gives, before anybody judges it: its records as columns of the source's schema."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.kernel.grouping import Ints
from headrace.kernel.types import arrow_type
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.fields import SourceField, SourceFields
from headrace.model.expressions.value_types import ListType, in_words

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
    those records that it is asked for. ``lacks``: columns that no record has though something reads them, each with the
    name in the file that is most like it, or None (of JSON; other formats say so at once). None if no record parses.
    ``has_text``: whether those bytes are text.
    """

    columns: Mapping[str, pa.Array]
    unparsed: pa.Array
    position: Ints
    raw: Callable[[Ints], pa.Array]
    lacks: Mapping[str, str | None] | None = None
    has_text: bool = True

    def __len__(self) -> int:
        return len(self.position)


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
    return f"column {field.named(name)}: not {f'a {in_words(kind)}' if isinstance(kind, ListType) else NOUNS[kind]}"


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
        return self._line(data, self.first), self._line(data, self.after)

    def _line(self, data: bytes, number: int) -> int:
        at = len(data) * number // self.of
        if at in {0, len(data)}:
            return at
        return data.find(b"\n", at - 1) + 1 or len(data)


WHOLE_FILE = Span()
