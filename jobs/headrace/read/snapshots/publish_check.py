"""Damage under what a run is about to publish: a look at some of what readers need and no run reads.

A run reads its state and what is new. What older epochs wrote it only names, so damage there would be told to readers
alone. Each publishing run looks at a few of these objects, at others than the one before it: all of them in turn, and
never more requests for longer histories. It reads no data file: bits that have changed are for ``fsck --deep``.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from headrace.read.snapshots.damage import advice
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.datafiles import look
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.table_names import INPUTS, is_current
from headrace_snapshots.refs import MAIN

FILES, NODES = 16, 4
"""How many a run looks at: files of ``current``, and nodes of the logs of panes, late records and dead letters."""

_READERS = 8
Looked = TypeVar("Looked")


def damage_under(catalog: Catalog, manifest: Manifest) -> list[str]:
    """What is wrong with objects that readers of ``manifest`` need, of those whose turn it is, and what to do."""
    current = [layer for table, layers in manifest.tables.items() if is_current(table) for layer in layers]
    files = [file for layer in current for file in layer.files]
    logs = (log for name, log in manifest.logs.items() if name != INPUTS)
    nodes = [ref.id for log in logs for ref in log.refs]
    problems = [
        *_found(partial(_file_problem, catalog), _turn(files, FILES, manifest.epoch)),
        *_found(partial(_node_problem, catalog), _turn(nodes, NODES, manifest.epoch)),
    ]
    advised = ((problem, advice(catalog, MAIN, problem)) for problem in problems)
    return [f"{problem}. {way_out}" if way_out is not None else problem for problem, way_out in advised]


def _turn(all_: Sequence[Looked], count: int, epoch: int) -> list[Looked]:
    """So many of them, from where that epoch's turn begins."""
    begin = epoch * count % max(len(all_), 1)
    return [*all_[begin : begin + count], *all_[: max(0, min(begin, begin + count - len(all_)))]]


def _found(problem: "partial[str | None]", objects: Sequence[Looked]) -> Iterator[str]:
    with ThreadPoolExecutor(_READERS, thread_name_prefix="underneath") as pool:
        return iter([text for text in pool.map(problem, objects) if text is not None])


def _file_problem(catalog: Catalog, file: DataFile) -> str | None:
    try:
        look(catalog.store, file)
    except BrokenObjectError as error:
        return str(error)
    return None


def _node_problem(catalog: Catalog, node: str) -> str | None:
    try:
        catalog.read_node(node)
    except BrokenObjectError as error:
        return str(error)
    return None
