"""What is measured of the rows that an audit looks at: the same figures of a table in this process and of a frame of
Spark's.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from headrace.audit.frames import Frame
from headrace.audit.shown_rows import FAILING_ROWS, Row, shown_value
from headrace.audit.usual.measures import MOST_FREQUENT, ColumnMeasure, ViewMeasure, quantiles, ranks
from headrace.distribute.column_figures import BlamedRows, ColumnReader
from headrace.pipeline.quality.usual import UsualCheck, UsualKind

if TYPE_CHECKING:
    from headrace.distribute.spark.types import DataFrame

_ORDER = ("epoch", "sequence")


def column_reader(frame: Frame) -> ColumnReader:
    """Reads ``frame``."""
    from headrace.audit.arrow_frames import ArrowFrame

    if isinstance(frame, ArrowFrame):
        from headrace.audit.usual.arrow_columns import ArrowColumns

        return ArrowColumns(frame.table)
    from headrace.distribute.spark.columns.reader import SparkColumns

    return SparkColumns(cast("DataFrame", frame))


def measured(frame: Frame, rows: int, checks: Sequence[UsualCheck]) -> ViewMeasure:
    """The measures of the columns of ``checks`` in ``frame``, which has so many ``rows``."""
    reader = column_reader(frame)
    names = list(dict.fromkeys(check.column for check in checks if check.column is not None))
    compared = {check.column for check in checks if check.kind is UsualKind.DISTRIBUTION}
    missing = reader.missing(names)
    return ViewMeasure(
        rows, {name: _column(reader, name, rows, missing[name], is_compared=name in compared) for name in names}
    )


def _column(reader: ColumnReader, name: str, rows: int, missing: int, *, is_compared: bool) -> ColumnMeasure:
    if not is_compared:
        return ColumnMeasure(missing)
    if reader.is_text(name):
        return ColumnMeasure(missing, frequent=tuple(reader.frequent(name, MOST_FREQUENT)))
    present = rows - missing
    return ColumnMeasure(missing, quantiles=quantiles(present, reader.at_ranks(name, ranks(present))))


def rows_to_blame(frame: Frame, condition: BlamedRows, identity: Sequence[str]) -> tuple[Row, ...]:
    """The first rows of ``frame``, by ``identity``, that fulfil ``condition``, as they are shown."""
    from headrace.read.views.arrow_types import zoneless_rows  # with Arrow

    order = [*identity, *(name for name in _ORDER if name in frame.columns)]
    shown = [*dict.fromkeys((*identity, condition.column))]
    rows = zoneless_rows(column_reader(frame).rows(condition, order, FAILING_ROWS))
    return tuple({name: shown_value(row[name]) for name in shown} for row in rows)
