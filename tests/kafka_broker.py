"""A broker of Kafka for the tests of a process, whichever folder they are in, until the last of them has ended: one
that nobody asks takes its part of a core, too.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.needed import lacks
from tests.schedule import needs_broker, process_of

if TYPE_CHECKING:
    from scripts.kafka import Kafka


class RunningBroker:
    """The broker that runs, if one does."""

    def __init__(self, tmp_path_factory: pytest.TempPathFactory, items: Iterable[pytest.Item]) -> None:
        self.last_test = {process_of(item.nodeid): item for item in items if needs_broker(item)}
        """That needs it, by process."""
        self._folders = tmp_path_factory
        self._exit_stack = ExitStack()
        self._broker: Kafka | None = None

    def broker(self) -> "Kafka":
        """The one that runs, or a new one."""
        from scripts.kafka import Kafka, jars

        if not jars().is_dir():
            lacks("no jars of Kafka (python -m scripts.kafka path)")
        if self._broker is None:
            self._broker = self._exit_stack.enter_context(Kafka(self._folders.mktemp("kafka")))
        return self._broker

    def stop(self) -> None:
        """Stop it, if it runs."""
        self._broker = None
        self._exit_stack.close()


@pytest.fixture(scope="session")
def running_broker(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    running = RunningBroker(tmp_path_factory, request.session.items)
    yield running
    running.stop()


@pytest.fixture
def broker(running_broker: RunningBroker, request: pytest.FixtureRequest) -> "Iterator[Kafka]":
    yield running_broker.broker()
    if request.node is running_broker.last_test[process_of(request.node.nodeid)]:
        running_broker.stop()
