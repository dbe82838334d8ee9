"""What stands against a publish: refusals, and audits of what a branch has and readers have not."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from itertools import islice
from types import MappingProxyType
from typing import Any, Protocol, Self

import msgspec

from headrace.audit.limits import LimitFinding, check_limits
from headrace.audit.range import UnpublishedRange, audited_files, going_on, released_panes, unpublished_ranges
from headrace.audit.run import AuditSubject, run_audit
from headrace.audit.store import AuditDamagedError, AuditOutcome, UsualFinding, read_audit, with_limits
from headrace.errors import FixConfigError, HeadraceError
from headrace.ext.executors import Execution
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.quality import ExpectationView, Severity
from headrace.read.definition_plan import columns_after
from headrace.read.snapshots.read_names import left_out
from headrace.runs.epochs import RunContext
from headrace.runs.executors.choice import WorkEstimate, work_of_audit
from headrace.runs.plan import CutOver
from headrace.runs.reporting.listener import number_of
from headrace.runs.reporting.results import RunAction
from headrace.runs.reporting.summary import renew_summary
from headrace.runs.restore import changed_outputs, check_continues
from headrace.sources.file_planning import is_unfinished
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.files import InputFile
from headrace_snapshots.format.manifest import INPUTS, Manifest
from headrace_snapshots.log import Entry
from headrace_snapshots.names import delivery_of, is_delivery, landed_file
from headrace_snapshots.output_catalog import seen_catalog
from headrace_snapshots.protocol.moves import Head

_MOST_SEARCHED = 1000
"""Entries of the log: an attempt that comes again comes soon."""


class RefusalCheck(msgspec.Struct, frozen=True):
    """``look`` raises one of ``refusals`` if that stands against the change; any other error is one of the look itself.
    ``is_relied_on``: what comes after it says nothing where it refuses.
    """

    look: Callable[[], None]
    refusals: tuple[type[HeadraceError], ...]
    is_relied_on: bool = False


class Refusals(msgspec.Struct, frozen=True):
    """The ``errors`` with which a change would be refused, by nothing if there are none. ``is_over``: the last was
    relied on, so no more can be told.
    """

    errors: tuple[HeadraceError, ...] = ()
    is_over: bool = False

    def and_of(self, checks: Iterable[RefusalCheck]) -> "Refusals":
        """With those of further ``checks``."""
        errors = [*self.errors]
        for check in () if self.is_over else checks:
            try:
                check.look()
            except check.refusals as error:
                errors.append(error)
                if check.is_relied_on:
                    return Refusals(tuple(errors), is_over=True)
        return Refusals(tuple(errors), self.is_over)


class MadeChange(msgspec.Struct, frozen=True):
    """What a change of what readers see has come to. ``head`` is what main is now. ``visible`` are the epochs of which
    readers had not seen something, newest first. ``audit`` is what was trusted, ``audits`` that of each output.
    ``published``: what readers of all outputs see now.
    """

    action: RunAction
    head: Manifest
    visible: Sequence[Manifest]
    published: str | None
    audit: AuditOutcome | None = None
    audits: Mapping[str, AuditOutcome | None] = msgspec.field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class ReadersChange(Protocol):
    """A change of what readers see, as a value, which says in a sentence what it will do."""

    @classmethod
    def from_branch(cls, catalog: Catalog, cut_over: CutOver) -> Self:
        """The change of ``cut_over`` as things stand. Raises UnknownBranchError, and what cannot be looked at."""

    @classmethod
    def made_before(cls, catalog: Catalog, cut_over: CutOver) -> "MadeBefore | None":
        """The same, if an attempt before this one has made it."""

    def checks(self) -> Iterable[RefusalCheck]:
        """What may stand against it, the first that is to be said first."""

    def make(self, run_id: str, message: str) -> MadeChange:
        """Make it, for the run ``run_id``; ``message`` says in the log who decided it, and why."""


class MadeBefore(msgspec.Struct, frozen=True):
    """A ``change`` that an attempt before this one has made; ``finish`` does for a run what that attempt has left."""

    change: MadeChange
    finish: Callable[[str], None] = lambda _: None


def raise_first_refusal(checks: Iterable[RefusalCheck]) -> None:
    """Raise the first of what stands against a change."""
    for check in checks:
        check.look()


@contextmanager
def making_change(catalog: Catalog) -> Iterator[None]:
    """Inside, a change is made, or found made before: that attempt may have ended without a summary."""
    try:
        yield
    finally:
        catalog.settle_hint()
        renew_summary(catalog)


def entry_made_before(
    catalog: Catalog,
    branch: str,
    makes_change: Callable[[Entry], bool],
    decides: Callable[[Entry], bool] = lambda _: False,
) -> Entry | None:
    """The entry by which an attempt before this one made a change (``makes_change``) that ended ``branch``. None if the
    newest entry of that name, or the newest that ``decides``, is another.
    """
    head = catalog.head()
    if branch in head.generations:
        return None
    for entry in islice(catalog.entries(before=head.entry + 1), _MOST_SEARCHED):
        if decides(entry) or branch in {entry.branch, *entry.moves}:
            return entry if makes_change(entry) else None
    return None


def lacking_paths(pipeline: str, branch_files: set[str], main_files: set[str], *, has_moved: bool) -> list[str]:
    """The paths of one input that are in ``main_files`` and not in ``branch_files``. Only numbers can be compared for
    an input that ``has_moved``: it reads from another place now. What a pipeline has landed is always in one place.
    Names of files under way, which were input before 0.2.0, count only where the branch reads such.
    """
    if not any(map(is_unfinished, branch_files)):
        main_files = {path for path in main_files if not is_unfinished(path)}
    is_one_place = (
        not has_moved
        or bool(branch_files & main_files)
        or all(any(landed_file(pipeline, path) is not None for path in files) for files in (branch_files, main_files))
    )
    return sorted(main_files - branch_files) if is_one_place or len(branch_files) < len(main_files) else []


class MainsInput(msgspec.Struct, frozen=True):
    """What main has for an input of a definition: its ``name`` there, and whether it ``has_moved`` to another place."""

    name: str
    has_moved: bool


def inputs_of_main(
    catalog: Catalog, head: str, definition: Mapping[str, Any], names: Iterable[str]
) -> Mapping[str, MainsInput]:
    """For each of ``names``, inputs of a ``definition``, that of main, which is at ``head``. Where main has none of the
    name, it is the one that reads the same files. What versions before 0.2 stored does not say where they are.
    """
    main = next(catalog.readable_manifests(head), None)
    main_places, places = _places({} if main is None else main.definition), _places(definition)
    renamed_from = {place: name for name, place in main_places.items() if name not in places and place[0] is None}
    inputs: dict[str, MainsInput] = {}
    for name in names:
        place = places.get(name)
        main_name = name if place is None or name in main_places else renamed_from.get(place, name)
        inputs[name] = MainsInput(main_name, place is None or main_places.get(main_name) != place)
    return inputs


def _places(definition: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {one["name"]: (one.get("kind"), one.get("path")) for one in definition.get("inputs", ())}


def files_main_read(catalog: Catalog, head: str, begin: Manifest | None) -> Mapping[str, set[str]]:
    """Files that main has read, by input: a branch that begins at ``begin`` must have read them too, or must find them.
    Copies landed again are left out where the branch reads the originals. Broken snapshots of main are skipped: a
    backfill replaces them.
    """
    for manifest in catalog.readable_manifests(head):
        with suppress(BrokenObjectError):
            read = files_read(catalog, manifest)
            copies = left_out(catalog, begin, (path for paths in read.values() for path in paths))
            paths_by_input = {name: {path for path in paths if path not in copies} for name, paths in read.items()}
            return defaultdict(set, paths_by_input)
    return defaultdict(set)


def files_read(catalog: Catalog, manifest: Manifest | None) -> Mapping[str, set[str]]:
    """The paths of all files that were read up to ``manifest`` (None: none), by input."""
    files: dict[str, set[str]] = defaultdict(set)
    if manifest is None:
        return files
    from headrace.sources.landed.files import landed_as

    for file in _input_files(catalog, manifest):
        files[file.input].add(landed_as(catalog.pipeline, file))
    return files


def files_as_read(catalog: Catalog, manifest: Manifest | None, name: str) -> Mapping[str, InputFile]:
    """All files of the input ``name`` that were read up to ``manifest`` (None: none), as they were then, by path."""
    return {file.path: file for file in _input_files(catalog, manifest) if file.input == name}


def _input_files(catalog: Catalog, manifest: Manifest | None) -> Iterator[InputFile]:
    for record in () if manifest is None else catalog.file_records(manifest.logs[INPUTS]):
        yield from (file for file in record.files if isinstance(file, InputFile))


class HandedOver(msgspec.Struct, frozen=True):
    """Rows of an ``output`` ("": the one without a name) up to a ``snapshot``, which a ``sink`` has got."""

    output: str
    sink: str
    snapshot: str

    def __str__(self) -> str:
        output_text = f" of output {self.output}" if self.output else ""
        return (
            f"rows{output_text} up to {self.snapshot} were handed over to sink {self.sink}, which cannot take them back"
        )


def handed_over(head: Head) -> Iterator[HandedOver]:
    """What the log says at ``head`` that sinks have got."""
    for ref in sorted(filter(is_delivery, head.refs)):
        yield HandedOver(*delivery_of(ref), head.refs[ref])


class DeliveredError(FixConfigError, code="config.delivered"):
    """The branch lacks what was handed over to a sink that cannot take it back."""


def check_begins_with(catalog: Catalog, now: Head, branch: str, begin: Manifest | None) -> None:
    """Raise DeliveredError if ``branch`` begins before what was handed over."""
    for rows in _lacking_deliveries(catalog, now, begin):
        raise DeliveredError(
            f"{rows}, and branch {branch} would begin before them. Run the backfill without "
            f"--promote, then `headrace promote {catalog.pipeline} {branch} --give-up-delivered`, or --patch, "
            "which replaces rows"
        )


def check_has(catalog: Catalog, now: Head, branch: str, newest: Manifest) -> None:
    """Raise DeliveredError if ``branch``, whose snapshot is the ``newest``, lacks what was handed over."""
    for rows in _lacking_deliveries(catalog, now, newest):
        raise DeliveredError(
            f"{rows}, and branch {branch} lacks them: promote it with --give-up-delivered (in Airflow: *Give up what "
            "was delivered*), or as a patch, which replaces rows"
        )


def _lacking_deliveries(catalog: Catalog, now: Head, manifest: Manifest | None) -> Iterator[HandedOver]:
    """What was handed over and is not in ``manifest``."""
    for rows in handed_over(now):
        if manifest is None or not catalog.is_ancestor(rows.snapshot, manifest.snapshot_id):
            yield rows


class BranchAudits(msgspec.Struct, frozen=True):
    """``outcomes``: the audit of each output, None where there is nothing to audit. ``limits``: what was found beside
    the limits of each.
    """

    outcomes: Mapping[str, AuditOutcome | None]
    limits: Mapping[str, tuple[LimitFinding, ...]]

    @property
    def usual(self) -> tuple[UsualFinding, ...]:
        """What was found beside history, without rows."""
        audits_made = (
            outcome for outcome in self.outcomes.values() if outcome is not None and outcome.usual is not None
        )
        return tuple(finding for outcome in audits_made if outcome.usual for finding in outcome.usual.without_values)

    @property
    def all_limits(self) -> tuple[LimitFinding, ...]:
        """What was found beside the limits of all outputs, each once."""
        return tuple({repr(finding): finding for own in self.limits.values() for finding in own}.values())


class Auditor:
    """Audits what a run's branch has. ``side`` gives the executor's side, which decides by what there is to do.
    ``made_snapshots``: the snapshots that the run has committed, with their epochs. No audit is kept of them, and of
    their files only those are read that something is expected of.
    """

    def __init__(
        self,
        context: RunContext,
        side: Callable[[Callable[[], WorkEstimate]], Execution],
        made_snapshots: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._context, self._side, self._made_snapshots = context, side, made_snapshots
        self._pipeline, self._catalog = context.pipeline, context.catalog
        self._checked_snapshots: set[str] = set()

    def audit_outputs(self) -> BranchAudits:
        """The audit of each output; made now where it is not kept."""
        branch = self._context.options.branch
        ranges = unpublished_ranges(self._catalog, branch, self._to_audit(branch))
        limits = check_limits(self._pipeline, self._catalog, branch, ranges, self._context.now)
        self._tell_of_limits(limits)
        outcomes: dict[str, AuditOutcome | None] = dict.fromkeys(self._pipeline.by_output)
        outcomes |= {
            output: None if epochs is None else self._audit_output(output, epochs, limits[output])
            for output, epochs in ranges.items()
        }
        return BranchAudits(outcomes, limits)

    def _to_audit(self, branch: str) -> list[str]:
        """The outputs that go on. An output that means something else now than on main is parked with the next epoch.
        Until then it is not audited, as columns that are expected may not be there.
        """
        outputs, head = going_on(self._catalog, branch, self._pipeline.by_output), self._catalog.head().refs.get(branch)
        if head is None or not (self._context.options.parks and self._pipeline.has_names):
            return outputs
        changes_by_output = changed_outputs(self._pipeline, self._catalog.manifest(head), allow_new_aggregates=True)
        for output in changes_by_output.keys() & {*outputs}:
            self._context.warn(changes_by_output[output])
        return [output for output in outputs if output not in changes_by_output]

    def _audit_output(self, output: str, epochs: UnpublishedRange, limits: tuple[LimitFinding, ...]) -> AuditOutcome:
        output_pipeline, catalog = self._pipeline.by_output[output], seen_catalog(self._catalog, output)
        stored_outcome = self._stored_audit(output, epochs)
        if stored_outcome is not None and stored_outcome.covers(output_pipeline.expectations, output_pipeline.usual):
            return with_limits(catalog.store, stored_outcome, limits)
        if count := len(output_pipeline.expectations) + len(output_pipeline.usual):
            output_text = f" of output {output}" if output else ""
            self._context.listener.noted(f"auditing {epochs}{output_text}: {number_of(count, 'expectation')}")
        stored_usual = None if stored_outcome is None else stored_outcome.usual
        usual = None
        if output_pipeline.usual:
            from headrace.audit.usual import UsualAudit

            usual = UsualAudit.from_checks(output_pipeline.usual, catalog, epochs, stored_usual, self._context.warn)
        side = self._side(lambda: work_of_audit(catalog, epochs.after, epochs.until))
        self._check_definition(epochs.until)
        views, own = set() if usual is None else usual.views, {*self._made_snapshots.values()}
        with side.errors():
            outcome = run_audit(
                store=catalog.store,
                pipeline=output_pipeline.name,
                from_snapshot=epochs.after,
                to_snapshot=epochs.until,
                subject=_looked_at(side, output_pipeline, catalog, epochs, views=views, own=own),
                limits=limits,
                usual=usual,
                output=output,
            )
        self._tell_of(outcome)
        return outcome

    def _check_definition(self, snapshot: str) -> None:
        """Whether the pipeline is what made ``snapshot``: looked at once, for all of its outputs."""
        if snapshot in self._checked_snapshots:
            return
        whole = self._catalog.manifest(snapshot)
        parks = self._context.options.parks
        check_continues(self._pipeline, whole, allow_new_aggregates=True, parks=parks)  # nothing starts here
        self._context.check_code(whole)
        self._checked_snapshots.add(snapshot)

    def _stored_audit(self, output: str, epochs: UnpublishedRange) -> AuditOutcome | None:
        """None also for one that is not what was written: the audit can be had again, whatever it said."""
        if epochs.until in self._made_snapshots:
            return None
        try:
            return read_audit(self._catalog.store, self._pipeline.name, epochs.after, epochs.until, output)
        except AuditDamagedError as error:
            self._context.warn(f"{error} (as this run does)")
            return None

    def _tell_of_limits(self, limits: Mapping[str, tuple[LimitFinding, ...]]) -> None:
        for output, findings in limits.items():
            output_text = f" in output {output}" if output else ""
            for finding in findings:
                if finding.severity is Severity.FAIL:
                    self._context.listener.noted(f"{finding.verdict_line()}{output_text}")
                elif finding.severity is Severity.WARN or finding.released:
                    self._context.warn(f"{finding.describe()}{output_text}")

    def _tell_of(self, outcome: AuditOutcome) -> None:
        """Show the rows that fail, and warn of what holds only because a person has released rows."""
        for finding in outcome.failed:
            for line in finding.verdict_lines():
                self._context.listener.noted(line)
        for finding in outcome.findings:
            if finding.success and finding.released:
                self._context.warn(f"{finding.describe()}: readers still see what a person has released")
        for usual_finding in () if outcome.usual is None else outcome.usual.findings:
            self._tell_beside_history(usual_finding)

    def _tell_beside_history(self, finding: UsualFinding) -> None:
        """Show what is not as usual, and what is not judged yet; warn as the check says."""
        if finding.severity is Severity.WARN:
            self._context.warn(finding.describe())
        elif finding.success and finding.released:
            self._context.warn(f"{finding.describe()}: readers still see what a person has released")
        elif finding.severity is Severity.FAIL or not finding.is_judged:
            self._context.listener.noted(finding.verdict_line())
        for line in finding.row_lines():
            self._context.listener.noted(line)


def _looked_at(
    side: Execution,
    output_pipeline: Pipeline,
    catalog: Catalog,
    epochs: UnpublishedRange,
    *,
    views: Set[ExpectationView],
    own: Set[int],
) -> AuditSubject:
    """What is audited; ``views`` are looked at whatever is expected of them. What the run's ``own`` epochs have written
    it does not read to see that it is there.
    """
    manifest = catalog.manifest(epochs.until)
    columns = columns_after(output_pipeline, manifest)
    subject_files = audited_files(catalog, epochs.after, manifest)
    expected = {expectation.view for expectation in output_pipeline.expectations} | views
    # nobody looks into these, and they are published all the same; until it is folded, current is made of pane files
    unseen = {file.path: file for view, files in subject_files.files.items() if view not in expected for file in files}
    if others := [file for path, file in unseen.items() if subject_files.epochs.get(path) not in own]:
        from headrace.read.views.row_files import check_files  # with SQL, which most runs do without

        check_files(catalog.store, others)
    return AuditSubject(
        output_pipeline.expectations,
        lambda view, released_rows: side.audit_frame(view, subject_files, columns, released_rows),
        lambda: [*released_panes(catalog, columns)],
        columns.identity,
    )
