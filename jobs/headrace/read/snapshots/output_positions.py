"""The outputs of a pipeline: where each is, and those that main has not any more.

Where each output of a pipeline is: what its readers see, how far that is behind main, and why it stands still.

Outputs that main has not any more, or not yet: of branches, tags and older snapshots.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from headrace.read.snapshots.progress import StoredProgress
from headrace.sources.chain_clocks import Parked
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import outputs_of
from headrace_snapshots.refs import MAIN, published_of


@dataclass(frozen=True)
class OutputPosition:
    """One output of several: the snapshot that its readers see and the epoch of that, None if they see nothing yet; and
    how many epochs of main they do not see. ``parked``: since when and why it stands still, None if it goes on.
    """

    name: str
    published: str | None
    published_epoch: int | None
    unpublished: int
    parked: Parked | None = None

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return asdict(self)


def output_positions(catalog: Catalog, refs: Mapping[str, str], main: Manifest) -> tuple[OutputPosition, ...]:
    """Where each output of ``main`` that has a name is, by the ``refs`` of the catalog."""
    names = outputs_of(main)
    published, parked = published_of(refs), StoredProgress.of(main).parked if names else {}
    positions = []
    for name in names:
        shown = published.get(name)
        epoch = None if shown is None else catalog.link(shown).epoch
        behind = main.epoch - (-1 if epoch is None else epoch)
        positions.append(OutputPosition(name, shown, epoch, behind, parked.get(name)))
    return tuple(positions)


_UNREADABLE = (BrokenObjectError, MissingSnapshotError)


def has_had(catalog: Catalog, output: str) -> bool:
    """Whether some kept snapshot has an ``output``: one that a ref names, the newest of what main has given up, or one
    of main, or of what main was before a promotion. Looks through all of them only for a name that none has.
    """
    head = catalog.head()
    for snapshot in dict.fromkeys((*head.refs.values(), *head.past.given_up)):
        with suppress(*_UNREADABLE):
            if output in outputs_of(catalog.manifest(snapshot)):
                return True
    lines = [head.refs.get(MAIN), *(promotion.main for promotion in reversed(head.past.replaced))]
    return any(line is not None and _is_on_line(catalog, line, output) for line in lines)


def _is_on_line(catalog: Catalog, newest: str, output: str) -> bool:
    """Whether a kept snapshot in the line of ``newest`` has the output."""
    with suppress(*_UNREADABLE):  # the rest has expired
        return any(output in outputs_of(manifest) for manifest in catalog.readable(newest))
    return False
