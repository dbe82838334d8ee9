"""An epoch once it is computed, as an engine gives it to the commit; and its counts, which are the same everywhere."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.errors import FixConfigError
from headrace.kernel.delta import Accounting, Disposition
from headrace.kernel.step import Counts
from headrace.model.triggers import Signal
from headrace.sources.landing import ByInput, count_files
from headrace.sources.progress import PipelineProgress
from headrace.state.files import WrittenState
from headrace_snapshots.format.files import DataFile, Layer
from headrace_snapshots.format.manifest import REJECTED, UNNAMED, OutputTables


@dataclass(frozen=True)
class Attempt:
    """One attempt at an epoch: the id that its snapshot will have, and below what its files are stored."""

    snapshot_id: str
    prefix: str


Attempts = Callable[[int], Attempt]
"""A new attempt at the epoch of that number."""


@dataclass(frozen=True)
class RecomputedEpoch:
    """An epoch that is computed again for some ``outputs``, which were parked when it was computed for the others.
    ``ids``: the layers that were remembered before it, ``told_layers``: those after it. ``letters``: its dead letters.
    ``asked_outputs`` were asked in the first computation: what no output could take there, these must not take now.
    """

    outputs: frozenset[str]
    ids: tuple[Layer, ...] = ()
    told_layers: tuple[Layer, ...] = ()
    letters: tuple[DataFile, ...] = ()
    asked_outputs: frozenset[str] = frozenset()


class DivergedError(FixConfigError, code="config.output_diverged"):
    """An epoch that is computed again takes other records than it did when it was recorded."""


@dataclass(frozen=True)
class StageOutcome:
    """What an epoch did to a stage. ``accounting`` is about the elements that came to it, which may be panes;
    ``counts`` about its windows (None: none was looked at). ``changed``: how many rows of state it changed.
    ``joined_rejected``: rows that joins made of the elements and that it could not take.
    """

    accounting: Accounting
    counts: Counts | None
    changed: int
    takes_panes: bool = False
    joined_rejected: int = 0

    @property
    def dropped_elements(self) -> int:
        """Elements dropped because their window was closed."""
        return 0 if self.counts is None else self.counts.dropped - self.counts.dropped_retractions

    @property
    def late(self) -> int:
        """Elements whose window was expired: records of either sign, of panes those that are no retraction."""
        return self.accounting.late + (0 if self.takes_panes else self.accounting.late_retractions)

    @property
    def dropped_retractions(self) -> int:
        """Retractions, and records that withdraw others, whose window was expired or closed (9.1)."""
        return self.accounting.late_retractions + (0 if self.counts is None else self.counts.dropped_retractions)


@dataclass(frozen=True)
class ComputedEpoch:
    """One epoch, computed: what it read, where it has come, what it found, of the ``chains`` by output and stage.
    ``written``: its files, which are stored already. ``signals`` are those that it received. ``acknowledged_levels``:
    the levels (of the engine's) all of whose tasks have stored their part. ``wait_for_merges``: no epoch may come after
    it soon, so its commit waits for what is being merged beside it. ``parked`` outputs are as they were.
    """

    attempt: Attempt
    epoch: int
    files: ByInput
    chains: Mapping[str, tuple[StageOutcome, ...]]
    progress: PipelineProgress
    written: WrittenState
    timings: Mapping[str, float] = field(default_factory=dict)
    signals: tuple[Signal, ...] = ()
    acknowledged_levels: frozenset[int] = frozenset()
    wait_for_merges: bool = True
    parked: tuple[str, ...] = ()

    @property
    def stages(self) -> tuple[StageOutcome, ...]:
        """The stages of the only chain."""
        (stages,) = self.chains.values()
        return stages

    @property
    def counts(self) -> dict[str, int]:
        """Rows by what became of them: records at the source, drops at any stage, panes of the last one. Where outputs
        have names each has its own (``hourly/panes``); ``records`` of one that reads others are their panes. Beside
        them is what was read; each dead letter once; and what outputs dropped and gave, added up.
        """
        own = {output: _output_counts(self.files, stages) for output, stages in self.chains.items()}
        if not own:  # all outputs that were computed again have failed again
            return dict.fromkeys((*READ, *SUMMED_COUNTS, "rejected"), 0)
        if [*own] == [UNNAMED.output]:
            return own[UNNAMED.output]
        of_records = (own[output] for output, stages in self.chains.items() if not stages[0].takes_panes)
        first = next(of_records, next(iter(own.values())))
        sums = {name: sum(counts[name] for counts in own.values()) for name in SUMMED_COUNTS}
        letters = sum(file.rows for file in self.written.logs[REJECTED])
        sums |= {"rejected": letters - sums["rejected_panes"]}
        own |= {output: dict.fromkeys(first, 0) for output in self.parked}
        counts_by_output = {
            OutputTables(output).qualified_name(name): n for output, counts in own.items() for name, n in counts.items()
        }
        return {**{name: first[name] for name in READ}, **sums, **counts_by_output}


def counts_with(epoch: ComputedEpoch, past: Sequence[ComputedEpoch]) -> dict[str, int]:
    """The counts of ``epoch`` with those of ``past`` epochs that its commit brings, which were computed again for some
    outputs. What was read counts again for these outputs alone.
    """
    counts = epoch.counts
    for past_epoch in past:
        own = past_epoch.counts
        names = {
            name
            for output in past_epoch.chains
            for name in own
            if name.startswith(OutputTables(output).qualified_name(""))
        }
        for name in {*names, *SUMMED_COUNTS, "rejected"}:
            counts[name] += own[name]
    return counts


READ = ("input_files", "input_bytes", "records")
"""Counts that are the same for all outputs."""

SUMMED_COUNTS = (
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


def _output_counts(files: ByInput, stages: Sequence[StageOutcome]) -> dict[str, int]:
    fates = stages[0].accounting.rows
    last = stages[-1].counts or Counts()
    panes = {f"panes_{name}": getattr(last, name) for name in ("early", "on_time", "late")}
    of_records = [stage for stage in stages if not stage.takes_panes]
    of_panes = [stage for stage in stages if stage.takes_panes]
    late_withdrawals = sum(stage.accounting.late_retractions for stage in of_records)  # which are late records
    return {
        "input_files": count_files(files),
        "input_bytes": sum(file.size for splits in files.values() for file in splits),
        "records": sum(fates.values()),
        "accepted": fates.get(Disposition.ACCEPTED, 0),
        "rejected": sum(stage.accounting.rows.get(Disposition.REJECTED, 0) for stage in of_records),
        "filtered": fates.get(Disposition.FILTERED, 0),
        "in_no_window": fates.get(Disposition.NOWHERE, 0),
        "duplicates": fates.get(Disposition.DUPLICATE, 0),
        "late_dropped": sum(stage.late for stage in of_records) + fates.get(Disposition.FORGOTTEN, 0),
        "late_panes_dropped": sum(stage.late for stage in of_panes),
        "rejected_panes": sum(stage.accounting.rows.get(Disposition.REJECTED, 0) for stage in of_panes)
        + stages[0].joined_rejected,
        "closed_dropped": sum(stage.dropped_elements for stage in stages),
        "retractions_dropped": sum(stage.dropped_retractions for stage in stages) - late_withdrawals,
        "panes": sum(panes.values()),
        **panes,
        "retractions": last.retractions,
        "state_rows": sum(stage.changed for stage in stages),
    }
