"""What crosses an exchange between two levels of tasks.

What crosses an exchange between two levels of tasks: rows of blobs, each for one part of the level below.

A task sends every part what it found, and the part its share of a bundle, as Arrow IPC cut into blobs of at most
BLOB_BYTES (each passes through the JVM, which holds a few). Blobs are numbered; the digest of
all that a task said tells whether two parts heard the same, since a task may run twice.

The elements that one task has for a stage, on their way to the tasks that hold its keys.

Mostly they are aggregated first: a share's delta stands for its elements. Where the order of arrival counts in the
stage, and tasks above hold elements that arrived in turns, the elements travel themselves, each with its place.
"""

import hashlib
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import RetryError
from headrace.kernel.delta import AggregatedBundle, KeyHashes, aggregate
from headrace.kernel.elements import Columns, takes_part
from headrace.kernel.keys import hashes
from headrace.kernel.stage import CompiledStage
from headrace.model.time import Instant
from headrace.program import columns as c
from headrace.state.key_groups import part_of, parts

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


_PLACE = "_place_"
_SHARE_BITS = 40
_UNUSED = frozenset({c.SPLIT, c.MARK, c.ID, c.SEEN, c.REJECT, c.ADMITTED})


@dataclass(frozen=True)
class ShuffleInput:
    """A bundle aggregated, and what of it goes to which part."""

    aggregated: AggregatedBundle = field(default_factory=AggregatedBundle)
    parts: Mapping[int, pa.RecordBatch] = field(default_factory=dict)


def bundle(
    stage: CompiledStage,
    judged: Columns,
    order: Columns | None,
    watermark: Instant,
    output_watermark: Instant,
    *,
    share: int,
    number: int,
    hashed: KeyHashes | None = None,
) -> ShuffleInput:
    """``judged`` rows as share number ``share`` of the elements of an epoch, for ``number`` parts of the keys of
    ``stage``, under its old ``watermark`` and ``output_watermark``. ``order``: columns by which rows of all shares are
    in order, None if that of the shares is enough. ``hashed``: those of keys of the same rows, for other stages.
    """
    place = share << _SHARE_BITS
    aggregated = aggregate(stage, judged, watermark, output_watermark, place=place, hashed=hashed)
    if aggregated.delta is None:
        return ShuffleInput(aggregated)
    if order is None:
        in_order = aggregated.delta.column(c.HASH).to_numpy()
        spans = {part: keys.span(in_order) for part, keys in enumerate(parts(number))}
        cut = {part: aggregated.delta.slice(span.start, span.stop - span.start) for part, span in spans.items()}
        return ShuffleInput(aggregated, {part: rows for part, rows in cut.items() if rows.num_rows})
    return ShuffleInput(aggregated, _travelling(stage, judged, order, number))


def _travelling(stage: CompiledStage, judged: Columns, order: Columns, number: int) -> dict[int, pa.RecordBatch]:
    counts = takes_part(judged)
    if c.SEEN in judged:  # NULL for what is new
        counts &= judged[c.SEEN].is_null().to_numpy(zero_copy_only=False)
    rows = {name: values for name, values in judged.items() if name not in _UNUSED}
    rows |= {f"{_PLACE}{name}": values for name, values in order.items()}
    return by_part(pa.RecordBatch.from_pydict(rows).filter(pa.array(counts)), stage.keys, number)


def by_part(rows: pa.RecordBatch, names: Sequence[str], number: int) -> dict[int, pa.RecordBatch]:
    """``rows`` by the part that the hash of the columns called ``names`` is of, out of so many."""
    part_of_row = part_of(hashes([rows.column(name) for name in names], rows.num_rows), number)
    return {int(part): rows.filter(pa.array(part_of_row == part)) for part in np.unique(part_of_row)}


def deltas_of(
    stage: CompiledStage, shares: Iterable[pa.RecordBatch | None], watermark: Instant, output_watermark: Instant
) -> list[pa.RecordBatch]:
    """The delta of one part out of the ``shares`` of all tasks above, in their order: pieces, each in the order of its
    hashes, that are the delta one below the other.
    """
    rows = [share for share in shares if share is not None and share.num_rows]
    places = [(name, "ascending") for name in rows[0].schema.names if name.startswith(_PLACE)] if rows else []
    if not places:
        return rows
    arrived = pa.concat_batches(rows)
    arrived = arrived.take(pc.sort_indices(arrived, sort_keys=places))
    columns = {name: arrived.column(name) for name in arrived.schema.names if not name.startswith(_PLACE)}
    columns[c.REJECT] = pa.nulls(arrived.num_rows, pa.string())
    columns[c.ADMITTED] = pa.repeat(pa.scalar(True), arrived.num_rows)
    delta = aggregate(stage, columns, watermark, output_watermark).delta
    return [] if delta is None else [delta]
