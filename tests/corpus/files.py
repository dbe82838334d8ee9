"""Files that are dead letters as a whole, by format: ``FAILING_ON_OPEN`` are found at the beginning,
``TORN_FILES`` in the middle.
"""

import gzip
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.corpus import BrokenFile, T

MANY = 20_000


def table(**columns: Any) -> pa.Table:
    """A table of one record, with ``columns`` beside its event time and key (or in their place)."""
    return pa.table({"time": pa.array([datetime(2013, 1, 1, 5)], pa.timestamp("us")), "user": ["u"]} | columns)


def parquet(content: pa.Table, **options: Any) -> bytes:
    """``content`` as a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(content, sink, **options)
    return bytes(sink.getvalue())


def torn_column(column: str, users: list[str | None]) -> bytes:
    """A Parquet file with a record for each of ``users`` and the pages of ``column`` overwritten."""
    count = len(users)
    times = pa.array([datetime(2013, 1, 1, 5)] * count, pa.timestamp("us"))
    numbers = {
        "n": pa.array(range(count)),
        "x": pa.array([i * 1.5 for i in range(count)]),
        "ok": [True, False] * (count // 2),
    }
    content = parquet(pa.table({"time": times, "user": users, **numbers}), use_dictionary=False)
    group = pq.read_metadata(pa.BufferReader(content)).row_group(0)
    (place,) = [group.column(i) for i in range(group.num_columns) if group.column(i).path_in_schema == column]
    start, end = place.data_page_offset, place.data_page_offset + place.total_compressed_size
    return content[:start] + b"\xff" * (end - start) + content[end:]


def not_utf8(*values: bytes) -> pa.Array:
    """A column of strings that hold these bytes."""
    binary = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(values), binary.buffers())


FAILING_ON_OPEN: Mapping[str, list[BrokenFile]] = {
    "parquet": [
        BrokenFile("a torn footer", "bad.x", parquet(table())[:-5], "it has no Parquet footer"),
        BrokenFile(
            "no Parquet at all", "bad.x", b"not parquet, but long enough to hold a footer", "it has no Parquet footer"
        ),
        BrokenFile(
            "a lying footer",
            "bad.x",
            b"PAR1" + b"\0" * 20 + b"\xff\xff\xff\x7fPAR1",
            "its Parquet footer is longer than the file",
        ),
        BrokenFile(
            "garbage in the footer", "bad.x", b"PAR1" + b"\xff" * 20 + b"\x14\0\0\0PAR1", "its Parquet footer is broken"
        ),
        BrokenFile(
            "a footer of other rows than its row groups",
            "bad.x",
            parquet(table()).replace(b"\x16\x02\x19\x1c", b"\x16\x00\x19\x1c"),  # 0 for 1, before the row groups
            "its footer says that it has 0 rows, and its row groups have 1",
        ),
        BrokenFile(
            "another type",
            "bad.x",
            parquet(table(n=pa.array([1.0]))),
            "its column n is double, and the source says int",
        ),
        BrokenFile(
            "no event time",
            "bad.x",
            parquet(pa.table({"user": ["u"]})),
            "its schema lacks column time, without which every record has no event time",
        ),
        BrokenFile(
            "a column twice",
            "bad.x",
            parquet(pa.table([*table().columns, ["v"]], names=["time", "user", "user"])),
            "its schema names column user 2 times",
        ),
        BrokenFile(
            "a column whose name is not UTF-8",
            "bad.x",
            parquet(table(unlike_any=[1])).replace(b"unlike_any", b"unlike\xff\xfe__"),
            "a column of it has a name that is not UTF-8",
        ),
    ],
    "csv": [
        BrokenFile(
            "no key in the header",
            "bad.x",
            f"time,n\n{T},1\n".encode(),
            "its header lacks column user, without which every record has no key user",
        ),
        BrokenFile(
            "a column twice", "bad.x", f"time,user,user\n{T},1,2\n".encode(), "its header names column user 2 times"
        ),
        BrokenFile(
            "a torn gzip header", "bad.csv.gz", gzip.compress(b"time,user\n")[:12], "it is not a whole gzip file"
        ),
        BrokenFile(
            "a header that is not UTF-8", "bad.x", b"time,user,\xff\n%s,u,1\n" % T.encode(), "its header is not UTF-8"
        ),
        BrokenFile(
            "a header field of 131,073 characters",
            "bad.x",
            f"time,user,{'a' * 131_073}\n{T},u,1\n".encode(),
            "its header is not a line of CSV (field larger than field limit (131072))",
        ),
        BrokenFile(
            "a header without end", "bad.x", b"time,user," * 200_000, "its header does not end within 1048576 bytes"
        ),
    ],
}

_LINE = json.dumps({"time": T, "user": "u", "n": 0}).encode() + b"\n"
_LINES = b"".join(_LINE.replace(b"0}", b"%d}" % n) for n in range(MANY))
_USERS: list[str | None] = ["u"] * MANY

TORN_FILES: Mapping[str, list[BrokenFile]] = {
    "json": [
        BrokenFile("a torn gzip stream", "torn.json.gz", gzip.compress(_LINES)[:-2_000], "it is not a whole gzip file"),
        BrokenFile("no gzip at all", "torn.json.gz", _LINES, "it is not a whole gzip file"),
    ],
    "parquet": [
        BrokenFile("a torn column", "torn.parquet", torn_column("n", _USERS), ""),
        BrokenFile("a torn key", "torn.parquet", torn_column("user", _USERS), ""),
        BrokenFile("a torn column that no aggregate reads", "torn.parquet", torn_column("ok", [None, *_USERS[1:]]), ""),
    ],
}
"""Files that turn out to be torn while they are read."""
