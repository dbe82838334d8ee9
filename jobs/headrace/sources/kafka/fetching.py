"""The records of a range of offsets, without those of transactions that were aborted."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from headrace.sources.kafka.batches import SCHEMA, RecordBatch, as_table, batches_of
from headrace.sources.kafka.client import MOST_BYTES, KafkaClient, OffsetGoneError, Topic
from headrace.sources.kafka.errors import KafkaUnreachableError, RecordsLostError, lose
from headrace.sources.kafka.offsets import OffsetRange

_AT_ONCE: Final = 2**25
"""So many bytes of batches become columns at once."""

_FIRST: Final = 2**19
"""So many bytes are asked for at first; then what the rest of the range may have, by the length of what came."""

_SAMPLE: Final = 2**18

_EMPTY: Final = 120
"""So many answers without any record mean that the broker has none, where it should."""


def records(client: KafkaClient, topic: Topic, wanted: OffsetRange, *, skips_lost: bool = False) -> pa.Table:
    """The records of a range, in order; fewer than it has offsets, where others were compacted away.

    Raises RecordsLostError if some are gone, unless ``skips_lost``; KafkaUnreachableError, UnreadableBatchError.
    """
    where = _where(client, topic, wanted)
    tables: list[pa.Table] = []
    batches: list[RecordBatch] = []
    begin = at = wanted.begin
    size, empty, most = 0, 0, _FIRST
    while at < wanted.end:
        try:
            fetched = client.fetch(topic, wanted.partition, at, most)
        except OffsetGoneError:
            lost = _lost(client, topic, OffsetRange(wanted.partition, at, wanted.end), where)
            what = f"{where}: offsets {lost.begin} to {lost.end - 1} are gone, and nobody has read them"
            lose(what, RecordsLostError, skips_lost=skips_lost)
            tables.append(as_table(batches, wanted.partition, begin, at, where))
            batches, size = [], 0
            begin = at = lost.end  # the broker gives the whole batch that has this one
            continue
        new = [batch for batch in batches_of(fetched.data, where) if batch.last >= at]
        empty = 0 if new else empty + 1
        if empty == _EMPTY:
            raise KafkaUnreachableError(
                f"{where}: no record comes after offset {at}, and it should have {wanted.end - 1}"
            )
        if new:
            length = len(fetched.data) / (new[-1].last + 1 - at)
            at = new[-1].last + 1
            most = max(_FIRST, min(MOST_BYTES, int(length * (wanted.end - at))))
            batches += _committed(new, fetched.aborted, where)
            size += len(fetched.data)
        if size >= _AT_ONCE:
            tables.append(as_table(batches, wanted.partition, begin, wanted.end, where))
            batches, size = [], 0
    tables.append(as_table(batches, wanted.partition, begin, wanted.end, where))
    return pa.concat_tables(tables)


def _lost(client: KafkaClient, topic: Topic, rest: OffsetRange, where: str) -> OffsetRange:
    """What is gone of the ``rest`` of a range, whose first record nobody has. Raises KafkaUnreachableError."""
    there = client.partitions(topic)[rest.partition]
    if there.first <= rest.begin < there.end:
        raise KafkaUnreachableError(f"{where}: its leader does not have offset {rest.begin} yet")
    return replace(rest, end=min(there.first, rest.end)) if rest.begin < there.first else rest


def first_records(client: KafkaClient, topic: Topic, wanted: OffsetRange) -> pa.Table:
    """Some of the first records of a range, perhaps none."""
    where = _where(client, topic, wanted)
    try:
        fetched = client.fetch(topic, wanted.partition, wanted.begin, most=_SAMPLE)
    except OffsetGoneError:
        return SCHEMA.empty_table()
    return as_table(batches_of(fetched.data, where), wanted.partition, wanted.begin, wanted.end, where)


def _committed(batches: Iterable[RecordBatch], aborted: Sequence[tuple[int, int]], where: str) -> Iterable[RecordBatch]:
    """``batches`` without those of ``aborted`` transactions (producer, first offset), and without what ends one."""
    waiting = sorted(aborted, key=lambda one: one[1], reverse=True)
    open_: set[int] = set()
    for batch in batches:
        while waiting and waiting[-1][1] <= batch.last:
            open_.add(waiting.pop()[0])
        if batch.is_control:
            if _is_abort(batch, where):
                open_.discard(batch.producer)
        elif not (batch.is_transactional and batch.producer in open_):
            yield batch


def _is_abort(batch: RecordBatch, where: str) -> bool:
    """Whether a control batch says that its producer has aborted."""
    keys = as_table([batch], 0, batch.base, batch.last + 1, where)["key"].to_pylist()
    return bool(keys) and struct.unpack_from(">hh", keys[0])[1] == 0


def _where(client: KafkaClient, topic: Topic, wanted: OffsetRange) -> str:
    return f"{client}: topic {topic.name}, partition {wanted.partition}"
