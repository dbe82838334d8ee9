"""A user's batch functions, good ones and bad ones; the pipelines of the tests beside it name them."""

import itertools
import random
import threading
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

import headrace as hr


def _flat(batch: pa.RecordBatch, rows: Sequence[int], **columns: pa.Array) -> pa.RecordBatch:
    """``rows`` of ``batch``, some of them more than once, with other ``columns``."""
    flat = batch.take(pa.array(rows, pa.int64()))
    for name, values in columns.items():
        place = flat.schema.get_field_index(name)
        flat = flat.append_column(name, values) if place < 0 else flat.set_column(place, name, values)
    return flat


def words(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A row for each word of a text."""
    split = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(batch.column("text")))
    words_, rows = pc.list_flatten(split), pc.list_parent_indices(split).cast(pa.int64())
    flat = _flat(batch, rows.to_pylist()).drop_columns(["text"]).append_column("word", words_)
    return flat.filter(pc.not_equal(flat.column("word"), ""))


def repeat_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Each row x modulo 3 times, with numbers that ascend; the last rows come first."""
    rows = [row for row, x in enumerate(batch.column("x").to_pylist()) for _ in range(copies(x))]
    numbers = [k for x in batch.column("x").to_pylist() for k in range(copies(x))]
    x = [None if x is None else x + k for x, k in zip(_flat(batch, rows).column("x").to_pylist(), numbers, strict=True)]
    flat_batch = _flat(batch, rows, x=pa.array(x, pa.int64()))
    first = [n for n, row in enumerate(rows) if row >= batch.num_rows // 2]
    last = [n for n, row in enumerate(rows) if row < batch.num_rows // 2]
    return flat_batch.take(pa.array(first + last, pa.int64()))


def repeat_panes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Each pane n modulo 3 times, with its number of them for n."""
    n = batch.column("n").to_pylist()
    rows = [row for row, times in enumerate(n) for _ in range(copies(times))]
    return _flat(batch, rows, n=pa.array([k for times in n for k in range(copies(times))], pa.int64()))


def bare(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same of words, without the times of panes."""
    return repeat_panes(batch).select(["_row", "word", "n"])


def copies(x: int | None) -> int:
    """How often ``repeat_rows`` gives a row."""
    return 1 if x is None else x % 3


def spell_letters(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A row for each letter of a word."""
    words_ = batch.column("word").to_pylist()
    rows = [row for row, word in enumerate(words_) for _ in word]
    return _flat(batch, rows, letter=pa.array([*"".join(words_)])).select(["_row", "letter"])


_lock = threading.Lock()
calls: list[int] = []
"""How many rows ``same`` was given each time."""


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    """What it got."""
    calls.append(batch.num_rows)
    return batch


_numbers: Iterator[int] = itertools.count()
_seen_texts: set[str] = set()


def forget_calls() -> None:
    """Let functions answer as in a new process."""
    global _numbers  # noqa: PLW0603
    _numbers = itertools.count()
    _seen_texts.clear()


def number_calls(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with a number that goes on from call to call."""
    numbers = [next(_numbers) for _ in range(batch.num_rows)]
    return batch.set_column(batch.schema.get_field_index("n"), "n", pa.array(numbers, pa.int64()))


def first_ones(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows whose text has not come yet."""
    texts = batch.column("text").to_pylist()
    new = [text not in _seen_texts for text in texts]
    _seen_texts.update(texts)
    return batch.filter(pa.array(new))


def add_random(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with a random number."""
    numbers = [random.getrandbits(60) for _ in range(batch.num_rows)]
    return batch.set_column(batch.schema.get_field_index("n"), "n", pa.array(numbers, pa.int64()))


def shares(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with what stands in others."""
    total = pc.sum(batch.column("n")).as_py()
    return batch.set_column(batch.schema.get_field_index("n"), "n", pa.repeat(pa.scalar(total), batch.num_rows))


def number_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with their number in the batch."""
    return batch.set_column(batch.schema.get_field_index("n"), "n", batch.column("_row"))


def not_numbers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with NaN, which is equal to itself for whoever compares."""
    return batch.append_column("share", pa.repeat(pa.scalar(float("nan")), batch.num_rows))


def without_row(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows that do not say what they were made of."""
    return batch.drop_columns(["_row"])


def invent_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of a record that was not there."""
    return batch.set_column(batch.schema.get_field_index("_row"), "_row", pa.array([7] * batch.num_rows))


def of_nothing(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of NULL."""
    return batch.set_column(batch.schema.get_field_index("_row"), "_row", pa.nulls(batch.num_rows, pa.int64()))


def narrow(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A column of another type."""
    place = batch.schema.get_field_index("n")
    return batch.set_column(place, "n", batch.column("n").cast(pa.int32()))


def more(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A column that is not declared."""
    return batch.append_column("more", batch.column("n"))


def less(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A column is missing."""
    return batch.drop_columns(["n"])


def double_column(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A column comes twice."""
    return batch.append_column("n", batch.column("n"))


def torn_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Text that is not UTF-8."""
    octets = pa.array([b"\xff"] * batch.num_rows, pa.binary())
    text = pa.StringArray.from_buffers(len(octets), *octets.buffers()[1:])
    return batch.set_column(batch.schema.get_field_index("text"), "text", text)


def table(batch: pa.RecordBatch) -> pa.Table:
    """A table in place of a batch."""
    return pa.Table.from_batches([batch])


def pass_with_lock(batch: pa.RecordBatch) -> pa.RecordBatch:
    """What it got, one call at a time; the lock cannot be copied."""
    with _lock:
        return batch


def fails(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Nothing: it fails."""
    raise KeyError(batch.num_rows)


def asks_again(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Nothing: what it asks does not answer."""
    raise hr.errors.RetryError("the prices do not answer")
