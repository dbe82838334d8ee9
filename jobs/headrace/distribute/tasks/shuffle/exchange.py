"""What crosses an exchange between two levels of tasks: rows of blobs, each for one part of the level below.

A task sends every part what it found, and the part its share of a bundle, as Arrow IPC cut into blobs of at most
BLOB_BYTES (each passes through the JVM, which holds a few). Blobs are numbered; the digest of
all that a task said tells whether two parts heard the same, since a task may run twice.
"""

import hashlib
import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.errors import RetryError

BLOB_BYTES = 1024 * 1024
SCHEMA = pa.schema(
    [
        ("part", pa.int32()),
        ("task", pa.int64()),
        ("number", pa.int32()),
        ("digest", pa.binary()),
        ("blob", pa.binary()),
    ]
)
"""``task`` numbers the tasks of a level in the order of what they say; blob number 0 is what a task found."""


@dataclass(frozen=True)
class ReceivedMessage:
    """What one task of the level above said to a part: its ``result``, and rows for the part (None: none)."""

    task: int
    digest: bytes
    result: Any
    rows: pa.RecordBatch | None


def say(
    task: int, parts: int, result: Any, content: bytes, bundles: Mapping[int, pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows with which ``task`` tells all ``parts`` its ``result``, and some of them their ``bundles``.

    ``content`` stands for ``result`` in the digest: two runs of a task may differ in what does not matter.
    """
    streams = {part: _as_stream(rows) for part, rows in sorted(bundles.items()) if rows.num_rows}
    digest = hashlib.sha256(content)
    for part, stream in streams.items():
        digest.update(part.to_bytes(4, "little"))
        digest.update(stream)
    stamp, header = digest.digest(), pickle.dumps(result)
    for part in range(parts):
        stream = streams.get(part, pa.py_buffer(b""))
        blobs = [stream[at : at + BLOB_BYTES].to_pybytes() for at in range(0, len(stream), BLOB_BYTES)]
        head = len(blobs).to_bytes(4, "little") + header
        for number, blob in enumerate([head, *blobs]):
            yield _row(part, task, number, stamp, blob)


def _row(part: int, task: int, number: int, digest: bytes, blob: bytes) -> pa.RecordBatch:
    columns = [
        pa.array([part], pa.int32()),
        pa.array([task], pa.int64()),
        pa.array([number], pa.int32()),
        pa.array([digest], pa.binary()),
        pa.array([blob], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _as_stream(rows: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return sink.getvalue()


class TornExchangeError(RetryError, code="retry.shuffle_incomplete"):
    """Blobs of a task are missing, or are of two runs of it."""


def hear(batches: Iterable[pa.RecordBatch], tasks: int) -> list[ReceivedMessage]:
    """What all tasks of the level above said to one part, in their order; the first so many ``tasks`` are among them.
    Raises TornExchangeError.
    """
    blobs: dict[int, dict[int, tuple[bytes, pa.Scalar]]] = {}
    for batch in batches:
        for row in range(batch.num_rows):
            task, number, digest = (batch.column(name)[row].as_py() for name in ("task", "number", "digest"))
            blobs.setdefault(task, {})[number] = (digest, batch.column("blob")[row])
    if silent := sorted(set(range(tasks)) - set(blobs)):
        raise TornExchangeError(f"task {silent[0]} of {tasks} sent nothing: run again")
    return [_message(task, sent) for task, sent in sorted(blobs.items())]


def _message(task: int, blobs: dict[int, tuple[bytes, pa.Scalar]]) -> ReceivedMessage:
    stamps = {digest for digest, _ in blobs.values()}
    if len(stamps) != 1 or 0 not in blobs:
        raise TornExchangeError(f"what task {task} said is of {len(stamps)} runs of it: run again")
    head = blobs[0][1].as_buffer()
    count = int.from_bytes(head[:4], "little")
    if sorted(blobs) != list(range(count + 1)):
        raise TornExchangeError(f"of {count} blobs of task {task} {len(blobs) - 1} have come: run again")
    rows = None
    if count:
        pieces = [blobs[number][1].as_buffer() for number in range(1, count + 1)]
        with pa.ipc.open_stream(b"".join(pieces)) as reader:  # a copy: what comes through Spark is not aligned
            rows = reader.read_next_batch()
    return ReceivedMessage(task, stamps.pop(), pickle.loads(head[4:]), rows)  # noqa: S301 (our own, of this application)
