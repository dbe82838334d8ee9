"""A broker of Kafka, one for all tests of a process, whichever folder they are in."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.needed import lacks

if TYPE_CHECKING:
    from scripts.kafka import Kafka


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Kafka]":
    from scripts.kafka import Kafka, jars

    if not jars().is_dir():
        lacks("no jars of Kafka (python -m scripts.kafka path)")
    with Kafka(tmp_path_factory.mktemp("kafka")) as started:
        yield started
