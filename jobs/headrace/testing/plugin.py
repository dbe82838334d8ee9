"""The plugin of pytest's that Headrace brings: a fixture, and errors of Headrace's that end where the test made them.
Nothing else is imported until a test asks for it.
"""

from types import TracebackType
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headrace.testing.deployment import TemporaryDeployment

_OWN_PACKAGES = ("headrace", "headrace_snapshots")


@pytest.fixture
def deployment(tmp_path_factory: pytest.TempPathFactory) -> "TemporaryDeployment":
    """A deployment of the test's own, in a temporary folder: land files, run pipelines, read what they found."""
    from headrace.testing.deployment import TemporaryDeployment

    return TemporaryDeployment(tmp_path_factory.mktemp("deployment"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> None:
    """Shows an error that Headrace raises on purpose at the line of the test, without frames of Headrace."""
    if call.excinfo is None:
        return
    from headrace.errors import HeadraceError

    error = call.excinfo.value
    if not isinstance(error, HeadraceError):
        return
    _end_with_the_users(error.__traceback__)
    while cause := error.__cause__ or (None if error.__suppress_context__ else error.__context__):
        if not _end_with_the_users(cause.__traceback__):
            error.__cause__, error.__suppress_context__ = None, True
            return
        error = cause


def _end_with_the_users(trace: TracebackType | None) -> bool:
    """Cut what follows the last frame that is not of Headrace's own. Whether there is one."""
    last = None
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] not in _OWN_PACKAGES:
            last = trace
        trace = trace.tb_next
    if last is not None:
        last.tb_next = None
    return last is not None
