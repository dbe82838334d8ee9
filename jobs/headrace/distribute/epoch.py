"""An epoch once it is computed, as an engine gives it to the commit; and its counts, which are the same everywhere."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.kernel.delta import Accounting, Disposition
from headrace.kernel.step import Counts
from headrace.model.triggers import Signal
from headrace.sources.landing import ByInput, counted
from headrace.sources.progress import PipelineProgress
from headrace.state.datafiles.epoch_files import Written
from headrace_snapshots.format.table_names import REJECTED, UNNAMED, OutputTables


@dataclass(frozen=True)
class Attempt:
    """One attempt at an epoch: the id that its snapshot will have, and below what its files are stored."""

    snapshot_id: str
    prefix: str


Attempts = Callable[[int], Attempt]
"""A new attempt at the epoch of that number."""


@dataclass(frozen=True)
class StageOutcome:
    """What an epoch did to a stage: what became of the elements that came to it, and of its windows (None: none was
    looked at); how many rows of state it changed.
    """

    accounting: Accounting
    counts: Counts | None
    changed: int

    @property
    def closed(self) -> int:
        """Elements dropped because their window was closed."""
        return 0 if self.counts is None else self.counts.dropped - self.counts.dropped_retractions

    @property
    def dropped_retractions(self) -> int:
        """Retractions whose window was expired or closed (9.1)."""
        return self.accounting.late_retractions + (0 if self.counts is None else self.counts.dropped_retractions)


@dataclass(frozen=True)
class ComputedEpoch:
    """One epoch, computed: what it read, where it has come, what it found, of the ``chains`` by output and stage.
    ``written``: its files, which are stored already. ``signals`` are those that it received. ``acknowledged``: the
    levels (of the engine's) all of whose tasks have stored their part. ``wait_for_merges``: no epoch may come after it
    soon, so its commit waits for what is being merged beside it.
    """

    attempt: Attempt
    epoch: int
    files: ByInput
    chains: Mapping[str, tuple[StageOutcome, ...]]
    progress: PipelineProgress
    written: Written
    timings: Mapping[str, float] = field(default_factory=dict)
    signals: tuple[Signal, ...] = ()
    acknowledged: frozenset[int] = frozenset()
    wait_for_merges: bool = True

    @property
    def stages(self) -> tuple[StageOutcome, ...]:
        """The stages of the only chain."""
        (stages,) = self.chains.values()
        return stages

    @property
    def counts(self) -> dict[str, int]:
        """Rows by what became of them: records at the source, drops at any stage, panes of the last one. Where outputs
        have names each has its own (``hourly/panes``). Beside them is what was read; each dead letter once; and what
        outputs dropped and gave, added up.
        """
        own = {output: _counts(self.files, stages) for output, stages in self.chains.items()}
        if [*own] == [UNNAMED.output]:
            return own[UNNAMED.output]
        first, *_ = own.values()
        summed = {name: sum(counts[name] for counts in own.values()) for name in SUMMED}
        letters = sum(file.rows for file in self.written.logs[REJECTED])
        summed |= {"rejected": letters - summed["rejected_panes"]}
        named = {OutputTables(output).named(name): n for output, counts in own.items() for name, n in counts.items()}
        return {**{name: first[name] for name in READ}, **summed, **named}


READ = ("input_files", "input_bytes", "records")
"""Counts that are the same for all outputs."""

SUMMED = (
    "late_dropped",
    "late_panes_dropped",
    "rejected_panes",
    "closed_dropped",
    "retractions_dropped",
    "panes",
    "panes_early",
    "panes_on_time",
    "panes_late",
    "retractions",
    "state_rows",
)
"""Counts of which all outputs together have the sum. One record may be accepted by some and filtered by others."""


def _counts(files: ByInput, stages: Sequence[StageOutcome]) -> dict[str, int]:
    fates = stages[0].accounting.rows
    last = stages[-1].counts or Counts()
    panes = {f"panes_{name}": getattr(last, name) for name in ("early", "on_time", "late")}
    return {
        "input_files": counted(files),
        "input_bytes": sum(file.size for landed in files.values() for file in landed),
        "records": sum(fates.values()),
        "accepted": fates.get(Disposition.ACCEPTED, 0),
        "rejected": fates.get(Disposition.REJECTED, 0),
        "filtered": fates.get(Disposition.FILTERED, 0),
        "in_no_window": fates.get(Disposition.NOWHERE, 0),
        "duplicates": fates.get(Disposition.DUPLICATE, 0),
        "late_dropped": stages[0].accounting.late + fates.get(Disposition.FORGOTTEN, 0),
        "late_panes_dropped": sum(stage.accounting.late for stage in stages[1:]),
        "rejected_panes": sum(stage.accounting.rows.get(Disposition.REJECTED, 0) for stage in stages[1:]),
        "closed_dropped": sum(stage.closed for stage in stages),
        "retractions_dropped": sum(stage.dropped_retractions for stage in stages),
        "panes": sum(panes.values()),
        **panes,
        "retractions": last.retractions,
        "state_rows": sum(stage.changed for stage in stages),
    }
