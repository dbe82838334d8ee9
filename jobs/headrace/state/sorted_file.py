"""Runs: rows in the order of their hashes, the layers that they make, and what mapped ones want of memory.

A run is as one data file holds it, and tells what its rows want next. A layer of a table is runs of other keys each.
Pages of mapped files that nobody looks at need not stay in this process.

Most columns of state have one value in all rows of a file. The file in the cache has that value alone. What looks at
such a column finds an array that files share.
"""

import ctypes
import mmap
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.kernel.columns import Ints, as_numpy
from headrace.kernel.state import rows_of
from headrace.model.time import GLOBAL_WINDOW_END, MAX_INSTANT, NEVER, Instant
from headrace.program import columns as c
from headrace.program.firing import FiringClocks
from headrace.state.chunks import Hashes, KeyGroupRange, groups_of

LOCAL_BYTES: Final = 512 * 2**20
"""The limit where one process does all work."""

_TURNS_TO_STAY = 4
"""Over the limit, every so many-th file stays in place of another one."""


class Resident:
    """Mapped files whose pages stay, of at most ``limit`` bytes together: to load a page again costs as much as looking
    up hundreds of rows. Safe for many threads.

    An epoch looks at all files in turn, so the one that was not used for longest is wanted next. Over the limit most
    newcomers go. Some take the place of what came first, which may not be in use any more.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._buffers_by_address: dict[int, weakref.ref[pa.Buffer]] = {}
        self._bytes = self._refused_count = 0
        self._lock = threading.RLock()  # a file may be collected while it is held

    @property
    def kept_bytes(self) -> int:
        """Bytes of the files whose pages stay."""
        return self._bytes

    def let_go(self, file: pa.Buffer) -> None:
        """Let the pages of ``file``, all of which is mapped and which is not used for now, stay or go."""
        for leaving in self._admit_file(file):
            release_pages(leaving)

    def _admit_file(self, file: pa.Buffer) -> list[pa.Buffer]:
        with self._lock:
            if file.address in self._buffers_by_address:
                return []
            leaving: list[pa.Buffer] = []
            if self._bytes + file.size > self.limit:
                self._refused_count += 1
                if self._refused_count % _TURNS_TO_STAY or file.size > self.limit:
                    return [file]
                leaving = self._evict_oldest(self._bytes + file.size - self.limit)
            self._buffers_by_address[file.address] = weakref.ref(file)
            self._bytes += file.size
            # when the process ends, nobody asks any more
            weakref.finalize(file, self._forget, file.address, file.size).atexit = False
            return leaving

    def _evict_oldest(self, size: int) -> list[pa.Buffer]:
        """Files of ``size`` bytes together, those first that have stayed for longest; they stay no more."""
        leaving: list[pa.Buffer] = []
        for address in [*self._buffers_by_address]:
            if size <= 0:
                break
            file = self._buffers_by_address[address]()
            if file is not None:
                leaving.append(file)
                size -= file.size
                self._forget(address, file.size)
        return leaving

    def _forget(self, address: int, size: int) -> None:
        with self._lock:
            if self._buffers_by_address.pop(address, None) is not None:
                self._bytes -= size


RESIDENT: Final = Resident(0)
"""That of this process: nothing stays, unless the process says otherwise. (Spark has a process for each core.)"""


def release_pages(file: pa.Buffer) -> None:
    """Take the pages of a file, all of which is mapped as ``file``, out of this process. The next access to a page
    loads it again from the file: references to it stay valid. The pages stay in the system's cache of files.
    """
    if (madvise := _madvise_function()) is not None and file.size:
        madvise(file.address, file.size, mmap.MADV_DONTNEED)


@cache
def _madvise_function() -> Any:
    function = getattr(ctypes.CDLL(None), "madvise", None)  # other systems keep the pages
    if function is not None:
        function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return function


RowNumbers = NDArray[np.uint32]

_SHARED_BYTES = 64 * 2**20
"""What arrays that nobody may be looking at take together."""


class _SharedArrays:
    """Arrays of one value each, of which files have slices. What nobody asked for longest is forgotten here, and stays
    as long as a file has it. Safe for many threads.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._arrays: OrderedDict[tuple[pa.DataType, pa.Scalar], pa.Array] = OrderedDict()
        self._lock = threading.Lock()

    def repeat_value(self, value: pa.Scalar, length: int) -> pa.Array:
        """An array of ``length`` times ``value``."""
        key = value.type, value
        with self._lock:
            array = self._arrays.get(key)
            if array is None or len(array) < length:
                array = self._arrays[key] = pa.repeat(value, _capacity(length))
                self._forget_oldest()
            self._arrays.move_to_end(key)
        return array[:length]

    def _forget_oldest(self) -> None:
        total = sum(array.nbytes for array in self._arrays.values())
        while total > self._limit and len(self._arrays) > 1:
            total -= self._arrays.popitem(last=False)[1].nbytes


_SHARED_ARRAYS: Final = _SharedArrays(_SHARED_BYTES)


def repeat_value(value: pa.Scalar, length: int) -> pa.Array:
    """An array of ``length`` times ``value``, whose memory others share that have the same value."""
    return _SHARED_ARRAYS.repeat_value(value, length)


_NUMBERS: Final = [np.arange(0, dtype=np.uint32)]


def row_numbers(length: int) -> RowNumbers:
    """The numbers of so many rows, whose memory others share."""
    longest = _NUMBERS[0]
    if len(longest) < length:
        longest = _NUMBERS[0] = np.arange(_capacity(length), dtype=np.uint32)
        longest.setflags(write=False)
    return longest[:length]


def _capacity(length: int) -> int:
    """For how many rows an array is made: files are of about one size, and one array is to do for all."""
    return int(1 << (length - 1).bit_length()) if length else 0


class DeadlineIndex(msgspec.Struct, frozen=True):
    """Times of rows in their order: ascending ``times``, and the row of each, ``begin`` the first one that counts and
    ``length`` how many do. What is said of times alone holds for all rows, so for some it is a bound.
    """

    times: Ints
    rows: RowNumbers
    begin: int
    length: int

    @classmethod
    def from_times(cls, dues: Ints) -> "DeadlineIndex":
        """Indexes a column of times, NEVER where a row has none."""
        rows = np.flatnonzero(dues < NEVER)
        order = rows[_stable_argsort(dues[rows])]
        return cls(dues[order], order.astype(np.uint32), 0, len(dues))

    @classmethod
    def from_value(cls, due: int | None, length: int) -> "DeadlineIndex":
        """Indexes ``length`` rows that have one time; None: they have none."""
        count = length if due is not None and due < NEVER else 0
        times: Ints = as_numpy(repeat_value(pa.scalar(due if count else 0, pa.int64()), count))
        return cls(times, row_numbers(count), 0, length)

    def slice_rows(self, begin: int, length: int) -> "DeadlineIndex":
        """The index of ``length`` rows from ``begin`` on, numbered from there."""
        return DeadlineIndex(self.times, self.rows, self.begin + begin, length)

    def rows_in(self, low: int, high: int) -> Ints:
        """The rows whose time is in [low, high)."""
        return self.rows_at(*np.searchsorted(self.times, [low, high]).tolist())

    def rows_at(self, first: int, end: int) -> Ints:
        """The rows of the times from place ``first`` to before ``end``."""
        rows = self.rows[first:end].astype(np.int64) - self.begin
        own: Ints = rows[(rows >= 0) & (rows < self.length)]
        return own

    def most_in(self, low: int, high: int) -> int:
        """An upper bound of how many rows have a time in [low, high)."""
        first, end = np.searchsorted(self.times, [low, high])
        return max(int(end) - int(first), 0)

    def next_from(self, earliest: int) -> Instant:
        """A lower bound of the first time from ``earliest`` on, NEVER if there is none before the end of time."""
        index = int(np.searchsorted(self.times, earliest))
        first = int(self.times[index]) if index < len(self.times) else int(NEVER)
        return Instant(first) if first < GLOBAL_WINDOW_END else NEVER


_PREFIXES_A_ROW: Final = 8
"""There are so many prefixes for each row at least, and at most twice as many. So of hashes that no row has one in
eight is searched for in vain, or fewer.
"""


class HashPrefixes(msgspec.Struct, frozen=True):
    """Which prefixes the hashes of rows have, a bit for each. A prefix is what lies beyond ``first``, the least hash,
    without its last ``shift`` bits.

    Most layers lack most of the keys that an epoch touches. To see that here takes a tenth of a search among the rows.
    """

    first: np.uint64
    shift: np.uint64
    bits: NDArray[np.uint8]

    @classmethod
    def from_hashes(cls, hashes: Hashes) -> "HashPrefixes":
        """Notes the prefixes of ``hashes``, which ascend; there are some."""
        span = int(hashes[-1]) - int(hashes[0])
        shift = np.uint64(max((span // (_PREFIXES_A_ROW * len(hashes))).bit_length() - 1, 0))
        places = (hashes - hashes[0]) >> shift
        has_prefix = np.zeros(int(places[-1]) + 1, np.bool_)
        has_prefix[places.view(np.int64)] = True
        return cls(hashes[0], shift, np.packbits(has_prefix, bitorder="little"))

    def filter_hashes(self, wanted_hashes: Hashes) -> Hashes:
        """Leaves out of ``wanted_hashes`` what no row has. All are between the least hash and the greatest."""
        places = (wanted_hashes - self.first) >> self.shift
        bytes_of_places = self.bits[(places >> np.uint64(3)).view(np.int64)]
        is_set = (bytes_of_places >> (places & np.uint64(7)).astype(np.uint8)) & np.uint8(1)
        possible: Hashes = wanted_hashes[is_set.view(np.bool_)]
        return possible


DEADLINE_COLUMNS: Final = {"event": c.DUE_EVENT, "time": c.DUE_TIME, "hold": c.HOLD}
"""The column of which each index of ``Deadlines`` is made."""


class Deadlines(msgspec.Struct, frozen=True):
    """What the rows of a run want and hold: watermarks and processing times at which they want an activation, holds."""

    event: DeadlineIndex
    time: DeadlineIndex
    hold: DeadlineIndex

    @classmethod
    def from_rows(cls, rows: pa.RecordBatch) -> "Deadlines":
        """Indexes the times of state rows."""
        columns = (rows.column(name).fill_null(int(NEVER)) for name in DEADLINE_COLUMNS.values())
        return cls(*(DeadlineIndex.from_times(as_numpy(column)) for column in columns))

    def slice_rows(self, begin: int, length: int) -> "Deadlines":
        """The deadlines of ``length`` rows from ``begin`` on."""
        return Deadlines(*(index.slice_rows(begin, length) for index in (self.event, self.time, self.hold)))


@dataclass(frozen=True)
class SortedFile:
    """Rows in the order of (hash, window). ``known_deadlines``: their deadlines, where these were worked out before.
    ``file``: the mapped file that both are in, if they are in one. ``constant``: what is known to have one value in all
    rows. ``prefixes`` are of its hashes, and maybe of others, where they were worked out before.
    """

    rows: pa.RecordBatch
    known_deadlines: Deadlines | None = None
    file: pa.Buffer | None = None
    constant: Mapping[str, pa.Scalar] = field(default_factory=dict)
    prefixes: HashPrefixes | None = None

    @cached_property
    def deadlines(self) -> Deadlines:
        """Deadlines of state rows; other rows have none."""
        return Deadlines.from_rows(self.rows) if self.known_deadlines is None else self.known_deadlines

    @cached_property
    def hashes(self) -> Hashes:
        values: Hashes = as_numpy(self.rows.column(c.HASH))
        return values

    @cached_property
    def hash_bounds(self) -> tuple[np.uint64, np.uint64] | None:
        """The first and last hash, None without rows. They tell without a look at the file what it cannot have."""
        return (self.hashes[0], self.hashes[-1]) if self.rows.num_rows else None

    @cached_property
    def _groups(self) -> tuple[int, int] | None:
        return None if self.hash_bounds is None else groups_of(np.array(self.hash_bounds))

    def overlaps(self, part: KeyGroupRange) -> bool:
        """Whether it may have rows of ``part``."""
        return self._groups is not None and part.overlaps(self._groups)

    def may_have(self, wanted_hashes: Hashes) -> bool:
        """Whether the hash of some row may be one of ``wanted_hashes``, which ascend."""
        if self.hash_bounds is None:
            return False
        first, last = self.hash_bounds
        place = int(wanted_hashes.searchsorted(first))
        return place < len(wanted_hashes) and bool(wanted_hashes[place] <= last)

    def slice_keys(self, part: KeyGroupRange) -> "SortedFile":
        """Its rows of ``part``, without a copy."""
        if self._groups is None or part.contains(self._groups):
            return self
        span = part.row_slice(self.hashes)
        begin, length = span.start, span.stop - span.start
        known_index = self.known_deadlines and self.known_deadlines.slice_rows(begin, length)
        return replace(self, rows=self.rows.slice(begin, length), known_deadlines=known_index)

    def rows_of(self, wanted_hashes: Hashes, names: Sequence[str] | None = None) -> pa.RecordBatch:
        """The rows whose hash is one of ``wanted_hashes``, which ascend: of the columns ``names``, or all."""
        rows = self.rows if names is None else self.rows.select(names)
        if self.hash_bounds is None:
            return rows
        first, last = self.hash_bounds
        wanted_hashes = wanted_hashes[wanted_hashes.searchsorted(first) : wanted_hashes.searchsorted(last, "right")]
        # where more hashes are wanted than there are rows, these are searched for in them
        if self.prefixes is not None and len(wanted_hashes) < self.rows.num_rows:
            wanted_hashes = self.prefixes.filter_hashes(wanted_hashes)
        return rows_of(rows, wanted_hashes, self.constant)

    def let_go_of_deadlines(self) -> None:
        """Say the same where only its deadlines were looked at. If all rows have the same ones, nothing was read."""
        if not all(column in self.constant for column in DEADLINE_COLUMNS.values()):
            self.let_go()

    def let_go(self) -> None:
        """Say that a mapped file is not used for now: pages that were read may go, as far as ``RESIDENT`` has no room.
        The next access loads them again.
        """
        if self.file is not None:
            RESIDENT.let_go(self.file)

    def release_memory(self) -> None:
        """Release the memory of all pages that were read: soon the file is superseded."""
        if self.file is not None:
            release_pages(self.file)

    def due_hashes(self, clocks: FiringClocks) -> Hashes:
        """The hashes of rows that want an activation under ``clocks``. What was due before was activated then, and a
        newer run holds what became of it. (Until the watermark has passed its end, the next event-time activation of an
        open window is its end.)
        """
        places = [self.deadlines.event.rows_in(low, high) for low, high in _steps_of_dues(clocks)]
        places.append(self.deadlines.time.rows_in(clocks.previous_processing_time + 1, clocks.processing_time + 1))
        due: Hashes = self.hashes[np.concatenate(places)]
        return due

    def most_due(self, clocks: FiringClocks) -> int:
        """An upper bound of how many rows want an activation under ``clocks`` (a newer run may know better)."""
        by_time = self.deadlines.time.most_in(clocks.previous_processing_time + 1, clocks.processing_time + 1)
        return by_time + sum(self.deadlines.event.most_in(low, high) for low, high in _steps_of_dues(clocks))


def _steps_of_dues(clocks: FiringClocks) -> list[tuple[Instant, Instant]]:
    """From where to where watermarks step. Plus infinity is beyond every due: version 0.2.0 stored the ends of windows
    that end later.
    """
    steps = [(clocks.watermark_before, clocks.watermark_after), *clocks.percentiles.values()]
    return [(_beyond_dues(time_before), _beyond_dues(time_after)) for time_before, time_after in steps]


def _beyond_dues(watermark: Instant) -> Instant:
    return NEVER if watermark >= MAX_INSTANT else watermark


def in_turn(runs: Iterable[SortedFile]) -> Iterator[SortedFile]:
    """The ``runs``, each let go once the next one is asked for. Otherwise an epoch that touches a few keys everywhere
    would have nearly every page of a large state in memory.
    """
    for run in runs:
        yield run
        run.let_go()


def by_deadlines(runs: Iterable[SortedFile]) -> Iterator[SortedFile]:
    """The ``runs``, of which only deadlines are looked at, each let go once the next one is asked for."""
    for run in runs:
        yield run
        run.let_go_of_deadlines()


def _stable_argsort(values: Ints) -> Ints:
    """The places of ``values`` in ascending order, equal ones in their own.

    A place is packed after its value where both fit, for numpy sorts numbers several times faster than places.
    """
    # one value for all is what many files have, and to see that costs a hundredth of sorting
    if (values[1:] >= values[:-1]).all():
        return np.arange(len(values))
    least, bits = int(values.min()), len(values).bit_length()
    if (int(values.max()) - least).bit_length() + bits > 64:
        return np.argsort(values, kind="stable")
    sort_words = ((values - least).view(np.uint64) << np.uint64(bits)) | np.arange(len(values), dtype=np.uint64)
    sort_words.sort()
    return (sort_words & np.uint64((1 << bits) - 1)).view(np.int64)


@dataclass(frozen=True)
class StateLayer:
    """Rows that epochs ``first_epoch`` to ``last_epoch`` wrote, in runs of other keys each. Nothing in it counts once
    the watermark exceeds ``expires``.
    """

    runs: tuple[SortedFile, ...]
    first_epoch: int
    last_epoch: int
    expires: Instant = NEVER

    @property
    def row_count(self) -> int:
        """How many there are, those that count no more included."""
        return sum(run.rows.num_rows for run in self.runs)
