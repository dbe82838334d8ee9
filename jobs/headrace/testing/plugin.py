"""The plugin of pytest's that Headrace brings: a fixture. Nothing else is imported until a test asks for it."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headrace.testing.deployment import Deployment


@pytest.fixture
def deployment(tmp_path_factory: pytest.TempPathFactory) -> "Deployment":
    """A deployment of the test's own, in a temporary folder: land files, run pipelines, read what they found."""
    from headrace.testing.deployment import Deployment

    return Deployment(tmp_path_factory.mktemp("deployment"))
