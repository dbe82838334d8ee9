"""The part of an audit that goes by history: what is measured of a range, and held beside earlier versions.

What is measured of the rows that an audit looks at: the same figures of a table in this process and of a frame of
Spark's.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, cast

from headrace.audit.range import FAILING_ROWS, Frame, Row, UnpublishedRange, shown_value
from headrace.audit.releases import ReleasedEpochs, counts_of, passed, released_again
from headrace.audit.usual.comparison import compare
from headrace.audit.usual.measures import (
    MOST_FREQUENT,
    ColumnMeasure,
    UsualFinding,
    UsualOutcome,
    VersionHistory,
    VersionMeasure,
    ViewMeasure,
    history_before,
    quantiles,
    ranks,
    write_history,
)
from headrace.distribute.column_figures import BlamedRows, ColumnReader
from headrace.pipeline.expectations import ExpectationView
from headrace.pipeline.quality import UsualCheck, UsualKind
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.output_view import goes_on
from headrace_snapshots.refs import PUBLISHED
from headrace_snapshots.store import ObjectStore

if TYPE_CHECKING:
    from headrace.distribute.spark.types import DataFrame


_ORDER = ("epoch", "sequence")


def column_reader(frame: Frame) -> ColumnReader:
    """Reads ``frame``."""
    from headrace.audit.arrow_frames import ArrowFrame

    if isinstance(frame, ArrowFrame):
        from headrace.audit.arrow_frames import ArrowColumns

        return ArrowColumns(frame.table)
    from headrace.distribute.spark.frames import SparkColumns

    return SparkColumns(cast("DataFrame", frame))


def measured(frame: Frame, rows: int, checks: Sequence[UsualCheck]) -> ViewMeasure:
    """The measures of the columns of ``checks`` in ``frame``, which has so many ``rows``."""
    reader = column_reader(frame)
    names = list(dict.fromkeys(check.column for check in checks if check.column is not None))
    compared = {check.column for check in checks if check.kind is UsualKind.DISTRIBUTION}
    missing = reader.missing(names)
    return ViewMeasure(
        rows, {name: _column(reader, name, rows, missing[name], is_compared=name in compared) for name in names}
    )


def _column(reader: ColumnReader, name: str, rows: int, missing: int, *, is_compared: bool) -> ColumnMeasure:
    if not is_compared:
        return ColumnMeasure(missing)
    if reader.is_text(name):
        return ColumnMeasure(missing, frequent=tuple(reader.frequent(name, MOST_FREQUENT)))
    present = rows - missing
    return ColumnMeasure(missing, quantiles=quantiles(present, reader.at_ranks(name, ranks(present))))


def rows_to_blame(frame: Frame, condition: BlamedRows, identity: Sequence[str]) -> tuple[Row, ...]:
    """The first rows of ``frame``, by ``identity``, that fulfil ``condition``, as they are shown."""
    from headrace.read.views.arrow_types import zoneless_rows  # with Arrow

    order = [*identity, *(name for name in _ORDER if name in frame.columns)]
    shown = [*dict.fromkeys((*identity, condition.column))]
    rows = zoneless_rows(column_reader(frame).rows(condition, order, FAILING_ROWS))
    return tuple({name: shown_value(row[name]) for name in shown} for row in rows)


@dataclass(frozen=True)
class ViewFindings:
    """What was measured of a view, and found beside each of its checks."""

    measure: ViewMeasure
    findings: Mapping[UsualCheck, UsualFinding]

    def where_far(self, again: Callable[[UsualCheck], UsualFinding]) -> "ViewFindings":
        """The same, with other findings where the version is not as usual."""
        changed = {
            check: finding if finding.severity is None else again(check) for check, finding in self.findings.items()
        }
        return replace(self, findings=changed)


@dataclass(frozen=True)
class UsualAudit:
    """A range to be held against ``history`` by ``checks``. ``version`` has what manifests say of it; rows are measured
    when an audit looks at them. ``find_released``: the released epochs that it has computed again.
    """

    checks: tuple[UsualCheck, ...]
    history: VersionHistory
    version: VersionMeasure
    find_released: Callable[[], Sequence[ReleasedEpochs]] = tuple

    @classmethod
    def of(
        cls,
        checks: Sequence[UsualCheck],
        catalog: Catalog,
        unpublished: UnpublishedRange,
        before: UsualOutcome | None,
        warn: Callable[[str], None],
    ) -> "UsualAudit | None":
        """The audit of ``unpublished``; None if nothing is to be checked. ``before`` is what an earlier audit of the
        same range found: this one goes by the same history.
        """
        if not checks:
            return None
        begin = unpublished.after or catalog.head().refs.get(PUBLISHED)
        history = history_before(catalog, begin if before is None else before.against, warn)
        records = counts_of(catalog, unpublished)["records"]
        version = VersionMeasure(unpublished.until, records, passed(catalog, _timed(catalog, unpublished)))
        return cls(tuple(checks), history, version, lambda: [*released_again(catalog, unpublished)])

    @property
    def views(self) -> set[ExpectationView]:
        """The views whose rows are looked at."""
        return {check.view for check in self.checks if check.view is not None}

    def look_at(self, view: ExpectationView, frame: Frame, rows: int, identity: Sequence[str]) -> ViewFindings:
        """Measure ``frame``, which has so many ``rows`` of ``view``, and name those to blame by ``identity``."""
        checks = [check for check in self.checks if check.view is view]
        measure = measured(frame, rows, checks)
        return ViewFindings(measure, {check: self._found(check, measure, frame, identity) for check in checks})

    def _found(self, check: UsualCheck, measure: ViewMeasure, frame: Frame, identity: Sequence[str]) -> UsualFinding:
        assert check.view is not None
        compared = compare(check, self.version.replace(views={check.view: measure}), self.history.versions)
        if compared.blamed is None:
            return compared.finding
        return compared.finding.replace(failing=rows_to_blame(frame, compared.blamed, identity))

    def outcome(self, views: Mapping[ExpectationView, ViewFindings]) -> UsualOutcome:
        """All that was found."""
        version = self.version.replace(views={view: view_findings.measure for view, view_findings in views.items()})
        findings = (
            self._volume(check) if check.view is None else views[check.view].findings[check] for check in self.checks
        )
        return UsualOutcome(self.history.against, version, tuple(findings))

    def _volume(self, check: UsualCheck) -> UsualFinding:
        finding = compare(check, self.version, self.history.versions).finding
        if finding.severity is None or not self._released:
            return finding
        entries = tuple(epochs.entry for epochs in self._released)
        records = self.version.records - sum(epochs.counts["records"] for epochs in self._released)
        time = (self.version.passed or 0) - sum(epochs.passed or 0 for epochs in self._released)
        left = self.version.replace(records=max(0, records), passed=time if records > 0 and time > 0 else None)
        return compare(check, left, self.history.versions).finding.replace(released=entries)

    @cached_property
    def _released(self) -> Sequence[ReleasedEpochs]:
        return self.find_released()

    def keep(self, store: ObjectStore, pipeline: str, outcome: UsualOutcome, output: str = "") -> None:
        """Keep the figures of the version of ``output`` for audits of what follows it: as many versions as checks look
        back on.
        """
        most = max(check.versions for check in self.checks)
        versions = [*self.history.versions, outcome.measure][-most:]
        write_history(store, pipeline, self.version.snapshot, versions, output)


def _timed(catalog: Catalog, unpublished: UnpublishedRange) -> UnpublishedRange:
    """The range in whose time its records came: from the beginning, where the output was computed again meanwhile."""
    if unpublished.after is None:
        return unpublished
    before, until = (catalog.manifest(at) for at in (unpublished.after, unpublished.until))
    return unpublished if goes_on(before, until, catalog.output) else UnpublishedRange(None, unpublished.until)
