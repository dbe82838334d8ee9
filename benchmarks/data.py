"""Seeded data of the benchmarks: out-of-order payments of users who come in bursts, as Parquet files.

A user comes back some six times a day and pays about 16 times, 40 seconds apart: bursts that a gap of ten minutes tells
apart. Files hold what arrived one after another: event times jitter by some seconds, and of all rows 0.5 % arrive ten
minutes late. Written chunk by chunk, and kept by parameters.
"""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.landing import paths

START = 1_767_225_600_000_000
"""2026-01-01T00:00Z in microseconds; event times begin here."""

SECOND = 1_000_000
HOUR = 3600 * SECOND
DAY = 24 * HOUR
BURSTS_A_DAY = 6.06
BURST_ROWS = 16.5
SPACING_SECONDS = 40.0
JITTER_SECONDS = 5.0
LATE_SHARE, LATE_SECONDS = 0.005, 600.0
CHUNK_BURSTS = 60_000
ROW_GROUP = 128 * 1024

_VERSION = 1
_MARK = "_complete.json"

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Events:
    """Parameters of a stream of payments: ``rows`` of ``keys`` users in ``files`` files of one size."""

    rows: int
    keys: int
    files: int
    seed: int = 7


@dataclass(frozen=True)
class Touches:
    """Parameters of files that each touch ``changed`` of ``keys`` users once, all on the first day; only of the first
    ``hot`` users, if that is not 0.
    """

    keys: int
    changed: int
    files: int
    seed: int = 7
    hot: int = 0


def events(cache: Path, parameters: Events) -> Path:
    """The folder of files of these events, generated if it is not there yet."""
    sizes = [len(part) for part in np.array_split(np.empty(parameters.rows, bool), parameters.files)]
    tables = _cut(_arrivals(parameters), sizes)
    return _kept(cache, "events", asdict(parameters), tables)


def repeated(cache: Path, parameters: Events, spans: int) -> Path:
    """The folder of files of these events, so many times, each time in the span of event time behind the one before:
    a tenth of what drawing as many takes.
    """
    if spans == 1:
        return events(cache, parameters)
    once = paths(events(cache, parameters))
    last = max(pc.max(pq.read_table(path, columns=["at"])["at"]).value for path in once[-2:])
    span = -(-(last - START) // HOUR) * HOUR
    tables = (_later(pq.read_table(path), number * span) for number in range(spans) for path in once)
    return _kept(cache, "repeated", {**asdict(parameters), "spans": spans}, tables)


def _later(table: pa.Table, microseconds: int) -> pa.Table:
    at = pc.add(table["at"], pa.scalar(microseconds, pa.duration("us")))
    return table.set_column(1, "at", at)


def everyone(cache: Path, keys: int, rows_a_file: int = 1_000_000) -> Path:
    """The folder of files with one payment of each of ``keys`` users, in a mixed order."""
    users = np.random.default_rng(1).permutation(keys).astype(np.int64)
    at = np.full(keys, START, np.int64)
    tables = (
        _table(users[first : first + rows_a_file], at[first : first + rows_a_file], users[first : first + rows_a_file])
        for first in range(0, keys, rows_a_file)
    )
    return _kept(cache, "everyone", {"keys": keys, "rows_a_file": rows_a_file}, tables)


def touches(cache: Path, parameters: Touches) -> Path:
    """The folder of files that touch some users each; files without rows for ``changed`` 0."""
    return _kept(cache, "touches", asdict(parameters), _touched(parameters))


def _touched(parameters: Touches) -> Iterator[pa.Table]:
    random = np.random.default_rng(parameters.seed)
    for number in range(parameters.files):
        among = parameters.hot or parameters.keys
        size = min(parameters.changed, among)
        users = random.choice(among, size, replace=False).astype(np.int64) if size else np.empty(0, np.int64)
        at = np.full(size, START + (number + 1) * SECOND, np.int64)
        yield _table(users, at, random.integers(1, 1000, size))


@dataclass(frozen=True)
class SideRows:
    """Parameters of rows of a side of a join: ``rows`` of ``keys`` users in each of ``files`` files, in the order of
    time. The first file begins ``begin`` seconds in and has rows of ``span`` seconds; each further one begins ``step``
    seconds behind the one before. ``is_hot``: half of all rows are of one user.
    """

    rows: int
    files: int
    keys: int
    begin: int = 0
    span: int = 3600
    step: int = 0
    is_hot: bool = False
    seed: int = 7


def side(cache: Path, parameters: SideRows) -> Path:
    """The folder of files of these rows. No two rows of a file have one time."""
    return _kept(cache, "side", asdict(parameters), _of_side(parameters))


def _of_side(parameters: SideRows) -> Iterator[pa.Table]:
    random = np.random.default_rng(parameters.seed)
    rows = parameters.rows
    for number in range(parameters.files if rows else 0):
        begin = START + (parameters.begin + number * parameters.step) * SECOND
        at = begin + ((np.arange(rows) + random.random(rows)) * (parameters.span * SECOND / rows)).astype(np.int64)
        users = random.integers(0, parameters.keys, rows)
        if parameters.is_hot:
            users[random.random(rows) < 0.5] = 0
        made = _table(users, at, random.integers(1, 1000, rows))
        ids = np.arange(rows) + (parameters.seed * 1_000 + number) * 100_000_000
        yield made.add_column(0, "id", pa.array(ids))


def _kept(cache: Path, kind: str, parameters: dict[str, int], tables: Iterator[pa.Table]) -> Path:
    named = "-".join(f"{name}{value}" for name, value in parameters.items())
    folder = cache / f"{kind}-v{_VERSION}-{named}"
    if (folder / _MARK).is_file():
        return folder
    draft = cache / f".{folder.name}.{os.getpid()}"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    for number, table in enumerate(tables):
        pq.write_table(table, draft / f"part-{number:05d}.parquet", row_group_size=ROW_GROUP)
    for number, path in enumerate(paths(draft)):
        # Spark's file stream takes files in the order of their times; what touches users comes after them
        landed = START // SECOND + number + (DAY // SECOND if kind == "touches" else 0)
        os.utime(path, (landed, landed))
    (draft / _MARK).write_text(json.dumps({"kind": kind, "version": _VERSION, **parameters}))
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)
    return folder


def _table(users: Longs, at: Longs, amounts: Longs) -> pa.Table:
    times = pa.array(at, pa.timestamp("us", tz="UTC"))
    return pa.table({"user": pa.array(users), "at": times, "amount": pa.array(amounts)})


def _arrivals(parameters: Events) -> Iterator[tuple[Longs, Longs, Longs]]:
    """Endless (user, event time, amount) in the order of arrival, in chunks."""
    random = np.random.default_rng(parameters.seed)
    span = int(CHUNK_BURSTS / (parameters.keys * BURSTS_A_DAY) * DAY)
    waiting = [np.empty(0, np.int64) for _ in range(4)]
    for begin in range(START, 2**62, span):
        made = _bursts(random, parameters.keys, begin, span)
        arrival, *columns = [np.concatenate(pair) for pair in zip(waiting, made, strict=True)]
        # bursts that begin later cannot arrive before that
        due = np.flatnonzero(arrival < begin + span)
        due = due[np.argsort(arrival[due], kind="stable")]
        user, at, amount = (column[due] for column in columns)
        yield user, at, amount
        rest = arrival >= begin + span
        waiting = [column[rest] for column in (arrival, *columns)]


def _bursts(random: np.random.Generator, keys: int, begin: int, span: int) -> tuple[Longs, Longs, Longs, Longs]:
    """Arrival, user, event time and amount of the bursts that begin in one span."""
    sizes = 1 + random.poisson(BURST_ROWS - 1, CHUNK_BURSTS)
    rows = int(sizes.sum())
    firsts = np.cumsum(sizes) - sizes
    steps = random.exponential(SPACING_SECONDS * SECOND, rows).astype(np.int64)
    steps[firsts] = 0
    offsets = np.cumsum(steps)
    offsets -= np.repeat(offsets[firsts], sizes)
    at = np.repeat(begin + random.integers(0, span, CHUNK_BURSTS), sizes) + offsets
    users = np.repeat(random.integers(0, keys, CHUNK_BURSTS), sizes)
    delay = random.uniform(0, JITTER_SECONDS * SECOND, rows)
    delay += np.where(random.random(rows) < LATE_SHARE, LATE_SECONDS * SECOND, 0)
    return at + delay.astype(np.int64), users, at, random.integers(1, 1000, rows)


def _cut(chunks: Iterator[tuple[Longs, Longs, Longs]], sizes: list[int]) -> Iterator[pa.Table]:
    """Tables of these sizes out of chunks of any size."""
    held = pa.table({"user": pa.array([], pa.int64()), "at": pa.array([], pa.timestamp("us", tz="UTC"))})
    held = held.append_column("amount", pa.array([], pa.int64()))
    for size in sizes:
        while held.num_rows < size:
            held = pa.concat_tables([held, _table(*next(chunks))])
        yield held.slice(0, size)
        held = held.slice(size)
