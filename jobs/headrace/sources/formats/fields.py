"""Columns of text read as what the schema says: one that does not read makes its record unparsed."""

from collections.abc import Mapping, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernel.expressions.text_casts import read_text
from headrace.kernel.lists import with_items
from headrace.kernel.types import arrow_type
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.fields import ColumnType, SourceFields
from headrace.model.expressions.value_types import ListType
from headrace.sources.formats.base64_text import decoded
from headrace.sources.formats.json_values import lists_of_text
from headrace.sources.formats.scan import misfit


def typed(
    columns: Mapping[str, pa.Array],
    unparsed: pa.Array,
    fields: SourceFields,
    from_text: Sequence[DataType],
    *,
    is_iso_alone: bool = False,
) -> tuple[dict[str, pa.Array], pa.Array]:
    """``columns`` with those whose kind is in ``from_text`` read, and why records do not parse: the first reason
    counts. A list is an array of JSON where its column is text. Of a record that does not parse all columns are NULL.
    ``is_iso_alone``: timestamps are ISO 8601, and nothing that tools write beside it.
    """
    read = dict(columns)
    for name, field in fields.items():
        read[name] = _typed(columns[name], field.type, from_text, is_iso_alone)
        if read[name].null_count > columns[name].null_count:
            misread = pc.and_(pc.and_(columns[name].is_valid(), read[name].is_null()), unparsed.is_null())
            unparsed = pc.if_else(misread, misfit(name, field), unparsed)
    if unparsed.null_count < len(unparsed):
        parses = unparsed.is_null()
        nothing = {name: pa.scalar(None, arrow_type(field.type)) for name, field in fields.items()}
        read = {name: pc.if_else(parses, values, nothing[name]) for name, values in read.items()}
    return read, unparsed


def _typed(values: pa.Array, kind: ColumnType, from_text: Sequence[DataType], is_iso_alone: bool) -> pa.Array:
    if isinstance(kind, ListType):
        if pa.types.is_string(values.type):
            values = lists_of_text(values, kind)
        return (
            values
            if values.type == arrow_type(kind)
            else with_items(values, partial(_read, kind=kind.item, is_iso_alone=is_iso_alone))
        )
    return _read(values, kind, is_iso_alone) if kind in from_text else values


def _read(text: pa.Array, kind: DataType, is_iso_alone: bool) -> pa.Array:
    if kind is DataType.STRING:
        return text
    return decoded(text) if kind is DataType.BYTES else read_text(text, kind, is_iso_alone=is_iso_alone)
