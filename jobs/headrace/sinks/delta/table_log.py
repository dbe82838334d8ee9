"""What the log of a Delta table says of commits since our last one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Self

from deltalake import DeltaTable

from headrace.model.time import whole_seconds

_LEAVES_ROWS: Final = (
    *("OPTIMIZE", "REORG", "CLUSTER BY", "VACUUM START", "VACUUM END", "FSCK", "COMPUTE STATS"),
    *("UPGRADE PROTOCOL", "ADD FEATURE", "SET TBLPROPERTIES", "UNSET TBLPROPERTIES"),
    *("ADD CONSTRAINT", "DROP CONSTRAINT", "UPDATE TABLE METADATA", "UPDATE FIELD METADATA"),
    *("ADD COLUMN", "ADD COLUMNS", "CHANGE COLUMN", "CHANGE COLUMNS", "RENAME COLUMN"),
)
"""Operations after which the rows of a table are what they were."""

_RESTORE: Final = "RESTORE"


@dataclass(frozen=True)
class TableLog:
    """Commits at ``version`` of a table: those of others since our last one, newest first, as far as the log goes; and
    ours, None if it is gone.
    """

    version: int
    theirs: Sequence[Mapping[str, Any]]
    ours: Mapping[str, Any] | None

    @classmethod
    def of(cls, table: DeltaTable, mark: str) -> Self:
        """The log of ``table``; commits of ours have a ``mark``."""
        theirs: list[dict[str, Any]] = []
        for limit in (10, None):  # ours is the newest, as a rule
            theirs = []
            for commit in table.history(limit):
                if commit.get(mark) is not None:
                    return cls(table.version(), theirs, commit)
                theirs.append(commit)
        return cls(table.version(), theirs, None)

    @property
    def was_restored(self) -> bool:
        """Whether somebody has taken the table back: it holds an older snapshot than the transaction says."""
        return any(commit.get("operation") == _RESTORE for commit in self.theirs)

    @property
    def at(self) -> str | None:
        """When our last commit was."""
        return None if self.ours is None else _time(self.ours)

    @property
    def theirs_in_words(self) -> str | None:
        """What others have done to the rows; None if nothing."""
        changing = [commit for commit in self.theirs if commit.get("operation") not in _LEAVES_ROWS]
        if not changing:
            return None
        number = "a commit of others" if len(changing) == 1 else f"{len(changing)} commits of others, the last one"
        return f"got {number} ({changing[0].get('operation', 'without a name')} at {_time(changing[0]) or 'some time'})"


def _time(commit: Mapping[str, Any]) -> str | None:
    milliseconds = commit.get("timestamp")
    if milliseconds is None:
        return None
    return whole_seconds(datetime.fromtimestamp(milliseconds / 1000, UTC))
