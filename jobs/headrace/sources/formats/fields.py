"""Columns of text read as what the schema says: one that does not read makes its record unparsed."""

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headrace.kernel.expressions.text_casts import read_text
from headrace.kernel.types import ARROW_TYPES
from headrace.model.expressions.data_types import DataType, Schema
from headrace.sources.formats.base64_text import decoded
from headrace.sources.formats.scan import misfit


def typed(
    columns: Mapping[str, pa.Array], unparsed: pa.Array, schema: Schema, from_text: Sequence[DataType]
) -> tuple[dict[str, pa.Array], pa.Array]:
    """``columns`` with those whose kind is in ``from_text`` read, and why records do not parse: the first reason
    counts. Of a record that does not parse all columns are NULL.
    """
    read = dict(columns)
    for name, kind in schema.items():
        if kind not in from_text or kind is DataType.STRING:
            continue
        text = columns[name]
        read[name] = decoded(text) if kind is DataType.BYTES else read_text(text, kind)
        if read[name].null_count > text.null_count:
            misread = pc.and_(pc.and_(text.is_valid(), read[name].is_null()), unparsed.is_null())
            unparsed = pc.if_else(misread, misfit(name, kind), unparsed)
    if unparsed.null_count < len(unparsed):
        parses = unparsed.is_null()
        nothing = {name: pa.scalar(None, ARROW_TYPES[kind]) for name, kind in schema.items()}
        read = {name: pc.if_else(parses, values, nothing[name]) for name, values in read.items()}
    return read, unparsed
