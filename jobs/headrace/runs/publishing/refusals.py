"""What stands against a change of what readers see: a promotion, an adoption, a patch. Each lists its checks once; who
makes the change is refused by the first, and who rehearses it is told of all.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headrace.errors import HeadraceError


@dataclass(frozen=True)
class RefusalCheck:
    """``look`` raises one of ``refusals`` if that stands against the change; any other error is one of the look itself.
    ``is_relied_on``: what comes after it says nothing where it refuses.
    """

    look: Callable[[], None]
    refusals: tuple[type[HeadraceError], ...]
    is_relied_on: bool = False


@dataclass(frozen=True)
class Refusals:
    """The ``errors`` with which a change would be refused, by nothing if there are none. ``is_over``: the last was
    relied on, so no more can be told.
    """

    errors: tuple[HeadraceError, ...] = ()
    is_over: bool = False

    def and_of(self, checks: Iterable[RefusalCheck]) -> "Refusals":
        """With those of further ``checks``."""
        errors = [*self.errors]
        for check in () if self.is_over else checks:
            try:
                check.look()
            except check.refusals as error:
                errors.append(error)
                if check.is_relied_on:
                    return Refusals(tuple(errors), is_over=True)
        return Refusals(tuple(errors), self.is_over)


def refuse(checks: Iterable[RefusalCheck]) -> None:
    """Raise the first of what stands against a change, the first that is to be said first."""
    for check in checks:
        check.look()


def find_refusals(checks: Iterable[RefusalCheck]) -> Refusals:
    """All that stands against a change; nothing moves."""
    return Refusals().and_of(checks)
