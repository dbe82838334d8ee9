"""Offsets of a topic: the records of their batches, how far it was read, and the ranges that come next.

Batches of format 2, which brokers write since 0.11, become columns, all at once (``as_table``). A batch has its records
one after the other, each with its length before it. Their beginnings are found for all batches side by side, record by
record; all else is read of all records at once. So Python sees batches, and no records.

Ranges that come next take the partitions in turns (``in_turns``).
"""

import json
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import FixDataError
from headrace.ext.sources import SourceSplit
from headrace.formats.avro_datums import UInt8s, read_varints, slice_bytes
from headrace.kernel.columns import Ints
from headrace.kernel.expressions.string_bytes import are_text
from headrace.this_process import Size

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_MAGIC: Final = 2
_CODECS: Final = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_CODEC, _LOG_APPEND, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_XERIAL: Final = b"\x82SNAPPY\0"
BATCH_BYTES: Final = Size(2**31 - 1)
"""So many bytes of records become columns at once: places in them have 32 bits."""

_NO_TIME: Final = -1
"""The time of a record that has none."""

_BEGIN_OF_SUM: Final = 21
"""From there on the checksum of a batch counts its bytes."""

HEADERS: Final = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
SCHEMA: Final = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
    ]
)
"""Records as they are fetched, and landed."""


@dataclass(frozen=True)
class RecordBatch:
    """A batch: offsets from ``base`` to ``last``, of which ``count`` have records, which are ``payload``."""

    base: int
    last: int
    attributes: int
    base_time: int
    max_time: int
    producer: int
    count: int
    payload: memoryview

    @property
    def is_control(self) -> bool:
        """Whether it ends a transaction, and holds nothing of a user's."""
        return bool(self.attributes & _CONTROL)

    @property
    def is_stamped(self) -> bool:
        """Whether the broker has given all its records the time at which they came."""
        return bool(self.attributes & _LOG_APPEND)

    @property
    def is_transactional(self) -> bool:
        """Whether it is part of a transaction, which may be aborted."""
        return bool(self.attributes & _TRANSACTIONAL)


class UnreadableBatchError(FixDataError, code="data.kafka_batch"):
    """A batch of records is not what a producer wrote, or has a form that is not read."""


def batches_of(response: bytes, where: str) -> list[RecordBatch]:
    """The whole batches that a broker sent: the last one may be cut, and is left out. Raises UnreadableBatchError."""
    from aiokafka.record.util import calc_crc32c

    batches, place, view = [], 0, memoryview(response)
    while place + _HEADER.size <= len(response):
        base, length, _, magic, checksum, attributes, delta, first, last, producer, _, _, count = _HEADER.unpack_from(
            response, place
        )
        end = place + 12 + length
        if magic != _MAGIC:
            raise UnreadableBatchError(
                f"{where}, offset {base}: its format is {magic}, older than Kafka 0.11, and only {_MAGIC} is read: "
                "copy the topic with a current client"
            )
        # a broker cuts the last batch off where its answer is full
        if end > len(response):
            break
        if calc_crc32c(response[place + _BEGIN_OF_SUM : end]) != checksum:
            raise UnreadableBatchError(f"{where}, offset {base}: the batch does not have the checksum that it should")
        payload = view[place + _HEADER.size : end]
        batches.append(RecordBatch(base, base + delta, attributes, first, last, producer, count, payload))
        place = end
    return batches


def as_table(batches: Sequence[RecordBatch], partition: int, begin: int, end: int, where: str) -> pa.Table:
    """The records of ``batches`` with offsets from ``begin`` to before ``end``. Raises UnreadableBatchError."""
    parts = [_decompress_batch(batch, where) for batch in batches]
    if not sum(batch.count for batch in batches):
        return SCHEMA.empty_table()
    if sum(map(len, parts)) > BATCH_BYTES.value:
        middle = len(batches) // 2
        if not middle:
            raise UnreadableBatchError(
                f"{where}, offset {batches[0].base}: the batch has more than {BATCH_BYTES.value:,} bytes"
            )
        halves = (batches[:middle], batches[middle:])
        return pa.concat_tables(as_table(half, partition, begin, end, where) for half in halves)
    try:
        table = _records_table(b"".join(parts), np.cumsum([0, *map(len, parts)])[:-1], batches, partition)
    except (IndexError, pa.ArrowInvalid) as error:
        raise UnreadableBatchError(f"{where}, from offset {batches[0].base} on: records are cut ({error})") from error
    offset = table.column("offset").to_numpy()
    if offset[0] >= begin and offset[-1] < end:
        return table
    return table.filter(pa.array((offset >= begin) & (offset < end)))


def _records_table(data: bytes, starts: Ints, batches: Sequence[RecordBatch], partition: int) -> pa.Table:
    """All records of ``batches``, whose payloads begin in ``data`` where ``starts`` says."""
    octets = np.frombuffer(data, np.uint8)
    counts = np.array([batch.count for batch in batches], np.int64)

    def of_batch(values: Sequence[int]) -> Ints:
        return np.repeat(np.array(values, np.int64), counts)

    places = _record_starts(octets, starts, counts) + 1  # behind the attributes, which have no meaning yet
    time_delta, places = read_varints(octets, places)
    offset_delta, places = read_varints(octets, places)
    key, places = _read_byte_spans(octets, places)
    value, places = _read_byte_spans(octets, places)
    header_counts, places = read_varints(octets, places)
    time = of_batch([batch.base_time for batch in batches]) + time_delta
    if any(batch.is_stamped for batch in batches):
        is_stamped = of_batch([batch.is_stamped for batch in batches]).astype(np.bool_)
        time = np.where(is_stamped, of_batch([batch.max_time for batch in batches]), time)
    columns = [
        pa.array(np.full(len(time), partition, np.int32)),
        pa.array(of_batch([batch.base for batch in batches]) + offset_delta),
        pa.array(time, mask=time == _NO_TIME).cast(SCHEMA.field("timestamp").type),
        slice_bytes(data, *key),
        slice_bytes(data, *value),
        _read_headers(data, octets, places, header_counts),
    ]
    return pa.table(columns, schema=SCHEMA)


def _record_starts(octets: UInt8s, starts: Ints, counts: Ints) -> Ints:
    """Where each record begins, behind its length: of all batches side by side, those with most records first."""
    beginnings = np.empty(int(counts.sum()), np.int64)
    order = np.argsort(-counts, kind="stable")
    left, places = counts[order], starts[order].astype(np.int64)
    place = (np.cumsum(counts) - counts)[order]
    alive = len(order)
    for number in range(int(left[0])):
        while left[alive - 1] <= number:
            alive -= 1
        length, begin = read_varints(octets, places[:alive])
        beginnings[place[:alive] + number] = begin
        places[:alive] = begin + length
    return beginnings


def _read_byte_spans(octets: UInt8s, places: Ints) -> tuple[tuple[Ints, Ints], Ints]:
    """Bytes behind their length, from ``places`` on: begin and length (-1: NULL); where they end."""
    length, begin = read_varints(octets, places)
    return (begin, length), begin + np.maximum(length, 0)


def _read_headers(data: bytes, octets: UInt8s, places: Ints, counts: Ints) -> pa.Array:
    """The headers of each record, which begin at ``places``; NULL where it has none."""
    has_some = counts > 0
    if not has_some.any():
        return pa.nulls(len(counts), HEADERS)
    first = np.cumsum(counts) - counts
    total = int(counts.sum())
    names, values = (np.empty((2, total), np.int64) for _ in range(2))
    for number in range(int(counts.max())):
        rows = np.flatnonzero(counts > number)
        place = first[rows] + number
        names[:, place], end = _read_byte_spans(octets, places[rows])
        values[:, place], places[rows] = _read_byte_spans(octets, end)
    offsets = pa.array(np.append(first, total), pa.int32(), mask=np.append(~has_some, False))
    struct_ = pa.StructArray.from_arrays(
        [_as_text(slice_bytes(data, *names)), slice_bytes(data, *values)], fields=[*HEADERS.value_type]
    )
    return pa.ListArray.from_arrays(offsets, struct_)


def _as_text(names: pa.Array) -> pa.Array:
    """Names of headers; brokers take any bytes, and those that are not UTF-8 are U+FFFD."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        wrong = ~are_text(names)
        mended_names = [name.decode(errors="replace").encode() for name in names.filter(pa.array(wrong)).to_pylist()]
        return pc.replace_with_mask(names, pa.array(wrong), pa.array(mended_names, names.type)).cast(pa.string())


def _decompress_batch(batch: RecordBatch, where: str) -> bytes | memoryview:
    number = batch.attributes & _CODEC
    if number == 0:
        return batch.payload
    codec = _CODECS.get(number)
    if codec is None:
        raise UnreadableBatchError(f"{where}, offset {batch.base}: compression {number} is not known")
    try:
        if codec == "snappy":
            return _decompress_snappy(bytes(batch.payload))
        with pa.CompressedInputStream(pa.py_buffer(batch.payload), codec) as stream:
            return bytes(stream.read())
    except (pa.ArrowException, OSError, EOFError, zlib.error, struct.error) as error:
        raise UnreadableBatchError(f"{where}, offset {batch.base}: the batch is not whole {codec} ({error})") from error


def _decompress_snappy(payload: bytes) -> bytes:
    """Snappy as Java writes it, in blocks with a header, or without."""
    if not payload.startswith(_XERIAL):
        return _decompress_block(payload)
    # behind the mark and two numbers of versions
    blocks, place = [], 16
    while place < len(payload):
        (length,) = struct.unpack_from(">i", payload, place)
        blocks.append(_decompress_block(payload[place + 4 : place + 4 + length]))
        place += 4 + length
    return b"".join(blocks)


def _decompress_block(block: bytes) -> bytes:
    """A block of snappy, which begins with how long it will be."""
    size = shift = 0
    for octet in block[:5]:
        size |= (octet & 0x7F) << shift
        shift += 7
        if not octet & 0x80:
            break
    return bytes(pa.Codec("snappy").decompress(block, size).to_pybytes())


@dataclass(frozen=True)
class OffsetRange:
    """Offsets of a partition from ``begin`` to before ``end``."""

    partition: int
    begin: int
    end: int

    def split_path(self, topic: str) -> str:
        """Its name, as that of a split."""
        return f"{topic}/{self.partition}/{self.begin}-{self.end}"

    @classmethod
    def from_split(cls, split: SourceSplit) -> Self:
        """The range that a split is."""
        _, partition, offsets = split.path.rsplit("/", 2)
        begin, _, end = offsets.partition("-")
        return cls(int(partition), int(begin), int(end))


@dataclass(frozen=True)
class NewPartitions:
    """Partitions from ``first`` to before ``end``, which were added since the topic was last looked at. It is a split
    without records, which comes before any records of these partitions. ``begins``: the offset from which one is read,
    where that is not 0; None in splits of 0.1.0, which do not say it. Numbers from ``end`` on are those of partitions
    that are gone, since the topic was replaced.
    """

    first: int
    end: int
    begins: Mapping[int, int] | None = None

    def split_path(self, topic: str) -> str:
        """Its name, as that of a split; no partition is called so. 0.1.0 takes what is before ``/partitions`` for the
        topic, and so can read those that say where partitions begin.
        """
        parts = [topic]
        if self.begins is not None:
            parts += ["begins", *(f"{one}={offset}" for one, offset in sorted(self.begins.items()))]
        return "/".join([*parts, "partitions", f"{self.first}-{self.end}"])

    @classmethod
    def from_split(cls, split: SourceSplit) -> Self | None:
        """The partitions that the split says are new; None if it is a range of offsets."""
        match = _NEW_PARTITIONS.fullmatch(split.path)
        if match is None:
            return None
        begins = None
        if match["begins"] is not None:
            begins = {int(number): int(offset) for number, offset in _PARTITION_BEGIN.findall(match["begins"])}
        return cls(int(match["first"]), int(match["end"]), begins)

    @property
    def gone_partitions(self) -> list[int]:
        """The partitions that the topic has no more."""
        return [number for number in self.begins or () if number >= self.end]

    def next_offsets(self) -> dict[int, int]:
        """The offset that comes next in each of them, before any of their records; empty if the split does not say."""
        if self.begins is None:
            return {}
        return {number: self.begins.get(number, 0) for number in range(self.first, self.end)}


_NEW_PARTITIONS = re.compile(
    r"[^/]*(?:/begins(?P<begins>(?:/\d+=\d+)*))?/partitions/(?P<first>\d+)-(?P<end>\d+)"  # no topic has a slash
)
_PARTITION_BEGIN = re.compile(r"(\d+)=(\d+)")


@dataclass(frozen=True)
class TopicPosition:
    """How far a topic was read: its id (empty at first), next offsets by partition, how many partitions are known."""

    topic_id: str = ""
    next: Mapping[int, int] = field(default_factory=dict)
    partitions: int = 0

    @classmethod
    def parse(cls, mark: str) -> Self:
        """The inverse of ``mark``. Raises ValueError."""
        if not mark:
            return cls()
        position_json = json.loads(mark)
        next_offsets = {int(number): int(offset) for number, offset in position_json["next"].items()}
        return cls(str(position_json["topic_id"]), next_offsets, int(position_json.get("partitions", 0)))

    @property
    def mark(self) -> str:
        """The position as text."""
        next_offsets = {str(number): self.next[number] for number in sorted(self.next)}
        position_json = {"topic_id": self.topic_id, "next": next_offsets, "partitions": self.partitions}
        return json.dumps(position_json, sort_keys=True, separators=(",", ":"))

    def with_splits_read(self, splits: Sequence[SourceSplit]) -> "TopicPosition":
        """The position once ``splits`` have been read; where they are of another topic, nothing of this one is left."""
        topic_id = splits[-1].etag
        topic_position = self if self.topic_id in ("", topic_id) else TopicPosition()
        next_offsets, partitions = {**topic_position.next}, topic_position.partitions
        for split in splits:
            new = NewPartitions.from_split(split)
            if new is not None:
                partitions = max(partitions, new.end)
                next_offsets = {**new.next_offsets(), **next_offsets}
            else:
                one = OffsetRange.from_split(split)
                next_offsets[one.partition] = one.end
        return TopicPosition(topic_id, next_offsets, partitions)


def in_turns(unread: Sequence[OffsetRange], most: int) -> Iterator[OffsetRange]:
    """``unread``, one range of each partition, in pieces of at most ``most`` offsets. In each turn every partition
    advances by the same part of its range, so none gets ahead of the others by more than that.
    """
    turns = max((-(-(one.end - one.begin) // most) for one in unread), default=0)
    for turn in range(turns):
        for one in unread:
            lag = one.end - one.begin
            begin, end = (one.begin + lag * number // turns for number in (turn, turn + 1))
            if begin < end:
                yield OffsetRange(one.partition, begin, end)


def sample_ranges(unread: Sequence[OffsetRange], places: int) -> Iterator[OffsetRange]:
    """What comes behind so many places in ``unread``, each of another partition and further on in it, as far as there
    are partitions. The partitions with most records are taken.
    """
    largest = sorted(unread, key=lambda one: one.begin - one.end)[:places]
    for number in range(places):
        one = largest[number % len(largest)]
        yield replace(one, begin=one.begin + (one.end - one.begin) * number // places)
