"""What was found beside each check against history: pure values, kept with the audit and in the result of the run."""

import json
from collections.abc import Iterator
from typing import Final

from headrace.audit.shown_rows import Row
from headrace.audit.usual.measures import VersionMeasure
from headrace.pipeline.quality.limits import Severity
from headrace.pipeline.quality.usual import UsualCheck
from headrace_snapshots.format.record import JsonRecord

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
