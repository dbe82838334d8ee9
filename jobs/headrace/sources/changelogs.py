"""Records as changes: each a row of the source's schema and a sign; envelopes become rows that they withdraw and add.

An envelope with one of its two rows, in the very bytes of that row: numbers stay as they are written.

An update is two changes, which stand one after the other and have the position of their record. What is dropped of one
is shown, and lands again, as an envelope with that row alone (``with_one_row``) where it is text. A tombstone,
which a topic has behind a deletion, is none.

Records as changes: each a row of the source's schema, and its ``_sign``: 1 if it is added, -1 if it is withdrawn
(semantics 14). With any other sign, NULL too, it is a dead letter.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.formats.file_format import NO_VALUE, ScannedRecords
from headrace.kernel.columns import Ints, arrow_type, as_numpy, truths
from headrace.kernel.expressions.evaluation import column_apart
from headrace.model.changelog import DebeziumEnvelope, RecordSign
from headrace.pipeline.endpoints import Source
from headrace.program import columns as c

_BLANKS: Final = re.compile(r"[ \t\n\r]*")
_DECODER: Final = json.JSONDecoder()

Span = tuple[int, int]


def with_one_row(envelope: DebeziumEnvelope, record: bytes, sign: int) -> bytes:
    """``record``, an update, as the deletion of the row before (``sign`` -1) or the creation of the row after. It stays
    whole where it is no text of an object, as in formats that have columns.
    """
    text = record.decode()
    gone, op = (envelope.after, '"d"') if sign < 0 else (envelope.before, '"c"')
    start = 0
    for name in envelope.within:
        members = _members(text, start)
        if name not in members:
            return record
        start = members[name][0]
    members = _members(text, start)
    changes = {members[name]: value for name, value in ((gone, "null"), (envelope.op, op)) if name in members}
    for (begin, end), value in sorted(changes.items(), reverse=True):
        text = text[:begin] + value + text[end:]
    return text.encode()


def _members(text: str, start: int) -> dict[str, Span]:
    """Where the values of the object lie that begins at ``start``."""
    at = _after_blanks(text, start)
    members: dict[str, Span] = {}
    if text[at : at + 1] != "{":
        return members
    at = _after_blanks(text, at + 1)
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, at)
        begin = _after_blanks(text, _after_blanks(text, at) + 1)  # behind the colon
        _, end = _DECODER.raw_decode(text, begin)
        members[name] = (begin, end)
        at = _after_blanks(text, end)
        at = _after_blanks(text, at + (text[at] == ","))
    return members


def _after_blanks(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    return at if blanks is None else blanks.end()


Bools = NDArray[np.bool_]

_SIGNS: Final = {"before": -1, "after": 1}
_OPS: Final = {"before": ("u", "d"), "after": ("c", "r", "u")}
_OLD_VALUES: Final = ": the database must send old rows (in PostgreSQL ALTER TABLE ... REPLICA IDENTITY FULL)"


def rows_of_envelopes(envelope: DebeziumEnvelope, source: Source, records: ScannedRecords) -> ScannedRecords:
    """The changes in ``records``. An envelope whose ``op`` is unknown, or which lacks a row that it is about, does not
    parse.
    """
    records = _without_tombstones(records)
    op = records.columns[envelope.op]
    wanted = {row: truths(pc.is_in(op, pa.array(ops))) for row, ops in _OPS.items()}
    unparsed = _reasons(envelope, source, records, wanted)
    parses = truths(unparsed.is_null())
    parts = {row: np.flatnonzero(parses & wanted[row]) for row in _SIGNS}
    broken = np.flatnonzero(~parses)
    record = np.concatenate([*parts.values(), broken])
    order = np.argsort(record, kind="stable")  # of one record the row before comes first
    record = record[order]
    sign = np.repeat([*_SIGNS.values(), 1], [*map(len, parts.values()), len(broken)])[order]
    columns = {c.SIGN: pa.array(sign)}
    for name, kind in source.types.items():
        of_rows = [(records.columns[_place(envelope, source, row, name)], taken) for row, taken in parts.items()]
        rows = [values.take(pa.array(taken)) for values, taken in of_rows]
        columns[name] = pa.concat_arrays([*rows, pa.nulls(len(broken), arrow_type(kind))]).take(pa.array(order))
    is_update = (parses & wanted["before"] & wanted["after"])[record]

    def raw(chosen: Ints) -> pa.Array:
        texts = records.raw(record[chosen])
        if not records.has_text or not is_update[chosen].any():
            return texts
        halves = zip(texts.to_pylist(), sign[chosen].tolist(), is_update[chosen].tolist(), strict=True)
        return pa.array([with_one_row(envelope, text, own) if both else text for text, own, both in halves], texts.type)

    reasons = unparsed.take(pa.array(record))
    lacks = _lacks(envelope, source, records)
    return ScannedRecords(columns, reasons, records.position[record], raw, lacks, records.has_text)


def _without_tombstones(records: ScannedRecords) -> ScannedRecords:
    """``records`` without those that have no value."""
    is_tombstone = truths(pc.is_in(records.unparsed, pa.array([NO_VALUE])))
    if not is_tombstone.any():
        return records
    rows = np.flatnonzero(~is_tombstone)
    taken = pa.array(rows)
    return replace(
        records,
        columns={name: values.take(taken) for name, values in records.columns.items()},
        unparsed=records.unparsed.take(taken),
        position=records.position[rows],
        raw=lambda chosen: records.raw(rows[chosen]),
    )


def _place(envelope: DebeziumEnvelope, source: Source, row: str, name: str) -> str:
    """What column ``name`` of the row ``before`` or ``after`` is called as it is read; what the source says of a record
    goes for both.
    """
    return name if name in source.metadata else envelope.of_row(row, name)


def _reasons(
    envelope: DebeziumEnvelope, source: Source, records: ScannedRecords, wanted: Mapping[str, Bools]
) -> pa.Array:
    """Why records do not parse, as records or as envelopes."""
    reasons = records.unparsed
    is_known = np.logical_or.reduce([*wanted.values()])
    reasons = _unless(reasons, ~is_known, envelope.wrong)
    for row, is_wanted in wanted.items():
        lacks = is_wanted & ~_has(envelope, source, records, row)
        hint = _OLD_VALUES if row == envelope.before else ""
        why = f"{row} is null, which op {' and '.join(_OPS[row])} need{hint}"
        reasons = _unless(reasons, lacks, why)
    return reasons


def _has(envelope: DebeziumEnvelope, source: Source, records: ScannedRecords, row: str) -> Bools:
    """Which records have a value in some column of that row: an object without any is as good as none."""
    names = [envelope.of_row(row, name) for name in source.in_records if name not in envelope.shared]
    there: Bools = np.logical_or.reduce([truths(records.columns[name].is_valid()) for name in names])
    return there


def _unless(reasons: pa.Array, wrong: Bools, why: str) -> pa.Array:
    """``reasons``, or ``why`` where there is none yet and something is ``wrong``."""
    if not wrong.any():
        return reasons
    return pc.if_else(pc.and_(pa.array(wrong), reasons.is_null()), pa.scalar(why, pa.string()), reasons)


def _lacks(envelope: DebeziumEnvelope, source: Source, records: ScannedRecords) -> Mapping[str, str | None] | None:
    """The columns of rows that no record has, neither before a change nor after it."""
    lacks = records.lacks
    if lacks is None:
        return None
    places = {name: {envelope.of_row(row, name) for row in _SIGNS} for name in source.in_records}
    return {name: lacks[max(there)] for name, there in places.items() if there <= {*lacks}}


def as_changes(source: Source, records: ScannedRecords) -> ScannedRecords:
    """``records`` of ``source``, read with the columns of ``source.as_read``, as changes. Without a changelog, and
    where a user's own code comes first, they stay what they are.
    """
    match source.changelog:
        case RecordSign() if source.transform is None:
            return with_signs(source, records)
        case DebeziumEnvelope() as envelope:
            return rows_of_envelopes(envelope, source, records)
    return records


def with_signs(source: Source, records: ScannedRecords) -> ScannedRecords:
    """``records``, of which each is one change, with their signs."""
    changelog = source.changelog
    if not isinstance(changelog, RecordSign):
        return records
    read = source.as_read.columns
    signs, _ = column_apart(changelog.sign_of(source.schema), records.columns, read, len(records))
    columns = {name: records.columns[name] for name in source.columns}
    return replace(records, columns={**columns, c.SIGN: signs})


def rows_at(records: ScannedRecords, positions: Ints, signs: Ints | None) -> Ints:
    """Which of ``records`` have these ``positions``. An update is two changes of one position, first the row before it:
    ``signs`` say which of them is meant.
    """
    rows: Ints = np.searchsorted(records.position, positions)
    if signs is None or c.SIGN not in records.columns:
        return rows
    after = np.minimum(rows + 1, len(records) - 1)
    own = as_numpy(records.columns[c.SIGN].fill_null(0))
    return np.where((records.position[after] == positions) & (own[rows] != signs), after, rows)
