"""What tests need of a machine and do not install themselves."""

import fcntl
import os
from functools import cache
from pathlib import Path
from typing import Final, NoReturn

import pytest

from tests.schedule import needs_broker

_MARKERS: Final = frozenset({"browser", "connectors", "s3", "spark"})


def lacks(missing: str) -> NoReturn:
    """Skip a test on a machine that lacks what it needs: ``missing`` says what that is, and how to get it. In CI it
    fails.
    """
    assert not os.environ.get("CI"), missing
    pytest.skip(missing)


@pytest.hookimpl(tryfirst=True)  # before fixtures
def pytest_runtest_setup(item: pytest.Item) -> None:
    """In CI, what a test needs may still be on its way."""
    if needs_broker(item) or any(marker.name in _MARKERS for marker in item.iter_markers()):
        wait_for_needed()


@cache
def wait_for_needed() -> None:
    """Wait until .ci/run has got what a fresh machine lacks. It holds the lock of the file HEADRACE_TESTS_NEEDED
    meanwhile.
    """
    file = os.environ.get("HEADRACE_TESTS_NEEDED")
    if file:
        with Path(file).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
