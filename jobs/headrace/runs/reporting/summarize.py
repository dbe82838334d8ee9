"""Working out the summary of a pipeline from its catalog, and from what an older summary says of the same epochs."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from headrace.audit.store import AuditFailedError, LimitExceededError, StaleDataError, UnusualDataError
from headrace.errors import HeadraceError
from headrace.model.time import NEVER, Instant, render, whole_seconds
from headrace.read.snapshots.progress import StoredProgress
from headrace.runs.reporting.summary import (
    EPOCHS,
    SPLIT,
    AuditLine,
    EpochLine,
    PipelineState,
    PipelineSummary,
    RunLine,
    exceeded_limits,
    last_publish,
    newest_audit,
    output_lines,
    worst,
)
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.table_names import is_current
from headrace_snapshots.protocol import Head
from headrace_snapshots.refs import MAIN, PUBLISHED


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
    # one that still goes on notes itself again with its next epoch; one that was killed does not
    under_way = None if before is None or run is not None else before.under_way
    run = run or (None if before is None else before.run)
    head = catalog.known_head()
    made_at = whole_seconds(datetime.now(UTC))
    try:
        summary = _summarized(catalog, head, before, run, made_at)
    except HeadraceError as error:
        if error.remedy != "restore":
            raise
        return PipelineSummary(
            catalog.pipeline, made_at, head.entry, PipelineState.DAMAGED, run=run, problem=f"{error.code}: {error}"
        )
    return msgspec.structs.replace(summary, under_way=under_way)


def _summarized(
    catalog: Catalog, head: Head, before: PipelineSummary | None, run: RunLine | None, made_at: str
) -> PipelineSummary:
    snapshots = (head.refs.get(MAIN), catalog.published_by_all(head.refs))
    refs = _Refs(*(None if snapshot is None else catalog.manifest(snapshot) for snapshot in snapshots))
    outputs = () if refs.main is None else output_lines(catalog, head, refs.main, before.outputs if before else ())
    audit = worst(outputs) if outputs else newest_audit(catalog, None if before is None else before.audit)
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
        state=_state(refs, fields_known.get("unpublished"), audit, run, is_parked=any(line.parked for line in outputs)),
        branches=tuple(sorted(set(head.generations) - {MAIN, PUBLISHED})),
        audit=audit,
        run=run,
        outputs=outputs,
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
        "held_back_by": None if held is None else SPLIT.join(part for part in (held.input, held.split) if part),
        "held_since": None if held is None or held.since is None else render(held.since),
        "fires_at": _due(progress.due_time),
        "fires_after": _due(progress.due_event),
        "state_rows": sum(file.rows for file in files),
        "state_bytes": sum(file.bytes for file in files),
    }


def _state(
    refs: _Refs, unpublished: int | None, audit: AuditLine | None, run: RunLine | None, *, is_parked: bool
) -> PipelineState:
    if unpublished == 0 and run is not None and run.error_code in _HELD_BACK:
        run = None  # a person has released what that run did not publish
    if is_parked and (run is None or run.status != "failed" or run.error_code in _HELD_BACK):
        return PipelineState.PARKED
    if unpublished != 0 and audit is not None and not audit.success:
        return PipelineState.AUDIT_FAILED if audit.failed else PipelineState.LIMIT_EXCEEDED
    if run is not None and run.status == "failed":
        return PipelineState.LIMIT_EXCEEDED if run.error_code == StaleDataError.code else PipelineState.FAILED
    if run is not None and exceeded_limits(run):
        return PipelineState.LIMIT_EXCEEDED
    if refs.main is None:
        return PipelineState.EMPTY
    return PipelineState.PUBLISHED if unpublished == 0 else PipelineState.UNPUBLISHED


_HELD_BACK: Final = (AuditFailedError.code, UnusualDataError.code, LimitExceededError.code)


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
    entry = last_publish(catalog)
    return None if entry is None else entry.at
