"""Listing the input under a prefix: which names are input, and which stores are listed by many requests at once."""

from collections.abc import Collection, Iterator, Sequence
from itertools import takewhile
from typing import Final

from headrace.ext.stores import lists_in_pages, sort_key
from headrace.sources.parallel_listing import listed_in_parallel, listed_of
from headrace_snapshots.store import ObjectInfo, ObjectStore

UNFINISHED: Final = (".tmp", ".part", ".filepart", ".crdownload", ".inprogress")
"""How names end while a producer still writes the file, as many do it; in letters of any case."""

LEFT_OUT: Final = (
    f"those that begin with _ or . or end in {', '.join(UNFINISHED[:-1])} or {UNFINISHED[-1]} are left out"
)
"""The rule in words, of names without ``suffixes``."""


def listed_inputs(
    store: ObjectStore, prefix: str, suffixes: tuple[str, ...], start_after: str = "", bounds: Sequence[str] = ()
) -> Iterator[ObjectInfo]:
    """The input under ``prefix`` that sorts after ``start_after``, in the order of names. Where a listing comes in
    pages, ranges of it are listed side by side: those between ``bounds``, which ascend, or as it goes.
    """
    folder = folder_of(prefix)
    is_paged = lists_in_pages(store)
    infos = listed_in_parallel(store, folder, start_after, bounds) if is_paged else store.list(folder, start_after)
    return (info for info in infos if is_input(info.path.removeprefix(folder), suffixes))


def inputs_of(store: ObjectStore, prefix: str, wanted: Collection[str]) -> dict[str, ObjectInfo]:
    """Look up which of the ``wanted`` names are there under ``prefix``."""
    if not wanted:
        return {}
    folder = folder_of(prefix)
    if lists_in_pages(store):
        return listed_of(store, folder, wanted)
    last, there = max(map(sort_key, wanted)), dict[str, ObjectInfo]()
    listing = store.list(folder, min(wanted, key=sort_key)[:-1])
    for info in takewhile(lambda info: sort_key(info.path) <= last, listing):
        if info.path in wanted:
            there[info.path] = info
    return there


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
