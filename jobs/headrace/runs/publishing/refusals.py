"""A change of what readers see: a promotion, an adoption, a patch. Each lists its checks once; who makes the change is
refused by the first, and who rehearses it is told of all. And what is alike for all of them: that it was made before,
and how it ends.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from headrace.errors import HeadraceError
from headrace.runs.reporting.summary_renewal import renew_summary
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.entry import Entry

_logger = logging.getLogger(__name__)

_SEARCHED = 1000
"""Entries of the log: an attempt that comes again comes soon."""


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


class ReadersChange(Protocol):
    """A change of what readers see, as a value, which says in a sentence what it will do."""

    def checks(self) -> Iterable[RefusalCheck]:
        """What may stand against it, the first that is to be said first."""


def refuse(checks: Iterable[RefusalCheck]) -> None:
    """Raise the first of what stands against a change."""
    for check in checks:
        check.look()


def begin_change(change: ReadersChange) -> None:
    """Have the log say what ``change`` does; raise the first of what stands against it."""
    refuse(change.checks())
    _logger.info("%s", change)


def find_refusals(change: ReadersChange) -> Refusals:
    """All that stands against ``change``; nothing moves."""
    return Refusals().and_of(change.checks())


@contextmanager
def making_change(catalog: Catalog) -> Iterator[None]:
    """While a change is made, or finds that it was made before: that attempt may have ended before the summary said
    so.
    """
    try:
        yield
    finally:
        catalog.settle()
        renew_summary(catalog)


def made_before(
    catalog: Catalog, branch: str, made: Callable[[Entry], bool], decides: Callable[[Entry], bool] = lambda _: False
) -> Entry | None:
    """The entry by which an attempt before this one ``made`` a change that ended ``branch``. None if the newest entry
    of that name, or the newest that ``decides``, is another.
    """
    head = catalog.head()
    if branch in head.generations:
        return None
    for entry in islice(catalog.entries(before=head.entry + 1), _SEARCHED):
        if decides(entry) or branch in {entry.branch, *entry.moves}:
            return entry if made(entry) else None
    return None
