"""Every error that Headrace raises on purpose, grouped by what the caller should do about it.

Each class has a stable ``code`` for machines: result objects, exit codes, Airflow retry rules. Each has a message for
people that says what is wrong, where, and what to do. Codes are only ever added. No message contains a secret.

``headrace.error_tree`` draws them all. Each is a name here, wherever it is defined:

>>> try:
...     hr.open("memory://nobody-has-run-here")
... except hr.errors.MissingRootError as error:  # this one
...     print(error.code)
... except hr.errors.RetryError:  # each that the same call may not meet again
...     print("later")
config.missing_root
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import ClassVar

from headrace.own_parts import TABLES


class HeadraceError(Exception):
    """Base of the tree. ``remedy`` is its branch; ``exit_code`` is what a process that dies of it returns.

    A class says its ``code`` beside its base: ``class RateLimitError(RetryError, code="retry.rate_limit")``; a branch
    also the rest. What a class does not say is as its base has it.
    """

    code: ClassVar[str] = "headrace"
    remedy: ClassVar[str] = "give_up"
    exit_code: ClassVar[int] = 1

    def __init_subclass__(
        cls, *, code: str | None = None, remedy: str | None = None, exit_code: int | None = None, **others: object
    ) -> None:
        super().__init_subclass__(**others)
        cls.code = code or cls.code
        cls.remedy = remedy or cls.remedy
        cls.exit_code = exit_code or cls.exit_code

    def __reduce__(self) -> "tuple[Callable[..., HeadraceError], tuple[object, ...], dict[str, object]]":
        """Pickled as it is, whatever its class is made of: it crosses processes."""
        return _as_it_was, (type(self), *self.args), self.__dict__


def _as_it_was(kind: type[HeadraceError], *arguments: object) -> HeadraceError:
    return kind.__new__(kind, *arguments)


class FixConfigError(HeadraceError, code="config", remedy="fix_config", exit_code=10):
    """The pipeline, the command or the environment is wrong: a person changes it; a retry cannot help."""


class FixDataError(HeadraceError, code="data", remedy="fix_data", exit_code=20):
    """The input or the output is wrong: a person (or the producer) corrects data, then the run is repeated."""


class ValueOverflowError(FixDataError, code="data.overflow"):
    """A result that its type does not hold. It is never wrapped, and no digits are lost (semantics 12.4)."""


OPERANDS = "; cast its operands to float, filter such records out, or correct them"
"""What to do where an expression of a pipeline overflows."""


class IntegerOverflowError(ValueOverflowError, code="data.integer_overflow"):
    """An integer result leaves 64 bits."""


class DateOverflowError(ValueOverflowError, code="data.date_overflow"):
    """A date leaves the years 1 to 9999."""


class DecimalOverflowError(ValueOverflowError, code="data.decimal_overflow"):
    """A decimal leaves 38 digits, of which 9 are after the point."""


class RetryError(HeadraceError, code="retry", remedy="retry", exit_code=30):
    """Something outside failed or was busy; the same call may succeed later."""


class RestoreError(HeadraceError, code="restore", remedy="restore", exit_code=40):
    """What is in memory or in the newest snapshot cannot be used: restore an older whole snapshot and continue."""


class GiveUpError(HeadraceError, code="give_up", remedy="give_up", exit_code=50):
    """This run must stop and must not be retried as it is: another writer owns the pipeline, or an invariant broke."""


class PipelineError(FixConfigError, code="config.pipeline"):
    """A mistake in a pipeline's definition, found when it is built."""


class NotInstalledError(FixConfigError, code="config.not_installed"):
    """A library that only some ways of using Headrace need."""


def __getattr__(name: str) -> type[HeadraceError]:
    """The class ``name``. Raises NotInstalledError for one that only what is not installed can raise."""
    module = None if name.startswith("_") else _modules().get(name)  # Python itself asks for these
    if module is None:
        raise AttributeError(f"{__name__} has no {name!r}{_did_you_mean(name)}")
    try:
        error: type[HeadraceError] = getattr(import_module(module), name)
    except ModuleNotFoundError as missing:
        library = (missing.name or module).partition(".")[0]
        raise NotInstalledError(f"{__name__}.{name} is of {module}: {library} is not installed") from missing
    return error


def __dir__() -> list[str]:
    return sorted(_modules())


@cache
def _modules() -> dict[str, str]:
    """The module of each class, by name."""
    tree_text: str = import_module(TABLES["errors"]).TREE
    return {name: module for _, _, name, module in (line.split() for line in tree_text.splitlines() if line)}


def _did_you_mean(name: str) -> str:
    from difflib import get_close_matches  # who asks for a name that is there does not wait for it

    near_names = [] if name.startswith("_") else get_close_matches(name, _modules(), 1)
    return f"; did you mean {near_names[0]!r}?" if near_names else ""
