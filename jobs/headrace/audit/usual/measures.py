"""What is measured of a version, what earlier versions were like, and what was found beside them.

What is measured of a version: a few numbers, kept with its audit. Pure values.

A version is a range of epochs that became visible together, or is to. Earlier versions are known by these numbers
alone, so that no data is read again.

What earlier versions were like, by their figures alone: a small object beside the audit of each.

History is a line, not a calendar. The object named after a snapshot has the figures of the versions that lead to it,
the last of which it ends. A version that begins with snapshot A goes by the object of A. If A lies within a version
(after a recovery), or no audit measured it (a patch, a release), there is none. Then the object of the newest snapshot
before A that has one counts. So a branch goes by the history of where it was forked, a rollback forgets what it took
back, and no clock is read.

A branch that begins with nothing goes by what readers see when it is first audited. The result of an audit names the
snapshot whose object it went by, and another audit of the same range goes by the same.

What was found beside each check against history: pure values, kept with the audit and in the result of the run.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import Final

from headrace.audit.range import Row
from headrace.errors import RestoreError
from headrace.pipeline.expectations import ExpectationView
from headrace.pipeline.quality import Severity, UsualCheck
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.codec import JsonRecord, sealed, unsealed
from headrace_snapshots.layout import ObjectKind, audited_range, folder, history_path
from headrace_snapshots.store import ObjectNotFoundError, ObjectStore

MOST_FREQUENT: Final = 50
"""As many values of a column of text are told apart; all others are the rest."""

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

    def present(self, column: str) -> int:
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

    def column(self, view: ExpectationView, column: str) -> tuple[ViewMeasure, ColumnMeasure] | None:
        """What was measured of a column, if anything was."""
        rows = self.views.get(view)
        measure = None if rows is None else rows.columns.get(column)
        return None if rows is None or measure is None else (rows, measure)

    @property
    def rate(self) -> Fraction | None:
        """Records for each hour of event time; None where no time passed."""
        return None if not self.passed else Fraction(self.records * _HOUR, self.passed)


_HOUR: Final = 3_600_000_000


def ranks(values: int) -> list[int]:
    """The places, from 1 on, of the quantiles among so many sorted ``values``: nearest rank, none twice."""
    return sorted({_rank(number, values) for number in range(1, QUANTILES)}) if values else []


def quantiles(values: int, at_ranks: Mapping[int, float]) -> tuple[float, ...]:
    """The quantiles of so many ``values``, those at ``ranks`` being ``at_ranks``."""
    return tuple(at_ranks[_rank(number, values)] for number in range(1, QUANTILES)) if values else ()


def _rank(number: int, values: int) -> int:
    return -(-number * values // QUANTILES)


FORMAT: Final = 1

_LOOKED_BACK: Final = 200
"""Snapshots before the beginning of a version among which one is looked for that has an object."""


class HistoryDamagedError(RestoreError, code="restore.history_damaged"):
    """The figures of earlier versions are not what was written."""


@dataclass(frozen=True)
class VersionHistory:
    """The versions up to snapshot ``against``, oldest first; none if that is None."""

    against: str | None = None
    versions: tuple[VersionMeasure, ...] = ()


def history_before(catalog: Catalog, snapshot: str | None, warn: Callable[[str], None]) -> VersionHistory:
    """The versions that lead to ``snapshot`` (None: to nothing). ``warn`` is told if what is kept of them is damaged,
    and passed over.
    """
    if snapshot is None:
        return VersionHistory()
    if (history := _readable(catalog, snapshot, warn)) is not None:
        return history
    known = {*_kept(catalog)} - {snapshot}
    if not known:
        return VersionHistory()
    for link in islice(catalog.lineage(snapshot), _LOOKED_BACK):
        if link.snapshot_id in known and (history := _readable(catalog, link.snapshot_id, warn)) is not None:
            return history
    return VersionHistory()


def _readable(catalog: Catalog, snapshot: str, warn: Callable[[str], None]) -> VersionHistory | None:
    try:
        versions = read_history(catalog.store, catalog.pipeline, snapshot, catalog.called_at(snapshot))
    except HistoryDamagedError as error:
        warn(str(error))
        return None
    return None if versions is None else VersionHistory(snapshot, versions)


def _kept(catalog: Catalog) -> list[str]:
    """The snapshots that have an object of the output whose catalog it is."""
    paths = (info.path for info in catalog.store.list(folder(catalog.pipeline, ObjectKind.AUDITS)))
    ends = ((path, about.end) for path in paths if (about := audited_range(catalog.pipeline, path)) is not None)
    return [end for path, end in ends if path == history_path(catalog.pipeline, end, catalog.called_at(end))]


def read_history(
    store: ObjectStore, pipeline: str, snapshot: str, output: str = ""
) -> tuple[VersionMeasure, ...] | None:
    """The versions of an ``output`` that lead to ``snapshot``, oldest first; None if none are kept. Raises
    HistoryDamagedError.
    """
    path = history_path(pipeline, snapshot, output)
    try:
        document = unsealed(json.loads(store.read(path)))
        if document["format"] != FORMAT or document["snapshot"] != snapshot:
            raise ValueError(f"it is of format {document['format']} and snapshot {document['snapshot']}")
        return tuple(map(VersionMeasure.from_json, document["versions"]))
    except ObjectNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise HistoryDamagedError(
            f"{path} is not what was written ({error!r}): the figures of the versions that it names are lost, and "
            "checks against history go by those before them; restore it from a backup to have them again"
        ) from error


def write_history(
    store: ObjectStore, pipeline: str, snapshot: str, versions: Sequence[VersionMeasure], output: str = ""
) -> None:
    """Keep the ``versions`` of an ``output`` that lead to ``snapshot``, oldest first (one put)."""
    document = {"format": FORMAT, "snapshot": snapshot, "versions": [version.to_json() for version in versions]}
    store.write(history_path(pipeline, snapshot, output), sealed(document))


_VERDICTS: Final = {None: "passed", Severity.WARN: "warning", Severity.FAIL: "FAILED"}


class UsualFinding(JsonRecord, frozen=True, omit_defaults=True):
    """What was found beside one check. ``severity`` is that of the check if the version is not as usual, else None.

    ``observed`` is what was measured (records for each hour of event time; a share from 0 to 1; of a distribution its
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
    failing: tuple[Row, ...] = ()
    released: tuple[int, ...] = ()

    @property
    def success(self) -> bool:
        """Whether the version is as usual, or nobody can tell yet."""
        return self.severity is None

    def describe(self) -> str:
        """For people: what was found, on one line."""
        entries = " and ".join(map(str, self.released))
        apart = f" (without what log entry {entries} released)" if entries else ""
        return f"{self.said}{apart}"

    def lines(self) -> Iterator[str]:
        """For people: whether the version is as usual, and the first rows that are to blame, a line each."""
        yield self.line()
        yield from self.row_lines()

    def line(self) -> str:
        """For people: whether the version is as usual, on one line."""
        verdict = _VERDICTS[self.severity] if self.is_judged else "not judged"
        return f"{verdict}: {self.describe()}"

    def row_lines(self) -> Iterator[str]:
        """For people: the first rows that are to blame, a line each."""
        for row in self.failing:
            yield "    " + ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in row.items())


class UsualOutcome(JsonRecord, frozen=True):
    """A version against history: its ``measure``, and what was found beside each check, as they are declared.

    ``against`` is the snapshot up to which history was known, None if none was: another audit of the range goes by the
    same history.
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
