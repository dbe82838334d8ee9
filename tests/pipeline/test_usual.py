"""Checks against history as users write them: what is taken, how it is said, and what is refused."""

from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from headrace.errors import PipelineError
from tests.process.clicks import clicks


def test_checks_are_said_in_words() -> None:
    usual = (
        hr.usual_volume(within=2),
        hr.usual_nulls("spent", points=2.5, view="panes", severity="warn", versions=50, min_versions=10, min_rows=1000),
        hr.usual_distribution("user", distance=0.2),
    )
    report = "\n".join(hr.check(clicks(usual=usual)).lines())
    assert (
        """usual
    fails if the records for each hour of event time differ from the usual by a factor above 2; usual is the median of \
20 versions, from 5 versions on
    warns if the share of NULL in spent (panes) is more than 2.5 points above usual; usual is the median of 50 \
versions, from 10 versions and 1,000 rows on
    fails if the distribution of user (current) is further than 0.2 from the usual; usual is the median of 20 \
versions, from 5 versions and 30 rows on
"""
        in report
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: hr.usual_volume(within=1), "usual_volume(within=1): write a number above 1 to"),
        (lambda: hr.usual_volume(with_in=2), "there is no such argument; did you mean 'within'?"),  # type: ignore[call-arg]
        (lambda: hr.usual_volume(within=2, severity="block"), 'write one of "warn", "fail"'),
        (lambda: hr.usual_volume(within=2, versions=101), "write at most 100"),
        (lambda: hr.usual_volume(within=2, versions=3), "it would never judge: it looks back on 3 versions"),
        (lambda: hr.usual_nulls("spent", points=101), "write a number from 0 to 100"),
        (lambda: hr.usual_nulls("", points=1), "write text such as 'amount'"),
        (lambda: hr.usual_distribution("spent", distance=0), "write a number above 0 to"),
        (lambda: clicks(usual=[hr.usual_nulls("spend", points=1)]), "did you mean 'spent'? there are user, clicks"),
        (lambda: clicks(usual=[hr.usual_distribution("user", distance=1)]), "write a distance below 1"),
        (
            lambda: hr.usual_distribution("last", distance=1).check_column({"last": hr.DataType.TIMESTAMP}),
            "the column is timestamp, and distributions are compared of text, booleans and numbers",
        ),
        (lambda: clicks(usual=hr.usual_volume(within=2)), "write a list: [usual_volume(within=2)]"),
        (lambda: clicks(usual=[hr.usual_volume]), "write usual_volume(within=2)"),
    ],
)
def test_mistakes_say_what_to_write(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(PipelineError) as error:
        make()
    assert message in str(error.value)
