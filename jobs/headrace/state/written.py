"""The files that one epoch stored, by table: the same for every executor."""

from dataclasses import dataclass

from headrace_snapshots.format.files import DataFile


@dataclass(frozen=True)
class Written:
    """Files of one epoch by table; no files where there were no rows. ``state`` has one entry for each stage, ``ids``
    are of records that duplicates are told by.
    """

    state: tuple[tuple[DataFile, ...], ...]
    ids: tuple[DataFile, ...]
    panes: tuple[DataFile, ...]
    late: tuple[DataFile, ...]
    rejected: tuple[DataFile, ...]

    @property
    def files(self) -> int:
        """How many files these are."""
        return sum(len(part) for part in (*self.state, self.ids, self.panes, self.late, self.rejected))
