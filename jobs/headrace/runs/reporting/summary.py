"""The summary of a pipeline: what a list of many pipelines says of each, in one small object.

It says nothing that is not in the catalog, in audits and in results of runs, and nothing but pages for people reads it:
a run that is killed leaves the summary of the run before, whose ``entry`` tells how old it is. So it is never needed,
may be deleted, and is written again by the next run.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from typing import Any, Final

import msgspec

from headrace.audit.limits import LimitFinding
from headrace.audit.range import unpublished_range
from headrace.audit.store import (
    AuditFailedError,
    AuditOutcome,
    LimitExceededError,
    StaleDataError,
    UnusualDataError,
    read_audit,
)
from headrace.errors import HeadraceError
from headrace.model.time import NEVER, Instant, parse, render
from headrace.observe.history import totals
from headrace.pipeline.quality.limits import Severity
from headrace.read.snapshots.progress import StoredProgress
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.entry import Entry
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.sealed import sealed, unsealed
from headrace_snapshots.format.table_names import is_current
from headrace_snapshots.layout import summary_path
from headrace_snapshots.protocol import Head
from headrace_snapshots.refs import MAIN, PUBLISHED
from headrace_snapshots.store import ObjectNotFoundError, ObjectStore

FORMAT: Final = 1
EPOCHS: Final = 20
"""Epochs that a summary has: enough for a curve, and for shares that one odd file does not decide."""

_LOOKED_AT: Final = 100
"""Entries of the log that are looked through for the newest that moved ``published``."""


_SPLIT: Final = ", split "


class PipelineState(StrEnum):
    """What a person has to know of a pipeline first; those that need a person come first."""

    DAMAGED = "damaged"
    FAILED = "failed"
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
    def of(cls, manifest: Manifest) -> "EpochLine":
        """Tells the epoch of ``manifest``. Raises BrokenObjectError."""
        progress = StoredProgress.of(manifest)
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


class PipelineSummary(msgspec.Struct, frozen=True):
    """How a pipeline is, as entry ``entry`` of its log left it. Times are ISO 8601 in UTC.

    ``unpublished`` counts epochs of main that readers do not see, None where ``published`` is not on main's line.
    ``held_back_by`` names input and split that hold the watermark back, ``held_since`` when that last moved on.
    ``fires_at`` is the processing time of the next timer that a run would fire, ``fires_after`` the event time that the
    watermark has to pass for the next window that waits for it (+inf: only the end of the input); None: nothing waits.
    ``newest_file_at``: when the newest epoch that read a file ran; ``published_watermark``: the one that readers know.
    ``epochs`` are the newest of main, oldest first; ``state_bytes`` and ``state_rows`` are of tables of state.
    ``problem``: why the catalog could not be read, None if it could.
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

    @property
    def totals(self) -> Mapping[str, int]:
        """Counts of ``epochs`` together."""
        return totals(self.epochs)

    @property
    def exceeded(self) -> list[str]:
        """For people: the limits that are exceeded."""
        if self.unpublished != 0 and self.audit is not None and self.audit.exceeded:
            return [*self.audit.exceeded]
        return [] if self.run is None else [finding.describe() for finding in _exceeded(self.run)]

    @property
    def without_values(self) -> "PipelineSummary":
        """The same without what comes from records: the name of a split."""
        held = self.held_back_by and self.held_back_by.partition(_SPLIT)[0]
        return msgspec.structs.replace(self, held_back_by=held)

    def is_overdue(self, now: Instant) -> bool:
        """Whether the next run would fire a timer that is due already."""
        return self.fires_at is not None and parse(self.fires_at) <= now

    def as_of(self, now: Instant) -> "PipelineSummary":
        """The same at a later time, when ages may exceed limits that they did not when the newest run ended."""
        if self.run is None or not self.run.limits:
            return self
        run = msgspec.structs.replace(self.run, limits=tuple(finding.as_of(now) for finding in self.run.limits))
        is_calm = self.state in (PipelineState.UNPUBLISHED, PipelineState.EMPTY, PipelineState.PUBLISHED)
        state = PipelineState.LIMIT_EXCEEDED if is_calm and _exceeded(run) else self.state
        return msgspec.structs.replace(self, run=run, state=state)

    def to_json(self) -> dict[str, Any]:
        """A JSON value, with the totals."""
        return {**msgspec.to_builtins(self), "totals": dict(self.totals), "exceeded": self.exceeded}

    def line_to_json(self) -> dict[str, Any]:
        """The same without the epochs: what a list of many pipelines says of each."""
        return {**msgspec.structs.replace(self, epochs=()).to_json(), "totals": dict(self.totals)}


@dataclass(frozen=True)
class _Refs:
    """Manifests behind the refs that a summary is about."""

    main: Manifest | None
    published: Manifest | None


def summarize(catalog: Catalog, before: PipelineSummary | None = None, run: RunLine | None = None) -> PipelineSummary:
    """The summary of a pipeline now. What ``before``, an older one, says of epochs is taken from it where these are the
    same, so only new epochs are read. ``run``: the newest one, by default that of ``before``.

    A catalog that cannot be read is the summary's ``problem``, no error. Raises what the store raises.
    """
    run = run or (None if before is None else before.run)
    head = catalog.known_head()
    made_at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    try:
        summary = _summarized(catalog, head, before, run, made_at)
    except HeadraceError as error:
        if error.remedy != "restore":
            raise
        return PipelineSummary(
            catalog.pipeline, made_at, head.entry, PipelineState.DAMAGED, run=run, problem=f"{error.code}: {error}"
        )
    return summary


def _summarized(
    catalog: Catalog, head: Head, before: PipelineSummary | None, run: RunLine | None, made_at: str
) -> PipelineSummary:
    refs = _Refs(*(catalog.manifest(head.refs[ref]) if ref in head.refs else None for ref in (MAIN, PUBLISHED)))
    audit = _audit(catalog, before)
    fields_known: dict[str, Any] = {}
    if refs.main is not None:
        epochs = _epochs(catalog, refs.main, before)
        fields_known = _of_main(refs.main) | {"epochs": epochs, "newest_file_at": _newest_file_at(epochs, before)}
    if refs.published is not None:
        fields_known |= {
            "published": refs.published.snapshot_id,
            "published_epoch": refs.published.epoch,
            "published_watermark": render(StoredProgress.of(refs.published).watermark),
            "published_at": _published_at(catalog, refs.published.snapshot_id, before),
            "unpublished": _unpublished(catalog, refs),
        }
    elif refs.main is not None:
        fields_known |= {"unpublished": refs.main.epoch + 1}
    return PipelineSummary(
        pipeline=catalog.pipeline,
        made_at=made_at,
        entry=head.entry,
        state=_state(refs, fields_known.get("unpublished"), audit, run),
        branches=tuple(sorted(set(head.generations) - {MAIN, PUBLISHED})),
        audit=audit,
        run=run,
        **fields_known,
    )


def _of_main(manifest: Manifest) -> dict[str, Any]:
    progress = StoredProgress.of(manifest)
    held = progress.held_back_by
    layers = [layer for table, layers in manifest.tables.items() if not is_current(table) for layer in layers]
    files = [file for layer in layers for file in layer.files]
    return {
        "snapshot": manifest.snapshot_id,
        "epoch": manifest.epoch,
        "committed_at": manifest.created_at,
        "watermark": render(progress.watermark),
        "newest_event_time": None if progress.newest is None else render(progress.newest),
        "held_back_by": None if held is None else _SPLIT.join(part for part in (held.input, held.split) if part),
        "held_since": None if held is None or held.since is None else render(held.since),
        "fires_at": _due(progress.due_time),
        "fires_after": _due(progress.due_event),
        "state_rows": sum(file.rows for file in files),
        "state_bytes": sum(file.bytes for file in files),
    }


def _state(refs: _Refs, unpublished: int | None, audit: AuditLine | None, run: RunLine | None) -> PipelineState:
    if unpublished == 0 and run is not None and run.error_code in _HELD_BACK:
        run = None  # a person has released what that run did not publish
    if unpublished != 0 and audit is not None and not audit.success:
        return PipelineState.AUDIT_FAILED if audit.failed else PipelineState.LIMIT_EXCEEDED
    if run is not None and run.status == "failed":
        return PipelineState.LIMIT_EXCEEDED if run.error_code == StaleDataError.code else PipelineState.FAILED
    if run is not None and _exceeded(run):
        return PipelineState.LIMIT_EXCEEDED
    if refs.main is None:
        return PipelineState.EMPTY
    return PipelineState.PUBLISHED if unpublished == 0 else PipelineState.UNPUBLISHED


_HELD_BACK: Final = (AuditFailedError.code, UnusualDataError.code, LimitExceededError.code)


def _exceeded(run: RunLine) -> list[LimitFinding]:
    """The limits that a run has found exceeded, without those that an audit knows of: a person may release these."""
    return [
        finding
        for finding in run.limits
        if finding.severity is Severity.WARN or (finding.severity is not None and finding.is_age)
    ]


def _unpublished(catalog: Catalog, refs: _Refs) -> int | None:
    if refs.main is None or refs.published is None:
        return None
    if refs.main.snapshot_id == refs.published.snapshot_id:
        return 0
    is_behind = catalog.is_ancestor(refs.published.snapshot_id, refs.main.snapshot_id)
    return refs.main.epoch - refs.published.epoch if is_behind else None


def _epochs(catalog: Catalog, head: Manifest, before: PipelineSummary | None) -> tuple[EpochLine, ...]:
    lines_before = {} if before is None else {line.snapshot: line for line in before.epochs}
    lines: list[EpochLine] = []
    current: str | None = head.snapshot_id
    with suppress(MissingSnapshotError):  # what came before has expired
        while current is not None and len(lines) < EPOCHS:
            lines.append(lines_before.get(current) or EpochLine.of(catalog.manifest(current)))
            current = lines[-1].parent
    return tuple(reversed(lines))


def _newest_file_at(epochs: Sequence[EpochLine], before: PipelineSummary | None) -> str | None:
    """When the newest of ``epochs`` that read a file ran; if none of them did, what was known before."""
    read = (line.processing_time for line in reversed(epochs) if line.counts.get("input_files"))
    return next(read, None if before is None else before.newest_file_at)


def _due(due: Instant) -> str | None:
    """When something is due, in ISO 8601; +inf at the end of the global window, None if nothing ever is."""
    return None if due >= NEVER else render(due)


def _published_at(catalog: Catalog, published: str, before: PipelineSummary | None) -> str | None:
    if before is not None and before.published == published and before.published_at is not None:
        return before.published_at
    last_publish = _last_publish(catalog)
    return None if last_publish is None else last_publish.at


def _audit(catalog: Catalog, before: PipelineSummary | None) -> AuditLine | None:
    """The audit of what is not published yet; if nobody has made one, the newest that is known."""
    unpublished = unpublished_range(catalog, MAIN)
    outcome = (
        None
        if unpublished is None
        else read_audit(catalog.store, catalog.pipeline, unpublished.after, unpublished.until)
    )
    if outcome is not None:
        return _line_of(outcome)
    if before is not None and before.audit is not None and before.audit.until == catalog.head().refs.get(PUBLISHED):
        return before.audit
    last_publish = _last_publish(catalog)
    after, until = (None, None) if last_publish is None else last_publish.moves[PUBLISHED]
    if until is not None:
        outcome = read_audit(catalog.store, catalog.pipeline, after, until)
    return None if outcome is None else _line_of(outcome)


def _last_publish(catalog: Catalog) -> Entry | None:
    """The newest entry that moved ``published``, if that is not long ago."""
    return next((entry for entry in islice(catalog.entries(), _LOOKED_AT) if PUBLISHED in entry.moves), None)


def _line_of(outcome: AuditOutcome) -> AuditLine:
    return AuditLine(
        success=outcome.success,
        finished_at=outcome.finished_at,
        after=outcome.from_snapshot,
        until=outcome.to_snapshot,
        expectations=len(outcome.findings) + (0 if outcome.usual is None else len(outcome.usual.findings)),
        failed=(
            *(finding.expected() for finding in outcome.failed),
            *(finding.describe() for finding in outcome.unusual),
        ),
        exceeded=tuple(finding.describe() for finding in outcome.exceeded),
    )


def written_bytes(manifest: Manifest) -> int:
    """Bytes of the tables' files that the epoch of ``manifest`` wrote, those of merged layers among them."""
    layers = [layer for layers in manifest.tables.values() for layer in layers]
    return sum(file.bytes for layer in layers if layer.last_epoch == manifest.epoch for file in layer.files)


def urgent_first(
    summaries: Iterable[PipelineSummary], now: Instant, missed: Collection[str] = ()
) -> list[PipelineSummary]:
    """``summaries``, those that need a person first: by state; among those in the same state pipelines that have
    ``missed`` a deadline of Airflow's, then those with an overdue timer; then by name. A missed deadline comes before
    all states that need nobody.
    """
    order = {state: number for number, state in enumerate(PipelineState)}

    def urgency(one: PipelineSummary) -> tuple[int, bool, bool, str]:
        is_missed = one.pipeline in missed
        state = min(order[one.state], order[PipelineState.UNPUBLISHED]) if is_missed else order[one.state]
        return state, not is_missed, not one.is_overdue(now), one.pipeline

    return sorted(summaries, key=urgency)


def write_summary(store: ObjectStore, summary: PipelineSummary) -> None:
    """Keep ``summary`` (one put). Raises what the store raises."""
    store.write(summary_path(summary.pipeline), sealed({"format": FORMAT, **msgspec.to_builtins(summary)}))


def read_summary(store: ObjectStore, pipeline: str) -> PipelineSummary | None:
    """The summary that is kept of a pipeline; None if there is none that this version can read."""
    try:
        return summary_of(store.read(summary_path(pipeline)))
    except ObjectNotFoundError:
        return None


def summary_of(data: bytes) -> PipelineSummary | None:
    """The summary in ``data``; None if it is damaged or of another version: it is written again by the next run."""
    try:
        fields = unsealed(json.loads(data))
        return msgspec.convert(fields, PipelineSummary) if fields.pop("format") == FORMAT else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
