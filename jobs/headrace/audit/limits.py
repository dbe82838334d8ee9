"""Limits of a pipeline: the checks that find what lies beside each, and what they find, as values kept with the audit.

A check holds what the catalog and the landing prefix say against a limit. It starts nothing. It reads rows only to find
ids that two rows have where ``id=`` says that they are unique.

Limits of records are about the epochs that readers have not seen, together: the range that an audit is of. A record
that a person has released does not count again where its file is read again, after a recovery for one. Nor does an id
count if no other rows have it than those that were released.

Ages are about main alone: a branch is computed again, or compared, and nobody waits for it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headrace.audit import range as audit_range
from headrace.model import time as model_time
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.quality import (
    IDS_OF_ROWS,
    WORDS,
    Limit,
    Limits,
    Severity,
    bound_text,
    is_more,
)
from headrace.read.definition_plan import Action, columns_after, plan_definition_change
from headrace.read.snapshots.progress import StoredProgress
from headrace.read.views.columns import ViewColumns
from headrace.sources.landing import Landing
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.names import MAIN
from headrace_snapshots.output_catalog import seen_catalog

if TYPE_CHECKING:
    from headrace.read.diff.layered_tables import RowsOfEpochs

_SECOND_MICROSECONDS: Final = 1_000_000
_VERDICTS: Final = {None: "passed", Severity.WARN: "warning", Severity.FAIL: "FAILED"}


@dataclass(frozen=True)
class LimitFinding:
    """What was found beside one limit, the field ``name`` of Limits, whose ``bounds`` are as users write them.

    ``severity`` is that of the bound that is exceeded, None if none is. ``observed`` is a share from 0 to 1, or an age
    in seconds; None: there is nothing to measure. ``said`` is what was measured, for people; ``since`` the time that an
    age is measured from, in ISO 8601. ``released``: the log entries that released records, or ids, which are left out.
    """

    name: str
    bounds: Mapping[Severity, str]
    severity: Severity | None
    observed: float | None
    said: str
    since: str | None = None
    released: tuple[int, ...] = ()

    @property
    def is_age(self) -> bool:
        """Whether it goes by the clock, and so holds or not whatever a run computes."""
        return self.name in _AGES

    def describe(self) -> str:
        """For people: what was found, and the bound if it is exceeded, on one line."""
        what = "the ids that" if self.name == IDS_OF_ROWS else "the records that"
        bound = "" if self.severity is None else f"; the limit is {self.bounds[self.severity]}"
        age = (
            ""
            if self.since is None
            else f"{model_time.render_duration(model_time.Duration(int(self.observed or 0) * _SECOND_MICROSECONDS))}, "
        )
        return f"{WORDS[self.name]}: {age}{self.said}{audit_range.describe_released(what, self.released)}{bound}"

    def verdict_line(self) -> str:
        """For people: the same, and whether it holds."""
        return f"{_VERDICTS[self.severity]}: {self.describe()}"

    def as_of(self, now: model_time.Instant) -> "LimitFinding":
        """The same at a later time ``now``, if nothing has come since; only an age changes."""
        if self.since is None:
            return self
        limit = Limit(**{str(severity): model_time.parse_duration(bound) for severity, bound in self.bounds.items()})
        return age_finding(self.name, limit, AgeMeasurement(model_time.parse_instant(self.since), self.said), now)

    def to_json(self) -> dict[str, Any]:
        """A JSON value; the inverse of ``from_json``."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "LimitFinding":
        """The inverse of ``to_json``. Raises KeyError, TypeError or ValueError for anything else."""
        severity = value["severity"]
        return cls(
            **{
                **value,
                "bounds": {Severity(name): bound for name, bound in value["bounds"].items()},
                "severity": None if severity is None else Severity(severity),
                "released": tuple(value.get("released", ())),
            }
        )


_AGES: Final = frozenset({"watermark_age", "newest_file"})
_COUNTS: Final = {"rejected": "rejected", "late": "late_dropped"}
"""What an epoch calls the count that a limit is about."""


def share_findings(
    limits: Limits, counts: Mapping[str, int], released_counts: Iterable[int] = ()
) -> list[LimitFinding]:
    """What ``counts`` of epochs together say beside the limits of records."""
    records = counts.get("records", 0)
    return [
        _share_finding(name, limit, counts.get(_COUNTS[name], 0), records, tuple(released_counts))
        for name, limit in limits.given()
        if name in _COUNTS
    ]


def _share_finding(
    name: str, limit: Limit[Any], count: int, records: int, released_entries: tuple[int, ...]
) -> LimitFinding:
    share = count / records if records else 0.0
    severity = next((level for level, bound in limit.bounds() if is_more(count, records, bound)), None)
    return LimitFinding(
        name=name,
        bounds=_bound_texts(limit),
        severity=severity,
        observed=share,
        said=f"{count:,} of {records:,} records ({share:.2%})",
        released=released_entries,
    )


class AgeMeasurement(msgspec.Struct, frozen=True):
    """What an age counts from: a time (MIN_INSTANT: none yet; MAX_INSTANT: input ended), and ``what`` it is of."""

    since: model_time.Instant
    what: str


def age_finding(name: str, limit: Limit[Any], measurement: AgeMeasurement, now: model_time.Instant) -> LimitFinding:
    """How old something is at ``now``. What was never is older than any bound."""
    is_never, is_over = measurement.since <= model_time.MIN_INSTANT, measurement.since >= model_time.MAX_INSTANT
    age = model_time.Duration(0 if is_over else max(0, now - measurement.since))
    severity = next((level for level, bound in limit.bounds() if is_never or age > bound), None)
    return LimitFinding(
        name=name,
        bounds=_bound_texts(limit),
        severity=severity,
        observed=None if is_never else age / _SECOND_MICROSECONDS,
        said=f"there is none yet {measurement.what}" if is_never else measurement.what,
        since=None if is_never or is_over else model_time.render(measurement.since),
    )


def _bound_texts(limit: Limit[Any]) -> dict[Severity, str]:
    return {severity: bound_text(bound) for severity, bound in limit.bounds()}


_EPOCHS_LOOKED_AT: Final = 100
"""Epochs that are looked through for the newest that read a file, where a store does not say when files landed."""


def check_limits(
    pipeline: Pipeline,
    catalog: Catalog,
    branch: str,
    unpublished_ranges: Mapping[str, audit_range.UnpublishedRange | None],
    now: Callable[[], datetime],
) -> dict[str, tuple[LimitFinding, ...]]:
    """What a run on ``branch`` shows beside each limit, by output. Records have findings only if there are
    ``unpublished_ranges``.

    ``now`` is asked for ages alone: a replay has no wall clock. Raises BrokenObjectError, MissingSnapshotError, and
    what listing the landing prefix raises.
    """
    ages = tuple(_age_findings(pipeline, catalog, now)) if branch == MAIN and pipeline.limits is not None else ()
    limits = {output: output_pipeline.limits for output, output_pipeline in pipeline.by_output.items()}
    findings: dict[str, tuple[LimitFinding, ...]] = {}
    for output, epochs in unpublished_ranges.items():
        output_catalog = seen_catalog(catalog, output)
        ids = _id_findings(pipeline.by_output[output], output_catalog, epochs)
        findings[output] = (*_record_share_findings(limits[output], output_catalog, epochs), *ids, *ages)
    return findings


# --- records ----------------------------------------------------------------------------------------------------------


def _record_share_findings(
    limits: Limits | None, catalog: Catalog, unpublished_epochs: audit_range.UnpublishedRange | None
) -> list[LimitFinding]:
    """What became of records, beside each limit."""
    if limits is None or unpublished_epochs is None:
        return []
    counts = audit_range.counts_of(catalog, unpublished_epochs)
    findings = share_findings(limits, counts)
    if all(finding.severity is None for finding in findings):
        return findings
    released_epochs = [*audit_range.released_again(catalog, unpublished_epochs)]
    if not released_epochs:
        return findings
    for epochs in released_epochs:
        counts.subtract(epochs.counts)
    left = Counter({name: max(0, count) for name, count in counts.items()})
    return share_findings(limits, left, [epochs.entry for epochs in released_epochs])


# --- ids of rows ------------------------------------------------------------------------------------------------------


def _id_findings(
    output_pipeline: Pipeline, catalog: Catalog, epochs: audit_range.UnpublishedRange | None
) -> Iterator[LimitFinding]:
    """Whether ids that rows of the epochs have are of one row each, of all that stand. Values are not told: what is
    found goes to logs, alerts and pages for all.
    """
    if not output_pipeline.id or epochs is None:
        return
    manifest = catalog.manifest(epochs.until)
    columns = _columns_now(output_pipeline, manifest)
    if columns.id:
        yield find_shared_ids(catalog, epochs, manifest, columns)


def find_shared_ids(
    catalog: Catalog, unpublished_range: audit_range.UnpublishedRange, manifest: Manifest, columns: ViewColumns
) -> LimitFinding:
    """Whether ids of rows of ``unpublished_range``, which ends with ``manifest``, are of one row each."""
    number, entries = _shared_ids(catalog, unpublished_range, manifest, columns)
    return LimitFinding(
        name=IDS_OF_ROWS,
        bounds={Severity.FAIL: f"one row for each {' and '.join(columns.id)}"},
        severity=Severity.FAIL if number else None,
        observed=float(number),
        said=f"{number:,} ids have more than one row" if number != 1 else "1 id has more than one row",
        released=entries,
    )


def _shared_ids(
    catalog: Catalog, epochs: audit_range.UnpublishedRange, manifest: Manifest, columns: ViewColumns
) -> tuple[int, tuple[int, ...]]:
    """How many ids have more than one row, without those that were released; and the log entries that released some."""
    from headrace.read.diff.layered_tables import RowsOfEpochs, rows_with_shared_ids  # with DuckDB

    rows = RowsOfEpochs(manifest, columns, audit_range.audited_files(catalog, epochs.after, manifest).panes)
    (number,) = rows_with_shared_ids(catalog.store, rows)
    rows_by_entry = dict(_released_rows(catalog, columns)) if number else {}
    if not rows_by_entry:
        return number, ()
    counts = rows_with_shared_ids(catalog.store, rows, [*rows_by_entry.values()])
    steps = zip(rows_by_entry, pairwise(counts), strict=True)
    return counts[-1], tuple(entry for entry, (count_before, count_after) in steps if count_after < count_before)


def _released_rows(catalog: Catalog, columns: ViewColumns) -> "Iterator[tuple[int, RowsOfEpochs]]":
    """The rows of each release that holds and was about the same ids, by its log entry."""
    from headrace.read.diff.layered_tables import RowsOfEpochs
    from headrace.read.views.row_files import check_files

    for panes in audit_range.released_panes(catalog, columns):
        if panes.columns.id != columns.id:
            continue
        rows = RowsOfEpochs(catalog.manifest(panes.release.snapshot), panes.columns, panes.files.panes)
        with suppress(BrokenObjectError):  # nobody knows its rows any more
            check_files(catalog.store, rows.files)
            yield panes.release.entry, rows


def _columns_now(output_pipeline: Pipeline, manifest: Manifest) -> ViewColumns:
    """The columns as a run calls them that continues from ``manifest``, or as ``manifest`` does if none can."""
    if plan_definition_change(output_pipeline, manifest).action is Action.REPLAY:
        return ViewColumns.from_json(manifest.schema)
    return columns_after(output_pipeline, manifest)


# --- ages -------------------------------------------------------------------------------------------------------------


def _age_findings(pipeline: Pipeline, catalog: Catalog, clock: Callable[[], datetime]) -> Iterator[LimitFinding]:
    assert pipeline.limits is not None
    now = model_time.to_instant(clock())
    head = catalog.head().refs.get(MAIN)
    manifest = None if head is None else catalog.manifest(head)
    if (limit := pipeline.limits.watermark_age) is not None:
        yield age_finding("watermark_age", limit, _measured_watermark(manifest), now)
    if (limit := pipeline.limits.newest_file) is not None:
        yield age_finding("newest_file", limit, _newest_file(pipeline, catalog, manifest), now)


def _measured_watermark(manifest: Manifest | None) -> AgeMeasurement:
    if manifest is None:
        return AgeMeasurement(model_time.MIN_INSTANT, "of any input")
    progress = StoredProgress.from_manifest(manifest)
    holder, watermark_text = progress.held_back_by, model_time.render(progress.watermark)
    if holder is None:
        return AgeMeasurement(progress.watermark, f"which is at {watermark_text}")
    # without its split, whose name comes from records: what is found goes to logs, alerts and pages for all
    return AgeMeasurement(progress.watermark, f"which is at {watermark_text}, held back by input {holder.input}")


def _newest_file(pipeline: Pipeline, catalog: Catalog, manifest: Manifest | None) -> AgeMeasurement:
    """When the newest file landed, of the input where that is longest ago."""
    marks = {} if manifest is None else StoredProgress.from_manifest(manifest).marks
    landed_times = Landing(pipeline, catalog.store).newest_landed({name: mark.path for name, mark in marks.items()})
    read = None if None not in landed_times.values() else _newest_read(catalog, manifest)
    times = {name: time if time is not None else read for name, time in landed_times.items()}
    name = min(times, key=lambda input_name: times[input_name] or model_time.MIN_INSTANT)
    time = times[name]
    if time is None:
        return AgeMeasurement(model_time.MIN_INSTANT, f"of input {name}")
    return AgeMeasurement(time, f"of input {name}, landed at {model_time.render(time)}")


def _newest_read(catalog: Catalog, manifest: Manifest | None) -> model_time.Instant | None:
    """When an epoch last read a file, or longer ago than that; None if none has."""
    if manifest is None:
        return None
    oldest = manifest
    for oldest in islice(catalog.ancestry(manifest.snapshot_id), _EPOCHS_LOOKED_AT):
        if oldest.counts.get("input_files", 0):
            break
    return StoredProgress.from_manifest(oldest).processing_time
