"""Listing what a store gives in pages by several requests at once, in the order of names.

A listing is cut into ranges of names. Where nobody knows names to cut at, it begins as one range. A range that goes on
for pages is cut where names branch behind the one listed last. Requests that look for such a place ask what comes after
all names that begin alike. So any layout is cut, folders or none. A cut says nothing of what is listed: a name is in
exactly one range, whatever the cuts are.
"""

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice, pairwise, takewhile
from typing import Final

from headrace.ext.stores import sort_key
from headrace.this_process import Size
from headrace_snapshots.store import ObjectInfo, ObjectStore

PAGE: Final = Size(1_000)
"""So many names are a page."""

AT_ONCE: Final = Size(8)
"""So many requests are under way together."""

PAGES_AHEAD: Final = Size(256)
"""So many pages wait at most for those before them."""

PAGES_BEFORE_CUT: Final = Size(8)
"""A range of fewer is not worth the requests that look for a place to cut it."""

FEW_SOUGHT: Final = Size(100)
"""So few names are looked for one page after the other."""

_LAST_ASCII: Final = 0x7E
_ALPHABET_BITS: Final = 0xFFF
"""Letters of one language differ in these bits, as a guess."""

_SURROGATES: Final = range(0xD800, 0xE000)
_LAST_CHARACTER: Final = 0x10FFFF


def listed_in_parallel(
    store: ObjectStore, folder: str, start_after: str = "", bounds: Sequence[str] = ()
) -> Iterator[ObjectInfo]:
    """What ``store`` lists of ``folder`` after ``start_after``, in that order. ``bounds`` ascend, and cut it into
    ranges from the start.

    An error of one request is raised, whichever range it is of.
    """
    bounds = [name for name in bounds if sort_key(name) > sort_key(start_after)]
    if not bounds:  # most listings are one page, which needs no thread
        page = _list_page(store, folder, start_after)
        yield from page
        if len(page) < PAGE.value:
            return
        start_after = page[-1].path
    yield from _Listing(store, folder, start_after, bounds).list_infos()


def listed_of(store: ObjectStore, folder: str, wanted_names: Collection[str]) -> dict[str, ObjectInfo]:
    """Look up which of the ``wanted_names`` below ``folder`` are listed; passes over pages that have none of them."""
    names_in_order = sorted(wanted_names, key=sort_key)
    share = max(FEW_SOUGHT.value, -(-len(names_in_order) // AT_ONCE.value))
    shares = [names_in_order[begin : begin + share] for begin in range(0, len(names_in_order), share)]
    infos_by_path: dict[str, ObjectInfo] = {}
    with ThreadPoolExecutor(AT_ONCE.value, thread_name_prefix="listing") as pool:
        for infos_of_share in pool.map(lambda names: _look_up_names(store, folder, names), shares):
            infos_by_path |= infos_of_share
    return infos_by_path


def _look_up_names(store: ObjectStore, folder: str, names: Sequence[str]) -> dict[str, ObjectInfo]:
    """Look up which of ``names``, which ascend, are listed."""
    wanted_names, infos_by_path = frozenset(names), dict[str, ObjectInfo]()
    position, last_path = 0, ""
    while position < len(names):
        # a listing begins behind what it is given, and a name without its last letter sorts before it
        page = _list_page(store, folder, max(last_path, names[position][:-1], key=sort_key))
        infos_by_path |= {info.path: info for info in page if info.path in wanted_names}
        if len(page) < PAGE.value:
            break
        last_path = page[-1].path
        position = bisect_right(names, sort_key(last_path), key=sort_key)
    return infos_by_path


def _list_page(store: ObjectStore, folder: str, start_after: str) -> list[ObjectInfo]:
    return [*islice(store.list(folder, start_after), PAGE.value)]


def _infos_until(infos: list[ObjectInfo], end: str | None) -> list[ObjectInfo]:
    """What sorts up to ``end``, and with it."""
    if end is None or not infos or sort_key(infos[-1].path) <= sort_key(end):
        return infos
    return [*takewhile(lambda info: sort_key(info.path) <= sort_key(end), infos)]


@dataclass(eq=False)
class _Range:
    """What sorts after ``after_path``, up to ``end`` and with it. ``pages`` were listed and wait; ``newest`` is the
    last that was.
    """

    after_path: str
    end: str | None
    pages: deque[list[ObjectInfo]] = field(default_factory=deque)
    newest: list[ObjectInfo] = field(default_factory=list)
    listed_count: int = 0
    cut_at: int = field(default_factory=lambda: PAGES_BEFORE_CUT.value)
    is_busy: bool = False
    is_being_cut: bool = False
    is_listed: bool = False

    def take_page(self, infos: list[ObjectInfo]) -> None:
        """Take a page that was listed after ``after_path``."""
        page = _infos_until(infos, self.end)
        self.is_listed = len(page) < PAGE.value
        if page:
            self.after_path, self.newest = page[-1].path, page
            self.pages.append(page)
        self.listed_count += 1


class _Listing:
    """Ranges, in order, and the threads that list them; all that changes does so under ``_state_changed``."""

    def __init__(self, store: ObjectStore, folder: str, start_after: str, bounds: Sequence[str]) -> None:
        self._store, self._folder = store, folder
        self._ranges = [
            _Range(begin, end) for begin, end in pairwise([start_after, *bounds, None]) if begin is not None
        ]
        self._state_changed = threading.Condition()
        self._error: BaseException | None = None
        self._is_over = False

    def list_infos(self) -> Iterator[ObjectInfo]:
        """All, in order."""
        with ThreadPoolExecutor(AT_ONCE.value, thread_name_prefix="listing") as pool:
            try:
                for _ in range(AT_ONCE.value):
                    pool.submit(self._work_until_done)
                while (page := self._next_page()) is not None:
                    yield from page
            finally:
                with self._state_changed:
                    self._is_over = True
                    self._state_changed.notify_all()

    def _next_page(self) -> list[ObjectInfo] | None:
        with self._state_changed:
            while True:
                if self._error is not None:
                    raise self._error
                while self._ranges and self._ranges[0].is_listed and not self._ranges[0].pages:
                    del self._ranges[0]
                    self._state_changed.notify_all()  # the next one may have more pages than there is room for
                if not self._ranges:
                    return None
                if self._ranges[0].pages:
                    self._state_changed.notify_all()  # there is room for another
                    return self._ranges[0].pages.popleft()
                self._state_changed.wait()

    def _work_until_done(self) -> None:
        try:
            while (work := self._next_work()) is not None:
                todo, is_cut = work
                if is_cut:
                    self._split_range(todo)
                else:
                    self._list_next_page(todo)
        except BaseException as error:
            with self._state_changed:
                self._error = self._error or error
                self._state_changed.notify_all()

    def _next_work(self) -> tuple[_Range, bool] | None:
        """The first range that can be listed, or else cut (True); waits for one, and gives None at the end."""
        with self._state_changed:
            while not self._is_over and self._error is None:
                left = [one for one in self._ranges if not one.is_listed]
                if not left:
                    return None
                has_room = sum(len(one.pages) for one in self._ranges) < PAGES_AHEAD.value
                for one in left if has_room else self._awaited_ranges():
                    if not one.is_busy:
                        one.is_busy = True
                        return one, False
                for one in left if has_room else ():
                    if not one.is_being_cut and one.listed_count >= one.cut_at:
                        one.is_being_cut = True
                        return one, True
                self._state_changed.wait()
            return None

    def _awaited_ranges(self) -> list[_Range]:
        """The range that the reader waits for a page of, if it does."""
        return [one for one in self._ranges[:1] if not one.pages and not one.is_listed]

    def _list_next_page(self, one: _Range) -> None:
        infos = _list_page(self._store, self._folder, one.after_path)
        with self._state_changed:
            one.take_page(infos)
            one.is_busy = False
            self._state_changed.notify_all()

    def _split_range(self, one: _Range) -> None:
        """Give what is far behind in a range to one of its own, unless it was listed meanwhile."""
        with self._state_changed:
            first, last, end = one.newest[0].path, one.newest[-1].path, one.end
        later_range = self._later_part(first, last, end)
        with self._state_changed:
            # where there was no place to cut, it is looked for again once twice as much is listed
            one.cut_at, one.is_being_cut = 2 * one.listed_count, False
            if (
                later_range is not None
                and not one.is_listed
                and sort_key(one.after_path) < sort_key(later_range.after_path)
            ):
                one.end = later_range.after_path
                later_range.take_page(later_range.newest)
                self._ranges.insert(self._ranges.index(one) + 1, later_range)
            self._state_changed.notify_all()

    def _later_part(self, first: str, last: str, end: str | None) -> _Range | None:
        """The later part of what sorts after ``last``, up to ``end``, if names branch there as high as they do between
        ``first`` and ``last``. Its first page is the ``newest``, not taken yet.
        """
        least = len(self._folder) if end is None else _common_prefix_length(last, end)
        most = min(_common_prefix_length(first, last) + 1, len(last))
        later_range, length = None, 0
        low, high = least + 1, most
        while low <= high:  # the fewest letters that names after this one do not all begin with
            middle = (low + high) // 2
            part = self._range_from(_next_to(last[:middle]), end)
            if part is None:
                low = middle + 1
            else:
                later_range, length, high = part, middle, middle - 1
        if later_range is None:
            return None
        shared_prefix, letter = last[: length - 1], ord(later_range.newest[0].path[length - 1 : length] or "\0")
        top = _LAST_ASCII if letter <= _LAST_ASCII else letter | _ALPHABET_BITS
        if end is not None and end.startswith(shared_prefix) and len(end) >= length:
            top = ord(end[length - 1])
        while top - letter > 1:  # about half of the letters that come there
            middle = (letter + top) // 2
            if (
                part := self._range_from(None if middle in _SURROGATES else shared_prefix + chr(middle), end)
            ) is not None:
                return part
            top = middle
        return later_range

    def _range_from(self, begin: str | None, end: str | None) -> _Range | None:
        """The range from ``begin`` on with its first page, if it has names up to ``end``."""
        if begin is None or (end is not None and sort_key(begin) >= sort_key(end)):
            return None
        page = _list_page(self._store, self._folder, begin)
        return _Range(begin, end, newest=page) if _infos_until(page, end) else None


def _next_to(begin: str) -> str | None:
    """What sorts after all names that begin so, if their last letter has a next one."""
    following = ord(begin[-1]) + 1
    following = _SURROGATES.stop if following in _SURROGATES else following
    return begin[:-1] + chr(following) if following <= _LAST_CHARACTER else None


def _common_prefix_length(one: str, other: str) -> int:
    """How many letters both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
