"""What was found beside each limit of a pipeline: pure values, kept with the audit and in the result of the run."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from headrace.model.time import (
    MAX_INSTANT,
    MIN_INSTANT,
    Duration,
    Instant,
    parse,
    parse_duration,
    render,
    render_duration,
)
from headrace.pipeline.quality.limits import WORDS, Limit, Limits, Severity, bound_text, is_more

_SECOND: Final = 1_000_000
_VERDICTS: Final = {None: "passed", Severity.WARN: "warning", Severity.FAIL: "FAILED"}


@dataclass(frozen=True)
class LimitFinding:
    """What was found beside one limit, the field ``name`` of Limits, whose ``bounds`` are as users write them.

    ``severity`` is that of the bound that is exceeded, None if none is. ``observed`` is a share from 0 to 1, or an age
    in seconds; None: there is nothing to measure. ``said`` is what was measured, for people; ``since`` the time that an
    age is measured from, in ISO 8601. ``released``: the log entries that released records which are left out.
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
        entries = " and ".join(map(str, self.released))
        apart = f" (without the records that log entry {entries} released)" if entries else ""
        bound = "" if self.severity is None else f"; the limit is {self.bounds[self.severity]}"
        age = "" if self.since is None else f"{render_duration(Duration(int(self.observed or 0) * _SECOND))}, "
        return f"{WORDS[self.name]}: {age}{self.said}{apart}{bound}"

    def line(self) -> str:
        """For people: the same, and whether it holds."""
        return f"{_VERDICTS[self.severity]}: {self.describe()}"

    def as_of(self, now: Instant) -> "LimitFinding":
        """The same at a later time ``now``, if nothing has come since; only an age changes."""
        if self.since is None:
            return self
        limit = Limit(**{str(severity): parse_duration(bound) for severity, bound in self.bounds.items()})
        return age_finding(self.name, limit, Measured(parse(self.since), self.said), now)

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


def share_findings(limits: Limits, counts: Mapping[str, int], released: Iterable[int] = ()) -> list[LimitFinding]:
    """What ``counts`` of epochs together say beside the limits of records."""
    records = counts.get("records", 0)
    return [
        _share_finding(name, limit, counts.get(_COUNTS[name], 0), records, tuple(released))
        for name, limit in limits.given()
        if name in _COUNTS
    ]


def _share_finding(name: str, limit: Limit[Any], count: int, records: int, released: tuple[int, ...]) -> LimitFinding:
    share = count / records if records else 0.0
    severity = next((level for level, bound in limit.bounds() if is_more(count, records, bound)), None)
    return LimitFinding(
        name=name,
        bounds=_bounds(limit),
        severity=severity,
        observed=share,
        said=f"{count:,} of {records:,} records ({share:.2%})",
        released=released,
    )


@dataclass(frozen=True)
class Measured:
    """What an age is measured from: a time (MIN_INSTANT: there is none yet; MAX_INSTANT: the input has ended), and for
    people ``what`` that is.
    """

    since: Instant
    what: str


def age_finding(name: str, limit: Limit[Any], measured: Measured, now: Instant) -> LimitFinding:
    """How old something is at ``now``. What was never is older than any bound."""
    is_never, is_over = measured.since <= MIN_INSTANT, measured.since >= MAX_INSTANT
    age = Duration(0 if is_over else max(0, now - measured.since))
    severity = next((level for level, bound in limit.bounds() if is_never or age > bound), None)
    return LimitFinding(
        name=name,
        bounds=_bounds(limit),
        severity=severity,
        observed=None if is_never else age / _SECOND,
        said=f"there is none yet {measured.what}" if is_never else measured.what,
        since=None if is_never or is_over else render(measured.since),
    )


def _bounds(limit: Limit[Any]) -> dict[Severity, str]:
    return {severity: bound_text(bound) for severity, bound in limit.bounds()}
