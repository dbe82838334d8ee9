"""What an epoch drops, as tables that can be read: late records, and dead letters."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.distribute.records import Records
from headrace.kernel.delta import Disposition
from headrace.kernel.elements import Columns, takes_part
from headrace.kernel.grouping import Ints, valid
from headrace.kernel.stage import CompiledStage
from headrace.kernel.step import timestamps
from headrace.kernel.types import TIMESTAMP
from headrace.kernel.windows.assignment import Assigned
from headrace.program import columns as c
from headrace.sources.formats.json_text import as_json
from headrace_snapshots.format.table_names import UNNAMED


def late_rows(
    stage: CompiledStage, records: Records, judged: Columns, late: Assigned | None, epoch: int
) -> pa.RecordBatch | None:
    """Dropped (record, window) pairs of ``records``, which were ``judged`` for ``stage``: keys, event time, window, the
    reason, input, file, the raw record and the epoch.

    The window of a record that is too late to be told from a duplicate is NULL.
    """
    rows, start, end = (np.zeros(0, np.int64),) * 3 if late is None else (late.row, late.start, late.end)
    forgotten = _forgotten(judged)
    dropped = np.concatenate([rows, forgotten])
    if not len(dropped):
        return None
    order = np.argsort(dropped, kind="stable")
    indices, has_window = pa.array(dropped[order]), order < len(rows)
    no_window = np.zeros(len(forgotten), np.int64)
    windows = [pa.array(np.concatenate([ends, no_window])[order], mask=~has_window) for ends in (start, end)]
    origins = records.of(dropped[order])
    columns = {name: judged[name].take(indices) for name in stage.keys}
    columns["event_time"] = judged[c.EVENT_TIME].take(indices).cast(TIMESTAMP)
    columns["window_start"], columns["window_end"] = (timestamps(granules) for granules in windows)
    columns["reason"] = pc.if_else(pa.array(has_window), "window expired", "id beyond its horizon")
    columns |= {"input": origins["input"], "file": origins["file"], "raw": _text(origins["raw"])[0]}
    columns["epoch"] = pa.repeat(pa.scalar(epoch, pa.int64()), len(order))
    return pa.RecordBatch.from_pydict(columns)


def _forgotten(judged: Columns) -> Ints:
    if c.SEEN not in judged:
        return np.zeros(0, np.int64)
    forgotten = pc.equal(judged[c.SEEN], int(Disposition.FORGOTTEN)).fill_null(False)
    return np.flatnonzero(forgotten.to_numpy(zero_copy_only=False) & takes_part(judged))


def rejected_rows(records: Records, epoch: int, outputs: Sequence[str]) -> pa.RecordBatch | None:
    """The dead letters: ``input``, ``file``, ``position``, ``reason``, ``raw``, ``raw_bytes``, ``epoch``.

    ``position`` and ``raw`` are NULL for a file that cannot be read at all. ``raw_bytes`` are those of a record that is
    no text; ``raw`` has U+FFFD in place of some then. Where ``outputs`` have names, ``output`` is the one that cannot
    take the record, NULL if none can.
    """
    by_none = records.is_rejected
    is_named = [*outputs] != [UNNAMED.output]
    nobody = None if is_named else UNNAMED.output
    by_output = [_rejected_by(nobody, records, records.columns[c.REJECT], np.flatnonzero(by_none), epoch)]
    if not is_named:
        return by_output[0]
    for output, judged in zip(outputs, records.chains, strict=True):
        dead = np.flatnonzero(valid(judged[c.REJECT]) & ~by_none)
        by_output.append(_rejected_by(output, records, judged[c.REJECT], dead, epoch))
    rows = [batch for batch in by_output if batch is not None]
    return None if not rows else rows[0] if len(rows) == 1 else pa.concat_batches(rows)


def _rejected_by(
    output: str | None, records: Records, reasons: pa.Array, rows: Ints, epoch: int
) -> pa.RecordBatch | None:
    if not len(rows):
        return None
    return _dead_letters(records.of(rows), reasons.take(pa.array(rows)), epoch, output)


def dead_panes(
    stage: CompiledStage,
    above: int,
    panes: Mapping[str, pa.Array],
    judged: Mapping[str, pa.Array],
    epoch: int,
    *,
    output: str,
) -> pa.RecordBatch | None:
    """The ``panes`` of aggregation ``above`` of an ``output`` that ``stage`` cannot take (``judged`` says why); None if
    it takes all.
    """
    reasons = judged[c.REJECT]
    dead = np.flatnonzero(valid(reasons))
    if not len(dead):
        return None
    shown = {name: panes[name] for name in stage.stage.schema}
    shown["pane_time"] = panes[c.EVENT_TIME].cast(TIMESTAMP)
    if stage.stage.withdrawable:
        shown["is_retraction"] = pc.less(panes[c.SIGN], 0)
    return _rejected_panes(above, reasons.take(pa.array(dead)), as_json(shown, dead), epoch, output)


def _rejected_panes(above: int, reasons: pa.Array, raw: pa.Array, epoch: int, output: str) -> pa.RecordBatch:
    """Panes of aggregation ``above`` that the next one cannot take, as ``rejected_rows`` gives them. They have no
    file.
    """
    length = len(reasons)
    places = {
        "input": pa.repeat(pa.scalar(f"aggregation {above}"), length),
        "file": pa.nulls(length, pa.string()),
        "position": pa.nulls(length, pa.int64()),
        "raw": raw,
    }
    return _dead_letters(places, reasons, epoch, output)


def _dead_letters(places: Mapping[str, pa.Array], reasons: pa.Array, epoch: int, output: str | None) -> pa.RecordBatch:
    text, octets = _text(places["raw"])
    of = {} if output == UNNAMED.output else {"output": pa.repeat(pa.scalar(output, pa.string()), len(reasons))}
    return pa.RecordBatch.from_pydict(
        {
            **of,
            "input": places["input"],
            "file": places["file"],
            "position": places["position"],
            "reason": reasons,
            "raw": text,
            "raw_bytes": octets,
            "epoch": pa.repeat(pa.scalar(epoch, pa.int64()), len(reasons)),
        }
    )


def _text(raw: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Records as text, and the bytes of those that are none."""
    try:
        return raw.cast(pa.string()), pa.nulls(len(raw), pa.binary())
    except (pa.ArrowInvalid, UnicodeDecodeError):
        values: Sequence[bytes | None] = raw.to_pylist()  # where some are not text: they are dead letters, one by one
        texts = [None if value is None else value.decode(errors="replace") for value in values]
        octets = [None if value is None or _is_text(value) else value for value in values]
        return pa.array(texts, pa.string()), pa.array(octets, pa.binary())


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
