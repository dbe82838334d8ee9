"""Outputs that are parked or left out, and how they catch up.

``left_out`` are the outputs that a run goes on without, as somebody has told it to (``--without``).

``catch_up`` lets outputs that are parked go on where they stood. An output whose tasks fail is parked
(``distribute/tasks/engine``): epochs go on without it. The log of inputs is the upstream backup of what it has missed.
An epoch is a function of its files, processing time, signals, clocks, remembered ids, and state. So each run first
computes the epochs that a parked output has missed again, for it alone, as they were recorded. It restores the clocks
and ids of the snapshot where the output stands, and the output's own state, which has stayed. Ids are those that main
remembered before each epoch, never those of today, for which all of it would be duplicates.

What comes of it is committed with the run's next epoch, so a run that ends before has done nothing. Panes keep the
epochs in which they would have come. One attempt a run; if it fails again, the output stays where it stands.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from pathlib import PurePosixPath
from typing import Final

import msgspec

from headrace.distribute.epoch import ComputedEpoch, DivergedError, RecomputedEpoch
from headrace.errors import FixConfigError, FixDataError, GiveUpError, HeadraceError, RetryError
from headrace.ext.executors import Engine, Execution
from headrace.model.time import render
from headrace.pipeline.identity import Formerly
from headrace.pipeline.output import with_upstream
from headrace.read.definition_plan import Action, plan_definition_change
from headrace.read.snapshots.epoch_history import RecordedEpoch, epochs_since
from headrace.read.snapshots.progress import StoredProgress
from headrace.read.snapshots.read_names import landed_from
from headrace.read.views.columns import View
from headrace.runs.commits import attempts_of
from headrace.runs.epochs import RunContext, UpstreamMovedError, check_counted
from headrace.runs.option_kinds import RunOptionsError
from headrace.runs.reporting.listener import number_of
from headrace.runs.restore import ChangedPipelineError, changed_outputs, definition_change
from headrace.sources.progress import ChainClocks, ParkedChain, PipelineProgress
from headrace.this_process import Size
from headrace_snapshots.format.files import DataFile, Layer
from headrace_snapshots.format.manifest import IDS, INPUTS, REJECTED, Manifest, OutputTables
from headrace_snapshots.format.output_view import as_called_in, called_since, outputs_of, seen_by


def left_out(run: RunContext) -> frozenset[str]:
    """The outputs that ``run`` is told to go on without, and all that read them: these stand with what they read."""
    names_left_out, outputs = {*run.options.without}, run.pipeline.outputs
    if not names_left_out:
        return frozenset()
    return frozenset(names_left_out) | {
        name for name in outputs if not with_upstream(outputs, {name}).isdisjoint(names_left_out)
    }


def check_left_out(run: RunContext) -> None:
    """Raise RunOptionsError for a name of no output, or if no output is left."""
    names_left_out, outputs = {*run.options.without}, [*run.pipeline.outputs]
    names = f"pipeline {run.pipeline.name} has the outputs {', '.join(outputs) or 'of no name'}"
    if names_left_out - {*outputs} or (names_left_out and names_left_out >= {*outputs}):
        raise RunOptionsError(f"{names}: --without names some of them, not all")
    if names_left_out and left_out(run) >= {*outputs}:
        raise RunOptionsError(
            f"{names}, and all others read what would be left out ({', '.join(sorted(names_left_out))}), so none "
            "would go on"
        )


HOLD: Final = Size(64)
"""So many epochs go on without an output that is parked; then the run ends, and says who holds it."""


AT_ONCE: Final = Size(1_000)
"""So many epochs a run computes again for an output before it goes on with the others."""


LEFT_OUT = ("left_out", "a run was told to go on without it (--without)")
"""Why an output stands that a run leaves out."""


class LongHistoryError(FixConfigError, code="config.long_history"):
    """An output has missed more epochs than a run computes again."""


class OutputHeldError(FixDataError, code="data.output_held"):
    """An output has been parked for so long that no epoch goes on without it."""


class CaughtUp(msgspec.Struct, frozen=True):
    """Where outputs stand at the head of a branch once those that could have caught up: their ``clocks``, and the
    layers of their ``tables``. ``parked_since``: the epochs in which those stood that have caught up. ``epochs``: what
    these missed, to be committed with the next epoch.
    """

    clocks: Mapping[str, ChainClocks] = msgspec.field(default_factory=dict)
    tables: Mapping[str, tuple[Layer, ...]] = msgspec.field(default_factory=dict)
    parked_since: Mapping[str, int] = msgspec.field(default_factory=dict)
    epochs: tuple[ComputedEpoch, ...] = ()


NOTHING = CaughtUp()


def waiting_outputs(run: RunContext, head: Manifest) -> tuple[str, ...]:
    """The outputs that are parked or new at ``head``, and that ``run`` is not told to go on without."""
    new = {*run.pipeline.outputs} - {*outputs_of(head)}
    return tuple(sorted({*StoredProgress.from_manifest(head).parked, *new} - left_out(run)))


def catch_up(run: RunContext, side: Execution, head: Manifest) -> CaughtUp:
    """Compute again what outputs that are parked at ``head`` have missed, each from where it stands. Outputs that fail
    again stay there, and a warning says why.

    Raises RetryError and GiveUpError: they are not of the output.
    """
    standing: dict[tuple[int, str | None], list[str]] = defaultdict(list)
    changes_by_output, standing_still = _changed_outputs(run, head), left_out(run)
    for output, where in {**run.progress(head).parked, **_new_outputs(run, head)}.items():
        if output not in run.pipeline.outputs or output in standing_still:
            continue
        # an output that means something else now, or reads one that does, waits for a backfill
        if changes_by_output.keys().isdisjoint(with_upstream(run.pipeline.outputs, {output})):
            standing[where.epoch, where.snapshot].append(output)
    caught_up = NOTHING
    for (epoch, snapshot), outputs in sorted(standing.items(), key=lambda item: item[0][0]):
        missed_epochs = _MissedEpochs(run, head, snapshot, frozenset(outputs))
        names, count = ", ".join(outputs), number_of(head.epoch - epoch, "epoch")
        run.listener.noted(f"output {names} stands at epoch {epoch}: computing {count} again for it")
        caught_up = _merge_caught_up(caught_up, _try_to_catch_up(missed_epochs, side))
    return caught_up


def _try_to_catch_up(missed_epochs: "_MissedEpochs", side: Execution) -> CaughtUp:
    """What outputs come to that have missed the same ``missed_epochs``, or that they still stand, and why."""
    try:
        return missed_epochs.compute_missed(side)
    except (RetryError, GiveUpError):
        raise
    except HeadraceError as error:
        if (
            isinstance(error, UpstreamMovedError) and len(missed_epochs.outputs) > 1
        ):  # it may be about one of them alone
            one_by_one = (
                _try_to_catch_up(replace(missed_epochs, outputs=frozenset([name])), side)
                for name in sorted(missed_epochs.outputs)
            )
            return reduce(_merge_caught_up, one_by_one)
        return CaughtUp(
            {name: missed_epochs.parked_clocks(name, error.code, str(error)) for name in missed_epochs.outputs}
        )


def _changed_outputs(run: RunContext, head: Manifest) -> dict[str, str]:
    """The outputs that mean something else than at ``head``, and what to do."""
    return changed_outputs(run.pipeline, head, allow_new_aggregates=run.options.allow_new_aggregates)


def _new_outputs(run: RunContext, head: Manifest) -> dict[str, ParkedChain]:
    """Outputs that ``head`` has not: each stands at the beginning."""
    had, why = outputs_of(head), "it is new, and has not been computed of what was read before"
    names = [name for name in run.pipeline.outputs if name not in had]
    return {name: ParkedChain(-1, None, "config.new_output", why, head.epoch + 1) for name in names}


def _merge_caught_up(one: CaughtUp, other: CaughtUp) -> CaughtUp:
    epochs = sorted((*one.epochs, *other.epochs), key=lambda epoch_result: epoch_result.epoch)
    tables = {**one.tables, **other.tables}
    return CaughtUp({**one.clocks, **other.clocks}, tables, {**one.parked_since, **other.parked_since}, tuple(epochs))


@dataclass(frozen=True)
class _MissedEpochs:
    """What ``outputs`` that stand at the same ``snapshot`` (None: at the beginning) have missed up to ``head``."""

    run: RunContext
    head: Manifest
    snapshot: str | None
    outputs: frozenset[str]

    @cached_property
    def base(self) -> Manifest | None:
        """The snapshot where they stand, with outputs by the names that they have now."""
        return None if self.snapshot is None else as_called_in(self.run.catalog.manifest(self.snapshot), self.head)

    def compute_missed(self, side: Execution) -> CaughtUp:
        """What they come to. Raises the error of an output that is the last to fail."""
        upstream_results = self._compute_upstream(side)
        engine = side.engine(attempts_of(self.run.catalog))
        try:
            self._restore(engine, upstream_results)
            with self.run.listener.following(engine.find_level):
                epochs = tuple(self._recompute_epoch(engine, *past) for past in self._missed_epochs())
            clocks, tables = engine.progress.chains, engine.tables
        finally:
            engine.close()
        failures = {name: chain for name in self.outputs if (chain := clocks[name].parked) is not None}
        if not failures:
            missed_since = dict.fromkeys(self.outputs, -1 if self.base is None else self.base.epoch)
            return CaughtUp(
                {name: clocks[name] for name in self.outputs}, self._own_tables(tables), missed_since, epochs
            )
        # files of one epoch are of all its outputs: those that failed later have their part in them
        others = self.outputs - {*failures}
        rest = replace(self, outputs=others).compute_missed(side) if others else NOTHING
        standing_clocks = {
            name: self.parked_clocks(name, chain.code, chain.message) for name, chain in failures.items()
        }
        return _merge_caught_up(rest, CaughtUp(standing_clocks))

    def _missed_epochs(self) -> Iterable[tuple[RecordedEpoch, Manifest, RecomputedEpoch]]:
        """The missed epochs with their manifests, and what was recorded of each."""
        epochs = epochs_since(self.run.catalog, self.head.snapshot_id, self.snapshot)
        if len(epochs) > AT_ONCE.value:
            raise LongHistoryError(
                f"{len(epochs):,} epochs are too many to compute while other outputs wait. Run `headrace backfill "
                f"{self.run.pipeline.name}.{min(self.outputs)} --promote`, which computes it in a branch of its own"
            )
        previous = self.base
        letters = {log.epoch: log.files for log in self.run.catalog.file_records(self.head.logs[REJECTED])}
        for manifest, epoch in epochs:
            ids = () if previous is None else tuple(previous.tables.get(IDS, ()))
            of_epoch = tuple(file for file in letters.get(manifest.epoch, ()) if isinstance(file, DataFile))
            ids_after, asked_outputs = tuple(manifest.tables.get(IDS, ())), self._outputs_in_epoch(manifest, of_epoch)
            yield epoch, manifest, RecomputedEpoch(self.outputs, ids, ids_after, of_epoch, asked_outputs)
            previous = manifest

    def _outputs_in_epoch(self, manifest: Manifest, letters: Sequence[DataFile]) -> frozenset[str]:
        """The outputs that there were in an epoch, under whatever name: it was looked what they take. All, if some of
        its dead ``letters`` have landed again: a new output has these records twice.
        """
        if any(PurePosixPath(file.path).parent.name in self._landed_again for file in letters):
            return self.outputs
        outputs_then = {*called_since(manifest, self.head).values()}
        return self.outputs & outputs_then

    @cached_property
    def _landed_again(self) -> frozenset[str]:
        """The epochs and snapshots whose dead letters are among the files that main has read, or reads next."""
        read = (file.path for record in self.run.catalog.file_records(self.head.logs[INPUTS]) for file in record.files)
        unread = self.run.new_files(self.head, full_sweep=True).values()
        paths = (*read, *(file.path for files in unread for file in files))
        return frozenset(name for path in paths if (name := landed_from(path, View.REJECTED)) is not None)

    def _compute_upstream(self, side: Execution) -> CaughtUp:
        """The results of upstream outputs up to where the reading outputs stand, as far as the upstream ones stood
        still earlier. They are computed again for the reading outputs alone. Raises OutputHeldError if one fails.
        """
        base = self.base
        if base is None:
            return NOTHING
        standing: dict[tuple[int, str | None], set[str]] = defaultdict(set)
        parked_chains = self.run.progress(base).parked
        for name in with_upstream(self.run.pipeline.outputs, self.outputs) - self.outputs:
            if (where := parked_chains.get(name)) is not None:
                standing[where.epoch, where.snapshot].add(name)
        upstream_results = NOTHING
        for (_, snapshot), names in sorted(standing.items(), key=lambda item: item[0][0]):
            upstream_results = _merge_caught_up(
                upstream_results, _MissedEpochs(self.run, base, snapshot, frozenset(names)).compute_missed(side)
            )
        for name, clocks in upstream_results.clocks.items():
            if clocks.parked is not None:
                raise OutputHeldError(f"output {name}, which it reads, is parked: {clocks.parked.message}")
        return upstream_results

    def _restore(self, engine: Engine, caught_up_above: CaughtUp) -> None:
        progress = self.run.progress(self.base)
        chains = {**progress.chains, **{name: replace(self._stored_clocks(name), parked=None) for name in self.outputs}}
        chains |= caught_up_above.clocks
        by_output = self.run.pipeline.by_output
        renames: dict[str, tuple[Formerly, ...]] = {
            name: tuple(plan_definition_change(by_output[name], seen_by(self.head, name)).columns)
            for name in self.outputs
            if name in outputs_of(self.head)
        }
        epoch = -1 if self.base is None else self.base.epoch
        tables = self._own_tables(self.head.tables)
        if self.base is not None:  # what they read goes on from there, too, for them alone
            upstream_names = with_upstream(self.run.pipeline.outputs, self.outputs) - self.outputs
            plans = {name: plan_definition_change(by_output[name], seen_by(self.base, name)) for name in upstream_names}
            for name, difference in plans.items():
                if difference.action is Action.REPLAY:  # its state there is of no use
                    raise ChangedPipelineError(
                        f"{definition_change(difference, name)}, and {', '.join(sorted(self.outputs))} reads it: run "
                        f"`headrace backfill {self.run.pipeline.name}.{name} --promote`, which computes both again"
                    )
            renames |= {name: tuple(difference.columns) for name, difference in plans.items()}
            tables |= {**replace(self, outputs=upstream_names)._own_tables(self.base.tables), **caught_up_above.tables}
        engine.restore(epoch, replace(progress, chains=chains), tables, renames, snapshot=self.snapshot)

    def _recompute_epoch(
        self, engine: Engine, epoch: RecordedEpoch, manifest: Manifest, recomputed_epoch: RecomputedEpoch
    ) -> ComputedEpoch:
        epoch_result = engine.compute(
            epoch.files,
            epoch.processing_time,
            is_last=epoch.is_last,
            signals=epoch.signals,
            wait_for_merges=manifest.epoch == self.head.epoch,
            hold=epoch.held_to,
            recorded=True,
            isolates=True,
            again=recomputed_epoch,
        )
        recorded_watermark = StoredProgress.from_manifest(manifest).watermark
        if (epoch_result.epoch, epoch_result.progress.watermark) != (manifest.epoch, recorded_watermark):
            raise DivergedError(
                f"epoch {manifest.epoch} left the watermark at {render(recorded_watermark)}; computed again, at "
                f"{render(epoch_result.progress.watermark)}: since then it has changed which records other outputs "
                f"take. Run `headrace backfill {self.run.pipeline.name}`, which computes all of them again"
            )
        check_counted(self.run, epoch_result)
        return epoch_result

    def _own_tables(self, tables: Mapping[str, tuple[Layer, ...]]) -> dict[str, tuple[Layer, ...]]:
        names = [OutputTables(output) for output in self.outputs]
        return {
            table: layers for table, layers in tables.items() if any(own.plain_name(table) is not None for own in names)
        }

    def _stored_clocks(self, output: str) -> ChainClocks:
        """What is stored of an output at the head."""
        new = _new_outputs(self.run, self.head)
        return ChainClocks(parked=new[output]) if output in new else self.run.progress(self.head).chains[output]

    def parked_clocks(self, output: str, code: str, message: str) -> ChainClocks:
        """Where an output stands that failed so."""
        own = self._stored_clocks(output)
        assert own.parked is not None
        return replace(own, parked=replace(own.parked, code=code, message=message))


def check_held(run: RunContext, progress: PipelineProgress, epoch: int) -> None:
    """Raise OutputHeldError if an output that is not left out has missed too many epochs up to ``epoch``."""
    held_outputs = {
        output: where
        for output, where in progress.parked.items()
        if epoch + 1 - where.since >= HOLD.value and output not in left_out(run)
    }
    if not held_outputs:
        return
    name = run.pipeline.name
    reasons = "; ".join(
        f"{output} since epoch {where.since}: {where.message}" for output, where in held_outputs.items()
    )
    flags = " ".join(f"--without {output}" for output in held_outputs)
    raise OutputHeldError(
        f"pipeline {name} has gone on for {HOLD.value} epochs without an output that is parked ({reasons}). Do one of "
        "three things. Mend the error in brackets, and run again: the run first computes what the output has missed. "
        f"Or take the output out of the pipeline. Or go on without it, by `headrace run {name} {flags}`: then no "
        "history since the output was parked expires"
    )


def standing_at(run: RunContext, head: Manifest | None, caught_up: CaughtUp) -> PipelineProgress:
    """How far ``head`` has come (None: nowhere), with what caught up; outputs that the run leaves out stand there.

    Raises RunOptionsError for a name of no output, or if none is left.
    """
    check_left_out(run)
    progress, outputs = run.progress(head), [*run.pipeline.outputs]
    chains = {name: clocks for name, clocks in progress.chains.items() if name in outputs or not outputs}
    reasons = dict.fromkeys(run.options.without, LEFT_OUT)
    epoch, snapshot = -1, None
    if head is not None:
        epoch, snapshot = head.epoch, head.snapshot_id
        chains |= {name: ChainClocks(parked=chain) for name, chain in _new_outputs(run, head).items()}
        reasons |= {name: (ChangedPipelineError.code, message) for name, message in _changed_outputs(run, head).items()}
    chains |= caught_up.clocks
    for name, (code, message) in reasons.items():
        chains.setdefault(name, ChainClocks())
        stands = chains[name].parked
        if stands is None:
            stands = ParkedChain(epoch, snapshot, code, message, epoch + 1)
        elif code != LEFT_OUT[0]:
            stands = replace(stands, code=code, message=message)
        chains[name] = replace(chains[name], parked=stands)
    return replace(progress, chains=chains)


def check_none_parked(run: RunContext, progress: PipelineProgress) -> None:
    """Raise OutputHeldError if a parked output is not left out: who computes again what was read needs all others."""
    for output, where in progress.parked.items():
        if output in left_out(run):
            continue
        raise OutputHeldError(
            f"output {output} of pipeline {run.pipeline.name} stands at epoch {where.epoch}: {where.message}. Mend "
            "that, or take the output out of the pipeline, and run again"
        )
