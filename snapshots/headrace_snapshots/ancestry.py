"""Ancestry of snapshots. Manifests are immutable, so a fact that was found once stays true.

Searches go by the skip pointers of manifests (``format.skips``), and from one that has none by its parent. They read
few of the manifests on the way; one that is missing or broken is passed by what the log has of its commit.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from headrace.errors import RestoreError
from headrace_snapshots.format.manifest import Manifest


@dataclass(frozen=True)
class Link:
    """A snapshot in a line of descent. When its manifest cannot be read, ``problem`` says why.

    Then there is no ``manifest``, and ``epoch`` and ``parent`` are those that the log has of its commit.
    """

    snapshot_id: str
    epoch: int
    parent: str | None
    manifest: Manifest | None = None
    problem: RestoreError | None = None

    @property
    def ancestors(self) -> dict[int, str]:
        """Ancestors known without another request, by epoch: the parent, and whatever the manifest names."""
        named = () if self.manifest is None else self.manifest.skips
        parents = {} if self.parent is None else {self.epoch - 1: self.parent}
        return {**{skip.epoch: skip.snapshot_id for skip in named}, **parents}


READERS = 8
"""Manifests that are read at once."""

Look = Callable[[str], Link]
"""Finds a snapshot by its id: a request, unless it is remembered."""


def lineage(look: Look, snapshot_id: str) -> Iterator[Link]:
    """``snapshot_id`` and all that came before it, newest first."""
    current: str | None = snapshot_id
    while current is not None:
        link = look(current)
        yield link
        current = link.parent


def gathered(read: Callable[[str], Manifest | None], snapshot_id: str, after: int) -> dict[str, Manifest]:
    """The manifests of ``snapshot_id`` and of what came before it in epochs behind ``after``, by id; each is read once,
    as soon as one that names it has been. ``read`` gives None for one that is not to be had, and raises what ends all.
    """
    manifests: dict[str, Manifest] = {}
    requested = {snapshot_id}
    pool = ThreadPoolExecutor(READERS, thread_name_prefix="manifests")
    try:
        waiting: set[Future[Manifest | None]] = {pool.submit(read, snapshot_id)}
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for manifest in filter(None, (future.result() for future in done)):
                manifests[manifest.snapshot_id] = manifest
                named = Link(manifest.snapshot_id, manifest.epoch, manifest.parent, manifest).ancestors
                new = {ancestor for epoch, ancestor in named.items() if epoch > after} - requested
                requested |= new
                waiting |= {pool.submit(read, ancestor) for ancestor in new}
    finally:
        pool.shutdown(cancel_futures=True)
    return manifests


def ancestor_at(look: Look, link: Link, epoch: int) -> str | None:
    """The id of the snapshot of ``epoch`` in the line of ``link``; None if that begins later or ends earlier."""
    while link.epoch > epoch:
        nearest = min((at for at in link.ancestors if at >= epoch), default=None)
        if nearest is None:
            return None
        ancestor = link.ancestors[nearest]
        if nearest == epoch:
            return ancestor
        link = look(ancestor)
    return link.snapshot_id if link.epoch == epoch else None


def common_ancestor(look: Look, one: Link, other: Link) -> Link | None:
    """The newest snapshot in the lines of both, which may be one of them; None if they began apart."""
    older, newer = sorted((one, other), key=lambda link: link.epoch)
    beside = ancestor_at(look, newer, older.epoch)
    if beside is None:
        return None
    newer = look(beside)
    while older.snapshot_id != newer.snapshot_id:
        left, right = older.ancestors, newer.ancestors
        known = left.keys() & right.keys()
        if not known:
            return None
        apart = [epoch for epoch in known if left[epoch] != right[epoch]]
        nearest = min(apart) if apart else max(known)
        older, newer = look(left[nearest]), look(right[nearest])
    return older
