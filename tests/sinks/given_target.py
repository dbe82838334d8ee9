"""A target of a test's own, which stands for the server of a sink."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headrace.ext.sinks import SINKS


@contextmanager
def delivering_to(target: Any) -> Iterator[None]:
    """Inside, sinks of PostgreSQL are ``target``, and nothing is connected to, not even by the connection nowhere."""
    postgres = type(SINKS["postgres"])

    class GivenTarget(postgres):  # type: ignore[misc, valid-type]
        @contextmanager
        def open(self, *_: object) -> Iterator[Any]:
            yield target

    with pytest.MonkeyPatch.context() as environment, SINKS.replace_part("postgres", GivenTarget()):
        environment.setenv("HEADRACE_CONN_NOWHERE", "postgresql://127.0.0.1:9/none")
        yield
