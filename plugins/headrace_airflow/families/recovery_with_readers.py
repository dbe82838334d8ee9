"""What a recovery in Airflow says of readers that go back, too, and holds them against before they move."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from headrace.runs.reporting.results import redacted
from headrace_airflow.decisions.operators import REHEARSE
from headrace_airflow.decisions.reasons import RehearsalOutdatedError
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError

if TYPE_CHECKING:
    from headrace.runs.following.recovery_cut import CutMove, RecoveryCut

Places = Mapping[str, Mapping[str, str | None]]
"""Of each reader by its name: its ``head``, and the snapshot ``to`` which it goes back."""


def takes_readers_back(form: Mapping[str, Any]) -> bool:
    """Whether a form says that readers go back, too."""
    return bool(form.get("with_readers", False))


def lines_about(cut: "RecoveryCut") -> Iterator[str]:
    """What becomes of each reader, and which readers nobody can see, for people."""
    for move in _readers(cut):
        way = "" if move.given_up is None else f"main moves from {move.head} to {move.to}; "
        yield f"reader {_name(move)}: {way}{redacted(move.in_words)}"
    yield from map(redacted, cut.searched.limits)


def where_to(cut: "RecoveryCut") -> dict[str, dict[str, str | None]]:
    """``Places`` of a cut, as a rehearsal leaves them for the task that goes back."""
    return {_name(move): {"head": move.head, "to": move.to} for move in _readers(cut)}


def check_as_rehearsed(catalog: Catalog, snapshot: str | None, places: Places, asked: Mapping[str, Any]) -> None:
    """Raise RehearsalOutdatedError if a reader of the pipeline would go another way than the ``places`` say that people
    were shown: a run of it that went on meanwhile makes no difference. ``asked`` are options of the cut.

    A reader that cannot follow is none of this: the recovery itself refuses it.
    """
    from headrace.read.lineage.placed import RootStores
    from headrace.runs.following.recovery_cut import recovery_cut

    stores = RootStores(catalog.store)
    for move in _readers(recovery_cut(catalog, snapshot, **asked)):
        if move.problem is not None:
            continue
        shown = places.get(_name(move))
        if shown is None and move.given_up is None:
            continue  # it has appeared since, and stays
        if shown is None or not _goes_as(stores.catalog(move.pipeline), move, shown):
            raise RehearsalOutdatedError(_outdated(move, shown))


def _goes_as(catalog: Catalog, move: "CutMove", shown: Mapping[str, str | None]) -> bool:
    """Whether a reader has come of the head that was ``shown``, and goes back no further."""
    return _leads_to(catalog, shown["head"], move.head) and _leads_to(catalog, shown["to"], move.to)


def _leads_to(catalog: Catalog, older: str | None, newer: str | None) -> bool:
    if older == newer:
        return True
    with suppress(MissingSnapshotError, BrokenObjectError):  # nobody can tell: then people look again
        return older is not None and newer is not None and catalog.is_ancestor(older, newer)
    return False


def _outdated(move: "CutMove", shown: Mapping[str, str | None] | None) -> str:
    before = "nobody knew of it" if shown is None else f"it was at {shown['head']}, to go to {shown['to']},"
    return (
        f"reader {_name(move)} is at {move.head} and would go back to {move.to}; {before} when the task {REHEARSE} "
        f"said what is given up. If this recovery is still wanted, clear {REHEARSE}, which looks again"
    )


def _readers(cut: "RecoveryCut") -> "tuple[CutMove, ...]":
    """All that goes back, or stays, beside the pipeline itself."""
    return cut.moves[1:]


def _name(move: "CutMove") -> str:
    return redacted(str(move.pipeline))
