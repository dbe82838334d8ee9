"""Mistakes in tests themselves, as opposed to tests that fail."""

from headrace.errors import FixConfigError


class UnitTestError(FixConfigError):
    """A test that makes no sense as it is written; ``step`` is the number of the step that is wrong, if one is."""

    code = "config.unit_test"
    step: int | None = None
