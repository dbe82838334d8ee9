"""The summary of a pipeline: what a list of many pipelines says of each, in one small object, and how it is made.

A summary says nothing that is not in the catalog, in audits and in results of runs, and nothing but pages for people
reads it. A run that is killed leaves the summary of the run before, whose ``entry`` tells how old it is. So it is never
needed, may be deleted, and is written again by the next run.

``AuditLine`` and ``OutputLine`` say it of audits, and of each output of a pipeline that has several.
``summarize_pipeline`` works it out from the catalog, and from what an older summary says of the same epochs.
``renew_summary`` writes it again after each run, and after each decision of a person.
"""

import json
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import Any, Final

import msgspec

from headrace.audit import store as audit_store
from headrace.audit.limits import LimitFinding
from headrace.audit.range import unpublished_range
from headrace.errors import HeadraceError
from headrace.model.time import NEVER, Instant, parse_instant, render, whole_seconds
from headrace.pipeline.quality import Severity
from headrace.pipeline.scheduling import LevelProgress
from headrace.read.snapshots.epoch_history import summed_counts
from headrace.read.snapshots.progress import StoredProgress, output_positions
from headrace.runs.reporting import results
from headrace.sources.progress import ParkedChain
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import convert_value, seal_fields, unseal_fields
from headrace_snapshots.format.manifest import Manifest, is_current
from headrace_snapshots.log import Entry
from headrace_snapshots.names import MAIN, PUBLISHED, is_published, summary_path
from headrace_snapshots.output_catalog import seen_catalog
from headrace_snapshots.protocol.moves import Head
from headrace_snapshots.store import ObjectNotFoundError, ObjectStore, do_both

_ENTRIES_LOOKED_AT: Final = 100
"""Entries of the log that are looked through for the newest that moved ``published``."""


class AuditLine(msgspec.Struct, frozen=True):
    """The newest audit: of what ``published`` does not show yet, else of what it moved over last. ``failed`` are
    expectations and checks against history, ``exceeded`` the limits that hold the range back.
    """

    success: bool
    finished_at: str
    after: str | None
    until: str
    expectations: int
    failed: tuple[str, ...]
    exceeded: tuple[str, ...] = ()


class OutputLine(msgspec.Struct, frozen=True):
    """One output of several: what readers see of it, how many epochs of main they do not see, and its newest audit.
    ``parked`` is why it stands still (None: it goes on).
    """

    name: str
    published: str | None
    published_epoch: int | None
    unpublished: int
    audit: AuditLine | None
    parked: ParkedChain | None = None

    @property
    def without_values(self) -> "OutputLine":
        """The same without a message that may quote values."""
        return msgspec.structs.replace(self, parked=results.parked_without_values(self.parked))


def output_lines(
    catalog: Catalog, head: Head, main: Manifest, earlier_lines: Iterable[OutputLine]
) -> tuple[OutputLine, ...]:
    """A line for each output of ``main`` that has a name. ``earlier_lines``: those of an older summary."""
    lines_before = {line.name: line for line in earlier_lines}
    lines = []
    for position in output_positions(catalog, head.refs, main):
        line_before = lines_before.get(position.name)
        audit = newest_audit(seen_catalog(catalog, position.name), None if line_before is None else line_before.audit)
        lines.append(OutputLine(audit=audit, **vars(position)))
    return tuple(lines)


def worst_audit(outputs: Sequence[OutputLine]) -> AuditLine | None:
    """The audits of all outputs as one: what failed, and of which output."""
    audits = {line.name: line.audit for line in outputs if line.audit is not None}
    if not audits:
        return None
    gravest = max(audits.values(), key=lambda audit: (not audit.success, bool(audit.failed), audit.finished_at))
    failing = [(name, audit) for name, audit in audits.items() if not audit.success]
    return msgspec.structs.replace(
        gravest,
        expectations=sum(audit.expectations for audit in audits.values()),
        failed=tuple(f"{name}: {failure}" for name, audit in failing for failure in audit.failed),
        exceeded=tuple(f"{name}: {limit}" for name, audit in failing for limit in audit.exceeded),
    )


def newest_audit(catalog: Catalog, known_audit: AuditLine | None) -> AuditLine | None:
    """The audit of what is not published yet; without one, the newest that is known, such as ``known_audit``."""
    epochs = unpublished_range(catalog, MAIN)
    read_audit = partial(audit_store.read_audit, catalog.store, catalog.pipeline, output=catalog.output)
    if epochs is not None and (outcome := read_audit(epochs.after, epochs.until)) is not None:
        return _line_of(outcome)
    if known_audit is not None and known_audit.until == catalog.head().refs.get(PUBLISHED):
        return known_audit
    entry = last_publish(catalog)
    begin, end = (None, None) if entry is None else entry.moves.get(PUBLISHED, (None, None))
    outcome = None if end is None else read_audit(begin, end)
    return None if outcome is None else _line_of(outcome)


def last_publish(catalog: Catalog) -> Entry | None:
    """The newest entry that moved what readers see, if that is not long ago."""
    newest = islice(catalog.entries(), _ENTRIES_LOOKED_AT)
    return next((entry for entry in newest if any(map(is_published, entry.moves))), None)


def _line_of(outcome: audit_store.AuditOutcome) -> AuditLine:
    return AuditLine(
        success=outcome.success,
        finished_at=outcome.finished_at,
        after=outcome.from_snapshot,
        until=outcome.to_snapshot,
        expectations=len(outcome.findings) + (0 if outcome.usual is None else len(outcome.usual.findings)),
        failed=(
            *(finding.expectation.describe() for finding in outcome.failed),
            *(finding.describe() for finding in outcome.unusual),
        ),
        exceeded=tuple(finding.describe() for finding in outcome.exceeded),
    )


FORMAT: Final = 1
EPOCHS: Final = 20
"""Epochs that a summary has: enough for a curve, and for shares that one odd file does not decide."""

SPLIT_MARK: Final = ", split "
"""Between the names of an input and of its split that hold the watermark back."""


class PipelineState(StrEnum):
    """What a person has to know of a pipeline first; states that need a person come first."""

    DAMAGED = "damaged"
    FAILED = "failed"
    PARKED = "parked"
    AUDIT_FAILED = "audit failed"
    LIMIT_EXCEEDED = "limit exceeded"
    UNPUBLISHED = "unpublished"
    EMPTY = "empty"
    PUBLISHED = "published"


class EpochLine(msgspec.Struct, frozen=True):
    """One epoch. Times are ISO 8601 in UTC (``watermark`` may be -inf or +inf); the event times are those of the
    elements that it accepted, None if there were none. ``seconds`` of work, ``bytes`` written, storage ``requests``.
    """

    epoch: int
    snapshot: str
    parent: str | None
    processing_time: str
    watermark: str
    min_event_time: str | None
    max_event_time: str | None
    counts: Mapping[str, int]
    seconds: float
    bytes: int
    requests: int
    executor: str | None = None

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> "EpochLine":
        """Tells the epoch of ``manifest``. Raises BrokenObjectError."""
        progress = StoredProgress.from_manifest(manifest)
        low, high = progress.min_event_time, progress.max_event_time
        executor = manifest.progress.get("executor")
        return cls(
            epoch=manifest.epoch,
            snapshot=manifest.snapshot_id,
            parent=manifest.parent,
            processing_time=render(progress.processing_time),
            watermark=render(progress.watermark),
            min_event_time=None if low is None else render(low),
            max_event_time=None if high is None else render(high),
            counts=dict(manifest.counts),
            seconds=round(sum(manifest.timings.values()), 3),
            bytes=written_bytes(manifest),
            requests=sum(manifest.requests.values()),
            executor=executor if isinstance(executor, str) else None,
        )


class RunLine(msgspec.Struct, frozen=True):
    """The newest run that left a result. ``error_code`` and ``error`` (its message) are None if it succeeded;
    ``limits`` is what it found beside the pipeline's limits.
    """

    run_id: str
    action: str
    status: str
    finished_at: str
    error_code: str | None = None
    error: str | None = None
    warnings: tuple[str, ...] = ()
    limits: tuple[LimitFinding, ...] = ()

    @property
    def without_values(self) -> "RunLine":
        """The same without messages that may quote values."""
        error = self.error and results.message_without_values(self.error_code or "", self.error)
        return msgspec.structs.replace(self, error=error, warnings=results.warnings_without_values(self.warnings))


class UnderWay(msgspec.Struct, frozen=True):
    """A run that has not ended, as it said ``at`` a time. It says what its epochs have read so far of the
    ``files_found``, and the newest of these epochs (None: before the first). ``level`` is where the next one was, None
    where that cannot be told. One that was killed says nothing more.
    """

    run_id: str
    action: str
    branch: str
    started_at: str
    at: str
    files_found: int = 0
    files: int = 0
    records: int = 0
    epochs: int = 0
    epoch: int | None = None
    level: LevelProgress | None = None


class PipelineSummary(msgspec.Struct, frozen=True):
    """How a pipeline is, as entry ``entry`` of its log left it. Times are ISO 8601 in UTC.

    ``unpublished`` counts epochs of main that readers do not see, None where ``published`` is not on main's line.
    ``held_back_by`` names input and split that hold the watermark back, ``held_since`` when that last moved on.
    ``fires_at`` is the processing time of the next timer that a run would fire. ``fires_after`` is the event time that
    the watermark has to pass for the next waiting window (+inf: only the end of the input). None: nothing waits.
    ``newest_file_at``: when the newest epoch that read a file ran; ``published_watermark``: the one that readers know.
    ``epochs`` are the newest of main, oldest first; ``state_bytes`` and ``state_rows`` are of what is stored of tables
    of state: a row that has changed counts once for each layer. ``problem``: why the catalog could not be read, None if
    it could. Where outputs have names, ``published`` is the oldest of what readers see, ``audit`` tells of all of them,
    and ``outputs`` has a line for each. ``under_way`` is the run that has said something since and left no result, None
    if there is none.
    """

    pipeline: str
    made_at: str
    entry: int
    state: PipelineState
    snapshot: str | None = None
    epoch: int | None = None
    committed_at: str | None = None
    published: str | None = None
    published_epoch: int | None = None
    published_at: str | None = None
    unpublished: int | None = None
    watermark: str | None = None
    newest_event_time: str | None = None
    held_back_by: str | None = None
    held_since: str | None = None
    fires_at: str | None = None
    fires_after: str | None = None
    newest_file_at: str | None = None
    published_watermark: str | None = None
    state_rows: int = 0
    state_bytes: int = 0
    branches: tuple[str, ...] = ()
    audit: AuditLine | None = None
    run: RunLine | None = None
    epochs: tuple[EpochLine, ...] = ()
    problem: str | None = None
    outputs: tuple[OutputLine, ...] = ()
    under_way: UnderWay | None = None

    @property
    def totals(self) -> Mapping[str, int]:
        """Counts of ``epochs`` together."""
        return summed_counts(self.epochs)

    @property
    def exceeded(self) -> list[str]:
        """For people: the limits that are exceeded."""
        if self.unpublished != 0 and self.audit is not None and self.audit.exceeded:
            return [*self.audit.exceeded]
        return [] if self.run is None else [finding.describe() for finding in exceeded_limits(self.run)]

    @property
    def worst_output(self) -> OutputLine | None:
        """The output that needs a person most: it is parked, else its audit failed, else its readers are furthest
        behind. None if nothing is wrong with any, or the only one has no name.
        """
        worst = max(self.outputs, key=_output_urgency, default=None)
        return None if worst is None or not any(_output_urgency(worst)) else worst

    @property
    def without_values(self) -> "PipelineSummary":
        """The same without what comes from records: the name of a split, messages that may quote values."""
        return msgspec.structs.replace(
            self,
            held_back_by=self.held_back_by and self.held_back_by.partition(SPLIT_MARK)[0],
            run=None if self.run is None else self.run.without_values,
            outputs=tuple(output.without_values for output in self.outputs),
        )

    def is_overdue(self, now: Instant) -> bool:
        """Whether the next run would fire a timer that is due already."""
        return self.fires_at is not None and parse_instant(self.fires_at) <= now

    def as_of(self, now: Instant) -> "PipelineSummary":
        """The same at a later time, when ages may exceed limits that they did not when the newest run ended."""
        if self.run is None or not self.run.limits:
            return self
        run = msgspec.structs.replace(self.run, limits=tuple(finding.as_of(now) for finding in self.run.limits))
        is_calm = self.state in (PipelineState.UNPUBLISHED, PipelineState.EMPTY, PipelineState.PUBLISHED)
        state = PipelineState.LIMIT_EXCEEDED if is_calm and exceeded_limits(run) else self.state
        return msgspec.structs.replace(self, run=run, state=state)

    def to_json(self) -> dict[str, Any]:
        """A JSON value, with the totals, and with the name of the worst output if there is one."""
        worst = self.worst_output
        worst_name = {} if worst is None else {"worst_output": worst.name}
        return {**msgspec.to_builtins(self), "totals": dict(self.totals), "exceeded": self.exceeded, **worst_name}

    def line_to_json(self) -> dict[str, Any]:
        """The same without the epochs: what a list of many pipelines says of each."""
        return {**msgspec.structs.replace(self, epochs=()).to_json(), "totals": dict(self.totals)}


def written_bytes(manifest: Manifest) -> int:
    """Bytes of the tables' files that the epoch of ``manifest`` wrote, those of merged layers among them."""
    layers = [layer for layers in manifest.tables.values() for layer in layers]
    return sum(file.bytes for layer in layers if layer.last_epoch == manifest.epoch for file in layer.files)


def _output_urgency(output: OutputLine) -> tuple[bool, bool, int]:
    is_failing = output.audit is not None and not output.audit.success and output.unpublished != 0
    return output.parked is not None, is_failing, output.unpublished


def exceeded_limits(run: RunLine) -> list[LimitFinding]:
    """The limits that a run has found exceeded, without those that an audit knows of: a person may release these."""
    return [
        finding
        for finding in run.limits
        if finding.severity is Severity.WARN or (finding.severity is not None and finding.is_age)
    ]


def urgent_first(
    summaries: Iterable[PipelineSummary], now: Instant, missed_pipelines: Collection[str] = ()
) -> list[PipelineSummary]:
    """``summaries``, those that need a person first: by state; in the same state ``missed_pipelines``, which have
    missed a deadline of Airflow's, then those with an overdue timer; then by name. A missed deadline comes before
    all states that need nobody.
    """
    order = {state: number for number, state in enumerate(PipelineState)}

    def pipeline_urgency(one: PipelineSummary) -> tuple[int, bool, bool, str]:
        is_missed = one.pipeline in missed_pipelines
        state = min(order[one.state], order[PipelineState.UNPUBLISHED]) if is_missed else order[one.state]
        return state, not is_missed, not one.is_overdue(now), one.pipeline

    return sorted(summaries, key=pipeline_urgency)


def write_summary(store: ObjectStore, summary: PipelineSummary) -> None:
    """Keep ``summary`` (one put). Raises what the store raises."""
    fields = msgspec.to_builtins(summary)
    for name in ("outputs", "under_way"):
        if not fields[name]:
            del fields[name]
    store.write(summary_path(summary.pipeline), seal_fields({"format": FORMAT, **fields}))


def read_summary(store: ObjectStore, pipeline: str) -> PipelineSummary | None:
    """The summary that is kept of a pipeline; None if there is none that this version can read."""
    try:
        return summary_of(store.read(summary_path(pipeline)))
    except ObjectNotFoundError:
        return None


def summary_of(data: bytes) -> PipelineSummary | None:
    """The summary in ``data``; None if it is damaged or of another version: it is written again by the next run."""
    try:
        fields = unseal_fields(json.loads(data))
        return convert_value(fields, PipelineSummary) if fields.pop("format") == FORMAT else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def summarize_pipeline(
    catalog: Catalog, old_summary: PipelineSummary | None = None, run: RunLine | None = None
) -> PipelineSummary:
    """The summary of a pipeline now. What ``old_summary`` says of epochs is taken from it where these are the same, so
    only new epochs are read. ``run``: the newest one, by default that of ``old_summary``.

    A catalog that cannot be read is the summary's ``problem``, no error. Raises what the store raises.
    """
    # one that still goes on notes itself again with its next epoch; one that was killed does not
    under_way = None if old_summary is None or run is not None else old_summary.under_way
    run = run or (None if old_summary is None else old_summary.run)
    head = catalog.known_head()
    made_at = whole_seconds(datetime.now(UTC))
    try:
        summary = _make_summary(catalog, head, old_summary, run, made_at)
    except HeadraceError as error:
        if error.remedy != "restore":
            raise
        return PipelineSummary(
            catalog.pipeline, made_at, head.entry, PipelineState.DAMAGED, run=run, problem=f"{error.code}: {error}"
        )
    return msgspec.structs.replace(summary, under_way=under_way)


def _make_summary(
    catalog: Catalog, head: Head, old_summary: PipelineSummary | None, run: RunLine | None, made_at: str
) -> PipelineSummary:
    snapshots = (head.refs.get(MAIN), catalog.published_by_all(head.refs))
    main, public_manifest = (None if snapshot is None else catalog.manifest(snapshot) for snapshot in snapshots)
    outputs = () if main is None else output_lines(catalog, head, main, old_summary.outputs if old_summary else ())
    audit = (
        worst_audit(outputs) if outputs else newest_audit(catalog, None if old_summary is None else old_summary.audit)
    )
    fields_known: dict[str, Any] = {}
    if main is not None:
        epochs = _epoch_lines(catalog, main, old_summary)
        fields_known = _of_main(main) | {"epochs": epochs, "newest_file_at": _newest_file_at(epochs, old_summary)}
    if public_manifest is not None:
        fields_known |= {
            "published": public_manifest.snapshot_id,
            "published_epoch": public_manifest.epoch,
            "published_watermark": render(StoredProgress.from_manifest(public_manifest).watermark),
            "published_at": _published_at(catalog, public_manifest.snapshot_id, old_summary),
            "unpublished": None if main is None else _count_unpublished(catalog, main, public_manifest),
        }
    elif main is not None:
        fields_known |= {"unpublished": main.epoch + 1}
    return PipelineSummary(
        pipeline=catalog.pipeline,
        made_at=made_at,
        entry=head.entry,
        state=_pipeline_state(
            main, fields_known.get("unpublished"), audit, run, is_parked=any(line.parked for line in outputs)
        ),
        branches=tuple(sorted(set(head.generations) - {MAIN, PUBLISHED})),
        audit=audit,
        run=run,
        outputs=outputs,
        **fields_known,
    )


def _of_main(manifest: Manifest) -> dict[str, Any]:
    progress = StoredProgress.from_manifest(manifest)
    holder = progress.held_back_by
    layers = [layer for table, layers in manifest.tables.items() if not is_current(table) for layer in layers]
    files = [file for layer in layers for file in layer.files]
    return {
        "snapshot": manifest.snapshot_id,
        "epoch": manifest.epoch,
        "committed_at": manifest.created_at,
        "watermark": render(progress.watermark),
        "newest_event_time": None if progress.newest is None else render(progress.newest),
        "held_back_by": None
        if holder is None
        else SPLIT_MARK.join(part for part in (holder.input, holder.split) if part),
        "held_since": None if holder is None or holder.since is None else render(holder.since),
        "fires_at": _due_text(progress.due_time),
        "fires_after": _due_text(progress.due_event),
        "state_rows": sum(file.rows for file in files),
        "state_bytes": sum(file.bytes for file in files),
    }


def _pipeline_state(
    main: Manifest | None,
    number_unpublished: int | None,
    audit: AuditLine | None,
    run: RunLine | None,
    *,
    is_parked: bool,
) -> PipelineState:
    if number_unpublished == 0 and run is not None and run.error_code in _HELD_BACK:
        run = None  # a person has released what that run did not publish
    if is_parked and (run is None or run.status != "failed" or run.error_code in _HELD_BACK):
        return PipelineState.PARKED
    if number_unpublished != 0 and audit is not None and not audit.success:
        return PipelineState.AUDIT_FAILED if audit.failed else PipelineState.LIMIT_EXCEEDED
    if run is not None and run.status == "failed":
        return (
            PipelineState.LIMIT_EXCEEDED if run.error_code == audit_store.StaleDataError.code else PipelineState.FAILED
        )
    if run is not None and exceeded_limits(run):
        return PipelineState.LIMIT_EXCEEDED
    if main is None:
        return PipelineState.EMPTY
    return PipelineState.PUBLISHED if number_unpublished == 0 else PipelineState.UNPUBLISHED


_HELD_BACK: Final = (
    audit_store.AuditFailedError.code,
    audit_store.UnusualDataError.code,
    audit_store.LimitExceededError.code,
)


def _count_unpublished(catalog: Catalog, main: Manifest, public_manifest: Manifest) -> int | None:
    if main.snapshot_id == public_manifest.snapshot_id:
        return 0
    return (
        main.epoch - public_manifest.epoch
        if catalog.is_ancestor(public_manifest.snapshot_id, main.snapshot_id)
        else None
    )


def _epoch_lines(catalog: Catalog, head: Manifest, old_summary: PipelineSummary | None) -> tuple[EpochLine, ...]:
    lines_before = {} if old_summary is None else {line.snapshot: line for line in old_summary.epochs}
    lines: list[EpochLine] = []
    current: str | None = head.snapshot_id
    with suppress(MissingSnapshotError):  # what came before has expired
        while current is not None and len(lines) < EPOCHS:
            lines.append(lines_before.get(current) or EpochLine.from_manifest(catalog.manifest(current)))
            current = lines[-1].parent
    return tuple(reversed(lines))


def _newest_file_at(epochs: Sequence[EpochLine], old_summary: PipelineSummary | None) -> str | None:
    """When the newest of ``epochs`` that read a file ran; if none of them did, what was known before."""
    read = (line.processing_time for line in reversed(epochs) if line.counts.get("input_files"))
    return next(read, None if old_summary is None else old_summary.newest_file_at)


def _due_text(due: Instant) -> str | None:
    """When something is due, in ISO 8601; +inf at the end of the global window, None if nothing ever is."""
    return None if due >= NEVER else render(due)


def _published_at(catalog: Catalog, published_id: str, old_summary: PipelineSummary | None) -> str | None:
    if old_summary is not None and old_summary.published == published_id and old_summary.published_at is not None:
        return old_summary.published_at
    entry = last_publish(catalog)
    return None if entry is None else entry.at


_log = logging.getLogger(__name__)


def keep_result(catalog: Catalog, result: results.RunResult) -> None:
    """Write the result of a run that has just ended, and renew the summary of its pipeline. Raises what the store
    raises when the result is written.
    """
    store = catalog.store
    _, old_summary = do_both(store, lambda: results.write_run_result(store, result), lambda: _look_before(catalog))
    _try_to_renew(catalog, old_summary, result)


def renew_summary(catalog: Catalog, result: results.RunResult | None = None) -> None:
    """Write the summary of a pipeline as its catalog is now; ``result`` is that of the run that has just ended.

    A get, a put, and a get for each new epoch that this ``catalog`` has not in memory. What has been done is done: if
    the store refuses, a warning says so, and the next run writes it.
    """
    _try_to_renew(catalog, _look_before(catalog), result)


def _look_before(catalog: Catalog) -> PipelineSummary | HeadraceError | None:
    """The summary that is kept, and another look at the log: others may have written theirs of what they did since."""
    store = catalog.store
    catalog.look_again()
    try:
        old_summary, _ = do_both(store, lambda: read_summary(store, catalog.pipeline), catalog.known_head)
    except HeadraceError as error:
        return error
    return old_summary


def _try_to_renew(
    catalog: Catalog, old_summary: PipelineSummary | HeadraceError | None, result: results.RunResult | None
) -> None:
    try:
        if isinstance(old_summary, HeadraceError):
            raise old_summary
        write_summary(
            catalog.store, summarize_pipeline(catalog, old_summary, None if result is None else run_line(result))
        )
    except HeadraceError as error:
        why = f"{error.code}: {results.redact_secrets(str(error))}"
        _log.warning(
            "the summary of %s is not renewed (%s): Airflow's pages lag until its next run", catalog.pipeline, why
        )


def run_line(result: results.RunResult) -> RunLine:
    """What a summary says of a run."""
    error = result.error
    return RunLine(
        run_id=result.run_id,
        action=result.action,
        status=result.status,
        finished_at=result.finished_at,
        error_code=None if error is None else error.code,
        error=None if error is None else error.message,
        warnings=tuple(result.warnings),
        limits=tuple(result.limits),
    )
