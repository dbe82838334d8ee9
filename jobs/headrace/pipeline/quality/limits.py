"""What a run may show before it warns, or before its results are held back: shares of records, ages of data."""

import re
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, fields
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

from headrace.model.arguments import Arguments, Length
from headrace.model.suggestions import Suggesting, keywords
from headrace.model.time import Duration, render_duration

_PERCENT: Final = re.compile(r"(\d+(?:\.\d+)?) ?%")
_WHOLE: Final = Decimal(100)
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


WORDS: Final = {
    "rejected": "dead letters",
    "late": "late drops",
    "watermark_age": "age of the watermark",
    "newest_file": "age of the newest file",
}
"""What each limit is about, for people."""


@keywords
def limit(*, warn: Bound | None = None, fail: Bound | None = None) -> Limit[Any]:
    """A limit that says itself what becomes of a run that exceeds it: ``hr.limit(warn="1%", fail="5%")``. Either may be
    left out. Raises PipelineError.

    >>> hr.Limits(rejected=hr.limit(warn="1%", fail="5%")).rejected.describe()
    'more than 1% warns, more than 5% fails'
    """
    given = Arguments("limit")
    if warn is None and fail is None:
        raise given.wrong("warn", warn, "give warn=, fail= or both")
    for name, bound in (("warn", warn), ("fail", fail)):
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, str | int | timedelta)):
            raise given.wrong(name, bound, f"{_HOW_MANY}, or a length of time")
    return Limit(warn, fail)


@keywords
@dataclass(frozen=True, init=False)
class Limits(Suggesting):
    """What a pipeline's runs may show. None: anything.

    ``rejected`` and ``late`` are how many dead letters and late drops there may be, a share of the records read ("1%")
    or a number of them; they count over all epochs that readers have not seen. More than that fails: the epochs are
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
        given, set_ = Arguments("Limits"), object.__setattr__
        set_(self, "rejected", _of_records(given, "rejected", rejected))
        set_(self, "late", _of_records(given, "late", late))
        set_(self, "watermark_age", _of_age(given, "watermark_age", watermark_age))
        set_(self, "newest_file", _of_age(given, "newest_file", newest_file))
        if not [*self.given()]:
            raise given.wrong("rejected", None, 'it limits nothing; give a limit, such as rejected="1%"')

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
    return count * _WHOLE > bound.percent * records if isinstance(bound, Share) else count > bound


def _of_records(given: Arguments, name: str, value: object) -> Limit[Amount] | None:
    if value is None:
        return None
    warn, fail = (value.warn, value.fail) if isinstance(value, Limit) else (None, value)
    limit: Limit[Amount] = Limit(_amount(given, name, warn), _amount(given, name, fail))
    if type(limit.warn) is type(limit.fail):
        _check_order(given, name, value, _size(limit.warn), _size(limit.fail))
    return limit


def _of_age(given: Arguments, name: str, value: object) -> Limit[Duration] | None:
    if value is None:
        return None
    warn, fail = (value.warn, value.fail) if isinstance(value, Limit) else (value, None)
    limit = Limit(_age(given, name, warn), _age(given, name, fail))
    _check_order(given, name, value, limit.warn, limit.fail)
    return limit


def _amount(given: Arguments, name: str, value: object) -> Amount | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, Duration):
        return given.whole(name, value, least=0)
    percent = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if percent is None:
        raise given.wrong(name, value, _HOW_MANY)
    if Decimal(percent[1]) >= _WHOLE:
        raise given.wrong(name, value, "there are never more than all records; write a share below 100%")
    return Share(Decimal(percent[1]))


def _age(given: Arguments, name: str, value: object) -> Duration | None:
    return None if value is None else given.duration(name, value, least=1)


def _size(bound: Amount | None) -> Decimal | int | None:
    return bound.percent if isinstance(bound, Share) else bound


def _check_order(given: Arguments, name: str, value: object, warn: Any, fail: Any) -> None:
    if warn is not None and fail is not None and warn >= fail:
        raise given.wrong(name, value, "it would never warn: give warn= less than fail=")
