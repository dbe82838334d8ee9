"""A layer of a table that grows by layers, opened."""

from dataclasses import dataclass

from headrace.model.time import NEVER, Instant
from headrace.state.datafiles.sorted_file import SortedFile


@dataclass(frozen=True)
class StateLayer:
    """Rows that epochs ``first_epoch`` to ``last_epoch`` wrote, in runs of other keys each. Nothing in it counts once
    the watermark exceeds ``expires``.
    """

    runs: tuple[SortedFile, ...]
    first_epoch: int
    last_epoch: int
    expires: Instant = NEVER

    @property
    def row_count(self) -> int:
        """How many there are, those that count no more included."""
        return sum(run.rows.num_rows for run in self.runs)
