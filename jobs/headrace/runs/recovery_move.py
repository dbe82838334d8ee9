"""Moving a branch back for a recovery, by one entry of the log; and finding that entry again."""

from dataclasses import dataclass

from headrace.runs.stages import MoveBack
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.entry import Entry
from headrace_snapshots.patches import patches_given_up, short_of, told
from headrace_snapshots.protocol import Kind


@dataclass(frozen=True)
class MovedBack:
    """The snapshot that was ``given_up``, and ``warnings`` of what else went with it."""

    given_up: str | None
    warnings: tuple[str, ...]


def move_back(catalog: Catalog, stage: MoveBack, *, give_up_delivered: bool) -> MovedBack:
    """Move a branch back; ``published`` too if it is newer. Output patches that came after the snapshot are given up.
    Raises RefusedError.
    """
    head = catalog.head().refs.get(stage.branch)
    patches = patches_given_up(catalog, head, stage.snapshot)
    entry = catalog.rollback(
        stage.branch,
        stage.snapshot,
        stage.message,
        replayed=True,
        patches=patches,
        give_up_delivered=give_up_delivered,
    )
    given_up, _ = entry.moves.get(stage.branch, (head, None))
    warnings = (*short_of(catalog, entry.moves, stage.snapshot), *told(catalog, patches, stage.snapshot))
    return MovedBack(given_up, warnings)


def is_recovery(entry: Entry, request: str) -> bool:
    """Whether ``entry`` is that by which an attempt of ``request`` went back."""
    recovery = recovery_of(request)
    return entry.kind is Kind.ROLLBACK and (entry.message == recovery or entry.message.startswith(f"{recovery}: "))


def recovery_of(request: str) -> str:
    """With what the message of the entry begins; then comes who decided it and why, if that is known."""
    return f"recovery {request}"


def moved_back_before(catalog: Catalog, branch: str, snapshot: str, request: str) -> str | None:
    """What ``branch`` was at before ``request`` took it back to ``snapshot``, if it continues from there.

    What the branch has next was committed under another claim then, and before that claim stands the rollback. So few
    entries are read, however many epochs there have been.
    """
    head, at = catalog.head(), catalog.link(snapshot)
    after = catalog.successor(at, head.refs[branch]) if branch in head.refs else None
    if after is None:
        return None
    claims = [None if link.manifest is None else link.manifest.generation for link in (at, after)]
    if claims[0] == claims[1] is not None:
        return None
    return given_up_by(catalog, head.entry if claims[1] is None else claims[1], branch, snapshot, request)


def given_up_by(catalog: Catalog, until: int, branch: str, snapshot: str, request: str) -> str | None:
    """What ``request`` gave up when it took ``branch`` back to ``snapshot``, if that is what moved it there, up to the
    entry of number ``until``.
    """
    for entry in catalog.entries(before=until + 1):
        reached = any(moved == snapshot for _, moved in entry.moves.values())
        if reached and is_recovery(entry, request):
            return entry.moves.get(branch, (None, None))[0]
        if reached and entry.kind is Kind.COMMIT:
            return None
    return None
