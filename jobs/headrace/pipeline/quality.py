"""What must hold of an output before readers see it: expectations, limits of what a run may show, and what was usual.

Expectations are neutral data, run by Great Expectations in the audit, and checked here against what that library knows
(``expectations.json``), which is not imported. Limits are of shares of records and ages of data: beyond one a run
warns, or its results are held back. What was usual is a version's volume, its shares of NULL, the distributions of its
columns.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from functools import cache
from typing import Any, Final, Generic, TypeVar

from headrace.errors import PipelineError
from headrace.model.arguments import Arguments, Length, Suggesting, check_keywords, did_you_mean
from headrace.model.expressions.data_types import NUMERIC, DataType, Scalar, ValueType
from headrace.model.time import Duration, render_duration

COLUMN_ARGUMENTS = ("column", "column_A", "column_B", "column_list")
"""The arguments that name columns of the view."""


class ExpectationView(StrEnum):
    """Which rows an expectation is about: the panes of the audited epochs, or the ``current`` rows that they change."""

    PANES = "panes"
    CURRENT = "current"


ExpectationArgument = Scalar | list[Any] | dict[str, Any]


@check_keywords
@dataclass(frozen=True)
class Expectation:
    """``name`` is a Great Expectations expectation in snake case (``expect_column_values_to_be_between``). ``view``
    says which rows it is about: "current" or "panes".

    Every audit keeps the ``arguments`` in the form of JSON, which tells whether it was an audit of this expectation. A
    time is written as text. Raises PipelineError if there is no such expectation, or the arguments do not fit it.

    >>> print(hr.expect("column_values_to_not_be_null", column="n").describe())
    expect_column_values_to_not_be_null(column='n') on current
    """

    name: str
    arguments: Mapping[str, ExpectationArgument]
    view: ExpectationView = ExpectationView.CURRENT

    def __post_init__(self) -> None:
        try:
            json_arguments = json.loads(json.dumps(dict(self.arguments), allow_nan=False))
        except (TypeError, ValueError) as error:
            raise PipelineError(
                f"the arguments of {self.describe()} must be text, numbers, booleans, None, or lists of these (a time "
                f"as text): {error}"
            ) from error
        object.__setattr__(self, "arguments", json_arguments)
        object.__setattr__(self, "view", Arguments("expect").choice("view", self.view, ExpectationView))
        _check_arguments(Arguments(f"expect {self.name}"), _known_arguments(self.name), json_arguments)

    def describe(self) -> str:
        """For people: name, arguments and view on one line."""
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in self.arguments.items())}) on {self.view}"

    @property
    def columns(self) -> list[Any]:
        """The columns of the view that it names."""
        values = (self.arguments.get(argument) for argument in COLUMN_ARGUMENTS)
        names = (value if isinstance(value, list) else [value] for value in values)
        return [name for own in names for name in own if name is not None]

    def check_columns(self, columns: Sequence[str]) -> None:
        """Raise PipelineError if it names a column that is not among its view's ``columns``."""
        for name in self.columns:
            if name not in columns:
                raise PipelineError(f"{self.describe()}: the view has no column {name!r}; it has {', '.join(columns)}")


def expect(
    name: str, view: ExpectationView | str = ExpectationView.CURRENT, **arguments: ExpectationArgument
) -> Expectation:
    """``expect("column_values_to_be_between", column="flights", min_value=0)``; ``expect_`` may be left out.

    ``name``, ``view`` and ``arguments`` are those of ``Expectation``.

    >>> print(hr.expect("column_values_to_be_between", column="n", min_value=0).describe())
    expect_column_values_to_be_between(column='n', min_value=0) on current
    """
    text = Arguments("expect").text("name", name, "column_values_to_not_be_null")
    full = text if text.startswith("expect_") else f"expect_{text}"
    return Expectation(full, arguments, Arguments("expect").choice("view", view, ExpectationView))


@cache
def _expectation_table() -> Mapping[str, Mapping[str, str]]:
    from importlib.resources import files  # of a pipeline with expectations alone

    table: Mapping[str, Mapping[str, str]] = json.loads(
        (files("headrace.pipeline") / "expectations.json").read_text(encoding="utf-8")
    )
    return table


def _known_arguments(name: str) -> Mapping[str, str]:
    if name in _expectation_table():
        return _expectation_table()[name]
    hint = (
        did_you_mean(str(name), _expectation_table()).strip()
        or "see https://greatexpectations.io/expectations for the names"
    )
    raise PipelineError(f"Great Expectations has no {name}; {hint}")


def _check_arguments(
    call_arguments: Arguments, known_arguments: Mapping[str, str], arguments: Mapping[str, Any]
) -> None:
    kinds = {name.removesuffix("?"): kind for name, kind in known_arguments.items()}
    for name, value in arguments.items():
        if name not in kinds:
            hint = did_you_mean(name, [*kinds, "view"])
            raise call_arguments.refusal(name, value, f"there is no such argument; {hint}it takes {', '.join(kinds)}")
        if value is not None and not any(_fits_kind(kind, value) for kind in kinds[name].split(" | ")):
            raise call_arguments.refusal(name, value, f"write {' or '.join(_kind_names(kinds[name]))}")
    for name in known_arguments:
        if not name.endswith("?") and arguments.get(name) is None:
            raise PipelineError(
                f"{call_arguments.owner}: the argument {name} is missing; write "
                f"{' or '.join(_kind_names(known_arguments[name]))}"
            )
    is_bounded = call_arguments.owner.endswith("_between") and "min_value?" in known_arguments
    if is_bounded and arguments.get("min_value") is None and arguments.get("max_value") is None:
        raise PipelineError(f"{call_arguments.owner}: it has no bounds; give min_value, max_value or both")


_PYTHON_CLASSES: Mapping[str, type | tuple[type, ...]] = {
    "text": str,
    "number": (int, float),
    "whole number": int,
    "flag": bool,
    "list": list,
    "mapping": dict,
    "anything": object,
}


def _fits_kind(kind: str, value: object) -> bool:
    if kind not in _PYTHON_CLASSES:
        return kind == f"={value}"
    return isinstance(value, _PYTHON_CLASSES[kind]) and (not isinstance(value, bool) or kind in ("flag", "anything"))


def _kind_names(kinds: str) -> Iterator[str]:
    words = {"text": "text", "number": "a number", "whole number": "a whole number", "flag": "True or False"}
    words |= {"list": "a list", "mapping": "a mapping", "anything": "a value"}
    return (words.get(kind, repr(kind.removeprefix("="))) for kind in kinds.split(" | "))


_PERCENT: Final = re.compile(r"(\d+(?:\.\d+)?) ?%")
_HUNDRED: Final = Decimal(100)
_HOW_MANY: Final = 'write a share such as "1%", or a number of records'


class Severity(StrEnum):
    """What becomes of a run that exceeds a limit: it warns, or it fails, and what it computed is not published."""

    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Share:
    """So many percent of the records that were read."""

    percent: Decimal

    def __str__(self) -> str:
        return f"{self.percent}%"


Amount = Share | int
"""How many records may be so: a share of those that were read, or a number."""

Bound = str | int | timedelta
"""How users write a bound: a share or a length of time as text, a number of records, a timedelta."""

Most = TypeVar("Most", Amount, Duration)


@dataclass(frozen=True)
class Limit(Generic[Most]):
    """The most that is allowed: more than ``warn`` is a warning, more than ``fail`` a failure. None: there is no such
    bound.
    """

    warn: Most | None = None
    fail: Most | None = None

    def bounds(self) -> Iterator[tuple[Severity, Most]]:
        """What is bounded, the gravest first."""
        if self.fail is not None:
            yield Severity.FAIL, self.fail
        if self.warn is not None:
            yield Severity.WARN, self.warn

    def describe(self) -> str:
        """For people: ``1% warns, 5% fails``."""
        return ", ".join(f"more than {bound_text(bound)} {severity}s" for severity, bound in [*self.bounds()][::-1])


IDS_OF_ROWS: Final = "ids"
"""What is found of ids that rows share goes by this name, beside limits."""

WORDS: Final = {
    IDS_OF_ROWS: "ids of rows",
    "rejected": "dead letters",
    "late": "late drops",
    "watermark_age": "age of the watermark",
    "newest_file": "age of the newest file",
}
"""What each limit is about, for people."""


@check_keywords
def limit(*, warn: Bound | None = None, fail: Bound | None = None) -> Limit[Any]:
    """A limit that says itself what becomes of a run that exceeds it: ``hr.limit(warn="1%", fail="5%")``. Either may be
    left out. Raises PipelineError.

    >>> hr.Limits(rejected=hr.limit(warn="1%", fail="5%")).rejected.describe()
    'more than 1% warns, more than 5% fails'
    """
    arguments = Arguments("limit")
    if warn is None and fail is None:
        raise arguments.refusal("warn", warn, "give warn=, fail= or both")
    for name, bound in (("warn", warn), ("fail", fail)):
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, str | int | timedelta)):
            raise arguments.refusal(name, bound, f"{_HOW_MANY}, or a length of time")
    return Limit(warn, fail)


@check_keywords
@dataclass(frozen=True, init=False)
class Limits(Suggesting):
    """What a pipeline's runs may show. None: anything.

    ``rejected`` and ``late`` are how many dead letters and late drops there may be. They are a share of the records
    read ("1%") or a number; they count over all epochs that readers have not seen. More than that fails: the epochs are
    held back, as by an expectation that fails. ``watermark_age`` is how far the watermark may be behind the clock, and
    ``newest_file`` how long ago the newest file of each input may have landed. An older one is a warning, since holding
    results back would make what readers see older still. ``limit(warn=..., fail=...)`` says otherwise. Ages are looked
    at in runs on main, those that found nothing to do too. Raises PipelineError.

    >>> hr.Limits(rejected="1%", newest_file=hr.limit(fail="6h")).newest_file.describe()
    'more than 6h fails'
    """

    rejected: Limit[Amount] | None
    late: Limit[Amount] | None
    watermark_age: Limit[Duration] | None
    newest_file: Limit[Duration] | None

    def __init__(
        self,
        *,
        rejected: str | int | Limit[Any] | None = None,
        late: str | int | Limit[Any] | None = None,
        watermark_age: Length | Limit[Any] | None = None,
        newest_file: Length | Limit[Any] | None = None,
    ) -> None:
        arguments, set_ = Arguments("Limits"), object.__setattr__
        set_(self, "rejected", _of_records(arguments, "rejected", rejected))
        set_(self, "late", _of_records(arguments, "late", late))
        set_(self, "watermark_age", _of_age(arguments, "watermark_age", watermark_age))
        set_(self, "newest_file", _of_age(arguments, "newest_file", newest_file))
        if not [*self.given()]:
            raise arguments.refusal("rejected", None, 'it limits nothing; give a limit, such as rejected="1%"')

    def over(self, others: "Limits | None") -> "Limits":
        """These limits, and of ``others`` what these do not limit."""
        limits = copy(self)
        for name, limit in () if others is None else others.given():
            if getattr(self, name) is None:
                object.__setattr__(limits, name, limit)
        return limits

    @property
    def are_ages(self) -> bool:
        """Whether one of them is about an age, which is of a pipeline's input and not of one output."""
        return self.watermark_age is not None or self.newest_file is not None

    def given(self) -> Iterator[tuple[str, Limit[Any]]]:
        """The limits that there are, by name."""
        for limit_field in fields(self):
            if (limit := getattr(self, limit_field.name)) is not None:
                yield limit_field.name, limit

    def lines(self) -> Iterator[str]:
        """For people: a line for each."""
        for name, limit in self.given():
            yield f"{WORDS[name]}: {limit.describe()}"


def bound_text(bound: Amount | Duration) -> str:
    """A bound as users write it."""
    if isinstance(bound, Duration):
        return render_duration(bound)
    return str(bound) if isinstance(bound, Share) else f"{bound:,} records"


def is_more(count: int, records: int, bound: Amount) -> bool:
    """Whether ``count`` of so many ``records`` are more than ``bound``."""
    return count * _HUNDRED > bound.percent * records if isinstance(bound, Share) else count > bound


def _of_records(arguments: Arguments, name: str, value: object) -> Limit[Amount] | None:
    if value is None:
        return None
    warn, fail = (value.warn, value.fail) if isinstance(value, Limit) else (None, value)
    limit: Limit[Amount] = Limit(_parse_amount(arguments, name, warn), _parse_amount(arguments, name, fail))
    if type(limit.warn) is type(limit.fail):
        _check_order(arguments, name, value, _comparable_bound(limit.warn), _comparable_bound(limit.fail))
    return limit


def _of_age(arguments: Arguments, name: str, value: object) -> Limit[Duration] | None:
    if value is None:
        return None
    warn, fail = (value.warn, value.fail) if isinstance(value, Limit) else (value, None)
    limit = Limit(_checked_age(arguments, name, warn), _checked_age(arguments, name, fail))
    _check_order(arguments, name, value, limit.warn, limit.fail)
    return limit


def _parse_amount(arguments: Arguments, name: str, value: object) -> Amount | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, Duration):
        return arguments.whole_number(name, value, least=0)
    percent = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if percent is None:
        raise arguments.refusal(name, value, _HOW_MANY)
    if Decimal(percent[1]) >= _HUNDRED:
        raise arguments.refusal(name, value, "there are never more than all records; write a share below 100%")
    return Share(Decimal(percent[1]))


def _checked_age(arguments: Arguments, name: str, value: object) -> Duration | None:
    return None if value is None else arguments.duration(name, value, least=1)


def _comparable_bound(bound: Amount | None) -> Decimal | int | None:
    return bound.percent if isinstance(bound, Share) else bound


def _check_order(arguments: Arguments, name: str, value: object, warn: Any, fail: Any) -> None:
    if warn is not None and fail is not None and warn >= fail:
        raise arguments.refusal(name, value, "it would never warn: give warn= less than fail=")


MOST_VERSIONS: Final = 100
"""The most versions that a check may look back on: every audit carries their figures on."""

_LARGEST_FACTOR: Final = 1_000_000


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

    def describe_rule(self) -> str:
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
            kind_text = kind if isinstance(kind, DataType) else "a list"
            raise PipelineError(
                f"{self.describe()}: the column is {kind_text}, and distributions are compared of text, booleans and "
                "numbers"
            )
        if self.kind is UsualKind.DISTRIBUTION and kind not in NUMERIC and self.bound >= 1:
            raise PipelineError(
                f"{self.describe()}: two distributions of text are never more than 1 apart; write a distance below 1"
            )


@check_keywords
def usual_volume(
    *, within: float, severity: Severity | str = Severity.FAIL, versions: int = 20, min_versions: int = 5
) -> UsualCheck:
    """A version must have as many records for each hour of event time as usual, by a factor ``within``. A factor of 2
    allows half of that and twice that.

    Usual is the median of the last ``versions`` versions that readers have seen. With fewer than ``min_versions`` the
    check measures and passes. A version that is not as usual is not published (``severity`` "fail"), or it is a warning
    ("warn"). Raises PipelineError.

    >>> print(hr.usual_volume(within=2).describe())
    usual_volume(within=2)
    """
    arguments = Arguments("usual_volume")
    factor = arguments.number("within", within, above=1, most=_LARGEST_FACTOR)
    options = _judging_options(arguments, severity, versions, min_versions, 1)
    return UsualCheck(UsualKind.VOLUME, factor, None, None, *options)


@check_keywords
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
    judged, and such a version is not usual either. ``severity``, ``versions`` and ``min_versions`` are those of
    ``usual_volume``. Raises PipelineError.

    >>> print(hr.usual_nulls("amount", points=5).describe())
    usual_nulls('amount', points=5) on current
    """
    arguments = Arguments("usual_nulls")
    most = arguments.number("points", points, most=100)
    name, rows = arguments.text("column", column, "amount"), arguments.choice("view", view, ExpectationView)
    options = _judging_options(arguments, severity, versions, min_versions, min_rows)
    return UsualCheck(UsualKind.NULLS, most, name, rows, *options)


@check_keywords
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
    value's share differs by. It is 0 to 1. Between numbers it is how far the values have moved, as a part of the usual
    distance of the quartiles. It is 1 where all are larger by as much as that. NULLs do not count. ``view``,
    ``severity``, ``versions``, ``min_versions`` and ``min_rows`` are those of ``usual_nulls``. Raises PipelineError.

    >>> print(hr.usual_distribution("shop", distance=0.2).describe())
    usual_distribution('shop', distance=0.2) on current
    """
    arguments = Arguments("usual_distribution")
    most = arguments.number("distance", distance, above=0, most=_LARGEST_FACTOR)
    name, rows = arguments.text("column", column, "shop"), arguments.choice("view", view, ExpectationView)
    options = _judging_options(arguments, severity, versions, min_versions, min_rows)
    return UsualCheck(UsualKind.DISTRIBUTION, most, name, rows, *options)


def _judging_options(
    arguments: Arguments, severity: Severity | str, versions: int, min_versions: int, min_rows: int
) -> tuple[Severity, int, int, int]:
    """The last fields of a check: what becomes of a version that is not as usual, and when it is judged."""
    looked_at = arguments.whole_number("versions", versions, least=1)
    if looked_at > MOST_VERSIONS:
        raise arguments.refusal("versions", versions, f"write at most {MOST_VERSIONS}")
    least = arguments.whole_number("min_versions", min_versions, least=1)
    if least > looked_at:
        raise arguments.refusal(
            "min_versions", min_versions, f"it would never judge: it looks back on {looked_at} versions"
        )
    judged_as = arguments.choice("severity", severity, Severity)
    return judged_as, looked_at, least, arguments.whole_number("min_rows", min_rows, least=1)
