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


class TornExchangeError(RetryError):
    """Blobs of a task are missing, or are of two runs of it."""

    code = "retry.shuffle_incomplete"


@dataclass(frozen=True)
class ReceivedMessage:
    """What one task of the level above said to a part: what it ``found``, and rows for the part (None: none)."""

    task: int
    digest: bytes
    found: Any
    rows: pa.RecordBatch | None


def say(
    task: int, parts: int, found: Any, content: bytes, bundles: Mapping[int, pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows with which ``task`` tells all ``parts`` what it ``found``, and some of them their ``bundles``.

    ``content`` stands for ``found`` in the digest: two runs of a task may differ in what does not matter.
    """
    written = {part: _written(rows) for part, rows in sorted(bundles.items()) if rows.num_rows}
    digest = hashlib.sha256(content)
    for part, data in written.items():
        digest.update(part.to_bytes(4, "little"))
        digest.update(data)
    stamp, header = digest.digest(), pickle.dumps(found)
    for part in range(parts):
        data = written.get(part, pa.py_buffer(b""))
        blobs = [data[at : at + BLOB_BYTES].to_pybytes() for at in range(0, len(data), BLOB_BYTES)]
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


def _written(rows: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return sink.getvalue()


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
    return [_heard(task, own) for task, own in sorted(blobs.items())]


def _heard(task: int, blobs: dict[int, tuple[bytes, pa.Scalar]]) -> ReceivedMessage:
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
