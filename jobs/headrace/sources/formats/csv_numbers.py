"""Numbers of CSV as other countries write them: with a comma, and with groups of three digits."""

import re
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.fields import SourceFields
from headrace.pipeline.csv_dialect import CsvDialect

_NO_NUMBER = "?"
_KINDS = (DataType.INT, DataType.FLOAT, DataType.DECIMAL)


def plain_numbers(texts: Mapping[str, pa.Array], fields: SourceFields, dialect: CsvDialect) -> dict[str, pa.Array]:
    """``texts`` with numbers of columns of numbers as they are written with a point and without groups."""
    if (dialect.decimal, dialect.thousands) == (".", None):
        return {**texts}
    return {name: _plain(text, dialect) if fields[name].type in _KINDS else text for name, text in texts.items()}


def _plain(text: pa.Array, dialect: CsvDialect) -> pa.Array:
    if dialect.thousands is not None:
        group = re.escape(dialect.thousands)
        grouped = rf"^\s*[+-]?[0-9]{{1,3}}({group}[0-9]{{3}})+({re.escape(dialect.decimal)}[0-9]*)?\s*$"
        is_grouped = pc.match_substring_regex(text, grouped)
        text = pc.if_else(is_grouped, pc.replace_substring(text, dialect.thousands, ""), text)
    if dialect.decimal == ",":
        has_point = pc.match_substring(text, ".")  # which parts nothing here
        text = pc.if_else(has_point, pa.scalar(_NO_NUMBER), pc.replace_substring(text, ",", "."))
    return text
