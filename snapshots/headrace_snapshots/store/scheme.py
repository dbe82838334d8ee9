"""Variables that say how stores are reached, also in a thread that has others than the environment."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from headrace.moved import redirect_names

__getattr__ = redirect_names(__name__)

_variables: ContextVar[Mapping[str, str] | None] = ContextVar("store_variables", default=None)


def store_variables() -> Mapping[str, str]:
    """The variables that say how to reach a store: the environment, or what ``reached_by`` says instead."""
    variables = _variables.get()
    return os.environ if variables is None else variables


@contextmanager
def reached_by(variables: Mapping[str, str]) -> Iterator[None]:
    """Stores that this thread opens inside take ``variables`` instead of the environment, which stays as it is."""
    token = _variables.set(variables)
    try:
        yield
    finally:
        _variables.reset(token)
