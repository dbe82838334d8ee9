"""Mistakes in tests themselves, as opposed to tests that fail."""

from collections.abc import Sequence

from headrace.errors import FixConfigError


class UnitTestError(FixConfigError, code="config.unit_test"):
    """A test that makes no sense as it is written; ``step`` is the number of the step that is wrong, if one is."""

    step: int | None = None


def all_of(mistakes: Sequence[UnitTestError]) -> UnitTestError:
    """One error that says all ``mistakes``, each once and on a line of its own."""
    return UnitTestError("\n".join(dict.fromkeys(map(str, mistakes))))
