"""The readers of pipelines, as far as they can be known.

A pipeline knows its readers by what they hold, and a reader that may not write there holds nothing. So roots are looked
through as well: the one that is asked about, those that are named, and those that the environment names. A reader under
any other root, without a hold, is seen by nobody.
"""

import os
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from headrace.errors import FixConfigError, HeadraceError
from headrace.ext.stores import shown
from headrace.read.lineage.cut import PlacedPipeline, RootStores
from headrace.read.roots import check_root, has_run, pipelines_under
from headrace_snapshots.gc.holds import DamagedHold, holds_of
from headrace_snapshots.store import ObjectStore, open_store

READER_ROOTS: Final = "HEADRACE_READER_ROOTS"
"""Names roots, with spaces between them."""

SERVED_ROOTS: Final = "HEADRACE_ROOTS"
"""Names the file that declares the roots that Airflow serves."""

_OWN_KEYS: Final = ("store", "endpoint")


@dataclass(frozen=True)
class UnseenReader:
    """A ``reader`` that holds something of ``upstream``, and ``why`` nobody can look from here how far it has come."""

    reader: PlacedPipeline
    upstream: PlacedPipeline
    why: str

    @classmethod
    def of_damaged(cls, hold: DamagedHold, upstream: PlacedPipeline) -> Self:
        """A reader whose hold on ``upstream`` cannot be read; under which root it is, is not known then."""
        return cls(PlacedPipeline("", hold.reader), upstream, str(hold.wrong))

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {"reader": str(self.reader), "upstream": str(self.upstream), "why": self.why}


@dataclass(frozen=True)
class KnownReaders:
    """The ``pipelines`` under the ``roots`` that were looked through, and those elsewhere that hold something of these,
    in however many steps. ``unseen``: of the latter those that cannot be looked at. ``unlooked``: roots that the
    environment names and that could not be looked through, each with why.
    """

    pipelines: tuple[PlacedPipeline, ...]
    roots: tuple[str, ...]
    unseen: tuple[UnseenReader, ...]
    unlooked: tuple[str, ...]

    @property
    def limits(self) -> tuple[str, ...]:
        """Where readers may be that are not among the pipelines, for people."""
        return (
            f"readers were looked for under {', '.join(self.roots)}, and elsewhere by what they hold; a reader under "
            f"another root that cannot put its hold is not seen: --reader-root or {READER_ROOTS} names its root",
            *(f"readers were not looked for under {one}" for one in self.unlooked),
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON value: where was looked, and what could not be."""
        unseen = [one.to_json() for one in self.unseen]
        return {"roots": [*self.roots], "unseen": unseen, "unlooked": [*self.unlooked]}


class ReaderRootsError(FixConfigError, code="config.reader_roots"):
    """The file that declares roots cannot be read, so nobody knows where readers may be."""


def known_readers(store: ObjectStore, names: Iterable[str], roots: Iterable[str] = ()) -> KnownReaders:
    """The pipelines ``names`` under the root of ``store`` with all that may read them: those under further ``roots``,
    those under roots that the environment names, and those that hold something.

    Raises MissingRootError for one of ``roots`` that does not exist, ReaderRootsError, BrokenObjectError.
    """
    looked = {store.uri: store}
    unlooked = []
    for root in roots:
        other = open_store(root)
        check_root(other)
        looked.setdefault(other.uri, other)
    for root, why in _roots_of_environment():
        try:
            if why is not None:
                raise ReaderRootsError(why)
            other = open_store(root)
            check_root(other)
            looked.setdefault(other.uri, other)
        except HeadraceError as error:
            if root not in looked:
                unlooked.append(f"{shown(root)}: {error}")
    own = RootStores(store)
    pipelines = [PlacedPipeline("", name) for name in names]
    for uri, other in [*looked.items()][1:]:
        pipelines += [own.placed(uri, name) for name in pipelines_under(other)]
    known, unseen = _with_holders(own, pipelines)
    return KnownReaders(tuple(known), tuple(looked), tuple(unseen), tuple(unlooked))


def _with_holders(
    stores: RootStores, pipelines: Iterable[PlacedPipeline]
) -> tuple[dict[PlacedPipeline, None], list[UnseenReader]]:
    known = dict.fromkeys(pipelines)
    unseen: dict[PlacedPipeline, UnseenReader] = {}
    waiting = [*known]
    while waiting:
        at = waiting.pop()
        readable, damaged = holds_of(stores.of(at.root), at.name)
        for one in (UnseenReader.of_damaged(hold, at) for hold in damaged):
            if one.reader not in known:
                unseen[one.reader] = one
        for reader in dict.fromkeys(stores.placed(hold.root, hold.pipeline) for hold in readable):
            if reader in known or reader in unseen:
                continue
            why = _why_unseen(stores, reader, at)
            if why is None:
                known[reader] = None
                waiting.append(reader)
            else:
                unseen[reader] = UnseenReader(reader, at, why)
    return known, [*unseen.values()]


def _why_unseen(stores: RootStores, reader: PlacedPipeline, upstream: PlacedPipeline) -> str | None:
    try:
        if has_run(stores.of(reader.root), reader.name):
            return None
    except HeadraceError as error:
        return f"its root cannot be looked at from here ({error.code}: {error})"
    return (
        "nothing of it is there, seen from here. Do this where its root can be reached; if it is gone for good, "
        f"`headrace drop {upstream.name} {reader.name} --reader` ends what it holds"
    )


def _roots_of_environment() -> Iterator[tuple[str, str | None]]:
    """Roots that variables name; with why they are not looked through, if they are not."""
    for root in os.environ.get(READER_ROOTS, "").split():
        yield root, None
    served = os.environ.get(SERVED_ROOTS)
    if not served:
        return
    try:
        tables = tomllib.loads(Path(served).read_text(encoding="utf-8")).get("root", [])
        entries = [(table["uri"], any(table.get(key) for key in _OWN_KEYS)) for table in tables]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReaderRootsError(
            f"{SERVED_ROOTS} names {served}, which declares roots where readers may be, and it cannot be read "
            f"({type(error).__name__}: {error}): correct it, or unset {SERVED_ROOTS}"
        ) from error
    for uri, has_own_keys in entries:
        why = f"Airflow reaches it in a way of its own ({served}): name it where its keys are set" * has_own_keys
        yield uri, why or None
