"""What one pipeline reads of others, and its readers: the part of the lineage that a page of it shows.

Readers are those that hold something. So it costs a listing, and a head for each neighbour, however many pipelines
there are.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.errors import HeadraceError
from headrace.read.lineage.lineage import ReaderProgress, head_of, progress_of
from headrace.read.lineage.placed import PlacedPipeline, RootStores
from headrace.read.lineage.readers import UnseenReader
from headrace_snapshots.gc.holds import holds_of


@dataclass(frozen=True)
class Neighbours:
    """How far a pipeline has come with those that it ``reads``, and how far those have come that are its ``readers``.
    ``unseen``: of both those of which nobody can tell from here.
    """

    reads: tuple[ReaderProgress, ...]
    readers: tuple[ReaderProgress, ...]
    unseen: tuple[UnseenReader, ...]


def neighbours_of(stores: RootStores, name: str) -> Neighbours:
    """The neighbours of pipeline ``name`` under the root that ``stores`` begin with: heads of readers are read before
    its own, and that before those of what it reads, so all are of one consistent cut. Raises BrokenObjectError.
    """
    own = PlacedPipeline("", name)
    held, damaged = holds_of(stores.own, name)
    unseen = [UnseenReader.of_damaged(hold, own) for hold in damaged]
    readers: list[ReaderProgress] = []
    for reader in dict.fromkeys(stores.placed(hold.root, hold.pipeline) for hold in held):
        try:
            readers += [one for one in _readings(stores, reader) if one.upstream == own]
        except HeadraceError as error:
            unseen.append(UnseenReader(reader, own, f"how far it has come is not known: {error}"))
    reads: list[ReaderProgress] = []
    for given, position in head_of(stores, own).consumed.items():
        try:
            reads.append(progress_of(stores, own, given, position))
        except HeadraceError as error:
            upstream = stores.placed(position.root, position.pipeline)
            unseen.append(UnseenReader(own, upstream, f"what is published of it is not known: {error}"))
    return Neighbours(tuple(reads), tuple(readers), tuple(unseen))


def _readings(stores: RootStores, reader: PlacedPipeline) -> Iterator[ReaderProgress]:
    for name, position in head_of(stores, reader).consumed.items():
        yield progress_of(stores, reader, name, position)
