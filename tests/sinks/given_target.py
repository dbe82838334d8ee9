"""A target of a test's own, which stands for the server of a sink."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headrace.ext.sinks import SINKS


@contextmanager
def delivering_to(target: Any) -> Iterator[None]:
    """Inside, sinks of PostgreSQL are ``target``, and nothing is connected to."""
    postgres = type(SINKS["postgres"])

    class Given(postgres):  # type: ignore[misc, valid-type]
        @contextmanager
        def open(self, *_: object) -> Iterator[Any]:
            yield target

    with SINKS.replace_part("postgres", Given()):
        yield
