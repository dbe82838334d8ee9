"""Where each output of a pipeline is: what its readers see, how far that is behind main, and why it stands still."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from headrace.read.snapshots.progress import StoredProgress
from headrace.sources.chain_clocks import Parked
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import outputs_of
from headrace_snapshots.refs import published_of


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
