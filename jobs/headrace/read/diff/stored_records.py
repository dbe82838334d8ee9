"""Records as a target that appends has them, ours and those of others."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

RECORD_PLACE: Final = "_headrace_place"
"""The column of the part of a target in which a record stands, such as a partition, as a number."""

RECORD_AT: Final = "_headrace_at"
"""The column of where a record stands in its part: what is behind it has come later."""

RECORD_MISREAD: Final = "_headrace_misread"
"""The column of whether a record is none, or has a value that is none of its column's type."""


@dataclass(frozen=True)
class StoredRecords:
    """``batches`` have the number of each record, its sign, and the columns that were asked for: of their types, or as
    text. They have RECORD_PLACE, RECORD_AT and RECORD_MISREAD, too, or the target has one part, which is in the order
    of numbers.

    ``begins``: the parts whose first records are gone, each with where it begins now. ``is_compacted``: of the records
    of a key perhaps only the newest is kept.
    """

    batches: "pa.RecordBatchReader"
    begins: Mapping[int, int] = field(default_factory=dict)
    is_compacted: bool = False
