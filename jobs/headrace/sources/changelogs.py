"""Records as changes, each a row of the source's schema and a sign; or as versions of rows (semantics 14).

``with_one_row`` gives an envelope with one of its two rows, in the very bytes of that row: numbers stay as they are
written.

``rows_of_envelopes`` makes of envelopes the rows that they withdraw and add. An update is two changes, which stand one
after the other and have the position of their record. What is dropped of one is shown, and lands again, as an envelope
with that row alone (``with_one_row``) where it is text. A tombstone, which a topic has behind a deletion, is none.

``with_signs`` gives a change its ``_sign``: 1 if the row is added, -1 if it is withdrawn. With any other sign, NULL
too, it is a dead letter.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.formats.file_format import NO_VALUE, ScannedFiles, ScannedRecords
from headrace.kernel.columns import TIMESTAMP, Ints, arrow_scalar, arrow_type, as_numpy, true_mask, valid_mask
from headrace.kernel.delta import add_reason, reject_overflows
from headrace.kernel.expressions.evaluation import column_apart
from headrace.model.changelog import (
    CHANGE_ORDER,
    CHANGED_AT,
    IS_TOMBSTONE,
    DebeziumEnvelope,
    DebeziumVersions,
    RecordSign,
    Upserts,
)
from headrace.model.expressions.data_types import DataType, ListType, MapType, ValueType
from headrace.model.expressions.typing import columns_of
from headrace.pipeline.endpoints import Source
from headrace.program import columns as c

_LEADING_BLANKS: Final = re.compile(r"[ \t\n\r]*")
_DECODER: Final = json.JSONDecoder()

TextSpan = tuple[int, int]


def with_one_row(envelope: DebeziumEnvelope, record: bytes, sign: int) -> bytes:
    """``record``, an update, as the deletion of the row before (``sign`` -1) or the creation of the row after. It stays
    whole where it is no text of an object, as in formats that have columns.
    """
    text = record.decode()
    member_gone, op = (envelope.after, '"d"') if sign < 0 else (envelope.before, '"c"')
    start = 0
    for name in envelope.within:
        members = _member_spans(text, start)
        if name not in members:
            return record
        start = members[name][0]
    members = _member_spans(text, start)
    changes = {members[name]: value for name, value in ((member_gone, "null"), (envelope.op, op)) if name in members}
    for (begin, end), value in sorted(changes.items(), reverse=True):
        text = text[:begin] + value + text[end:]
    return text.encode()


def _member_spans(text: str, start: int) -> dict[str, TextSpan]:
    """Where the values of the object lie that begins at ``start``."""
    place = _after_blanks(text, start)
    members: dict[str, TextSpan] = {}
    if text[place : place + 1] != "{":
        return members
    place = _after_blanks(text, place + 1)
    while text[place] != "}":
        name, place = _DECODER.raw_decode(text, place)
        begin = _after_blanks(text, _after_blanks(text, place) + 1)  # behind the colon
        _, end = _DECODER.raw_decode(text, begin)
        members[name] = (begin, end)
        place = _after_blanks(text, end)
        place = _after_blanks(text, place + (text[place] == ","))
    return members


def _after_blanks(text: str, place: int) -> int:
    blanks = _LEADING_BLANKS.match(text, place)
    return place if blanks is None else blanks.end()


Bools = NDArray[np.bool_]

_IMAGE_SIGNS: Final = {"before": -1, "after": 1}
_OPS: Final = {"before": ("u", "d"), "after": ("c", "r", "u")}
_UNAVAILABLE: Final = "__debezium_unavailable_value"
"""What stands in a row for a large value that an update did not change, where the database does not send it."""

_UNAVAILABLE_UUID: Final = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
"""What stands in a list of UUIDs: the one that Java makes of the bytes of the text."""

_WHOLE_ROWS: Final = (
    ": the database does not send large values that an update leaves as they are (in PostgreSQL ALTER TABLE ... "
    "REPLICA IDENTITY FULL; or leave the column out of the schema)"
)
_OLD_VALUES: Final = ": the database must send old rows (in PostgreSQL ALTER TABLE ... REPLICA IDENTITY FULL)"


def rows_of_envelopes(envelope: DebeziumEnvelope, source: Source, records: ScannedRecords) -> ScannedRecords:
    """The changes in ``records``. An envelope whose ``op`` is unknown, or which lacks a row that it is about, does not
    parse.
    """
    records = _without_tombstones(records)
    op = records.columns[envelope.op]
    wanted_rows = {row: true_mask(pc.is_in(op, pa.array(ops))) for row, ops in _OPS.items()}
    parse_errors = _parse_errors(envelope, source, records, wanted_rows)
    parses = true_mask(parse_errors.is_null())
    parts = {row: np.flatnonzero(parses & wanted_rows[row]) for row in _IMAGE_SIGNS}
    broken_records = np.flatnonzero(~parses)
    record = np.concatenate([*parts.values(), broken_records])
    order = np.argsort(record, kind="stable")  # of one record the row before comes first
    record = record[order]
    sign = np.repeat([*_IMAGE_SIGNS.values(), 1], [*map(len, parts.values()), len(broken_records)])[order]
    columns = {c.SIGN: pa.array(sign)}
    for name, kind in source.types.items():
        of_rows = [
            (records.columns[_column_as_read(envelope, source, row, name)], rows_taken)
            for row, rows_taken in parts.items()
        ]
        rows = [values.take(pa.array(rows_taken)) for values, rows_taken in of_rows]
        columns[name] = pa.concat_arrays([*rows, pa.nulls(len(broken_records), arrow_type(kind))]).take(pa.array(order))
    is_update = (parses & wanted_rows["before"] & wanted_rows["after"])[record]

    def raw_texts(chosen_rows: Ints) -> pa.Array:
        texts = records.raw(record[chosen_rows])
        if not records.has_text or not is_update[chosen_rows].any():
            return texts
        halves = zip(texts.to_pylist(), sign[chosen_rows].tolist(), is_update[chosen_rows].tolist(), strict=True)
        return pa.array([with_one_row(envelope, text, own) if both else text for text, own, both in halves], texts.type)

    reasons = parse_errors.take(pa.array(record))
    lacks = _missing_columns(envelope, source, records.lacks)
    return ScannedRecords(columns, reasons, records.position[record], raw_texts, lacks, records.has_text)


def _without_tombstones(records: ScannedRecords) -> ScannedRecords:
    is_tombstone = true_mask(pc.is_in(records.unparsed, pa.array([NO_VALUE])))
    if not is_tombstone.any():
        return records
    return records.take_rows(np.flatnonzero(~is_tombstone))


def _column_as_read(envelope: DebeziumEnvelope, source: Source, row: str, name: str) -> str:
    """What column ``name`` of the row ``before`` or ``after`` is called as it is read; what the source says of a record
    goes for both.
    """
    return name if name in source.metadata else envelope.of_row(row, name)


def _parse_errors(
    envelope: DebeziumEnvelope, source: Source, records: ScannedRecords, wanted_rows: Mapping[str, Bools]
) -> pa.Array:
    """Why records do not parse, as records or as envelopes."""
    reasons = records.unparsed
    is_known = np.logical_or.reduce([*wanted_rows.values()])
    reasons = add_reason(reasons, ~is_known, envelope.wrong)
    for row, is_wanted in wanted_rows.items():
        lacks = is_wanted & ~_has_values(envelope, source, records, row)
        hint = _OLD_VALUES if row == envelope.before else ""
        why = f"{row} is null, which op {' and '.join(_OPS[row])} need{hint}"
        reasons = add_reason(reasons, lacks, why)
    for row, is_wanted in wanted_rows.items():
        columns = {name: records.columns[envelope.of_row(row, name)] for name in _columns_of_rows(envelope, source)}
        reasons = _without_unavailable(reasons, source, columns, is_wanted, f"{row}.")
    return reasons


def _without_unavailable(
    reasons: pa.Array, source: Source, columns: Mapping[str, pa.Array], is_wanted: Bools, row: str = ""
) -> pa.Array:
    """``reasons``, or that a value of ``columns`` did not come where a row ``is_wanted``."""
    for name, values in columns.items():
        why = f"column {row}{name} is {_UNAVAILABLE}{_WHOLE_ROWS}"
        reasons = add_reason(reasons, is_wanted & _is_unavailable(values, source.types[name]), why)
    return reasons


def _is_unavailable(values: pa.Array, kind: ValueType) -> Bools:
    """Which ``values`` stand for what the database did not send. That is a text of Debezium, or its bytes. Debezium
    makes lists and maps of them, too.
    """
    text = _UNAVAILABLE.encode()
    match kind:
        case DataType.STRING | DataType.BYTES:
            return true_mask(pc.equal(values, pa.scalar(_UNAVAILABLE, pa.string()).cast(values.type)))
        case ListType(DataType.STRING):
            return _has_items(values, [_UNAVAILABLE]) | _has_items(values, [_UNAVAILABLE_UUID])
        case ListType(DataType.BYTES):
            return _has_items(values, [text])
        case ListType(DataType.INT):
            return _has_items(values, [*text])
        case MapType(DataType.STRING):
            return _is_unavailable(pc.map_lookup(values, _UNAVAILABLE, "first"), DataType.STRING)
    return np.zeros(len(values), np.bool_)


def _has_items(lists: pa.Array, items: Sequence[Any]) -> Bools:
    """Which ``lists`` have these ``items`` and no others."""
    is_such: Bools = true_mask(pc.equal(pc.list_value_length(lists), len(items)))
    rows = np.flatnonzero(is_such)
    own_items = lists.take(pa.array(rows)).flatten()
    places = np.tile(np.arange(len(items)), len(rows))
    is_same = true_mask(pc.equal(own_items, pa.array([*items], own_items.type).take(pa.array(places))))
    is_such[rows] = is_same.reshape(len(rows), len(items)).all(axis=1)
    return is_such


def _has_values(envelope: DebeziumEnvelope, source: Source, records: ScannedRecords, row: str) -> Bools:
    """Which records have a value in some column of that row: an object without any is as good as none."""
    names = [envelope.of_row(row, name) for name in _columns_of_rows(envelope, source)]
    has_values: Bools = np.logical_or.reduce([true_mask(records.columns[name].is_valid()) for name in names])
    return has_values


def _columns_of_rows(envelope: DebeziumEnvelope, source: Source) -> list[str]:
    """The columns that each row of an envelope has of its own."""
    return [name for name in source.in_records if name not in envelope.shared]


def _missing_columns(
    envelope: DebeziumEnvelope | DebeziumVersions, source: Source, lacks: Mapping[str, str | None] | None
) -> Mapping[str, str | None] | None:
    """The columns of rows that no record has, neither before a change nor after it, where records lack those."""
    if not lacks:
        return lacks
    places = {name: {envelope.of_row(row, name) for row in _IMAGE_SIGNS} for name in source.in_records}
    return {
        name: lacks[max(columns_of_place)] for name, columns_of_place in places.items() if columns_of_place <= {*lacks}
    }


def as_changes(source: Source, records: ScannedRecords) -> ScannedRecords:
    """``records`` of ``source``, read with the columns of ``source.as_read``, as changes, or as versions. Without a
    changelog and versions, and where a user's own code comes first, they stay what they are.
    """
    match source.versions:
        case Upserts() as versions:
            return rows_or_tombstones(versions, source, records)
        case DebeziumVersions() as versions:
            return versions_of_envelopes(versions, source, records)
    match source.changelog:
        case RecordSign() if source.transform is None:
            return with_signs(source, records)
        case DebeziumEnvelope() as envelope:
            return rows_of_envelopes(envelope, source, records)
    return records


def convert_files_to_changes(source: Source, files: ScannedFiles) -> ScannedFiles:
    """What ``as_changes`` gives of each of several ``files``, of all their records at once."""
    records = files.records
    numbered_changes = as_changes(source, replace(records, position=np.arange(len(records))))
    record = numbered_changes.position  # a change has the position of its record, here its number among all
    ends = np.searchsorted(record, np.cumsum(files.lengths))
    lacks = files.lacks
    if isinstance(envelope := source.versions or source.changelog, DebeziumEnvelope | DebeziumVersions):
        lacks = tuple(_missing_columns(envelope, source, own) for own in lacks)
    return replace(
        files,
        records=replace(numbered_changes, position=records.position[record]),
        lengths=np.diff(ends, prepend=0),
        lacks=lacks,
    )


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
    following = np.minimum(rows + 1, len(records) - 1)
    own = as_numpy(records.columns[c.SIGN].fill_null(0))
    return np.where((records.position[following] == positions) & (own[rows] != signs), following, rows)


def rows_or_tombstones(versions: Upserts, source: Source, records: ScannedRecords) -> ScannedRecords:
    """``records`` as they are, and which of them say that their row is gone (semantics 14.10)."""
    parse_errors, is_gone = records.unparsed, _without_value(records)
    order = frozenset[str]() if versions.order is None else columns_of(versions.order)
    if lacks := sorted(order - (source.columns_of_tombstones or order)):
        why = f"no value, and versions go by {lacks[0]}, which its key does not say: leave order= out of versions="
        parse_errors = add_reason(parse_errors, is_gone, why)
    if versions.says_deleted is not None:
        says, overflows = column_apart(versions.says_deleted, records.columns, source.types, len(records))
        parse_errors = reject_overflows(parse_errors, "whether it is deleted", overflows)
        is_gone = is_gone | true_mask(says)
    return replace(records, columns={**records.columns, IS_TOMBSTONE: pa.array(is_gone)}, unparsed=parse_errors)


def _without_value(records: ScannedRecords) -> Bools:
    """Which of ``records`` are messages that have no value, and so delete a row."""
    times = records.columns.get(c.TOMBSTONE_AT)
    return np.zeros(len(records), np.bool_) if times is None else valid_mask(times)


_KEYS: Final = " (in PostgreSQL a primary key, or REPLICA IDENTITY USING INDEX)"


def versions_of_envelopes(versions: DebeziumVersions, source: Source, records: ScannedRecords) -> ScannedRecords:
    """What ``records`` say (14.10): of each the row after it; a deletion, or one without a value, has the key alone."""
    records = _without_tombstones(records)
    read, deleted_at = records.columns, records.columns.get(c.TOMBSTONE_AT)
    is_deletion = _without_value(records) | true_mask(pc.is_in(read[versions.op], pa.array(["d"])))
    changed_at = _timestamps_from_numbers(read[CHANGED_AT], versions.units)
    columns = {
        IS_TOMBSTONE: pa.array(is_deletion),
        CHANGED_AT: changed_at if deleted_at is None else pc.coalesce(deleted_at, changed_at),
    }
    if versions.position is not None:
        columns[CHANGE_ORDER] = read[CHANGE_ORDER]
    for name, kind in source.types.items():
        if name in source.metadata:
            columns[name] = read[name]
        else:
            deleted_value = read[versions.of_key(name)] if name in versions.key else pa.scalar(None, arrow_type(kind))
            columns[name] = pc.if_else(
                pa.array(is_deletion), deleted_value, read[versions.of_row(versions.after, name)]
            )
    parse_errors = _wrong_versions(versions, source, records, columns)
    return replace(
        records, columns=columns, unparsed=parse_errors, lacks=_missing_columns(versions, source, records.lacks)
    )


def _wrong_versions(
    versions: DebeziumVersions, source: Source, records: ScannedRecords, columns: Mapping[str, pa.Array]
) -> pa.Array:
    """Why ``records`` do not parse, of which ``columns`` are made: as records, or as versions."""
    op, is_deletion = records.columns[versions.op], true_mask(columns[IS_TOMBSTONE])
    is_row = true_mask(pc.is_in(op, pa.array(_OPS["after"])))
    own = {name: columns[name] for name in source.in_records}
    is_there = np.logical_or.reduce([valid_mask(values) for values in own.values()])
    reasons = add_reason(records.unparsed, ~(is_deletion | is_row), versions.wrong)
    reasons = add_reason(reasons, is_row & ~is_there, f"after is null, which op {' and '.join(_OPS['after'])} need")
    for name in versions.key:
        why = f"before does not say {name}, which op d needs{_KEYS}"
        reasons = add_reason(reasons, is_deletion & ~valid_mask(columns[name]), why)
    reasons = add_reason(reasons, ~valid_mask(columns[CHANGED_AT]), f"{'.'.join(versions.at)} is no time")
    if versions.position is not None:
        lacks = ~valid_mask(columns[CHANGE_ORDER]) & ~true_mask(pc.equal(op, arrow_scalar("r")))
        why = f"{versions.position.place} is null, by which versions go: name another field in order= of versions="
        reasons = add_reason(reasons, lacks, why)
    return _without_unavailable(reasons, source, own, is_row)


def _timestamps_from_numbers(times: pa.Array, units: int) -> pa.Array:
    """Timestamps of numbers of ``units`` of microseconds; NULL beyond what these hold."""
    if units < 0:  # NumPy divides downwards, Arrow towards zero
        whole = as_numpy(times.fill_null(0)) // -units
        return pa.array(whole, mask=as_numpy(times.is_null())).cast(TIMESTAMP)
    most = (2**63 - 1) // units
    fits = pc.and_(pc.less_equal(times, arrow_scalar(most)), pc.greater_equal(times, arrow_scalar(-most)))
    return pc.multiply(pc.if_else(fits, times, pa.scalar(None, pa.int64())), arrow_scalar(units)).cast(TIMESTAMP)
