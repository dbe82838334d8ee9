"""The executor of a run, as tests of whole runs ask for it."""

import pytest

from headrace.pipeline import Executor
from tests.process.executors import Executed


@pytest.fixture
def executor(request: pytest.FixtureRequest) -> Executed:
    """``local``, or what ``on_both`` says."""
    name = getattr(request, "param", Executor.LOCAL)
    return Executed(name, request.getfixturevalue("spark") if name is Executor.SPARK else None)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Whole runs take their time."""
    if "executor" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.slow)
