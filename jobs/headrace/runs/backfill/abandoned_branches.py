"""Branches that backfills have left behind, because they failed, were rejected or were never promoted.

The next scheduled backfill computes its windows itself, so nobody continues these branches; but each keeps its
snapshots from expiring. The newest few stay for people to look at. What people have started may be continued: it stays
for weeks, and for ever if they gave the branch a name. What somebody is asked about stays until there is an answer.
"""

import re
from collections.abc import Callable, Iterator, Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from headrace_snapshots.catalog import Catalog, Head
from headrace_snapshots.errors import MissingSnapshotError, PublishConflictError
from headrace_snapshots.format.codec import BrokenObjectError

PREFIX = "backfill-scheduled__"
"""How the branches of runs of the schedule begin; their times follow, so their names sort by age."""

KEPT = 3
"""How many of the newest stay."""

STILL = timedelta(days=1)
"""Somebody may still work on a branch that has moved since: a run that hangs, or a person."""

UNUSED = timedelta(days=14)
"""So long a branch stays that is called by the run of Airflow which somebody has started."""

_OF_A_RUN = re.compile(r"backfill-(?:manual|operator_triggered|asset_triggered)__.*-[0-9a-f]{8}")
"""How a branch is called by such a run (``headrace_airflow/run_ids``)."""

_ATTEMPTS = 5


@dataclass(frozen=True)
class DroppedBranch:
    """A branch that was dropped, the snapshot that it was at (None: it had none), and when it last moved."""

    name: str
    snapshot: str | None
    moved_at: datetime | None

    def __str__(self) -> str:
        moved = "" if self.moved_at is None else f", unchanged since {self.moved_at:%Y-%m-%dT%H:%MZ}"
        return f"{self.name} (at {self.snapshot or 'no snapshot'}{moved})"


def drop_abandoned(catalog: Catalog, own: str, now: datetime, awaited: Callable[[], Set[str]]) -> list[DroppedBranch]:
    """Drop the branches of the schedule's runs before that of ``own``, but for the newest KEPT, and those on which
    anything was done in the time STILL before ``now``; and of runs that people have started those that are UNUSED.
    Those stay that are ``awaited``, as it says: a run is not done with them, and may wait for a person.

    Whether anything was done is decided on the very head of the log that the drop follows. A run that is at work all
    the same is fenced by it. What cannot be dropped because others write all the time is left to the next run.
    """
    dropped: list[DroppedBranch] = []
    head = catalog.head()
    still = dict.fromkeys(_old(head, own), STILL) | dict.fromkeys(_of_people(head, own), UNUSED)
    staying = awaited() if still else frozenset()
    for name, unchanged in still.items():
        if name in staying:
            continue
        for _ in range(_ATTEMPTS):
            head = catalog.head()
            abandoned = DroppedBranch(name, head.refs.get(name), _moved_at(catalog, head, name))
            if name not in head.generations or (
                abandoned.moved_at is not None and abandoned.moved_at > now - unchanged
            ):
                break
            with suppress(PublishConflictError):  # somebody did something meanwhile
                catalog.drop(name, f"dropped {name}, which was never promoted", expected=head.entry)
                dropped.append(abandoned)
                break
    return dropped


def how_long(name: str) -> str:
    """How long a branch of that name stays that nobody promotes, in words."""
    if name.startswith(PREFIX):
        return f"until the schedule has {KEPT} newer ones"
    return f"until it has not changed for {UNUSED.days} days" if _OF_A_RUN.fullmatch(name) else "until it is dropped"


def _old(head: Head, own: str) -> list[str]:
    names = sorted(name for name in head.generations if name.startswith(PREFIX) and name < own)
    return names[:-KEPT]


def _of_people(head: Head, own: str) -> list[str]:
    return sorted(name for name in head.generations if _OF_A_RUN.fullmatch(name) and name != own)


def _moved_at(catalog: Catalog, head: Head, name: str) -> datetime | None:
    """When the branch was made, claimed or committed to last, as far as that can still be told."""
    return max(_moves(catalog, head, name), default=None)


def _moves(catalog: Catalog, head: Head, name: str) -> Iterator[datetime]:
    generation = head.generations.get(name)
    if generation is not None:
        for entry in catalog.log(generation + 1, 1):  # that of the generation, or one before it
            yield datetime.fromisoformat(entry.at).astimezone(UTC)
    if name in head.refs:
        with suppress(BrokenObjectError, MissingSnapshotError):
            yield datetime.fromisoformat(catalog.manifest(head.refs[name]).created_at).astimezone(UTC)
