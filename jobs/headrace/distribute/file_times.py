"""How far elements lie behind the newest event time of the files before their own: as if each file was an epoch, so
whatever epochs, shares and executors read them.

What is before a file, other tasks read. So a task tells how the event times of each of its files lie, in at most
MOST_BINS bins, and the driver counts. A bin is a power of two microseconds wide, and bins are aligned at
0: those of pieces of a file, made as wide as the whole needs, are those of the file.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from headrace.kernel.grouping import Ints
from headrace.model.time import MIN_INSTANT, Instant
from headrace.sources.progress import later_of

MOST_BINS = 32
"""How many bins of a file have elements, at most: they are as narrow as that lets them be. One far away takes one."""

_FIRST_BITS, _FURTHER_BITS = 12, 7
"""Event times are sorted into so many bins at first (a power of two), and each of few into so many more."""


@dataclass(frozen=True)
class FileTimes:
    """How the event times of a file's elements lie, or of some of them: bins of ``2**width`` microseconds that have
    any, by the earliest event time in each (``begins``, as bytes of 64-bit integers) and how many are there
    (``numbers``). ``newest`` is the latest that was not too far ahead of the clock.
    """

    width: int
    begins: bytes
    numbers: bytes
    newest: Instant | None

    @classmethod
    def of(cls, times: Ints, latest: Instant) -> "FileTimes":
        """Makes bins of ``times``, of which there are some. Those after ``latest`` are too far ahead."""
        counted = times if times.max() <= int(latest) else times[times <= int(latest)]
        return _binned(*_gathered(times), newest=Instant(int(counted.max())) if len(counted) else None)

    def and_more(self, more: "FileTimes") -> "FileTimes":
        """These, and those of ``more`` elements of the file."""
        begins = np.concatenate((self.begin, more.begin))
        numbers = np.concatenate((self.number, more.number))
        order = np.argsort(begins, kind="stable")
        width = max(self.width, more.width)
        return _binned(width, begins[order], numbers[order], later_of(self.newest, more.newest))

    @property
    def begin(self) -> Ints:
        """The earliest event time in each bin, ascending."""
        return np.frombuffer(self.begins, np.int64)

    @property
    def number(self) -> Ints:
        """How many elements each bin has."""
        return np.frombuffer(self.numbers, np.int64)


def _gathered(times: Ints) -> tuple[int, Ints, Ints]:
    """Bins of ``times``, more than MOST_BINS or of one microsecond: their width, the earliest time in each and how many
    it has. Wide ones are divided until they are enough; then few events far away cost nothing.
    """
    first, last = int(times.min()), int(times.max())
    width = max(0, (last - first).bit_length() - _FIRST_BITS)
    place = (times >> width) - (first >> width)
    numbers = np.bincount(place)
    while width and np.count_nonzero(numbers) <= MOST_BINS:
        bits = min(width, _FURTHER_BITS)
        width -= bits
        place = (np.cumsum(numbers > 0) - 1)[place] << bits | (times >> width & (1 << bits) - 1)
        numbers = np.bincount(place)
    begins = np.full(len(numbers), last)
    np.minimum.at(begins, place, times)
    occupied = numbers > 0
    return width, begins[occupied], numbers[occupied]


def _binned(width: int, times: Ints, numbers: Ints, newest: Instant | None) -> FileTimes:
    """Bins of ``times``, which ascend and of which each stands for some elements: as wide as they have to be, and at
    least of ``width``. Two neighbours are in one bin if no bit above its width differs.
    """
    differ = (times[1:] ^ times[:-1]).view(np.uint64)
    if len(differ) >= MOST_BINS:  # so many of them must not be apart
        width = max(width, int(np.partition(differ, -MOST_BINS)[-MOST_BINS]).bit_length())
    first = np.flatnonzero(np.concatenate(([True], differ >> np.uint64(width) > 0)))
    begins, sums = times[first].astype(np.int64), np.add.reduceat(numbers, first)
    return FileTimes(width, begins.tobytes(), sums.astype(np.int64).tobytes(), newest)


Files = Mapping[str, Mapping[str, FileTimes]]
"""By input, and by the path of a file in it."""


def joined_files(shares: Iterable[Files]) -> Files:
    """What ``shares`` of an epoch say together."""
    joined: dict[str, dict[str, FileTimes]] = {}
    for share in shares:
        for name, files in share.items():
            of_input = joined.setdefault(name, {})
            for path, times in files.items():
                of_input[path] = of_input[path].and_more(times) if path in of_input else times
    return joined


def count_behind(files: Files, newest: Mapping[str, Instant]) -> tuple[dict[str, Instant], dict[int, int]]:
    """The newest event time of each input after ``files``, given the ``newest`` before them; and how many elements lay
    how far behind it when their file's turn came, in the order of names. Those of an input's first file do not count.
    """
    after, counts = dict(newest), dict[int, int]()
    for name, of_input in files.items():
        ordered = [of_input[path] for path in sorted(of_input)]
        begin = int(newest.get(name, MIN_INSTANT))
        own = [begin, *(begin if times.newest is None else int(times.newest) for times in ordered)]
        reached = np.maximum.accumulate(np.array(own, np.int64))
        if reached[-1] > int(MIN_INSTANT):
            after[name] = Instant(int(reached[-1]))
        before = np.repeat(reached[:-1], [len(times.begin) for times in ordered])
        is_counted = before > int(MIN_INSTANT)
        lags = before[is_counted] - np.concatenate([times.begin for times in ordered])[is_counted]
        numbers = np.concatenate([times.number for times in ordered])[is_counted]
        values, place = np.unique(lags_of(lags), return_inverse=True)
        sums = np.zeros(len(values), np.int64)
        np.add.at(sums, place, numbers)
        for lag, number in zip(values.tolist(), sums.tolist(), strict=True):
            counts[lag] = counts.get(lag, 0) + number
    return after, counts


def lags_of(distances: Ints) -> Ints:
    """How far elements lie behind, in granules rounded up to two digits, so that they can be counted; 0 if they do
    not.
    """
    distances = np.maximum(distances, 0)
    digits = np.floor(np.log10(np.maximum(distances, 1))).astype(np.int64)
    unit = 10 ** np.maximum(digits - 1, 0)
    rounded: Ints = -(-distances // unit) * unit
    return rounded
