"""What stands against a change of what readers see is listed once: for who makes it, and for who rehearses it."""

from collections.abc import Callable, Iterator

import pytest

from headrace.errors import FixConfigError, RetryError
from headrace.runs.publishing.audits import RefusalCheck, Refusals, raise_first_refusal


class _RefusedError(FixConfigError):
    code = "config.refused_in_a_test"


class _RetriedError(RetryError):
    code = "retry.refused_in_a_test"


def raising(error: Exception | None) -> Callable[[], None]:
    def look() -> None:
        if error is not None:
            raise error

    return look


FIRST, SECOND = _RefusedError("first"), _RetriedError("second")
CHECKS = [
    RefusalCheck(raising(None), (_RefusedError,)),
    RefusalCheck(raising(FIRST), (_RefusedError,)),
    RefusalCheck(raising(SECOND), (_RefusedError, _RetriedError)),
]


def test_a_change_is_refused_by_the_first_and_its_rehearsal_names_all() -> None:
    with pytest.raises(_RefusedError, match=r"^first$"):
        raise_first_refusal(CHECKS)
    assert Refusals().and_of(CHECKS).errors == (FIRST, SECOND)
    assert Refusals().and_of(CHECKS[:1]).errors == ()
    raise_first_refusal(CHECKS[:1])


def test_nothing_is_looked_at_behind_what_is_relied_on() -> None:
    def checks() -> Iterator[RefusalCheck]:
        yield CHECKS[1]
        yield RefusalCheck(raising(SECOND), (_RetriedError,), is_relied_on=True)
        raise AssertionError("what comes after says nothing")

    refusals = Refusals().and_of(checks())
    assert (refusals.errors, refusals.is_over) == ((FIRST, SECOND), True)
    assert refusals.and_of(CHECKS) == refusals
    assert Refusals().and_of(CHECKS[:1]).and_of(CHECKS[2:]).errors == (SECOND,)


def test_an_error_of_the_look_itself_is_no_refusal() -> None:
    with pytest.raises(_RetriedError):
        Refusals().and_of([RefusalCheck(raising(SECOND), (_RefusedError,))])
