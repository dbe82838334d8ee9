"""What audits leave beside the snapshots: what they found, and what they measured of each version.

This module needs neither Great Expectations nor Spark, since publish imports it. What is measured and found are values.

A version is a range of epochs that became visible together, or is to. A few numbers are measured of it and kept with
its audit (``VersionMeasure``). Earlier versions are known by these numbers alone, so no data is read again.

History (``VersionHistory``) is a small object beside each audit: a line, not a calendar. The object named after a
snapshot has the figures of the versions that lead to it, the last of which it ends. A version that begins with snapshot
A goes by the object of A. If A lies within a version (after a recovery), or no audit measured it (a patch, a release),
there is none. Then the object of the newest snapshot before A that has one counts. So a branch goes by the history of
where it was forked, a rollback forgets what it took back, and no clock is read.

A branch that begins with nothing goes by what readers see when it is first audited. The result of an audit names the
snapshot whose object it went by, and another audit of the same range goes by the same.

An audit (``AuditOutcome``) belongs to a range of snapshots (``from_snapshot``, ``to_snapshot``]; None is the beginning.
It keeps what each expectation found (``Finding``), and each check against history (``UsualFinding``), which the result
of the run has, too.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from itertools import islice
from typing import Any, Final

import msgspec

from headrace.audit.limits import LimitFinding
from headrace.audit.range import ShownRow, describe_released
from headrace.errors import FixConfigError, FixDataError, RestoreError
from headrace.model.expressions.data_types import Scalar
from headrace.pipeline.quality import Expectation, ExpectationArgument, ExpectationView, Severity, UsualCheck
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.codec import JsonRecord, seal_fields, unseal_fields
from headrace_snapshots.names import ObjectKind, audit_folder, audited_range, history_path, object_folder
from headrace_snapshots.store import ObjectNotFoundError, ObjectStore

MOST_FREQUENT: Final = 50
"""The number of values of a text column that are told apart; all others are the rest."""

QUANTILES: Final = 20
"""Numbers are known by their quantiles at 1/20, 2/20, ... 19/20, by nearest rank."""


class ColumnMeasure(JsonRecord, frozen=True, omit_defaults=True):
    """One column: how many values are ``missing`` (NULL, or a float that is not finite), and how the others are
    distributed. ``frequent`` are the most frequent texts with how often they come; ``quantiles`` are of numbers.
    """

    missing: int
    frequent: tuple[tuple[str, int], ...] | None = None
    quantiles: tuple[float, ...] | None = None


class ViewMeasure(JsonRecord, frozen=True):
    """The rows of one view, and the columns of which something is declared."""

    rows: int
    columns: Mapping[str, ColumnMeasure]

    def present_count(self, column: str) -> int:
        """How many values of ``column`` are not missing."""
        return self.rows - self.columns[column].missing


class VersionMeasure(JsonRecord, frozen=True, omit_defaults=True):
    """A version, by the ``snapshot`` that ends it. ``records`` were read; meanwhile the watermark went on by ``passed``
    microseconds, None if it stood, or began or ended with the version.
    """

    snapshot: str
    records: int
    passed: int | None = None
    views: Mapping[ExpectationView, ViewMeasure] = {}

    def measured_column(self, view: ExpectationView, column: str) -> tuple[ViewMeasure, ColumnMeasure] | None:
        """What was measured of a column, if anything was."""
        rows = self.views.get(view)
        measure = None if rows is None else rows.columns.get(column)
        return None if rows is None or measure is None else (rows, measure)

    @property
    def rate(self) -> Fraction | None:
        """Records for each hour of event time; None where no time passed."""
        return None if not self.passed else Fraction(self.records * _HOUR, self.passed)


_HOUR: Final = 3_600_000_000


def quantile_ranks(values: int) -> list[int]:
    """The places, from 1 on, of the quantiles among so many sorted ``values``: nearest rank, none twice."""
    return sorted({_quantile_rank(number, values) for number in range(1, QUANTILES)}) if values else []


def quantiles_at_ranks(values: int, at_ranks: Mapping[int, float]) -> tuple[float, ...]:
    """The quantiles of so many ``values``, those at ``quantile_ranks`` being ``at_ranks``."""
    return tuple(at_ranks[_quantile_rank(number, values)] for number in range(1, QUANTILES)) if values else ()


def _quantile_rank(number: int, values: int) -> int:
    return -(-number * values // QUANTILES)


FORMAT: Final = 1

_LOOKED_BACK: Final = 200
"""Snapshots before the beginning of a version among which one is looked for that has an object."""


class HistoryDamagedError(RestoreError, code="restore.history_damaged"):
    """The figures of earlier versions are not what was written."""


class VersionHistory(msgspec.Struct, frozen=True):
    """The versions up to snapshot ``against``, oldest first; none if that is None."""

    against: str | None = None
    versions: tuple[VersionMeasure, ...] = ()


def history_before(catalog: Catalog, snapshot: str | None, warn: Callable[[str], None]) -> VersionHistory:
    """The versions that lead to ``snapshot`` (None: to nothing). Damage is told to ``warn``, and passed over."""
    if snapshot is None:
        return VersionHistory()
    if (history := _try_read_history(catalog, snapshot, warn)) is not None:
        return history
    known_snapshots = {*_snapshots_with_history(catalog)} - {snapshot}
    if not known_snapshots:
        return VersionHistory()
    for link in islice(catalog.lineage(snapshot), _LOOKED_BACK):
        if (
            link.snapshot_id in known_snapshots
            and (history := _try_read_history(catalog, link.snapshot_id, warn)) is not None
        ):
            return history
    return VersionHistory()


def _try_read_history(catalog: Catalog, snapshot: str, warn: Callable[[str], None]) -> VersionHistory | None:
    try:
        versions = read_history(catalog.store, catalog.pipeline, snapshot, catalog.called_at(snapshot))
    except HistoryDamagedError as error:
        warn(str(error))
        return None
    return None if versions is None else VersionHistory(snapshot, versions)


def _snapshots_with_history(catalog: Catalog) -> list[str]:
    """The snapshots that have an object of the output whose catalog it is."""
    paths = (info.path for info in catalog.store.list(object_folder(catalog.pipeline, ObjectKind.AUDITS)))
    ends = (
        (path, audit_range.end) for path in paths if (audit_range := audited_range(catalog.pipeline, path)) is not None
    )
    return [end for path, end in ends if path == history_path(catalog.pipeline, end, catalog.called_at(end))]


def read_history(
    store: ObjectStore, pipeline: str, snapshot: str, output: str = ""
) -> tuple[VersionMeasure, ...] | None:
    """An ``output``'s versions up to ``snapshot``, oldest first; None: none are kept. Raises HistoryDamagedError."""
    path = history_path(pipeline, snapshot, output)
    try:
        document = unseal_fields(json.loads(store.read(path)))
        if document["format"] != FORMAT or document["snapshot"] != snapshot:
            raise ValueError(f"it is of format {document['format']} and snapshot {document['snapshot']}")
        return tuple(map(VersionMeasure.from_json, document["versions"]))
    except ObjectNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise HistoryDamagedError(
            f"{path} is not what was written ({error!r}). The figures of the versions that it names are lost, so "
            "checks against history use only older versions. To have these figures again, restore it from a backup"
        ) from error


def write_history(
    store: ObjectStore, pipeline: str, snapshot: str, versions: Sequence[VersionMeasure], output: str = ""
) -> None:
    """Keep the ``versions`` of an ``output`` that lead to ``snapshot``, oldest first (one put)."""
    document = {"format": FORMAT, "snapshot": snapshot, "versions": [version.to_json() for version in versions]}
    store.write(history_path(pipeline, snapshot, output), seal_fields(document))


_VERDICTS: Final = {None: "passed", Severity.WARN: "warning", Severity.FAIL: "FAILED"}


class UsualFinding(JsonRecord, frozen=True, omit_defaults=True):
    """What was found beside one check. ``severity`` is that of the check if the version is not as usual, else None.

    ``observed`` is what was measured (records for each hour of event time; a share from 0 to 1; for a distribution, its
    distance), ``usual`` the median of ``versions`` earlier ones; None where there is none. ``said`` is for people, and
    has no value of a row. ``failing``: the first rows to blame, by key, window and the column. ``released``: the log
    entries that released what is left out, since with it the version was not as usual.
    """

    check: UsualCheck
    severity: Severity | None
    observed: float | None
    usual: float | None
    versions: int
    said: str
    is_judged: bool = True
    failing: tuple[ShownRow, ...] = ()
    released: tuple[int, ...] = ()

    @property
    def success(self) -> bool:
        """Whether the version is as usual, or nobody can tell yet."""
        return self.severity is None

    def describe(self) -> str:
        """For people: what was found, on one line."""
        return f"{self.said}{describe_released('what', self.released)}"

    def verdict_lines(self) -> Iterator[str]:
        """For people: whether the version is as usual, and the first rows that are to blame, a line each."""
        yield self.verdict_line()
        yield from self.row_lines()

    def verdict_line(self) -> str:
        """For people: whether the version is as usual, on one line."""
        verdict = _VERDICTS[self.severity] if self.is_judged else "not judged"
        return f"{verdict}: {self.describe()}"

    def row_lines(self) -> Iterator[str]:
        """For people: the first rows that are to blame, a line each."""
        for row in self.failing:
            yield "    " + ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in row.items())


class UsualOutcome(JsonRecord, frozen=True):
    """A version against history: its ``measure``, and what was found beside each check, as they are declared.

    ``against``: up to which snapshot history was known (None: none); another audit of the range goes by it, too.
    """

    against: str | None
    measure: VersionMeasure
    findings: tuple[UsualFinding, ...]

    @property
    def failing(self) -> tuple[UsualFinding, ...]:
        """The findings that keep the version from being published."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.FAIL)

    @property
    def without_values(self) -> tuple[UsualFinding, ...]:
        """The findings without rows, for those who may not see values."""
        return tuple(finding.replace(failing=()) for finding in self.findings)


_ADVICE = "run the pipeline again, which audits the range again"


@dataclass(frozen=True)
class Finding:
    """What one expectation found.

    ``observed`` is the aggregate that the expectation looked at (a mean, a row count), None when it looks at values;
    ``unexpected_count`` says how many values (of ``element_count``, where that is counted) are not as expected, None
    when it looks at an aggregate. ``failing``: the first rows that are not, by key, window and the columns looked at.
    ``released``: the log entries whose released rows were left out, since with them the expectation failed.
    """

    name: str
    arguments: Mapping[str, ExpectationArgument]
    view: ExpectationView
    success: bool
    observed: Scalar = None
    unexpected_count: int | None = None
    element_count: int | None = None
    failing: tuple[ShownRow, ...] = ()
    released: tuple[int, ...] = ()

    @property
    def expectation(self) -> Expectation:
        """What was expected."""
        return Expectation(self.name, self.arguments, self.view)

    @property
    def has_failing_rows(self) -> bool:
        """Whether it failed on rows, which can be shown."""
        return not self.success and bool(self.unexpected_count)

    def describe(self) -> str:
        """For people: what was expected and what was found, on one line."""
        if self.unexpected_count is not None:
            total = "" if self.element_count is None else f" of {self.element_count}"
            outcome = f"{self.unexpected_count}{total} values are unexpected"
        else:
            outcome = f"observed {self.observed!r}"
        return f"{self.expectation.describe()}: {outcome}{describe_released('the rows that', self.released)}"

    def verdict_lines(self) -> Iterator[str]:
        """For people: whether it holds, and the first rows that are to blame, a line each."""
        yield f"{'passed' if self.success else 'FAILED'}: {self.describe()}"
        for row in self.failing:
            yield "    " + ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in row.items())
        if (more := (self.unexpected_count or 0) - len(self.failing)) > 0 and self.failing:
            yield f"    and {more:,} more"


@dataclass(frozen=True)
class AuditOutcome:
    """The audit of one range of an ``output`` ("": the one without a name). ``findings`` are in the order in which it
    declares its expectations.

    ``rows`` counts the rows of each view that was audited; a view without expectations is not read. ``limits`` is what
    was found beside the limits, when they were last looked at. ``usual`` is what was found beside earlier versions,
    None if nothing was looked for.
    """

    pipeline: str
    from_snapshot: str | None
    to_snapshot: str
    success: bool
    findings: tuple[Finding, ...]
    finished_at: str
    rows: Mapping[str, int] = field(default_factory=dict)
    limits: tuple[LimitFinding, ...] = ()
    usual: UsualOutcome | None = None
    output: str = ""

    @property
    def path(self) -> str:
        """Where the audit is kept: the folder of ``result.json`` and ``docs/``, relative to the root."""
        return audit_folder(self.pipeline, self.from_snapshot, self.to_snapshot, self.output)

    @property
    def subject(self) -> str:
        """What people call what was audited: ``shop``, or ``shop.hourly``."""
        return f"{self.pipeline}.{self.output}" if self.output else self.pipeline

    @property
    def failed(self) -> tuple[Finding, ...]:
        """The findings that keep the range from being published."""
        return tuple(finding for finding in self.findings if not finding.success)

    @property
    def exceeded(self) -> tuple[LimitFinding, ...]:
        """The limits that keep the range from being published."""
        return failing_limits(self.limits)

    @property
    def unusual(self) -> tuple[UsualFinding, ...]:
        """What is not as was usual, and keeps the range from being published."""
        return () if self.usual is None else self.usual.failing

    def report_lines(self) -> Iterator[str]:
        """For people: what was looked at, what each expectation found, and what was found beside history."""
        rows = ", ".join(f"{count:,} rows of {view}" for view, count in self.rows.items())
        nothing = "nothing is expected" if self.usual is None else "of no row"
        output_text = f" of output {self.output}" if self.output else ""
        yield f"audit of ({self.from_snapshot or 'the beginning'}, {self.to_snapshot}]{output_text}: {rows or nothing}"
        for finding in self.findings:
            yield from finding.verdict_lines()
        for usual_finding in () if self.usual is None else self.usual.findings:
            yield from usual_finding.verdict_lines()

    def covers(self, expectations: Iterable[Expectation], usual: Iterable[UsualCheck] = ()) -> bool:
        """Whether exactly these expectations and checks were audited: not after a person has changed them."""
        findings = () if self.usual is None else self.usual.findings
        return [finding.expectation for finding in self.findings] == [
            Expectation(expectation.name, dict(expectation.arguments), expectation.view) for expectation in expectations
        ] and [finding.check for finding in findings] == [*usual]


class AuditFormatError(FixConfigError, code="config.audit_format"):
    """A stored audit of a format that this version cannot read."""


class AuditDamagedError(RestoreError, code="restore.audit_damaged"):
    """A stored audit that is not what was written."""


def read_audit(
    store: ObjectStore, pipeline: str, from_snapshot: str | None, to_snapshot: str, output: str = ""
) -> AuditOutcome | None:
    """The stored audit of exactly that range of an ``output``, or None. Raises AuditFormatError, AuditDamagedError."""
    path = f"{audit_folder(pipeline, from_snapshot, to_snapshot, output)}/result.json"
    try:
        data = store.read(path)
    except ObjectNotFoundError:
        return None
    outcome = _from_json(data, pipeline, path)
    if (outcome.from_snapshot, outcome.to_snapshot, outcome.output) != (from_snapshot, to_snapshot, output):
        raise AuditDamagedError(f"{path} is the audit of another range: {_ADVICE}")
    return outcome


def write_audit(store: ObjectStore, outcome: AuditOutcome) -> None:
    """Keep ``outcome``, by one put: from then on publish may trust it, so its data docs must be there already."""
    store.write(f"{outcome.path}/result.json", _to_json(outcome))


def with_limits(store: ObjectStore, outcome: AuditOutcome, limits: tuple[LimitFinding, ...]) -> AuditOutcome:
    """``outcome`` with what was found beside the limits now, kept if that is not what is kept."""
    if outcome.limits == limits:
        return outcome
    with_new_limits = replace(outcome, limits=limits, success=is_publishable(outcome.findings, limits, outcome.usual))
    write_audit(store, with_new_limits)
    return with_new_limits


def is_publishable(findings: Iterable[Finding], limits: Iterable[LimitFinding], usual: UsualOutcome | None) -> bool:
    """Whether nothing that was found keeps the range from being published."""
    is_usual = usual is None or not usual.failing
    return all(finding.success for finding in findings) and not failing_limits(limits) and is_usual


def failing_limits(limits: Iterable[LimitFinding]) -> tuple[LimitFinding, ...]:
    """The findings of ``limits`` whose failing bound is exceeded."""
    return tuple(finding for finding in limits if finding.severity is Severity.FAIL)


class AuditFailedError(FixDataError, code="data.audit_failed"):
    """The output does not meet the pipeline's expectations: it stays in quarantine on its branch."""


class LimitExceededError(AuditFailedError, code="data.limit_exceeded"):
    """Every expectation holds, and a limit of the pipeline does not: the output stays in quarantine on its branch."""


class UnusualDataError(AuditFailedError, code="data.unusual"):
    """Every expectation holds, and the output is not as was usual: it stays in quarantine on its branch."""


def audit_error(*outcomes: AuditOutcome, ways_out: str | None = None) -> AuditFailedError:
    """The error of audits that failed, of one output or of several: as grave as the gravest. ``ways_out``: what people
    can do where they have no command line, in a sentence.
    """
    parts = [failure_message(outcome) for outcome in outcomes]
    if ways_out is not None:
        parts = [*map(_failure_text, outcomes), ways_out]
    message = "\n".join(parts)
    if any(outcome.failed for outcome in outcomes):
        return AuditFailedError(message)
    return (UnusualDataError if any(outcome.unusual for outcome in outcomes) else LimitExceededError)(message)


def failure_message(outcome: AuditOutcome) -> str:
    """For people: each expectation, check and limit that failed, and the ways out. No value of a row."""
    docs = f" Data docs: {outcome.path}/docs" if outcome.failed else ""
    return (
        f"{_failure_text(outcome)}\nLand a correction and run again; or roll back; or let readers see these rows: "
        f"`headrace release {outcome.subject} {outcome.to_snapshot} --message WHY`.{docs}"
    )


def _failure_text(outcome: AuditOutcome) -> str:
    descriptions = [finding.describe() for finding in outcome.failed]
    descriptions += [finding.describe() for finding in outcome.unusual]
    descriptions += [limit.describe() for limit in outcome.exceeded]
    failures = "\n".join(f"  {line}" for line in descriptions)
    what = []
    if outcome.failed:
        what.append(f"{len(outcome.failed)} of {len(outcome.findings)} expectations failed")
    if outcome.unusual and outcome.usual is not None:
        what.append(f"{len(outcome.unusual)} of {len(outcome.usual.findings)} figures are not as usual")
    if outcome.exceeded:
        what.append(f"{len(outcome.exceeded)} of {len(outcome.limits)} limits are exceeded")
    return (
        f"pipeline {outcome.subject}: {' and '.join(what)} on "
        f"({outcome.from_snapshot or 'the beginning'}, {outcome.to_snapshot}], which stays unpublished:\n{failures}"
    )


class StaleDataError(FixDataError, code="data.stale"):
    """Nothing new has come, for longer than a limit of the pipeline allows. Nothing is held back."""


def stale_error(pipeline: str, limits: Iterable[LimitFinding]) -> StaleDataError:
    """The error of a run that found nothing new, and ``limits`` that fail for that."""
    failures = "\n".join(f"  {finding.describe()}" for finding in limits)
    return StaleDataError(
        f"pipeline {pipeline}: nothing new has come, and readers see all that there is:\n{failures}\n"
        "Find out why the producer has stopped; or change limits= if that is as it should be"
    )


def _to_json(outcome: AuditOutcome) -> bytes:
    document = {
        "format": FORMAT,
        "from": outcome.from_snapshot,
        "to": outcome.to_snapshot,
        "success": outcome.success,
        "expectations": [asdict(finding) for finding in outcome.findings],
        "rows": dict(outcome.rows),
        "finished_at": outcome.finished_at,
    }
    if outcome.limits:
        document["limits"] = [limit.to_json() for limit in outcome.limits]
    if outcome.usual is not None:
        document["usual"] = outcome.usual.to_json()
    if outcome.output:
        document["output"] = outcome.output
    return seal_fields(document)


def _from_json(data: bytes, pipeline: str, path: str) -> AuditOutcome:
    try:
        document: dict[str, Any] = json.loads(data)
        if document["format"] != FORMAT:
            raise AuditFormatError(
                f"{path} has format {document['format']}; this version reads {FORMAT}: upgrade Headrace"
            )
        document = unseal_fields(document)
        return AuditOutcome(
            pipeline=pipeline,
            from_snapshot=document["from"],
            to_snapshot=document["to"],
            success=document["success"],
            findings=tuple(_decode_finding(entry) for entry in document["expectations"]),
            finished_at=document["finished_at"],
            rows={str(view): rows for view, rows in document["rows"].items()},
            limits=tuple(LimitFinding.from_json(limit) for limit in document.get("limits", ())),
            usual=UsualOutcome.from_json(document["usual"]) if "usual" in document else None,
            output=document.get("output", ""),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise AuditDamagedError(f"{path} is not what was written ({error!r}): {_ADVICE}") from error


def _decode_finding(entry: dict[str, Any]) -> Finding:
    row_fields = {"failing": tuple(entry.get("failing", ())), "released": tuple(entry.get("released", ()))}
    return Finding(**{**entry, **row_fields, "view": ExpectationView(entry["view"])})
