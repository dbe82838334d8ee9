"""Columns of text read as what the schema says: one that does not read makes its record unparsed."""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.json_values import lists_of_text
from headrace.formats.scan import misfit
from headrace.kernel.expressions.text_casts import read_text
from headrace.kernel.lists import with_items
from headrace.kernel.types import arrow_type
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.fields import ColumnType, SourceFields
from headrace.model.expressions.value_types import ListType

_ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$"
"""What one value has one text of: bits that mean nothing are zero."""

_CODES = np.zeros(256, np.uint32)
_CODES[_ALPHABET] = np.arange(64)


def typed(
    columns: Mapping[str, pa.Array],
    unparsed: pa.Array,
    fields: SourceFields,
    from_text: Sequence[DataType],
    *,
    is_iso_alone: bool = False,
) -> tuple[dict[str, pa.Array], pa.Array]:
    """Read columns of text as what the schema says. It raises nothing.

    :param columns: a column for each field; a list is an array of JSON where its column is text.
    :param unparsed: why records do not parse, NULL of those that do so far.
    :param fields: what each column holds.
    :param from_text: the types that are read from text; columns of others are taken as they are.
    :param is_iso_alone: timestamps are ISO 8601, and nothing that tools write beside it.
    :returns: the columns, which are NULL in a record that does not parse; and why records do not, the first reason.
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


def decoded(text: pa.Array) -> pa.Array:
    """The bytes of each text in base64 (RFC 4648, with padding), without blanks around it; NULL of one that is none."""
    text = pc.ascii_trim_whitespace(text)
    known = pc.if_else(pc.match_substring_regex(text, _BASE64), text, pa.scalar(None, pa.string()))
    whole = pc.binary_join_element_wise(known.fill_null(""), "", "")  # in memory of its own
    ends = np.frombuffer(whole.buffers()[1], np.int32)[whole.offset : whole.offset + len(whole) + 1].astype(np.int64)
    octets = np.frombuffer(whole.buffers()[2], np.uint8)[ends[0] : ends[-1]] if ends[-1] else np.zeros(0, np.uint8)
    quads = _CODES[octets].reshape(-1, 4)
    threes = quads[:, 0] << 18 | quads[:, 1] << 12 | quads[:, 2] << 6 | quads[:, 3]
    made = np.stack([threes >> 16, threes >> 8, threes], axis=1).astype(np.uint8)
    is_padded = (octets == ord("=")).reshape(-1, 4)[:, 1:]
    before = np.append(0, np.cumsum(~is_padded.reshape(-1)))
    offsets = before[(ends - ends[0]) // 4 * 3].astype(np.int32)
    data = made.reshape(-1)[~is_padded.reshape(-1)]
    octets_of_texts = pa.Array.from_buffers(pa.binary(), len(text), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return pc.if_else(known.is_valid(), octets_of_texts, pa.scalar(None, pa.binary()))
