"""Batches become the columns that aiokafka reads record by record, whatever they hold, however compressed."""

import random
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c

from headrace.connectors.kafka.offsets import UnreadableBatchError, as_table, batches_of
from headrace_lab.sizes import set_sizes

_ATTRIBUTES, _SUM, _PAYLOAD = 21, 17, 61


def batch(draw: random.Random, base: int, count: int, *, headers: bool) -> bytes:
    """A batch with offsets from ``base`` on."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, 7, 1, 0, 1 << 26)
    for number in range(count):
        key = None if draw.random() < 0.1 else draw.randbytes(draw.choice((0, 3, 70)))
        value = None if draw.random() < 0.05 else draw.randbytes(draw.choice((0, 1, 63, 64, 200, 9_000)))
        some = [(f"h{n}", None if draw.random() < 0.2 else draw.randbytes(n)) for n in range(draw.randrange(4))]
        builder.append(number, 1_790_000_000_000 + draw.randrange(-(10**9), 10**9), key, value, some if headers else [])
    batch_bytes = bytearray(builder.build())
    batch_bytes[0:8] = base.to_bytes(8, "big")
    return bytes(batch_bytes)


def compress_batch(content: bytes, codec: int) -> bytes:
    """``content`` with its payload compressed, as brokers store what producers have compressed."""
    payload = content[_PAYLOAD:]
    if codec == 2:
        blocks = [payload[place : place + 100] for place in range(0, len(payload), 100)]
        packed_blocks = [pa.compress(block, "snappy", asbytes=True) for block in blocks]
        small = (
            b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(p)) + p for p in packed_blocks)
        )
    else:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, {1: "gzip", 3: "lz4", 4: "zstd"}[codec]) as stream:
            stream.write(payload)
        small = sink.getvalue().to_pybytes()
    whole = bytearray(content[:_PAYLOAD] + small)
    whole[8:12] = struct.pack(">i", len(whole) - 12)
    whole[_ATTRIBUTES : _ATTRIBUTES + 2] = struct.pack(">h", codec)
    whole[_SUM : _SUM + 4] = struct.pack(">I", calc_crc32c(bytes(whole[_ATTRIBUTES:])))
    return bytes(whole)


def record_by_record(data: bytes) -> list[tuple[Any, ...]]:
    records, rows = MemoryRecords(data), []
    while records.has_next():
        rows += [(r.offset, r.timestamp, r.key, r.value, [*r.headers]) for r in records.next_batch()]
    return rows


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    times = table["timestamp"].cast(pa.int64()).to_pylist()
    return [
        (
            row["offset"],
            time,
            row["key"],
            row["value"],
            [(header["name"], header["value"]) for header in row["headers"] or ()],
        )
        for row, time in zip(table.to_pylist(), times, strict=True)
    ]


@pytest.mark.parametrize("codec", range(5))
def test_batches_are_as_aiokafka_reads_them(codec: int) -> None:
    draw = random.Random(codec)
    plain, data, base = b"", b"", 5
    for count in (3, 1, 40, 7, 90, 1):
        made_batch = batch(draw, base, count, headers=codec % 2 == 0)
        plain, data = plain + made_batch, data + (compress_batch(made_batch, codec) if codec else made_batch)
        base += count
    batches = batches_of(data + data[:40], "here")  # the last one is cut, as brokers do
    rows = rows_of(as_table(batches, 3, 0, base, "here"))
    assert rows == record_by_record(plain)
    assert rows_of(as_table(batches, 3, 10, 100, "here")) == [row for row in rows if 10 <= row[0] < 100]


def test_a_record_without_a_time_has_none() -> None:
    builder = DefaultRecordBatchBuilder(2, 0, 0, 7, 1, 0, 1 << 20)
    for number, time in enumerate((7, -1, 5)):
        builder.append(number, time, None, b"{}", [])
    table = as_table(batches_of(bytes(builder.build()), "here"), 0, 0, 3, "here")
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [7, None, 5]


def test_a_name_of_a_header_that_is_no_text_stops_nobody() -> None:
    builder = DefaultRecordBatchBuilder(2, 0, 0, 7, 1, 0, 1 << 20)
    for number, header in enumerate(("kind", "NAME", "ende")):
        builder.append(number, 5, None, b"{}", [(header, b"%d" % number)])
    text = bytes(builder.build()).replace(b"NAME", b"\xff\xfeok")
    data = text[:_SUM] + struct.pack(">I", calc_crc32c(text[_ATTRIBUTES:])) + text[_ATTRIBUTES:]
    table = as_table(batches_of(data, "here"), 0, 0, 3, "here")
    assert [header["name"] for (header,) in table["headers"].to_pylist()] == [
        "kind",
        "\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}ok",
        "ende",
    ]


def test_batches_that_are_too_large_at_once_are_read_one_after_the_other() -> None:
    draw = random.Random(9)
    data = b"".join(batch(draw, 20 * number, 20, headers=True) for number in range(8))
    with set_sizes(kafka_batch_bytes=len(data) // 3):
        assert rows_of(as_table(batches_of(data, "here"), 3, 0, 160, "here")) == record_by_record(data)
        with pytest.raises(UnreadableBatchError, match="offset 0: the batch has more than"):
            as_table(batches_of(batch(draw, 0, 2_000, headers=False), "here"), 3, 0, 160, "here")


def test_a_batch_that_is_not_what_it_was_is_refused() -> None:
    made_batch = batch(random.Random(1), 0, 10, headers=True)
    for place in np.linspace(_ATTRIBUTES, len(made_batch) - 1, 40).astype(int):
        wrong = bytearray(made_batch)
        wrong[place] ^= 1
        with pytest.raises(UnreadableBatchError, match=r"here, offset 0: .*checksum"):
            batches_of(bytes(wrong), "here")
    old = bytearray(made_batch)
    old[16] = 1
    with pytest.raises(UnreadableBatchError, match=r"its format is 1, older than Kafka 0\.11"):
        batches_of(bytes(old), "here")
