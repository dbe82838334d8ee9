"""Limits as users write them: what is taken, how it is said, and what is refused."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

import headrace as hr
from headrace.errors import PipelineError
from headrace.model.time import Duration
from headrace.pipeline.identity import fingerprint
from headrace.pipeline.quality import Limit, Severity, Share, is_more
from tests.process.clicks import clicks

HOUR = Duration(3_600_000_000)


def test_shares_fail_and_ages_warn_unless_they_say_otherwise() -> None:
    limits = hr.Limits(rejected="1%", late=100, watermark_age="2h", newest_file=timedelta(hours=1))
    assert limits.rejected == Limit(fail=Share(Decimal(1)))
    assert limits.late == Limit(fail=100)
    assert limits.watermark_age == Limit(warn=2 * HOUR)
    assert limits.newest_file == Limit(warn=HOUR)
    own = hr.Limits(rejected=hr.limit(warn="0.5%"), newest_file=hr.limit(warn="1h", fail="6h"))
    assert own.rejected == Limit(warn=Share(Decimal("0.5")))
    assert own.newest_file is not None
    assert [*own.newest_file.bounds()] == [(Severity.FAIL, 6 * HOUR), (Severity.WARN, HOUR)]


def test_limits_are_said_in_words() -> None:
    limits = hr.Limits(rejected=hr.limit(warn="1%", fail="5%"), late=1000, newest_file="1h")
    assert [*limits.lines()] == [
        "dead letters: more than 1% warns, more than 5% fails",
        "late drops: more than 1,000 records fails",
        "age of the newest file: more than 1h warns",
    ]
    report = "\n".join(hr.check(clicks(limits=limits)).lines())
    assert "limits\n    dead letters: more than 1% warns, more than 5% fails\n" in report


@pytest.mark.parametrize(
    ("share", "count", "records", "more"),
    [("1%", 1, 100, False), ("1%", 2, 199, True), ("29%", 29, 100, False), ("0%", 0, 0, False), ("0%", 1, 9, True)],
)
def test_shares_are_exact(share: str, count: int, records: int, more: bool) -> None:
    limit = hr.Limits(rejected=share).rejected
    assert limit is not None
    assert limit.fail is not None
    assert is_more(count, records, limit.fail) is more


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({}, 'it limits nothing; give a limit, such as rejected="1%"'),
        ({"rejected": "1"}, 'write a share such as "1%", or a number of records'),
        ({"rejected": 0.01}, 'write a share such as "1%", or a number of records'),
        ({"late": "100%"}, "write a share below 100%"),
        ({"late": -1}, "write a whole number of at least 0"),
        ({"watermark_age": "1%"}, "write text such as"),
        ({"newest_file": 3600}, "a bare number has no unit"),
        ({"newest_file": hr.limit(warn="2h", fail="1h")}, "it would never warn: give warn= less than fail="),
        ({"rejected": hr.limit(warn="5%", fail="5%")}, "it would never warn"),
        ({"reject": "1%"}, "did you mean 'rejected'"),
    ],
)
def test_mistakes_say_what_to_write(parts: dict[str, Any], message: str) -> None:
    with pytest.raises(PipelineError) as error:
        hr.Limits(**parts)
    assert message in str(error.value)


def test_a_limit_without_bounds_and_other_things_than_limits_are_refused() -> None:
    with pytest.raises(PipelineError, match="give warn=, fail= or both"):
        hr.limit()
    with pytest.raises(PipelineError, match=r'write Limits\(rejected="1%"'):
        clicks(limits="1%")


def test_limits_are_no_part_of_a_fingerprint() -> None:
    assert fingerprint(clicks(limits=hr.Limits(rejected="1%"))) == fingerprint(clicks())
