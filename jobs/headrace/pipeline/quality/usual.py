"""What a new version may be beside what was usual: its volume, its shares of NULL, the distributions of its columns."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypedDict

from headrace.errors import PipelineError
from headrace.model.arguments import Arguments
from headrace.model.expressions.data_types import NUMERIC, DataType
from headrace.model.expressions.value_types import ValueType
from headrace.model.suggestions import did_you_mean, keywords
from headrace.pipeline.expectations import ExpectationView
from headrace.pipeline.quality.limits import Severity

MOST_VERSIONS: Final = 100
"""The most versions that a check may look back on: every audit carries their figures on."""

_LARGEST: Final = 1_000_000


class UsualKind(StrEnum):
    """What of a version is held against what was usual."""

    VOLUME = "volume"
    NULLS = "nulls"
    DISTRIBUTION = "distribution"


@dataclass(frozen=True)
class UsualCheck:
    """One figure of a version, and how far (``bound``) it may be from the median of earlier versions; made by
    ``usual_volume``, ``usual_nulls`` and ``usual_distribution``.

    ``column`` and ``view`` say which rows are measured; a volume has neither. ``severity`` is what becomes of a version
    that is further away. The check looks back on as many as ``versions``, and judges if at least ``min_versions`` are
    known and the version has at least ``min_rows`` rows.
    """

    kind: UsualKind
    bound: float
    column: str | None
    view: ExpectationView | None
    severity: Severity
    versions: int
    min_versions: int
    min_rows: int

    def describe(self) -> str:
        """For people: what is held against history, on one line, as users write it."""
        match self.kind:
            case UsualKind.VOLUME:
                return f"usual_volume(within={self.bound:g})"
            case UsualKind.NULLS:
                return f"usual_nulls({self.column!r}, points={self.bound:g}) on {self.view}"
            case UsualKind.DISTRIBUTION:
                return f"usual_distribution({self.column!r}, distance={self.bound:g}) on {self.view}"

    def line(self) -> str:
        """For people: what is held against history, and what becomes of a version that is not as usual."""
        match self.kind:
            case UsualKind.VOLUME:
                far = f"the records for each hour of event time differ from the usual by a factor above {self.bound:g}"
            case UsualKind.NULLS:
                far = f"the share of NULL in {self.column} ({self.view}) is more than {self.bound:g} points above usual"
            case UsualKind.DISTRIBUTION:
                far = f"the distribution of {self.column} ({self.view}) is further than {self.bound:g} from the usual"
        rows = "" if self.kind is UsualKind.VOLUME else f" and {self.min_rows:,} rows"
        usual = f"the median of {self.versions} versions, from {self.min_versions} versions{rows} on"
        return f"{self.severity}s if {far}; usual is {usual}"

    def check_column(self, types: Mapping[str, ValueType]) -> None:
        """Raise PipelineError unless its column is one of ``types``, and has what is compared."""
        if self.column is None:
            return
        if self.column not in types:
            raise PipelineError(
                f"{self.describe()}: there is no key and no aggregate {self.column!r}; "
                f"{did_you_mean(self.column, types)}there are {', '.join(types)}"
            )
        kind = types[self.column]
        if self.kind is UsualKind.DISTRIBUTION and kind not in (DataType.STRING, DataType.BOOL, *NUMERIC):
            raise PipelineError(
                f"{self.describe()}: the column is {_said(kind)}, and distributions are compared of text, booleans and "
                "numbers"
            )
        if self.kind is UsualKind.DISTRIBUTION and kind not in NUMERIC and self.bound >= 1:
            raise PipelineError(
                f"{self.describe()}: two distributions of text are never more than 1 apart; write a distance below 1"
            )


@keywords
def usual_volume(
    *, within: float, severity: Severity | str = Severity.FAIL, versions: int = 20, min_versions: int = 5
) -> UsualCheck:
    """A version must have as many records for each hour of event time as was usual, by a factor ``within``: 2 allows
    half of that and twice that.

    Usual is the median of the last ``versions`` versions that readers have seen. With fewer than ``min_versions`` the
    check measures and passes. A version that is not as usual is not published (``severity`` "fail"), or it is a warning
    ("warn"). Raises PipelineError.

    >>> print(hr.usual_volume(within=2).describe())
    usual_volume(within=2)
    """
    given = Arguments("usual_volume")
    factor = given.number("within", within, above=1, most=_LARGEST)
    return UsualCheck(UsualKind.VOLUME, factor, None, None, **_judging(given, severity, versions, min_versions, 1))


@keywords
def usual_nulls(
    column: str,
    *,
    points: float,
    view: ExpectationView | str = ExpectationView.CURRENT,
    severity: Severity | str = Severity.FAIL,
    versions: int = 20,
    min_versions: int = 5,
    min_rows: int = 30,
) -> UsualCheck:
    """The share of rows of a version whose ``column`` is NULL may be so many percentage ``points`` above what was
    usual. A float that is not finite counts as NULL.

    Rows are those that the version changes in ``current``, or its panes (``view``); fewer than ``min_rows`` are not
    judged, and such a version is not usual either. The rest is as for ``usual_volume``. Raises PipelineError.

    >>> print(hr.usual_nulls("amount", points=5).describe())
    usual_nulls('amount', points=5) on current
    """
    given = Arguments("usual_nulls")
    most = given.number("points", points, most=100)
    return UsualCheck(
        UsualKind.NULLS,
        most,
        given.text("column", column, "amount"),
        given.choice("view", view, ExpectationView),
        **_judging(given, severity, versions, min_versions, min_rows),
    )


@keywords
def usual_distribution(
    column: str,
    *,
    distance: float,
    view: ExpectationView | str = ExpectationView.CURRENT,
    severity: Severity | str = Severity.FAIL,
    versions: int = 20,
    min_versions: int = 5,
    min_rows: int = 30,
) -> UsualCheck:
    """The values of ``column`` may be distributed as far as ``distance`` from what was usual.

    Between texts (or booleans) the distance is the share of rows that have another value: half the sum of what each
    value's share differs by, 0 to 1. Between numbers it is how far the values have moved, as a part of the usual
    distance of the quartiles: 1 where all are larger by as much as that. NULLs do not count. The rest is as for
    ``usual_nulls``. Raises PipelineError.

    >>> print(hr.usual_distribution("shop", distance=0.2).describe())
    usual_distribution('shop', distance=0.2) on current
    """
    given = Arguments("usual_distribution")
    most = given.number("distance", distance, above=0, most=_LARGEST)
    return UsualCheck(
        UsualKind.DISTRIBUTION,
        most,
        given.text("column", column, "shop"),
        given.choice("view", view, ExpectationView),
        **_judging(given, severity, versions, min_versions, min_rows),
    )


class _Judging(TypedDict):
    severity: Severity
    versions: int
    min_versions: int
    min_rows: int


def _judging(given: Arguments, severity: Severity | str, versions: int, min_versions: int, min_rows: int) -> _Judging:
    """When a check judges, and what becomes of a version that is not as usual."""
    looked_at = given.whole("versions", versions, least=1)
    if looked_at > MOST_VERSIONS:
        raise given.wrong("versions", versions, f"write at most {MOST_VERSIONS}")
    least = given.whole("min_versions", min_versions, least=1)
    if least > looked_at:
        raise given.wrong("min_versions", min_versions, f"it would never judge: it looks back on {looked_at} versions")
    return {
        "severity": given.choice("severity", severity, Severity),
        "versions": looked_at,
        "min_versions": least,
        "min_rows": given.whole("min_rows", min_rows, least=1),
    }


def _said(kind: ValueType) -> str:
    return str(kind) if isinstance(kind, DataType) else "a list"
