"""The files that one epoch stored: the same for every executor."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace_snapshots.format.files import DataFile, Layer


@dataclass(frozen=True)
class Written:
    """What is stored of one epoch. ``tables``: the layers of each table of state after it; ``logs``: files of the epoch
    by the log that they go to, none where there were no rows. ``requests`` were not made through this process's stores.
    """

    tables: Mapping[str, tuple[Layer, ...]]
    logs: Mapping[str, tuple[DataFile, ...]]
    requests: Mapping[str, int] = field(default_factory=dict)
