"""A version beside earlier ones: pure functions of what was measured of them.

What is usual is the median, of each figure by itself, so that one odd version changes nothing. All is reckoned in
fractions: neither the order of values nor the executor changes a verdict.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import median

from headrace.audit.usual.measures import UsualFinding, VersionMeasure
from headrace.distribute.column_figures import Blamed, BlamedRows
from headrace.pipeline.quality import UsualCheck, UsualKind

_NONE = Fraction(0)
_LOWEST, _LOWER_QUARTILE, _UPPER_QUARTILE, _HIGHEST = 0, 4, 14, 18

Shares = Mapping[str, Fraction]
Figure = Fraction | Shares | tuple[Fraction, ...]
"""A rate or a share; shares of texts; quantiles of numbers."""


@dataclass(frozen=True)
class ComparedVersion:
    """A finding, and which rows are to blame, if that can be said."""

    finding: UsualFinding
    blamed: BlamedRows | None = None


@dataclass(frozen=True)
class _Distance:
    observed: Fraction
    usual: Fraction | None
    is_far: bool
    said: str
    blamed: BlamedRows | None = None


def compare(check: UsualCheck, version: VersionMeasure, history: Sequence[VersionMeasure]) -> ComparedVersion:
    """Hold ``version`` beside ``history``, which is oldest first."""
    figure = _figure(check, version)
    known = [one for past in history if (one := _figure(check, past)) is not None and type(one) is type(figure)]
    known = known[-check.versions :]
    if figure is None:
        return _unjudged(check, known, f"{_subject(check)}: {_lacking(check, version)}")
    if len(known) < check.min_versions:
        seen = "1 earlier version is" if len(known) == 1 else f"{len(known)} earlier versions are"
        why = f"{seen} known, and it takes {check.min_versions}"
        return _unjudged(check, known, f"{_measured(check, figure)}; {why}", figure)
    distance = _distance(check, figure, known)
    finding = UsualFinding(
        check=check,
        severity=check.severity if distance.is_far else None,
        observed=float(distance.observed),
        usual=None if distance.usual is None else float(distance.usual),
        versions=len(known),
        said=distance.said,
    )
    return ComparedVersion(finding, distance.blamed if distance.is_far else None)


def _unjudged(check: UsualCheck, known: Sequence[Figure], reason: str, figure: Figure | None = None) -> ComparedVersion:
    observed = float(figure) if isinstance(figure, Fraction) else None
    return ComparedVersion(UsualFinding(check, None, observed, None, len(known), reason, is_judged=False))


# --- figures ----------------------------------------------------------------------------------------------------------


def _figure(check: UsualCheck, version: VersionMeasure) -> Figure | None:
    """What the check looks at; None where the version has it not, or too few rows."""
    if check.kind is UsualKind.VOLUME:
        return version.rate
    assert check.view is not None
    assert check.column is not None
    if (measured := version.column(check.view, check.column)) is None:
        return None
    rows, column = measured
    present = rows.present(check.column)
    if check.kind is UsualKind.NULLS:
        return None if rows.rows < check.min_rows else Fraction(column.missing, rows.rows)
    if present < check.min_rows:
        return None
    if column.frequent is not None:
        return {text: Fraction(number, present) for text, number in column.frequent}
    return None if column.quantiles is None else tuple(map(Fraction, column.quantiles))


def _lacking(check: UsualCheck, version: VersionMeasure) -> str:
    """Why the version has no figure."""
    if check.kind is UsualKind.VOLUME:
        return f"{version.records:,} records, and no span of event time that they are of"
    assert check.view is not None
    assert check.column is not None
    measured = version.column(check.view, check.column)
    rows = 0 if measured is None else measured[0].rows
    values = rows if measured is None or check.kind is UsualKind.NULLS else measured[0].present(check.column)
    return f"{values:,} values, and it takes {check.min_rows:,}"


def _measured(check: UsualCheck, figure: Figure) -> str:
    return f"{_subject(check)}: {_shown(check, figure)}" if isinstance(figure, Fraction) else _subject(check)


def _shown(check: UsualCheck, figure: Fraction) -> str:
    return f"{float(figure):,.1f}" if check.kind is UsualKind.VOLUME else f"{float(figure):.2%}"


def _subject(check: UsualCheck) -> str:
    match check.kind:
        case UsualKind.VOLUME:
            return "records for each hour of event time"
        case UsualKind.NULLS:
            return f"share of NULL in {check.column} ({check.view})"
        case UsualKind.DISTRIBUTION:
            return f"distribution of {check.column} ({check.view})"


# --- distances --------------------------------------------------------------------------------------------------------


def _distance(check: UsualCheck, figure: Figure, known: Sequence[Figure]) -> _Distance:
    bound = Fraction(str(check.bound))
    versions = "one version" if len(known) == 1 else f"the median of {len(known)} versions"
    if isinstance(figure, Fraction):
        usual = median([one for one in known if isinstance(one, Fraction)])
        if check.kind is UsualKind.VOLUME:
            is_far, rule = figure * bound < usual or figure > usual * bound, f"a factor of {check.bound:g}"
        else:
            is_far, rule = figure - usual > bound / 100, f"{check.bound:g} points more"
        sentence = f"{_measured(check, figure)}, usually {_shown(check, usual)} ({versions})"
        blamed = None if check.column is None else BlamedRows(check.column, Blamed.MISSING)
    else:
        usual, rule = None, f"{check.bound:g}"
        figure, blamed = _moved(check, figure, known)
        is_far = figure > bound
        sentence = f"{_subject(check)}: {float(figure):.3f} from the usual ({versions})"
    return _Distance(figure, usual, is_far, f"{sentence}; the limit is {rule}" if is_far else sentence, blamed)


def _moved(check: UsualCheck, figure: Figure, known: Sequence[Figure]) -> tuple[Fraction, BlamedRows | None]:
    assert check.column is not None
    if isinstance(figure, tuple):
        return _quantiles_moved(check.column, figure, [one for one in known if isinstance(one, tuple)])
    assert isinstance(figure, Mapping)
    return _shares_moved(check.column, figure, [one for one in known if isinstance(one, Mapping)])


def _shares_moved(column: str, now: Shares, known: Sequence[Shares]) -> tuple[Fraction, BlamedRows | None]:
    """Total variation, and the text whose share has grown most."""
    texts = sorted({*now, *(text for shares in known for text in shares)})
    grown = {text: now.get(text, _NONE) - median([shares.get(text, _NONE) for shares in known]) for text in texts}
    rest = _rest(now) - median([_rest(shares) for shares in known])
    most = max(grown, key=lambda text: grown[text], default=None)
    blamed = None if most is None or grown[most] <= 0 else BlamedRows(column, Blamed.TEXT, most)
    return (sum(map(abs, grown.values()), _NONE) + abs(rest)) / 2, blamed


def _rest(shares: Shares) -> Fraction:
    """The share of all texts that are not told apart."""
    return 1 - sum(shares.values(), _NONE)


def _quantiles_moved(
    column: str, now: tuple[Fraction, ...], known: Sequence[tuple[Fraction, ...]]
) -> tuple[Fraction, BlamedRows]:
    """The mean distance of quantiles, by the usual distance of the quartiles; where that is nothing, the share of the
    quantiles that differ. To blame is what lies beyond the usual quantile at the end to which the values have moved.
    """
    usual = [median(values) for values in zip(*known, strict=True)]
    spread = usual[_UPPER_QUARTILE] - usual[_LOWER_QUARTILE]
    differences = [value - before for value, before in zip(now, usual, strict=True)]
    if spread:
        observed = sum(map(abs, differences), _NONE) / len(differences) / spread
    else:
        observed = Fraction(sum(1 for difference in differences if difference), len(differences))
    if sum(differences, _NONE) > 0:
        return observed, BlamedRows(column, Blamed.ABOVE, float(usual[_HIGHEST]))
    return observed, BlamedRows(column, Blamed.BELOW, float(usual[_LOWEST]))
