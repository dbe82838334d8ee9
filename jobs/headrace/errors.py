"""Every error that Headrace raises on purpose, grouped by what the caller should do about it.

Each class has a stable ``code`` (for machines: result objects, exit codes, Airflow retry rules) and a message (for
people) that says what is wrong, where, and what to do. Codes are only ever added. No message contains a secret.
"""

from collections.abc import Callable
from typing import ClassVar


class HeadraceError(Exception):
    """Base of the tree. ``remedy`` is its branch; ``exit_code`` is what a process that dies of it returns."""

    code: ClassVar[str] = "headrace"
    remedy: ClassVar[str] = "give_up"
    exit_code: ClassVar[int] = 1

    def __reduce__(self) -> "tuple[Callable[..., HeadraceError], tuple[object, ...], dict[str, object]]":
        """Pickled as it is, whatever its class is made of: it crosses processes."""
        return _as_it_was, (type(self), *self.args), self.__dict__


def _as_it_was(kind: type[HeadraceError], *arguments: object) -> HeadraceError:
    return kind.__new__(kind, *arguments)


class FixConfigError(HeadraceError):
    """The pipeline, the command or the environment is wrong: a person changes it; a retry cannot help."""

    code = "config"
    remedy = "fix_config"
    exit_code = 10


class FixDataError(HeadraceError):
    """The input or the output is wrong: a person (or the producer) corrects data, then the run is repeated."""

    code = "data"
    remedy = "fix_data"
    exit_code = 20


class ValueOverflowError(FixDataError):
    """A result that its type does not hold. It is never wrapped, and no digits are lost (semantics 12.4)."""

    code = "data.overflow"


OPERANDS = "; cast its operands to float, filter such records out, or correct them"
"""What to do where an expression of a pipeline overflows."""


class IntegerOverflowError(ValueOverflowError):
    """An integer result leaves 64 bits."""

    code = "data.integer_overflow"


class DateOverflowError(ValueOverflowError):
    """A date leaves the years 1 to 9999."""

    code = "data.date_overflow"


class DecimalOverflowError(ValueOverflowError):
    """A decimal leaves 38 digits, of which 9 are after the point."""

    code = "data.decimal_overflow"


class RetryError(HeadraceError):
    """Something outside failed or was busy; the same call may succeed later."""

    code = "retry"
    remedy = "retry"
    exit_code = 30


class RestoreError(HeadraceError):
    """What is in memory or in the newest snapshot cannot be used: restore an older whole snapshot and continue."""

    code = "restore"
    remedy = "restore"
    exit_code = 40


class GiveUpError(HeadraceError):
    """This run must stop and must not be retried as it is: another writer owns the pipeline, or an invariant broke."""

    code = "give_up"
    remedy = "give_up"
    exit_code = 50


class PipelineError(FixConfigError):
    """A mistake in a pipeline's definition, found when it is built."""

    code = "config.pipeline"


class NotInstalledError(FixConfigError):
    """A library that only some ways of using Headrace need."""

    code = "config.not_installed"
