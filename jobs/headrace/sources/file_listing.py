"""Listing the input under a prefix: which names are input, and how many ranges of a store are listed at once."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import takewhile
from typing import Final

from headrace_snapshots.store import ObjectInfo, ObjectStore
from headrace_snapshots.store.port import lists_in_pages, sort_key

UNFINISHED: Final = (".tmp", ".part", ".filepart", ".crdownload", ".inprogress")
"""How names end while a producer still writes the file, as many do it; in letters of any case."""

LEFT_OUT: Final = (
    f"those that begin with _ or . or end in {', '.join(UNFINISHED[:-1])} or {UNFINISHED[-1]} are left out"
)
"""The rule in words, of names without ``suffixes``."""

_RANGES_AT_ONCE = 8


def listed_inputs(
    store: ObjectStore, prefix: str, suffixes: tuple[str, ...], start_after: str = "", bounds: Sequence[str] = ()
) -> Iterator[ObjectInfo]:
    """The input under ``prefix`` that sorts after ``start_after``, in the order of names. Where a listing comes in
    pages, the ranges between ``bounds``, which ascend, are listed side by side.
    """
    folder = folder_of(prefix)
    infos = _in_ranges(store, folder, start_after, bounds) if bounds else store.list(folder, start_after)
    return (info for info in infos if is_input(info.path.removeprefix(folder), suffixes))


def folder_of(prefix: str) -> str:
    """What all names under ``prefix`` begin with."""
    return f"{prefix}/" if prefix else ""


def is_input(name: str, suffixes: tuple[str, ...]) -> bool:
    """Whether a file of that ``name`` below its input's folder is input. Folders ``column=value`` are, whatever the
    column is called.
    """
    # Spark and Hadoop skip these names too, so they could not be read even if they were listed.
    *folders, file = name.split("/")
    if any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in folders):
        return False
    if not file or file.startswith(("_", ".")) or file.endswith("._COPYING_"):
        return False
    return name.endswith(suffixes) if suffixes else not is_unfinished(file)


def is_unfinished(name: str) -> bool:
    """Whether a file is called as producers call one that they have not ended."""
    return name.lower().endswith(UNFINISHED)


def _in_ranges(store: ObjectStore, folder: str, start_after: str, bounds: Sequence[str]) -> Iterator[ObjectInfo]:
    begins = [start_after, *(name for name in bounds if sort_key(name) > sort_key(start_after))]
    if len(begins) == 1 or not lists_in_pages(store):
        yield from store.list(folder, start_after)
        return
    ends: list[str | None] = [*begins[1:], None]
    ahead: deque[Future[list[ObjectInfo]]] = deque()
    with ThreadPoolExecutor(_RANGES_AT_ONCE, thread_name_prefix="listing") as pool:
        try:
            for begin, end in zip(begins, ends, strict=True):
                ahead.append(pool.submit(_range, store, folder, begin, end))
                if len(ahead) > _RANGES_AT_ONCE:
                    yield from ahead.popleft().result()
            while ahead:
                yield from ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()


def _range(store: ObjectStore, folder: str, begin: str, end: str | None) -> list[ObjectInfo]:
    """What sorts after ``begin``, up to ``end`` and with it."""
    listing = store.list(folder, begin)
    return [*listing] if end is None else [*takewhile(lambda info: sort_key(info.path) <= sort_key(end), listing)]
