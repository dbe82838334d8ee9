"""The part of an audit that goes by history: what is measured of a range, and held beside earlier versions.

``compare_with_history`` is a pure function of what was measured. What is usual is the median, of each figure by itself,
so that one odd version changes nothing. All is reckoned in fractions: neither the order of values nor the executor
changes a verdict.

``measure_columns`` gives the same figures of a table in this process and of a frame of Spark's.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, cast

from headrace.audit import range as audit_range
from headrace.audit import store as audit_store
from headrace.distribute.column_figures import BlamedRows, ColumnReader
from headrace.pipeline.quality import ExpectationView, UsualCheck, UsualKind
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.output_view import goes_on
from headrace_snapshots.names import PUBLISHED
from headrace_snapshots.store import ObjectStore

if TYPE_CHECKING:
    from headrace.distribute.spark.application import DataFrame


_NO_SHARE = Fraction(0)
_LOWEST, _LOWER_QUARTILE, _UPPER_QUARTILE, _HIGHEST = 0, 4, 14, 18

Shares = Mapping[str, Fraction]
Figure = Fraction | Shares | tuple[Fraction, ...]
"""A rate or a share; shares of texts; quantiles of numbers."""


@dataclass(frozen=True)
class ComparedVersion:
    """A finding, and which rows are to blame, if that can be said."""

    finding: audit_store.UsualFinding
    blamed: BlamedRows | None = None


@dataclass(frozen=True)
class _Distance:
    observed: Fraction
    usual: Fraction | None
    is_far: bool
    said: str
    blamed: BlamedRows | None = None


def compare_with_history(
    check: UsualCheck, version: audit_store.VersionMeasure, history: Sequence[audit_store.VersionMeasure]
) -> ComparedVersion:
    """Hold ``version`` beside ``history``, which is oldest first."""
    figure = _observed_figure(check, version)
    known_figures = [
        one for past in history if (one := _observed_figure(check, past)) is not None and type(one) is type(figure)
    ]
    known_figures = known_figures[-check.versions :]
    if figure is None:
        return _unjudged_comparison(
            check, known_figures, f"{_subject_of_check(check)}: {_missing_figure_reason(check, version)}"
        )
    if len(known_figures) < check.min_versions:
        known_text = "1 earlier version is" if len(known_figures) == 1 else f"{len(known_figures)} earlier versions are"
        why = f"{known_text} known, and it takes {check.min_versions}"
        return _unjudged_comparison(check, known_figures, f"{_describe_figure(check, figure)}; {why}", figure)
    distance = _distance_from_usual(check, figure, known_figures)
    finding = audit_store.UsualFinding(
        check=check,
        severity=check.severity if distance.is_far else None,
        observed=float(distance.observed),
        usual=None if distance.usual is None else float(distance.usual),
        versions=len(known_figures),
        said=distance.said,
    )
    return ComparedVersion(finding, distance.blamed if distance.is_far else None)


def _unjudged_comparison(
    check: UsualCheck, known_figures: Sequence[Figure], reason: str, figure: Figure | None = None
) -> ComparedVersion:
    observed_value = float(figure) if isinstance(figure, Fraction) else None
    return ComparedVersion(
        audit_store.UsualFinding(check, None, observed_value, None, len(known_figures), reason, is_judged=False)
    )


# --- figures ----------------------------------------------------------------------------------------------------------


def _observed_figure(check: UsualCheck, version: audit_store.VersionMeasure) -> Figure | None:
    """What the check looks at; None where the version has it not, or too few rows."""
    if check.kind is UsualKind.VOLUME:
        return version.rate
    assert check.view is not None
    assert check.column is not None
    if (measure := version.measured_column(check.view, check.column)) is None:
        return None
    rows, column = measure
    present = rows.present_count(check.column)
    if check.kind is UsualKind.NULLS:
        return None if rows.rows < check.min_rows else Fraction(column.missing, rows.rows)
    if present < check.min_rows:
        return None
    if column.frequent is not None:
        return {text: Fraction(number, present) for text, number in column.frequent}
    return None if column.quantiles is None else tuple(map(Fraction, column.quantiles))


def _missing_figure_reason(check: UsualCheck, version: audit_store.VersionMeasure) -> str:
    """Why the version has no figure."""
    if check.kind is UsualKind.VOLUME:
        return f"{version.records:,} records, and no span of event time that they are of"
    assert check.view is not None
    assert check.column is not None
    measure = version.measured_column(check.view, check.column)
    rows = 0 if measure is None else measure[0].rows
    values = rows if measure is None or check.kind is UsualKind.NULLS else measure[0].present_count(check.column)
    return f"{values:,} values, and it takes {check.min_rows:,}"


def _describe_figure(check: UsualCheck, figure: Figure) -> str:
    return (
        f"{_subject_of_check(check)}: {_format_figure(check, figure)}"
        if isinstance(figure, Fraction)
        else _subject_of_check(check)
    )


def _format_figure(check: UsualCheck, figure: Fraction) -> str:
    return f"{float(figure):,.1f}" if check.kind is UsualKind.VOLUME else f"{float(figure):.2%}"


def _subject_of_check(check: UsualCheck) -> str:
    match check.kind:
        case UsualKind.VOLUME:
            return "records for each hour of event time"
        case UsualKind.NULLS:
            return f"share of NULL in {check.column} ({check.view})"
        case UsualKind.DISTRIBUTION:
            return f"distribution of {check.column} ({check.view})"


# --- distances --------------------------------------------------------------------------------------------------------


def _distance_from_usual(check: UsualCheck, figure: Figure, known_figures: Sequence[Figure]) -> _Distance:
    bound = Fraction(str(check.bound))
    versions = "one version" if len(known_figures) == 1 else f"the median of {len(known_figures)} versions"
    if isinstance(figure, Fraction):
        usual = median([one for one in known_figures if isinstance(one, Fraction)])
        if check.kind is UsualKind.VOLUME:
            is_far, rule = figure * bound < usual or figure > usual * bound, f"a factor of {check.bound:g}"
        else:
            is_far, rule = figure - usual > bound / 100, f"{check.bound:g} points more"
        sentence = f"{_describe_figure(check, figure)}, usually {_format_figure(check, usual)} ({versions})"
        blamed_rows = None if check.column is None else BlamedRows(check.column, "missing")
    else:
        usual, rule = None, f"{check.bound:g}"
        figure, blamed_rows = _distribution_shift(check, figure, known_figures)
        is_far = figure > bound
        sentence = f"{_subject_of_check(check)}: {float(figure):.3f} from the usual ({versions})"
    return _Distance(figure, usual, is_far, f"{sentence}; the limit is {rule}" if is_far else sentence, blamed_rows)


def _distribution_shift(
    check: UsualCheck, figure: Figure, known_figures: Sequence[Figure]
) -> tuple[Fraction, BlamedRows | None]:
    assert check.column is not None
    if isinstance(figure, tuple):
        return _quantiles_moved(check.column, figure, [one for one in known_figures if isinstance(one, tuple)])
    assert isinstance(figure, Mapping)
    return _shares_moved(check.column, figure, [one for one in known_figures if isinstance(one, Mapping)])


def _shares_moved(column: str, now: Shares, known_shares: Sequence[Shares]) -> tuple[Fraction, BlamedRows | None]:
    """Total variation, and the text whose share has grown most."""
    texts = sorted({*now, *(text for shares in known_shares for text in shares)})
    growth_by_text = {
        text: now.get(text, _NO_SHARE) - median([shares.get(text, _NO_SHARE) for shares in known_shares])
        for text in texts
    }
    rest = _unlisted_share(now) - median([_unlisted_share(shares) for shares in known_shares])
    most = max(growth_by_text, key=lambda text: growth_by_text[text], default=None)
    blamed_rows = None if most is None or growth_by_text[most] <= 0 else BlamedRows(column, "text", most)
    return (sum(map(abs, growth_by_text.values()), _NO_SHARE) + abs(rest)) / 2, blamed_rows


def _unlisted_share(shares: Shares) -> Fraction:
    """The share of all texts that are not told apart."""
    return 1 - sum(shares.values(), _NO_SHARE)


def _quantiles_moved(
    column: str, now: tuple[Fraction, ...], known_quantiles: Sequence[tuple[Fraction, ...]]
) -> tuple[Fraction, BlamedRows]:
    """The mean distance of quantiles, by the usual distance of the quartiles; where that is nothing, the share of the
    quantiles that differ. To blame is what lies beyond the usual quantile at the end to which the values have moved.
    """
    usual = [median(values) for values in zip(*known_quantiles, strict=True)]
    spread = usual[_UPPER_QUARTILE] - usual[_LOWER_QUARTILE]
    differences = [value - usual_value for value, usual_value in zip(now, usual, strict=True)]
    if spread:
        observed_value = sum(map(abs, differences), _NO_SHARE) / len(differences) / spread
    else:
        observed_value = Fraction(sum(1 for difference in differences if difference), len(differences))
    if sum(differences, _NO_SHARE) > 0:
        return observed_value, BlamedRows(column, "above", float(usual[_HIGHEST]))
    return observed_value, BlamedRows(column, "below", float(usual[_LOWEST]))


_ORDER = ("epoch", "sequence")


def column_reader(frame: audit_range.Frame) -> ColumnReader:
    """Reads ``frame``."""
    from headrace.audit.arrow_frames import ArrowFrame

    if isinstance(frame, ArrowFrame):
        from headrace.audit.arrow_frames import ArrowColumns

        return ArrowColumns(frame.table)
    from headrace.distribute.spark.frames import SparkColumns

    return SparkColumns(cast("DataFrame", frame))


def measure_columns(frame: audit_range.Frame, rows: int, checks: Sequence[UsualCheck]) -> audit_store.ViewMeasure:
    """The measures of the columns of ``checks`` in ``frame``, which has so many ``rows``."""
    reader = column_reader(frame)
    names = list(dict.fromkeys(check.column for check in checks if check.column is not None))
    distribution_columns = {check.column for check in checks if check.kind is UsualKind.DISTRIBUTION}
    missing = reader.missing_counts(names)
    return audit_store.ViewMeasure(
        rows,
        {
            name: _measure_column(reader, name, rows, missing[name], is_compared=name in distribution_columns)
            for name in names
        },
    )


def _measure_column(
    reader: ColumnReader, name: str, rows: int, missing: int, *, is_compared: bool
) -> audit_store.ColumnMeasure:
    if not is_compared:
        return audit_store.ColumnMeasure(missing)
    if reader.is_text(name):
        return audit_store.ColumnMeasure(missing, frequent=tuple(reader.most_frequent(name, audit_store.MOST_FREQUENT)))
    present = rows - missing
    return audit_store.ColumnMeasure(
        missing,
        quantiles=audit_store.quantiles_at_ranks(present, reader.at_ranks(name, audit_store.quantile_ranks(present))),
    )


def rows_to_blame(
    frame: audit_range.Frame, condition: BlamedRows, identity: Sequence[str]
) -> tuple[audit_range.ShownRow, ...]:
    """The first rows of ``frame``, by ``identity``, that fulfil ``condition``, as they are shown."""
    from headrace.read.views.arrow_types import zoneless_rows  # with Arrow

    order = [*identity, *(name for name in _ORDER if name in frame.columns)]
    shown_columns = [*dict.fromkeys((*identity, condition.column))]
    rows = zoneless_rows(column_reader(frame).first_rows(condition, order, audit_range.FAILING_ROWS))
    return tuple({name: audit_range.shown_value(row[name]) for name in shown_columns} for row in rows)


@dataclass(frozen=True)
class ViewFindings:
    """What was measured of a view, and found beside each of its checks."""

    measure: audit_store.ViewMeasure
    findings: Mapping[UsualCheck, audit_store.UsualFinding]

    def where_far(self, find_again: Callable[[UsualCheck], audit_store.UsualFinding]) -> "ViewFindings":
        """The same, with other findings where the version is not as usual."""
        new_findings = {
            check: finding if finding.severity is None else find_again(check)
            for check, finding in self.findings.items()
        }
        return replace(self, findings=new_findings)


@dataclass(frozen=True)
class UsualAudit:
    """A range to be held against ``history`` by ``checks``. ``version`` has what manifests say of it; rows are measured
    when an audit looks at them. ``find_released``: the released epochs that it has computed again.
    """

    checks: tuple[UsualCheck, ...]
    history: audit_store.VersionHistory
    version: audit_store.VersionMeasure
    find_released: Callable[[], Sequence[audit_range.ReleasedEpochs]] = tuple

    @classmethod
    def from_checks(
        cls,
        checks: Sequence[UsualCheck],
        catalog: Catalog,
        unpublished_range: audit_range.UnpublishedRange,
        earlier_outcome: audit_store.UsualOutcome | None,
        warn: Callable[[str], None],
    ) -> "UsualAudit | None":
        """The audit of ``unpublished_range``; None if nothing is to be checked. ``earlier_outcome`` is what an earlier
        audit of the same range found: this one goes by the same history.
        """
        if not checks:
            return None
        begin = unpublished_range.after or catalog.head().refs.get(PUBLISHED)
        history = audit_store.history_before(
            catalog, begin if earlier_outcome is None else earlier_outcome.against, warn
        )
        records = audit_range.counts_of(catalog, unpublished_range)["records"]
        version = audit_store.VersionMeasure(
            unpublished_range.until,
            records,
            audit_range.watermark_advance(catalog, _watermark_range(catalog, unpublished_range)),
        )
        return cls(tuple(checks), history, version, lambda: [*audit_range.released_again(catalog, unpublished_range)])

    @property
    def views(self) -> set[ExpectationView]:
        """The views whose rows are looked at."""
        return {check.view for check in self.checks if check.view is not None}

    def look_at(
        self, view: ExpectationView, frame: audit_range.Frame, rows: int, identity: Sequence[str]
    ) -> ViewFindings:
        """Measure ``frame``, which has so many ``rows`` of ``view``, and name those to blame by ``identity``."""
        checks = [check for check in self.checks if check.view is view]
        measure = measure_columns(frame, rows, checks)
        return ViewFindings(measure, {check: self._view_finding(check, measure, frame, identity) for check in checks})

    def _view_finding(
        self, check: UsualCheck, measure: audit_store.ViewMeasure, frame: audit_range.Frame, identity: Sequence[str]
    ) -> audit_store.UsualFinding:
        assert check.view is not None
        comparison = compare_with_history(
            check, self.version.replace(views={check.view: measure}), self.history.versions
        )
        if comparison.blamed is None:
            return comparison.finding
        return comparison.finding.replace(failing=rows_to_blame(frame, comparison.blamed, identity))

    def outcome(self, views: Mapping[ExpectationView, ViewFindings]) -> audit_store.UsualOutcome:
        """All that was found."""
        version = self.version.replace(views={view: view_findings.measure for view, view_findings in views.items()})
        findings = (
            self._volume_finding(check) if check.view is None else views[check.view].findings[check]
            for check in self.checks
        )
        return audit_store.UsualOutcome(self.history.against, version, tuple(findings))

    def _volume_finding(self, check: UsualCheck) -> audit_store.UsualFinding:
        finding = compare_with_history(check, self.version, self.history.versions).finding
        if finding.severity is None or not self._released_epochs:
            return finding
        entries = tuple(epochs.entry for epochs in self._released_epochs)
        records = self.version.records - sum(epochs.counts["records"] for epochs in self._released_epochs)
        time = (self.version.passed or 0) - sum(epochs.passed or 0 for epochs in self._released_epochs)
        left = self.version.replace(records=max(0, records), passed=time if records > 0 and time > 0 else None)
        return compare_with_history(check, left, self.history.versions).finding.replace(released=entries)

    @cached_property
    def _released_epochs(self) -> Sequence[audit_range.ReleasedEpochs]:
        return self.find_released()

    def keep_figures(
        self, store: ObjectStore, pipeline: str, outcome: audit_store.UsualOutcome, output: str = ""
    ) -> None:
        """Keep the figures of a version of ``output`` for later audits: as many versions as checks look back on."""
        most = max(check.versions for check in self.checks)
        versions = [*self.history.versions, outcome.measure][-most:]
        audit_store.write_history(store, pipeline, self.version.snapshot, versions, output)


def _watermark_range(catalog: Catalog, epochs: audit_range.UnpublishedRange) -> audit_range.UnpublishedRange:
    """The range in whose time its records came: from the beginning, where the output was computed again meanwhile."""
    if epochs.after is None:
        return epochs
    manifest_before, manifest_until = (catalog.manifest(snapshot_id) for snapshot_id in (epochs.after, epochs.until))
    return (
        epochs
        if goes_on(manifest_before, manifest_until, catalog.output)
        else audit_range.UnpublishedRange(None, epochs.until)
    )
