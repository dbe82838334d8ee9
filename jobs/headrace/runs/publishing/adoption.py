"""Adoption: main takes over what a branch has computed of one output, and nothing else of main changes.

*Theory of operation.* A branch that computes an output again (``runs/backfill/backfill``) has the epochs of main.
Files, processing times and signals are the same, and watermarks and ids are those that main had. So its rows of the
output after epoch k are what main would hold there, had it always computed the output as now written. Adopting is epoch
n+1 of main, which reads nothing. Tables, logs, clocks, columns and definition of the output, and of all that is
computed of it (``AdoptedOutputs``), are those of the branch; everything else is that of epoch n. If main has gone on
meanwhile, so that k is less than n, the output stands at epoch k, as one that is parked does. The next run computes
what it has missed (``runs/parking``).

*Dead letters.* All outputs share one log, whose files each have the letters of one output, or those that no output
could take. So the log gets other files, and none is written: those that the adopted outputs refused as they are
computed now (``adopted_letters``).

*Why it is refused.* Whatever would make that untrue: main has read other files since, or judged records otherwise. Then
the watermarks of some epoch, the dead letters that no output took, or the remembered ids differ. Or an output that the
adopted ones read has other rows there, is parked or has changed; or inputs mean something else. A branch without a good
audit is refused as for any promotion.

*What is new to readers.* Rows of all epochs. The columns of the output say since when (``adopted``). So an audit of
what readers have not seen is of all rows, and a sink is told the difference.

*Order.* Everything is checked before main is claimed, which fences main's writer. No row is written: main names files
of the branch. One entry of the log commits the epoch; another drops the branch. Readers see nothing of it until the
output is published as ever: by the graph, after an audit.

``publish_adopted`` publishes what main has adopted, by the graph, once it is audited.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from headrace.distribute.epoch import SUMMED_COUNTS
from headrace.errors import FixConfigError
from headrace.pipeline.identity import fingerprint_of, recorded_definition
from headrace.pipeline.pipeline import Pipeline
from headrace.read.snapshots.epoch_history import RecordedEpoch, epochs_since
from headrace.read.snapshots.progress import epoch_without_reading
from headrace.runs.plan import CutOver
from headrace.runs.publishing import audits
from headrace.runs.publishing.promotion import BranchFacts, Rehearsal, rehearse_outputs
from headrace.runs.publishing.publish import PlannedPublish, output_results
from headrace.runs.reporting.results import RunResult
from headrace.runs.reporting.results import now as timestamp
from headrace.runs.reporting.summary import renew_summary
from headrace.sources.progress import ParkedChain
from headrace_snapshots.catalog import Catalog, Claim
from headrace_snapshots.format import output_view
from headrace_snapshots.format.files import DataFile, FileLog, FileRecord, LoggedFile
from headrace_snapshots.format.manifest import ADOPTED, FORMERLY, IDS, OUTPUTS, REJECTED, Manifest, OutputTables
from headrace_snapshots.names import MAIN
from headrace_snapshots.output_catalog import describe_given_up, patches_given_up, seen_catalog
from headrace_snapshots.protocol.moves import Head

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class AdoptedOutputs:
    """``adopted``: an ``output``, and those that are computed of it, whose panes change with its own. ``read``: others
    whose panes these need. ``others``: all else.
    """

    output: str
    adopted: tuple[str, ...]
    read: tuple[str, ...]
    others: tuple[str, ...]

    @classmethod
    def from_upstream(cls, pipeline: str, upstream: Mapping[str, Sequence[str]], output: str) -> Self:
        """For an ``output`` computed of those in ``upstream`` (none: of records). Raises UnknownOutputError."""
        if output not in upstream:
            has = f"it has {', '.join(sorted(upstream))}" if upstream else "it has one output, which has no name"
            raise output_view.UnknownOutputError(f"pipeline {pipeline} has no output {output!r}: {has}")
        readers_by_output = {
            name: [reader for reader, upstream_names in upstream.items() if name in upstream_names] for name in upstream
        }
        adopted_names = _reachable_names({output}, readers_by_output)
        needed_names = _reachable_names(adopted_names, upstream)
        rest = needed_names - adopted_names, upstream.keys() - needed_names
        return cls(output, *(tuple(sorted(names)) for names in (adopted_names, *rest)))


def _reachable_names(names: Collection[str], edges: Mapping[str, Iterable[str]]) -> set[str]:
    """The ``names``, and all that they lead to."""
    reached_names, waiting = {*names}, [*names]
    while waiting:
        further = {*edges.get(waiting.pop(), ())} - reached_names
        reached_names |= further
        waiting += further
    return reached_names


Letter = tuple[str | None, str | None, int | None]
"""Where a dead letter is from: its input, file and position."""


def taken_by_none(catalog: Catalog, manifest: Manifest, last_epoch: int | None = None) -> set[Letter]:
    """The dead letters, up to epoch ``last_epoch``, that no output took. Raises BrokenObjectError."""
    letters: set[Letter] = set()
    for record in catalog.file_records(manifest.logs[REJECTED]):
        for file in record.files:
            rows = _read_rows(catalog, file)
            if _refusing_output(rows) is None and (last_epoch is None or record.epoch <= last_epoch):
                columns = (rows[name].to_pylist() for name in ("input", "file", "position"))
                letters.update(zip(*columns, strict=True))
    return letters


def adopted_letters(catalog: Catalog, main: Manifest, branch: Manifest, outputs: Collection[str]) -> FileLog:
    """The log of ``main`` in its next epoch: of ``outputs`` with the letters of ``branch`` in place of its own."""
    log, replaced_outputs = (
        FileLog.empty(),
        {name for output in outputs for name in (output, *output_view.called_before(main, output))},
    )
    for record in catalog.file_records(main.logs[REJECTED]):
        if kept_letters := tuple(
            file for file in record.files if _refusing_output(_read_rows(catalog, file)) not in replaced_outputs
        ):
            log = catalog.append_record(log, FileRecord(record.epoch, kept_letters))
    files = (file for record in catalog.file_records(branch.logs[REJECTED]) for file in record.files)
    own = tuple(file for file in files if _refusing_output(_read_rows(catalog, file)) in outputs)
    return catalog.append_record(log, FileRecord(main.epoch + 1, own)) if own else log


def _read_rows(catalog: Catalog, file: LoggedFile) -> "pa.Table":
    from headrace.state.files import decode_table  # with Arrow
    from headrace_snapshots.datafiles import read_verified

    assert isinstance(file, DataFile)
    return decode_table(read_verified(catalog.store, file))


def _refusing_output(rows: "pa.Table") -> str | None:
    """The output that could not take the records of a file; None: no output could."""
    if "output" not in rows.column_names:  # from before outputs had names
        return None
    (output,) = rows["output"].unique().to_pylist()
    return None if output is None else str(output)


class NotAdoptableError(FixConfigError, code="config.not_adoptable"):
    """What a branch has computed of an output is not what main would have, had it computed that."""


def check_before(pipeline: Pipeline, main: Manifest, scope: AdoptedOutputs, head: Head) -> None:
    """Raise what stands, at ``head`` of the log, against ``main`` adopting outputs, whatever a branch computes."""
    _check_definition(recorded_definition(pipeline), main, scope)
    former = {pipeline.outputs[output].formerly for output in scope.adopted}
    _check_delivered(head, pipeline.name, scope, {*scope.adopted, *former})


@dataclass(frozen=True)
class AdoptOutput:
    """Let ``main`` adopt the outputs of ``scope`` from the branch that the ``facts`` are of. ``give_up_delivered``:
    what sinks have got that cannot take back is not against it.
    """

    facts: BranchFacts
    main: Manifest
    scope: AdoptedOutputs
    give_up_delivered: bool = False

    def __str__(self) -> str:
        adopted_names, branch = ", ".join(self.scope.adopted), self.facts.branch
        return f"let main adopt {adopted_names} of branch {branch}, as epoch {self.main.epoch + 1}; the branch ends"

    @classmethod
    def from_branch(cls, catalog: Catalog, cut_over: CutOver) -> Self:
        """Raises UnknownBranchError, UnknownOutputError, NotAdoptableError where main has nothing."""
        facts = BranchFacts.from_branch(catalog, catalog.head(), cut_over.branch)
        scope = AdoptedOutputs.from_upstream(
            catalog.pipeline, output_view.upstream_of(facts.head), cut_over.output or ""
        )
        if facts.main is None:
            raise NotAdoptableError(
                f"main of {catalog.pipeline} has no snapshot: promote the whole branch {cut_over.branch}"
            )
        return cls(facts, catalog.manifest(facts.main), scope, cut_over.give_up_delivered)

    @classmethod
    def made_before(cls, catalog: Catalog, cut_over: CutOver) -> audits.MadeBefore | None:
        """What main became by it."""
        entry_before = audits.entry_made_before(
            catalog, cut_over.branch, makes_change=lambda entry: "adopted" in (entry.detail or {})
        )
        return (
            None
            if entry_before is None
            else audits.MadeBefore(_made_change(catalog, catalog.manifest(entry_before.refs[MAIN])))
        )

    @property
    def catalog(self) -> Catalog:
        return self.facts.catalog

    @property
    def branch(self) -> Manifest:
        """The newest snapshot of the branch."""
        return self.facts.head

    def checks(self) -> Iterator[audits.RefusalCheck]:
        """What may stand against it, in the order of telling; each relies on those before, and rows are read last."""
        if not self.give_up_delivered:
            yield audits.RefusalCheck(self._check_delivered, (audits.DeliveredError,), is_relied_on=True)
        yield self._relied_on_check(self._check_computed)
        yield self.facts.audit_check(self.scope.adopted, is_relied_on=True)
        yield self._relied_on_check(lambda: _check_definition(self.branch.definition, self.main, self.scope))
        yield self._relied_on_check(self._check_reading)
        yield self._relied_on_check(self._check_records)
        yield self._relied_on_check(self._check_what_they_read)

    def make(self, run_id: str, message: str) -> audits.MadeChange:
        """Let main adopt them, as one epoch; the branch ends. It publishes nothing: the next run of the pipeline does,
        or who asks for it. Raises FencedError if somebody else claims main meanwhile.
        """
        adoption, catalog, branch = self, self.catalog, self.facts.branch
        cut_over = CutOver(branch, self.scope.output, give_up_delivered=self.give_up_delivered)
        with audits.making_change(catalog):
            claim = catalog.claim(MAIN, owner=run_id)
            if claim.snapshot_id != self.main.snapshot_id:  # main went on meanwhile, and cannot any more
                adoption = AdoptOutput.from_branch(catalog, cut_over)
                audits.raise_first_refusal(adoption.checks())
            manifest = _commit_adoption(adoption, claim, message)
            adopted_names = [*adoption.scope.adopted]
            drop_message = f"dropped {branch}: main has adopted {', '.join(adopted_names)}"
            catalog.drop(branch, drop_message, detail={"adopted": adopted_names})
        return _made_change(catalog, manifest, adoption._warnings(manifest))

    def rehearse(self, limit: int) -> Rehearsal:
        """What it would do. At most ``limit`` of the rows that readers would see change are given."""
        return rehearse_outputs(self, self.facts, self.scope.adopted, limit)

    def _warnings(self, manifest: Manifest) -> tuple[str, ...]:
        """What the next run has to do, and what readers lose, now that main is at ``manifest``."""
        missed_epochs = manifest.epoch - 1 - self.stands_at.epoch
        missed_text = (
            f"main has computed {missed_epochs} epochs more than branch {self.facts.branch}: the next run computes "
            f"them for {', '.join(self.scope.adopted)}, and publishes then"
        )
        given_up_patches = patches_given_up(self.catalog, self.main.snapshot_id, None)
        lost_patches = [patch for patch in given_up_patches if patch.output in self.scope.adopted]
        return (*([missed_text] if missed_epochs else []), *describe_given_up(self.catalog, lost_patches, None))

    def _relied_on_check(self, look: Callable[[], None]) -> audits.RefusalCheck:
        return audits.RefusalCheck(look, (NotAdoptableError,), is_relied_on=True)

    def _check_delivered(self) -> None:
        former = {self.facts.names_on_main[output] for output in self.scope.adopted}
        _check_delivered(self.facts.now, self.catalog.pipeline, self.scope, {*self.scope.adopted, *former})

    @cached_property
    def stands_at(self) -> Manifest:
        """Main's snapshot of the branch's last epoch. Raises NotAdoptableError if the two recorded other epochs."""
        catalog, name = self.catalog, self.facts.branch
        ours = epochs_since(catalog, self.branch.snapshot_id, None)
        theirs = epochs_since(catalog, self.main.snapshot_id, None)[: len(ours)]
        for (own, epoch), (of_main, main_epoch) in zip(ours, theirs, strict=False):
            if own.epoch != of_main.epoch or _what_was_read(epoch) != _what_was_read(main_epoch):
                raise NotAdoptableError(
                    f"branch {name} of {catalog.pipeline} has not read what main has read: epoch {own.epoch} differs. "
                    f"Drop it (`headrace drop {catalog.pipeline} {name}`), and backfill again"
                )
            if _reached_watermarks(epoch) != _reached_watermarks(main_epoch):
                raise NotAdoptableError(
                    f"in epoch {own.epoch} branch {name} of {catalog.pipeline} has other watermarks than main: outputs "
                    f"take other records now. {self._all_again}"
                )
        if len(ours) > len(theirs):
            raise NotAdoptableError(
                f"branch {name} of {catalog.pipeline} has read more than main, which has gone back since. Drop it "
                f"(`headrace drop {catalog.pipeline} {name}`), and backfill again"
            )
        return theirs[-1][0]

    @property
    def _all_again(self) -> str:
        return f"`headrace backfill {self.catalog.pipeline} --promote` computes all outputs again"

    def _check_computed(self) -> None:
        missing = sorted({*self.scope.adopted, *self.scope.read} & output_view.parked_in(self.branch).keys())
        if missing:
            raise NotAdoptableError(
                f"branch {self.facts.branch} of {self.catalog.pipeline} has not computed {', '.join(missing)}: "
                f"`headrace backfill {self.catalog.pipeline}.{self.scope.output}` does, in a branch of its own"
            )

    def _check_reading(self) -> None:
        _ = self.stands_at

    def _check_records(self) -> None:
        """Raise NotAdoptableError if some output takes records now that none took before, or the other way round."""
        if taken_by_none(self.catalog, self.branch) != taken_by_none(self.catalog, self.main, self.branch.epoch):
            raise NotAdoptableError(
                f"branch {self.facts.branch} of {self.catalog.pipeline} takes other records than main: some that no "
                f"output took before, or none takes now. {self._all_again}"
            )

    def _check_what_they_read(self) -> None:
        """Raise NotAdoptableError if panes that are read, or remembered ids, differ between main and the branch."""
        from headrace.read.diff.comparison import diff_snapshots  # with DuckDB

        remembers = IDS in self.main.tables
        for output in self.scope.read or self.scope.adopted[: int(remembers)]:
            catalog = seen_catalog(self.catalog, output)
            branch_side, main_side = (
                output_view.seen_by(output_view.as_called_in(self.stands_at, self.main), output),
                output_view.seen_by(self.branch, output),
            )
            if output not in self.scope.read:  # only ids are looked at
                branch_side, main_side = (
                    side.seen_as(tables={IDS: side.tables[IDS]}) for side in (branch_side, main_side)
                )
            difference = diff_snapshots(catalog, branch_side, main_side, limit=0)
            if remembers and difference.ids.differing:
                raise NotAdoptableError(
                    f"branch {self.facts.branch} of {self.catalog.pipeline} remembers other ids than main "
                    f"({difference.ids.differing} differ): outputs take other records now. {self._all_again}"
                )
            rows = difference.output.rows.differing + sum(stage.state.differing for stage in difference.stages)
            if output in self.scope.read and rows:
                raise NotAdoptableError(
                    f"{', '.join(self.scope.adopted)} of {self.catalog.pipeline} read output {output}, of which main "
                    f"has other rows than its records give now ({rows} differ). It continued from another definition, "
                    f"or other code. `headrace backfill {self.catalog.pipeline}.{output} --promote` computes it again, "
                    "with what reads it"
                )


def _check_definition(definition: Mapping[str, Any], main: Manifest, scope: AdoptedOutputs) -> None:
    """Raise NotAdoptableError unless outputs by their ``definition`` fit beside the others of ``main``."""
    name, adopted_names = main.pipeline, ", ".join(scope.adopted)
    if not output_view.outputs_of(main):
        raise NotAdoptableError(
            f"main of {name} has one output without a name: run the pipeline once, which names it, then adopt "
            f"{adopted_names}"
        )
    shared_parts = [
        {part: value for part, value in side.items() if part != OUTPUTS} for side in (definition, main.definition)
    ]
    if shared_parts[0] != shared_parts[1]:
        raise NotAdoptableError(
            f"the inputs of {name} have changed since snapshot {main.snapshot_id} (epoch {main.epoch}), for all "
            f"outputs: `headrace backfill {name} --promote` computes all of them again"
        )
    parked_outputs, main_outputs = output_view.parked_in(main), main.definition[OUTPUTS]
    for output in scope.read:
        if main_outputs.get(output) != definition[OUTPUTS][output]:
            raise NotAdoptableError(
                f"{adopted_names} of {name} reads output {output}, which is new or has changed since snapshot "
                f"{main.snapshot_id} (epoch {main.epoch}): `headrace backfill {name}.{output} --promote` computes it, "
                "with what reads it"
            )
        if output in parked_outputs:
            raise NotAdoptableError(
                f"{adopted_names} of {name} reads output {output}, which is parked at epoch "
                f"{parked_outputs[output]}: `headrace run "
                f"{name}` says why; mend that first"
            )


def _check_delivered(head: Head, pipeline: str, scope: AdoptedOutputs, names: Collection[str | None]) -> None:
    """Raise DeliveredError if a sink that cannot take back has rows of an output that would get others; ``names``: what
    those are, or were, called.
    """
    for rows in audits.handed_over(head):
        if rows.output in names:
            raise audits.DeliveredError(
                f"{rows}, and main would have others in their place. Run the backfill without --promote, then "
                f"`headrace promote {pipeline}.{scope.output} BRANCH --give-up-delivered`"
            )


def _what_was_read(epoch: RecordedEpoch) -> tuple[object, ...]:
    files = {name: [(file.path, file.size) for file in read] for name, read in epoch.files.items() if read}
    return files, epoch.processing_time, epoch.signals, epoch.is_last


def _reached_watermarks(epoch: RecordedEpoch) -> tuple[object, ...] | None:
    return None if epoch.reached is None else (epoch.reached.watermark, epoch.reached.inputs)


def publish_adopted(catalog: Catalog, result: RunResult, output: str, run_id: str) -> RunResult:
    """The ``result`` of an adoption of ``output`` by main, once what its audits found good is published. All outputs
    take part, since readers of one see it no further than readers of what it is computed of. What waits is a warning.

    Raises AuditFailedError, AuditMissingError of what was adopted.
    """
    head = catalog.head().refs[MAIN]
    planned_publish = PlannedPublish.from_head(catalog, head)
    if planned_publish.publish(run_id) is not None:
        renew_summary(catalog)
    adopted_names = AdoptedOutputs.from_upstream(
        catalog.pipeline, output_view.upstream_of(planned_publish.head), output
    ).adopted
    own = replace(planned_publish, asked_outputs=frozenset(adopted_names))
    own.check_publishable(may_wait=True)
    return replace(
        result,
        published=catalog.published_by_all(catalog.head().refs),
        outputs=output_results(catalog, planned_publish.audits),
        warnings=(*result.warnings, *own.notes),
    )


def _commit_adoption(adoption: AdoptOutput, claim: Claim, message: str) -> Manifest:
    """The epoch of main that adopts, once it is committed."""
    catalog, main, branch = adoption.catalog, adoption.main, adoption.branch
    adopted_names, epoch, snapshot_id = adoption.scope.adopted, main.epoch + 1, catalog.new_snapshot_id()
    letters = adopted_letters(catalog, main, branch, adopted_names)
    columns, former = ({name: side.schema[OUTPUTS].get(name, {}) for name in adopted_names} for side in (branch, main))
    former_names = {name: {FORMERLY: own[FORMERLY]} if FORMERLY in own else {} for name, own in former.items()}
    schema = {name: {**own, **former_names[name], ADOPTED: epoch} for name, own in columns.items()}
    stands = {name: _stored_position(adoption, branch.progress[OUTPUTS][name]) for name in adopted_names}
    definitions = {name: branch.definition[OUTPUTS][name] for name in adopted_names}
    definition = {**main.definition, OUTPUTS: {**main.definition[OUTPUTS], **definitions}}
    continuing = replace(
        main.continuing,
        fingerprint=branch.fingerprint if definition == branch.definition else fingerprint_of(definition),
        definition=definition,
        schema={**main.schema, OUTPUTS: {**main.schema[OUTPUTS], **schema}},
        code={**main.code, **branch.code},
        progress={**main.continuing.progress, OUTPUTS: {**main.progress[OUTPUTS], **stands}},
        tables={**_not_of(main.tables, adopted_names), **_only_of(branch.tables, adopted_names)},
        logs={**_not_of(main.logs, adopted_names), **_only_of(branch.logs, adopted_names), REJECTED: letters},
    )
    of_epoch = epoch_without_reading(claim, snapshot_id, timestamp(), _adopted_counts(adoption))
    manifest = Manifest.next_of(main, continuing=continuing, epoch=of_epoch)
    title = f"adopted {', '.join(adopted_names)} of branch {adoption.facts.branch}"
    catalog.commit(claim, manifest, f"{title}: {message}" if message else title)
    return manifest


def _stored_position(adoption: AdoptOutput, own: Mapping[str, Any]) -> dict[str, Any]:
    """What is stored of where an output stands that is at the end of the branch."""
    stands_at, main = adoption.stands_at, adoption.main
    if stands_at.snapshot_id == main.snapshot_id:
        return {**own}
    reason = (
        f"it was computed in branch {adoption.facts.branch} up to epoch {stands_at.epoch}, and goes on with the "
        "next run"
    )
    return {**own, **ParkedChain(stands_at.epoch, stands_at.snapshot_id, "adopted", reason, main.epoch + 1).to_json()}


def _not_of(values_by_name: Mapping[str, Any], outputs: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in values_by_name.items() if name not in _only_of(values_by_name, outputs)}


def _only_of(values_by_name: Mapping[str, Any], outputs: tuple[str, ...]) -> dict[str, Any]:
    """The tables, logs or counts that are some ``outputs``' own."""
    own = [OutputTables(output) for output in outputs]
    return {
        name: value
        for name, value in values_by_name.items()
        if any(names.plain_name(name) is not None for names in own)
    }


def _adopted_counts(adoption: AdoptOutput) -> dict[str, int]:
    """Sums over all epochs of the branch, of the adopted outputs alone: main has counted its records already."""
    line, adopted_names = [*adoption.catalog.ancestry(adoption.branch.snapshot_id)], adoption.scope.adopted
    own = {
        name: sum(manifest.counts.get(name, 0) for manifest in line)
        for name in _only_of(adoption.branch.counts, adopted_names)
    }
    names = [OutputTables(output) for output in adopted_names]
    sums = {name: sum(own[tables.qualified_name(name)] for tables in names) for name in (*SUMMED_COUNTS, "rejected")}
    return {**dict.fromkeys(adoption.main.counts, 0), **sums, **own}


def _made_change(catalog: Catalog, manifest: Manifest, warnings: tuple[str, ...] = ()) -> audits.MadeChange:
    published_id = catalog.published_by_all(catalog.head().refs)
    return audits.MadeChange("cut_over", manifest, [manifest], published_id, warnings=warnings)
