"""What tests need of a machine and do not install themselves."""

import os
from typing import NoReturn

import pytest


def lacks(missing: str) -> NoReturn:
    """Skip a test on a machine that lacks what it needs: ``missing`` says what that is, and how to get it. In CI it
    fails.
    """
    assert not os.environ.get("CI"), missing
    pytest.skip(missing)
