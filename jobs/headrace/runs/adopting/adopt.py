"""Adopting: main takes over what a branch has computed of one output, and nothing else of main changes.

Theory of operation ------------------- A branch that computes an output again has the epochs of main (``computing``):
the same files, processing times and signals, and the watermarks and ids that main had. So what it holds of the output
after its epoch k is what main would hold there, had it always computed the output as it is written now. Adopting is
epoch n+1 of main, which reads nothing: tables, logs, clocks, columns and definition of the output, and of all that is
computed of it, are those of the branch; everything else is that of epoch n. If main has gone on meanwhile (k < n), the
output stands at epoch k, as one that is parked does, and the next run computes what it has missed
(``parking``).

*Why it is refused.* Whatever would make that untrue: main has read other files since, or judged records otherwise (the
watermarks of some epoch, the dead letters that no output took, or the remembered ids differ); an output that the
adopted ones read has other rows there, is parked or has changed; inputs mean something else. And what is refused for
any promotion: a branch without a good audit.

*What is new to readers.* Rows of all epochs. The columns of the output say since when (``adopted``), so an audit of
what readers have not seen is of all rows, and a sink is told the difference.

*Order.* Everything is checked before main is claimed, which fences main's writer. No row is written: main names files
of the branch. One entry of the log commits the epoch; another drops the branch. Readers see nothing of it until the
output is published as ever: by the graph, after an audit.

Publishing what main has adopted, by the graph, once it is audited.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headrace.distribute.epoch import SUMMED
from headrace.model.time import render
from headrace.pipeline.identity import fingerprint_of
from headrace.read.snapshots.progress import StoredProgress, epoch_without_reading
from headrace.runs.adopting.plan import AdoptedOutputs, AdoptOutput, adopted_letters
from headrace.runs.publishing.planned_publish import PlannedPublish
from headrace.runs.publishing.publish import output_results
from headrace.runs.publishing.refusals import begin_change, find_refusals, made_before, making_change
from headrace.runs.publishing.rehearsal import Rehearsal, differences
from headrace.runs.reporting.results import RunResult
from headrace.runs.reporting.results import now as timestamp
from headrace.runs.reporting.summary_renewal import renew_summary
from headrace.sources.chain_clocks import Parked
from headrace_snapshots.catalog import Catalog, Claim, Head
from headrace_snapshots.format.manifest import ADOPTED, FORMERLY, OUTPUTS, Manifest
from headrace_snapshots.format.output_view import outputs_of, upstream_of
from headrace_snapshots.format.table_names import REJECTED, OutputTables
from headrace_snapshots.patches import patches_given_up, told
from headrace_snapshots.refs import MAIN


def published(catalog: Catalog, result: RunResult, output: str, run_id: str) -> RunResult:
    """The ``result`` of an adoption of ``output`` by main, once what its audits found good is published, of all
    outputs: readers of one see it no further than readers of what it is computed of. What waits is a warning.

    Raises AuditFailedError, AuditMissingError of what was adopted.
    """
    head = catalog.head().refs[MAIN]
    planned = PlannedPublish.of(catalog, head)
    if planned.publish(run_id) is not None:
        renew_summary(catalog)
    adopted = AdoptedOutputs.of(catalog.pipeline, upstream_of(planned.head), output).adopted
    own = replace(planned, asked=frozenset(adopted))
    own.check(may_wait=True)
    return replace(
        result,
        published=catalog.published_by_all(catalog.head().refs),
        outputs=output_results(catalog, planned.audits),
        warnings=(*result.warnings, *own.notes),
    )


def adopt(
    catalog: Catalog, branch: str, output: str, *, run_id: str, message: str = "", give_up_delivered: bool = False
) -> RunResult:
    """Let main take over from ``branch`` an ``output`` and what is computed of it, as one epoch of main; the branch
    ends. ``message`` says in the log who decided it, and why. Publishes nothing: the next run of the pipeline does, or
    who calls this. ``give_up_delivered``: also where rows were handed over to sinks that cannot take back.

    When the branch was adopted already nothing happens, for a caller that died before it could tell.
    Raises UnknownBranchError, UnknownOutputError, NotAdoptableError, DeliveredError, AuditMissingError,
    AuditFailedError; FencedError if somebody else claims main meanwhile.
    """
    started_at = timestamp()
    now = catalog.head()
    if (done := made_before(catalog, branch, made=lambda entry: "adopted" in (entry.detail or {}))) is not None:
        with making_change(catalog):
            return _result(catalog, catalog.manifest(done.refs[MAIN]), (), run_id, started_at)
    planned = _checked(catalog, now, branch, output, give_up_delivered)
    with making_change(catalog):
        claim = catalog.claim(MAIN, owner=run_id)
        if claim.snapshot_id != planned.main.snapshot_id:  # main went on meanwhile, and cannot any more
            planned = _checked(catalog, catalog.head(), branch, output, give_up_delivered)
        manifest = _committed(planned, claim, message)
        adopted = [*planned.scope.adopted]
        catalog.drop(branch, f"dropped {branch}: main has adopted {', '.join(adopted)}", detail={"adopted": adopted})
    missed = manifest.epoch - 1 - planned.stands_at.epoch
    behind = (
        f"main has computed {missed} epochs more than branch {branch}: the next run computes them for "
        f"{', '.join(planned.scope.adopted)}, and publishes then"
    )
    patched = patches_given_up(catalog, planned.main.snapshot_id, None)
    lost = [patch for patch in patched if patch.output in planned.scope.adopted]
    warnings = (*([behind] if missed else []), *told(catalog, lost, None))
    return _result(catalog, manifest, warnings, run_id, started_at)


def _checked(catalog: Catalog, now: Head, branch: str, output: str, give_up: bool) -> AdoptOutput:
    """The adoption as it is planned at ``now``, if nothing is against it."""
    planned = AdoptOutput.of(catalog, now, branch, output, give_up)
    begin_change(planned)
    return planned


def rehearse_adoption(
    catalog: Catalog, branch: str, output: str, *, limit: int = 20, give_up_delivered: bool = False
) -> Rehearsal:
    """What ``adopt`` would do; moves nothing. At most ``limit`` of the rows that readers would see change are given.
    ``give_up_delivered``: what sinks have got that cannot take back is not against it.

    Raises UnknownBranchError, UnknownOutputError, and what a reader of ``current`` does.
    """
    planned = AdoptOutput.of(catalog, catalog.head(), branch, output, give_up_delivered)
    refusals = find_refusals(planned).errors
    return Rehearsal(branch, differences(planned.facts, planned.scope.adopted, limit), refusals, change=str(planned))


def _committed(planned: AdoptOutput, claim: Claim, message: str) -> Manifest:
    """The epoch of main that adopts, once it is committed."""
    catalog, main, branch = planned.catalog, planned.main, planned.branch
    adopted, epoch, snapshot_id = planned.scope.adopted, main.epoch + 1, catalog.new_snapshot_id()
    letters = adopted_letters(catalog, main, branch, adopted)
    columns, former = ({name: side.schema[OUTPUTS].get(name, {}) for name in adopted} for side in (branch, main))
    called = {name: {FORMERLY: own[FORMERLY]} if FORMERLY in own else {} for name, own in former.items()}
    schema = {name: {**own, **called[name], ADOPTED: epoch} for name, own in columns.items()}
    stands = {name: _stands(planned, branch.progress[OUTPUTS][name]) for name in adopted}
    defined = {name: branch.definition[OUTPUTS][name] for name in adopted}
    definition = {**main.definition, OUTPUTS: {**main.definition[OUTPUTS], **defined}}
    continuing = replace(
        main.continuing,
        fingerprint=branch.fingerprint if definition == branch.definition else fingerprint_of(definition),
        definition=definition,
        schema={**main.schema, OUTPUTS: {**main.schema[OUTPUTS], **schema}},
        code={**main.code, **branch.code},
        progress={**main.continuing.progress, OUTPUTS: {**main.progress[OUTPUTS], **stands}},
        tables={**_not_of(main.tables, adopted), **_only_of(branch.tables, adopted)},
        logs={**_not_of(main.logs, adopted), **_only_of(branch.logs, adopted), REJECTED: letters},
    )
    of_epoch = epoch_without_reading(claim, snapshot_id, timestamp(), _counts(planned))
    manifest = Manifest.next_of(main, continuing=continuing, epoch=of_epoch)
    of = f"adopted {', '.join(adopted)} of branch {planned.facts.branch}"
    catalog.commit(claim, manifest, f"{of}: {message}" if message else of)
    return manifest


def _stands(planned: AdoptOutput, own: Mapping[str, Any]) -> dict[str, Any]:
    """What is stored of where an output stands that is at the end of the branch."""
    at, main = planned.stands_at, planned.main
    if at.snapshot_id == main.snapshot_id:
        return {**own}
    reason = f"it was computed in branch {planned.facts.branch} up to epoch {at.epoch}, and goes on with the next run"
    return {**own, **Parked(at.epoch, at.snapshot_id, "adopted", reason, main.epoch + 1).to_json()}


def _not_of(named: Mapping[str, Any], outputs: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in named.items() if name not in _only_of(named, outputs)}


def _only_of(named: Mapping[str, Any], outputs: tuple[str, ...]) -> dict[str, Any]:
    """The tables, logs or counts that are some ``outputs``' own."""
    own = [OutputTables(output) for output in outputs]
    return {name: value for name, value in named.items() if any(names.plain(name) is not None for names in own)}


def _counts(planned: AdoptOutput) -> dict[str, int]:
    """Sums over all epochs of the branch, of the adopted outputs alone: main has counted its records already."""
    line, adopted = [*planned.catalog.ancestry(planned.branch.snapshot_id)], planned.scope.adopted
    own = {
        name: sum(manifest.counts.get(name, 0) for manifest in line)
        for name in _only_of(planned.branch.counts, adopted)
    }
    names = [OutputTables(output) for output in adopted]
    summed = {name: sum(own[of.named(name)] for of in names) for name in (*SUMMED, "rejected")}
    return {**dict.fromkeys(planned.main.counts, 0), **summed, **own}


def _result(catalog: Catalog, manifest: Manifest, warnings: tuple[str, ...], run_id: str, started_at: str) -> RunResult:
    refs = catalog.head().refs
    return RunResult(
        run_id=run_id,
        pipeline=catalog.pipeline,
        action="cut_over",
        status="succeeded",
        started_at=started_at,
        finished_at=timestamp(),
        epochs=(manifest.epoch,),
        snapshot=manifest.snapshot_id,
        epoch=manifest.epoch,
        published=catalog.published_by_all(refs),
        counts=dict(manifest.counts),
        watermark=render(StoredProgress.of(manifest).watermark),
        warnings=warnings,
        outputs=output_results(catalog, dict.fromkeys(outputs_of(manifest))),
    )
