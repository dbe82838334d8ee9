"""The audits of a branch: of each output, of what the branch has and readers have not; made where none is kept."""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass

from headrace.audit.limits import LimitFinding, check_limits
from headrace.audit.range import UnpublishedRange, audited_files, going_on, unpublished_ranges
from headrace.audit.releases import released_panes
from headrace.audit.run import Audited, run_audit
from headrace.audit.store import AuditDamagedError, AuditOutcome, read_audit, with_limits
from headrace.audit.usual.audit import UsualAudit
from headrace.audit.usual.measures import UsualFinding
from headrace.ext.executors import Execution
from headrace.pipeline.expectations import ExpectationView
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.quality import Severity
from headrace.read.definition_plan import columns_after
from headrace.read.views.row_files import check_files
from headrace.runs.epochs import RunContext
from headrace.runs.executors.choice import WorkEstimate, work_of_audit
from headrace.runs.reporting.listener import number_of
from headrace.runs.restore import changed_outputs, check_continues
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.output_catalog import seen_catalog


@dataclass(frozen=True)
class BranchAudits:
    """``outcomes``: the audit of each output, None where there is nothing to audit. ``limits``: what was found beside
    those of each output.
    """

    outcomes: Mapping[str, AuditOutcome | None]
    limits: Mapping[str, tuple[LimitFinding, ...]]

    @property
    def usual(self) -> tuple[UsualFinding, ...]:
        """What was found beside history, without rows."""
        made = (outcome for outcome in self.outcomes.values() if outcome is not None and outcome.usual is not None)
        return tuple(finding for outcome in made if outcome.usual for finding in outcome.usual.without_values)

    @property
    def all_limits(self) -> tuple[LimitFinding, ...]:
        """What was found beside the limits of all outputs, each once."""
        return tuple({repr(finding): finding for own in self.limits.values() for finding in own}.values())


class Auditor:
    """Audits what a run's branch has. ``side`` gives the executor's side, which decides by what there is to do."""

    def __init__(self, context: RunContext, side: Callable[[Callable[[], WorkEstimate]], Execution]) -> None:
        self._context, self._side = context, side
        self._pipeline, self._catalog = context.pipeline, context.catalog
        self._checked: set[str] = set()

    def audits(self) -> BranchAudits:
        """The audit of each output; made now where it is not kept."""
        branch = self._context.options.branch
        unpublished = unpublished_ranges(self._catalog, branch, self._to_audit(branch))
        limits = check_limits(self._pipeline, self._catalog, branch, unpublished, self._context.now)
        self._tell_of_limits(limits)
        outcomes: dict[str, AuditOutcome | None] = dict.fromkeys(self._pipeline.by_output)
        outcomes |= {
            output: None if epochs is None else self._audited(output, epochs, limits[output])
            for output, epochs in unpublished.items()
        }
        return BranchAudits(outcomes, limits)

    def _to_audit(self, branch: str) -> list[str]:
        """The outputs that go on. One that means something else now than main has is parked with the next epoch: until
        then nothing of it is audited, as columns that are expected may not be there.
        """
        there, head = going_on(self._catalog, branch, self._pipeline.by_output), self._catalog.head().refs.get(branch)
        if head is None or not (self._context.options.parks and self._pipeline.has_names):
            return there
        changed = changed_outputs(self._pipeline, self._catalog.manifest(head), allow_new_aggregates=True)
        for output in changed.keys() & {*there}:
            self._context.warn(changed[output])
        return [output for output in there if output not in changed]

    def _audited(self, output: str, unpublished: UnpublishedRange, limits: tuple[LimitFinding, ...]) -> AuditOutcome:
        alone, catalog = self._pipeline.by_output[output], seen_catalog(self._catalog, output)
        stored = self._stored(output, unpublished)
        if stored is not None and stored.covers(alone.expectations, alone.usual):
            return with_limits(catalog.store, stored, limits)
        if count := len(alone.expectations) + len(alone.usual):
            of = f" of output {output}" if output else ""
            self._context.listener.noted(f"auditing {unpublished}{of}: {number_of(count, 'expectation')}")
        before = None if stored is None else stored.usual
        usual = UsualAudit.of(alone.usual, catalog, unpublished, before, self._context.warn)
        side = self._side(lambda: work_of_audit(catalog, unpublished.after, unpublished.until))
        self._check_definition(unpublished.until)
        with side.errors():
            outcome = run_audit(
                store=catalog.store,
                pipeline=alone.name,
                from_snapshot=unpublished.after,
                to_snapshot=unpublished.until,
                audited=_looked_at(side, alone, catalog, unpublished, set() if usual is None else usual.views),
                limits=limits,
                usual=usual,
                output=output,
            )
        self._tell_of(outcome)
        return outcome

    def _check_definition(self, snapshot: str) -> None:
        """Whether the pipeline is what made ``snapshot``: looked at once, for all of its outputs."""
        if snapshot in self._checked:
            return
        whole = self._catalog.manifest(snapshot)
        parks = self._context.options.parks
        check_continues(self._pipeline, whole, allow_new_aggregates=True, parks=parks)  # nothing starts here
        self._context.check_code(whole)
        self._checked.add(snapshot)

    def _stored(self, output: str, unpublished: UnpublishedRange) -> AuditOutcome | None:
        """None also for one that is not what was written: the audit can be had again, whatever it said."""
        try:
            return read_audit(self._catalog.store, self._pipeline.name, unpublished.after, unpublished.until, output)
        except AuditDamagedError as error:
            self._context.warn(f"{error} (as this run does)")
            return None

    def _tell_of_limits(self, limits: Mapping[str, tuple[LimitFinding, ...]]) -> None:
        """Tell of limits that are exceeded."""
        for output, findings in limits.items():
            of = f" in output {output}" if output else ""
            for finding in findings:
                if finding.severity is Severity.FAIL:
                    self._context.listener.noted(f"{finding.line()}{of}")
                elif finding.severity is Severity.WARN or finding.released:
                    self._context.warn(f"{finding.describe()}{of}")

    def _tell_of(self, outcome: AuditOutcome) -> None:
        """Show the rows that fail, and warn of what holds only because a person has released rows."""
        for finding in outcome.failed:
            for line in finding.lines():
                self._context.listener.noted(line)
        for finding in outcome.findings:
            if finding.success and finding.released:
                self._context.warn(f"{finding.describe()}: readers still see what a person has released")
        for compared in () if outcome.usual is None else outcome.usual.findings:
            self._tell_beside_history(compared)

    def _tell_beside_history(self, finding: UsualFinding) -> None:
        """Show what is not as usual, and what is not judged yet; warn as the check says."""
        if finding.severity is Severity.WARN:
            self._context.warn(finding.describe())
        elif finding.success and finding.released:
            self._context.warn(f"{finding.describe()}: readers still see what a person has released")
        elif finding.severity is Severity.FAIL or not finding.is_judged:
            self._context.listener.noted(finding.line())
        for line in finding.row_lines():
            self._context.listener.noted(line)


def _looked_at(
    side: Execution, alone: Pipeline, catalog: Catalog, unpublished: UnpublishedRange, views: Set[ExpectationView]
) -> Audited:
    """What is audited; ``views`` are looked at whatever is expected of them."""
    manifest = catalog.manifest(unpublished.until)
    columns = columns_after(alone, manifest)
    audited = audited_files(catalog, unpublished.after, manifest)
    expected = {expectation.view for expectation in alone.expectations} | views
    # nobody looks into these, and they are published all the same; until it is folded, current is made of pane files
    unseen = {file.path: file for view, files in audited.files.items() if view not in expected for file in files}
    check_files(catalog.store, unseen.values())
    return Audited(
        alone.expectations,
        lambda view, released: side.audit_frame(view, audited, columns, released),
        lambda: [*released_panes(catalog, columns)],
        columns.identity,
    )
