"""The names of the tables and logs of a manifest. No other module spells them.

All outputs of a pipeline share the remembered ids, the log of inputs and the log of dead letters. Each output has
tables and logs of its own. Their names begin with the name of the output, where it has one: ``hourly/state``.
"""

from dataclasses import dataclass

IDS = "ids"
"""The table of ids by which duplicates are told."""

INPUTS = "inputs"
"""The log of files that were read."""

REJECTED = "rejected"
"""The log of dead letters: records and panes."""

_CURRENT = "current"


@dataclass(frozen=True)
class OutputTables:
    """The names of the tables and logs of one ``output``; "": the output without a name."""

    output: str = ""

    def state(self, stage: int) -> str:
        """The table of rows of state of ``stage``, counted from 0."""
        return self._named(f"state_{stage}" if stage else "state")

    def states(self, stages: int) -> tuple[str, ...]:
        """The tables of state of so many stages."""
        return tuple(map(self.state, range(stages)))

    @property
    def edges(self) -> str:
        """The table of the edges of a loop."""
        return self._named("edges")

    @property
    def in_flight(self) -> str:
        """The table of what goes round a loop and has not arrived."""
        return self._named("inflight")

    @property
    def current(self) -> str:
        """The table of the view ``current``."""
        return self._named(_CURRENT)

    @property
    def panes(self) -> str:
        """The log of panes and retractions."""
        return self._named("panes")

    @property
    def late(self) -> str:
        """The log of late rows."""
        return self._named("late")

    def plain(self, name: str) -> str | None:
        """What a table, log or count of this output is called in a pipeline without names; None if it is another's."""
        begin = self._named("")
        return name.removeprefix(begin) if name.startswith(begin) else None

    def named(self, name: str) -> str:
        """What a count called ``name`` in a pipeline without names is called of this output."""
        return self._named(name)

    def _named(self, name: str) -> str:
        return f"{self.output}/{name}" if self.output else name


UNNAMED = OutputTables()
"""Tables and logs of an output without a name, which is the only one of its pipeline."""


def file_stem(table: str) -> str:
    """What names of files of ``table``, or of a log, begin with: all files of an epoch lie in one folder."""
    return table.replace("/", "-")


def is_current(table: str) -> bool:
    """Whether ``table`` is ``current`` of some output. All other tables hold state."""
    return table.rpartition("/")[2] == _CURRENT
